//! `--part energy` and `--part throughput` (figures 5 to 8 of the paper): memtier and YCSB against a master
//! with one and two real replicas.
//!
//! All programs run at once, on as many cores as there are. So the throughput of a run says nothing about
//! servers with cores of their own; CPU time per operation does, because the kernel counts it for each
//! process. From it follow
//!
//! - **operations per second with one core each**, computed: the slowest server decides;
//! - **energy**, computed by the paper's accounting (`energy`), for σ = 1 and σ = 0.

use std::path::Path;

use serde::Serialize;
use slackwater::measure::Spread;

use super::cost::CONNECTIONS;
use super::dilation::Dilation;
use super::energy::{self, Configuration, Costs, FAST_GHZ, SLOW_GHZ};
use super::load::{Load, Pace};
use super::pair::{Servers, Wanted};
use super::server::Kind;
use super::workload::{Mix, Workload};
use crate::lab::{self, Table, number};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The workload,
    pub mix: Mix,
    /// with values of so many bytes (memtier),
    pub value_bytes: usize,
    /// and so many replicas.
    pub replicas: u32,
}

/// What is measured.
#[derive(Clone, Copy)]
pub struct Mixes<'a> {
    /// The kind of server.
    pub kind: &'a Kind,
    /// The folder for logs.
    pub folder: &'a Path,
    /// What makes servers slow; without it, the cost of a slow server is computed.
    pub slow: Option<&'a Dilation>,
    /// Seconds a run.
    pub seconds: f64,
    /// Records.
    pub records: u64,
}

/// A measured run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The kind of server.
    pub server: String,
    /// What was run.
    pub case: Case,
    /// Which servers were slow.
    pub configuration: Configuration,
    /// CPU time per operation of the master,
    pub master_us: f64,
    /// and of a replica.
    pub replica_us: f64,
    /// Operations per second, all programs on the cores of this machine.
    pub per_s: f64,
    /// The median latency of clients.
    pub p50_us: f64,
    /// The share of time in which the master's core was taken.
    pub disturbed: f64,
}

impl Mixes<'_> {
    /// Runs one case with each configuration.
    ///
    /// # Errors
    ///
    /// If a server fails.
    pub fn measure(&self, case: Case, is_backwards: bool) -> Result<Vec<Point>, String> {
        let mut all = vec![Configuration::AllFast];
        if self.slow.is_some() {
            all.extend([Configuration::Concerto, Configuration::AllSlow]);
        }
        if is_backwards {
            all.reverse();
        }
        all.into_iter()
            .map(|configuration| self.point(case, configuration))
            .collect()
    }

    fn point(&self, case: Case, configuration: Configuration) -> Result<Point, String> {
        let slow = |is_slow: bool| self.slow.filter(|_| is_slow);
        let servers = Servers::start(&Wanted {
            kind: self.kind,
            folder: self.folder,
            replicas: case.replicas,
            slow_master: slow(configuration == Configuration::AllSlow),
            slow_replicas: slow(configuration != Configuration::AllFast),
        })?;
        let mut workload = Workload::new(case.mix, self.records, case.value_bytes, 1);
        let load = Load {
            address: servers.master.address,
            connections: CONNECTIONS,
            pace: Pace::Closed,
            seconds: self.seconds,
            count: u64::MAX,
        };
        load.fill(&mut workload)?;
        servers.settle()?;
        let used = servers.run(&load, &mut workload)?;
        Ok(Point {
            server: self.kind.name.clone(),
            case,
            configuration,
            master_us: used.master_us(),
            replica_us: used.replica_us(),
            per_s: used.done.per_s(),
            p50_us: used.done.latency.value_at_quantile(0.5) as f64 / 1e3,
            disturbed: used.master.disturbed(),
        })
    }
}

/// A case: its costs, and what follows from them.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The kind of server.
    pub server: String,
    /// What was run.
    pub case: Case,
    /// CPU time per operation, measured.
    pub costs: Costs,
    /// Whether the costs of slow servers are computed.
    pub is_slow_computed: bool,
    /// The spread of the master's CPU time per operation.
    pub master_us: Spread,
    /// The slow-down of the replicas that was measured.
    pub slow_down: f64,
    /// Operations per second on this machine's cores: all fast, Concerto, all slow.
    pub together_per_s: [f64; 3],
}

/// The order of [`Summary::together_per_s`].
const CONFIGURATIONS: [Configuration; 3] = [
    Configuration::AllFast,
    Configuration::Concerto,
    Configuration::AllSlow,
];

/// Medians of each case.
pub fn summarize(points: &[Point]) -> Vec<Summary> {
    let key = |point: &Point| (point.server.clone(), point.case);
    let keys = lab::distinct(points.iter().map(key));
    let summaries = keys.into_iter().map(|one| {
        let of = |configuration: Configuration, figure: fn(&Point) -> f64| {
            let own = points.iter().filter(|point| key(point) == one);
            let own = own.filter(|point| point.configuration == configuration);
            lab::spread(own, figure)
        };
        let is_slow_computed = of(Configuration::Concerto, |_| 1.0).median == 0.0;
        let master_us = of(Configuration::AllFast, |point| point.master_us);
        let replica_us = of(Configuration::AllFast, |point| point.replica_us).median;
        let slow = |configuration: Configuration, fast_us: f64, figure: fn(&Point) -> f64| {
            match is_slow_computed {
                true => fast_us * FAST_GHZ / SLOW_GHZ,
                false => of(configuration, figure).median,
            }
        };
        let costs = Costs {
            master_us: master_us.median,
            master_slow_us: slow(Configuration::AllSlow, master_us.median, |point| {
                point.master_us
            }),
            replica_us,
            replica_slow_us: slow(Configuration::Concerto, replica_us, |point| {
                point.replica_us
            }),
        };
        Summary {
            costs,
            is_slow_computed,
            master_us,
            slow_down: costs.replica_slow_us / replica_us.max(1e-9),
            together_per_s: CONFIGURATIONS.map(|one| of(one, |point| point.per_s).median),
            server: one.0,
            case: one.1,
        }
    });
    summaries.collect()
}

