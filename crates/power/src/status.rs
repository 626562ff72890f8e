//! What the manager knows and does: as JSON, as text, and as metrics.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::units;

/// Everything at a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Servers that were found.
    pub servers: Vec<ServerStatus>,
    /// Cores that may be slowed, or why not.
    pub cores: Vec<CoreStatus>,
    /// Energy that was measured or modelled.
    pub energy: EnergyStatus,
    /// How often instances were raised, by reason.
    pub boosts: Vec<(String, u64)>,
    /// Troubles with sentinels and clusters.
    pub troubles: Vec<String>,
    /// Whether nothing is changed.
    pub dry_run: bool,
}

/// A server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Where it listens.
    pub address: String,
    /// Product and version.
    pub product: String,
    /// `master`, `replica`, `sentinel` or `unknown`.
    pub role: String,
    /// Its process, if that was verified.
    pub pid: Option<u32>,
    /// The core that it is given.
    pub cpu: Option<u32>,
    /// The frequency that is set.
    pub set_khz: Option<u32>,
    /// The time between two looks at what its master sent.
    pub beat_ns: Option<u64>,
    /// Beats at which something was handed over.
    pub beats: u64,
    /// Bytes that it is behind.
    pub lag_bytes: Option<u64>,
    /// Time that it is behind.
    pub lag_ns: Option<u64>,
    /// CPU time that it has used.
    pub cpu_ns: Option<u64>,
    /// Why it is as fast as it is.
    pub reason: String,
    /// The means that are in force: `frequency`, `pin`, `batch`.
    pub classes: Vec<String>,
    /// What hinders.
    pub trouble: Option<String>,
}

/// A core.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreStatus {
    /// The core.
    pub cpu: u32,
    /// `frequency`, or `none` if it can't be slowed.
    pub class: String,
    /// The frequency that is set.
    pub set_khz: Option<u32>,
    /// The frequency that the kernel measures.
    pub measured_khz: Option<u32>,
    /// How often somebody else insisted on another frequency.
    pub conflicts: u64,
    /// Why it can't be slowed.
    pub why: Option<String>,
}

/// Energy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyStatus {
    /// Joules of all packages since the manager started, by RAPL.
    pub rapl_joules: Option<f64>,
    /// Modelled core-seconds at the top P-state that were used, and that the same work would have used at the
    /// top, if an idle core costs what a busy one does.
    pub modelled_sigma_one: (f64, f64),
    /// The same if an idle core costs nothing.
    pub modelled_sigma_zero: (f64, f64),
    /// Whose voltages the model has, if not this host's.
    pub voltages: Option<String>,
}

impl Status {
    /// As text, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.dry_run {
            text.push_str("dry run: nothing is changed\n");
        }
        for server in &self.servers {
            let _ = write!(
                text,
                "{} {} {}",
                server.address, server.product, server.role
            );
            if let Some(pid) = server.pid {
                let _ = write!(text, ", process {pid}");
            }
            if let Some(cpu) = server.cpu {
                let _ = write!(text, ", cpu{cpu}");
            }
            if let Some(khz) = server.set_khz {
                let _ = write!(text, " at {}", units::frequency_text(khz));
            }
            if let Some(beat_ns) = server.beat_ns {
                let _ = write!(text, ", beat {}", units::duration_text(beat_ns));
            }
            if let Some(lag_ns) = server.lag_ns {
                let _ = write!(text, ", lag {}", units::duration_text(lag_ns));
            }
            let _ = writeln!(text, ": {}", server.reason);
            if let Some(trouble) = &server.trouble {
                let _ = writeln!(text, "  {trouble}");
            }
        }
        for core in &self.cores {
            if let Some(why) = &core.why {
                let _ = writeln!(text, "cpu{} {why}", core.cpu);
            }
            if core.conflicts > 0 {
                let _ = writeln!(text, "cpu{}: {CONFLICT}", core.cpu);
            }
        }
        for trouble in &self.troubles {
            let _ = writeln!(text, "{trouble}");
        }
        if text.is_empty() {
            text.push_str("no servers were found\n");
        }
        let (used, all_fast) = self.energy.modelled_sigma_one;
        if let Some(joules) = self.energy.rapl_joules {
            let _ = writeln!(text, "energy: {joules:.0} J of all packages (RAPL)");
        }
        if all_fast > 0.0 {
            let (used_zero, all_fast_zero) = self.energy.modelled_sigma_zero;
            let share = |used: f64, all: f64| {
                if all > 0.0 {
                    (1.0 - used / all) * 100.0
                } else {
                    0.0
                }
            };
            let _ = writeln!(
                text,
                "energy, modelled: between {:.1} % and {:.1} % saved on managed cores ({})",
                share(used_zero, all_fast_zero),
                share(used, all_fast),
                self.energy
                    .voltages
                    .as_deref()
                    .unwrap_or("voltages of this host"),
            );
        }
        text
    }

    /// As metrics, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        metrics.family("role", "gauge", "1 for the role that an instance has");
        for server in &self.servers {
            metrics.sample(
                "role",
                &[("instance", &server.address), ("role", &server.role)],
                1.0,
            );
        }
        metrics.family(
            "frequency_khz",
            "gauge",
            "Frequency of a core, as it is set and as it is measured",
        );
        for core in &self.cores {
            let cpu = core.cpu.to_string();
            for (kind, khz) in [("set", core.set_khz), ("measured", core.measured_khz)] {
                if let Some(khz) = khz {
                    metrics.sample(
                        "frequency_khz",
                        &[("cpu", &cpu), ("kind", kind)],
                        f64::from(khz),
                    );
                }
            }
        }
        type Of = fn(&ServerStatus) -> Option<f64>;
        let families: [(&str, &str, &str, Of); 5] = [
            (
                "lag_bytes",
                "gauge",
                "Bytes that a replica is behind",
                |server| server.lag_bytes.map(|bytes| bytes as f64),
            ),
            (
                "lag_seconds",
                "gauge",
                "Time that a replica is behind",
                |server| server.lag_ns.map(|ns| ns as f64 / 1e9),
            ),
            (
                "batch_seconds",
                "gauge",
                "Time between two looks at what the master sent",
                |server| server.pid.map(|_| server.beat_ns.unwrap_or(0) as f64 / 1e9),
            ),
            (
                "beats_total",
                "counter",
                "Looks at which something was there",
                |server| server.pid.map(|_| server.beats as f64),
            ),
            (
                "cpu_seconds_total",
                "counter",
                "CPU time of an instance",
                |server| server.cpu_ns.map(|ns| ns as f64 / 1e9),
            ),
        ];
        for (name, kind, help, of) in families {
            metrics.family(name, kind, help);
            for server in &self.servers {
                if let Some(value) = of(server) {
                    metrics.sample(name, &[("instance", &server.address)], value);
                }
            }
        }
        metrics.family(
            "boosts_total",
            "counter",
            "How often an instance was made fast, by reason",
        );
        for (reason, count) in &self.boosts {
            metrics.sample("boosts_total", &[("reason", reason)], *count as f64);
        }
        metrics.family(
            "conflicts_total",
            "counter",
            "How often somebody else insisted on a frequency",
        );
        for core in &self.cores {
            metrics.sample(
                "conflicts_total",
                &[("cpu", &core.cpu.to_string())],
                core.conflicts as f64,
            );
        }
        metrics.family("class", "gauge", "1 for the means that a core has");
        for core in &self.cores {
            metrics.sample(
                "class",
                &[("cpu", &core.cpu.to_string()), ("class", &core.class)],
                1.0,
            );
        }
        if let Some(joules) = self.energy.rapl_joules {
            metrics.family(
                "energy_joules_total",
                "counter",
                "Energy of all packages since the start",
            );
            metrics.sample("energy_joules_total", &[("source", "rapl")], joules);
        }
        let name = "energy_modelled_core_seconds_total";
        metrics.family(
            name,
            "counter",
            "Modelled energy, in seconds of a core at its highest frequency",
        );
        for (sigma, pair) in [
            ("1", self.energy.modelled_sigma_one),
            ("0", self.energy.modelled_sigma_zero),
        ] {
            for (kind, value) in [("used", pair.0), ("all_fast", pair.1)] {
                metrics.sample(name, &[("sigma", sigma), ("kind", kind)], value);
            }
        }
        metrics.0
    }
}

/// What is said of a core that somebody else sets.
pub const CONFLICT: &str = "another program sets its frequency, so it is left alone; look for tuned, \
                            power-profiles-daemon, auto-cpufreq, TLP, thermald or kubelet";

#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP slackwater_power_{name} {help}");
        let _ = writeln!(self.0, "# TYPE slackwater_power_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let escaped = |value: &str| {
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let labels = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<String>>().join(",");
        let _ = writeln!(self.0, "slackwater_power_{name}{{{labels}}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            servers: vec![ServerStatus {
                address: "127.0.0.1:6380".to_string(),
                product: "Redis 7.0.15".to_string(),
                role: "replica".to_string(),
                pid: Some(4711),
                cpu: Some(3),
                set_khz: Some(1_000_000),
                beat_ns: Some(18_000_000),
                lag_bytes: Some(1_000),
                lag_ns: Some(9_500_000),
                cpu_ns: Some(1_500_000_000),
                reason: "it follows".to_string(),
                ..ServerStatus::default()
            }],
            cores: vec![CoreStatus {
                cpu: 3,
                class: "frequency".to_string(),
                set_khz: Some(1_000_000),
                conflicts: 1,
                ..CoreStatus::default()
            }],
            boosts: vec![("its \"master\"".to_string(), 2)],
            ..Status::default()
        }
    }

    #[test]
    fn people_read_a_line_for_each_server() {
        let text = status().text();
        let line = "127.0.0.1:6380 Redis 7.0.15 replica, process 4711, cpu3 at 1.00 GHz, beat 18 ms, \
                    lag 9.5 ms: it follows\n";
        assert!(text.starts_with(line), "{text}");
        assert!(text.contains("look for tuned"), "{text}");
        assert_eq!(Status::default().text(), "no servers were found\n");
    }

    #[test]
    fn metrics_are_named_and_escaped() {
        let text = status().metrics();
        for line in [
            "slackwater_power_role{instance=\"127.0.0.1:6380\",role=\"replica\"} 1\n",
            "slackwater_power_frequency_khz{cpu=\"3\",kind=\"set\"} 1000000\n",
            "slackwater_power_lag_seconds{instance=\"127.0.0.1:6380\"} 0.0095\n",
            "slackwater_power_batch_seconds{instance=\"127.0.0.1:6380\"} 0.018\n",
            "slackwater_power_boosts_total{reason=\"its \\\"master\\\"\"} 2\n",
            "slackwater_power_conflicts_total{cpu=\"3\"} 1\n",
            "slackwater_power_class{cpu=\"3\",class=\"frequency\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn json_comes_back() {
        let text = serde_json::to_string(&status()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status());
    }
}