impl Summary {
    /// What Concerto saves, in percent.
    pub fn saved_percent(&self, configuration: Configuration, sigma: f64) -> f64 {
        energy::saved_percent(&self.costs, self.case.replicas, configuration, sigma)
    }

    fn name(&self) -> String {
        match self.case.mix {
            Mix::Set | Mix::Get | Mix::GetView | Mix::Memtier => {
                format!("{} {} B", self.case.mix.name(), self.case.value_bytes)
            }
            Mix::Ycsb(_) => self.case.mix.name(),
        }
    }
}

/// Figures 6 and 8: energy.
pub fn energy_text(summaries: &[Summary]) -> String {
    let mut table = Table::new([
        "server",
        "workload",
        "replicas",
        "master us",
        "replica us",
        "slow replica us",
        "concerto s=1",
        "concerto s=0",
        "all slow s=1",
        "all slow s=0",
    ]);
    for one in summaries {
        let saved =
            |configuration, sigma| format!("{:.1} %", one.saved_percent(configuration, sigma));
        table.line([
            one.server.clone(),
            one.name(),
            one.case.replicas.to_string(),
            number(one.costs.master_us),
            number(one.costs.replica_us),
            number(one.costs.replica_slow_us),
            saved(Configuration::Concerto, 1.0),
            saved(Configuration::Concerto, 0.0),
            saved(Configuration::AllSlow, 1.0),
            saved(Configuration::AllSlow, 0.0),
        ]);
    }
    let paper = |replicas, sigma| {
        energy::saved_percent(&Costs::PAPER, replicas, Configuration::Concerto, sigma)
    };
    format!(
        "Energy saved compared with all cores fast (computed from measured CPU time per operation; s is what \
         an idle core\ncosts as a share of a busy one; voltages of a Xeon 4114)\n\n{}\npaper: 27 to 36 % \
         (memtier), 44 % (YCSB), at most 51 %; all slow 54 to 67 %. Its costs per write give {:.1} and \
         {:.1} %\n(s=1), {:.1} and {:.1} % (s=0), with one and two replicas. The kernel's default governor: \
         not available, needs cpufreq.\n",
        table.columns(),
        paper(1, 1.0),
        paper(2, 1.0),
        paper(1, 0.0),
        paper(2, 0.0),
    )
}

/// Figures 5 and 7: operations per second.
pub fn throughput_text(summaries: &[Summary]) -> String {
    let mut table = Table::new([
        "server",
        "workload",
        "replicas",
        "all fast",
        "concerto",
        "all slow",
        "concerto %",
        "all slow %",
        "together all fast",
        "concerto",
        "all slow",
    ]);
    for one in summaries {
        let rate =
            |configuration| energy::writes_per_s(&one.costs, one.case.replicas, configuration);
        let fast = rate(Configuration::AllFast);
        let share = |configuration| format!("{:+.1}", (rate(configuration) / fast - 1.0) * 100.0);
        let whole = |rate: f64| match rate > 0.0 {
            true => format!("{rate:.0}"),
            false => "-".to_string(),
        };
        let [together_fast, together_concerto, together_slow] = one.together_per_s;
        table.line([
            one.server.clone(),
            one.name(),
            one.case.replicas.to_string(),
            whole(fast),
            whole(rate(Configuration::Concerto)),
            whole(rate(Configuration::AllSlow)),
            share(Configuration::Concerto),
            share(Configuration::AllSlow),
            whole(together_fast),
            whole(together_concerto),
            whole(together_slow),
        ]);
    }
    format!(
        "Operations per second: one core each (computed from measured CPU time per operation), and together \
         (measured: all\nservers and clients on this machine's cores)\n\n{}\npaper: Concerto as all fast; \
         all slow 15 to 36 % less.\n",
        table.columns()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(configuration: Configuration, master_us: f64, replica_us: f64) -> Point {
        Point {
            server: "redis".to_string(),
            case: Case {
                mix: Mix::Ycsb('A'),
                value_bytes: 100,
                replicas: 1,
            },
            configuration,
            master_us,
            replica_us,
            per_s: 10.0,
            p50_us: 1.0,
            disturbed: 0.0,
        }
    }

    #[test]
    fn the_papers_costs_in_measured_points_give_the_papers_saving() {
        let points = [
            point(Configuration::AllFast, 77.69, 10.98),
            point(Configuration::Concerto, 77.69, 22.28),
            point(Configuration::AllSlow, 170.9, 22.28),
        ];
        let summaries = summarize(&points);
        let saved = summaries[0].saved_percent(Configuration::Concerto, 1.0);
        assert_eq!(format!("{saved:.1}"), "36.1");
        assert!(!summaries[0].is_slow_computed);
        assert!(energy_text(&summaries).contains("YCSB A"));
        assert!(throughput_text(&summaries).contains("+0.0"));
    }

    #[test]
    fn without_a_slow_run_its_costs_follow_the_frequency() {
        let summaries = summarize(&[point(Configuration::AllFast, 50.0, 10.0)]);
        assert!(summaries[0].is_slow_computed);
        assert!((summaries[0].costs.replica_slow_us - 22.0).abs() < 1e-9);
    }
}
