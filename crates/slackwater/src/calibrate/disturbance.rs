//! Whether a measurement was disturbed: other programs on the same cores make sleeps and wake-ups last
//! longer, and a plan that is made with such figures is wrong once those programs have gone.

use std::fs;
use std::time::Instant;

use super::WaitCosts;
use crate::machine::Used;
use crate::measure::Cores;

/// The share of the measured cores' time that other programs may use during the measurement. An idle desktop
/// uses a few percent.
const OTHERS_MAX: f64 = 0.25;

/// The share that the hypervisor may give to other machines.
const STOLEN_MAX: f64 = 0.1;

/// The p99 of the oversleep may be this many times the median, and at least [`TAIL_NS_MIN`]. An idle virtual
/// machine has a factor of about 2.
const TAIL_FACTOR_MAX: u64 = 20;

/// The oversleep of a 1 ms sleep that is always allowed: hosts with a timer of 100 ticks a second have this.
const TAIL_NS_MIN: u64 = 10_000_000;

/// No undisturbed host takes longer than this for a sleep or a wake-up.
const OVERSLEEP_P50_NS_MAX: u64 = 20_000_000;
const OVERSLEEP_P99_NS_MAX: u64 = 50_000_000;
const CPU_NS_MAX: u64 = 5_000_000;

/// What else the measured cores did during the measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// The share of their time that other programs used; `None` if the system doesn't say.
    pub others: Option<f64>,
    /// The share of their time that the hypervisor gave to other machines.
    pub stolen: Option<f64>,
}

/// Seconds for which some cores were busy, and seconds that the hypervisor took from them.
type Ticks = (f64, f64);

/// Watches two cores during a measurement.
pub struct Watched {
    cores: Vec<usize>,
    before: Option<Ticks>,
    used: Used,
    began: Instant,
}

impl Watched {
    /// Starts to watch two cores.
    pub fn begin(cores: Cores) -> Watched {
        let mut cores = vec![cores.leader, cores.follower];
        cores.dedup();
        Watched {
            before: read(&cores),
            cores,
            used: Used::now(),
            began: Instant::now(),
        }
    }

    /// The load since the start, without the CPU time of this process and its children.
    pub fn end(self) -> Load {
        let (Some(before), Some(now)) = (self.before, read(&self.cores)) else {
            return Load::default();
        };
        let own_s = self.used.cpu_s_since() + self.used.children_cpu_s_since();
        let time_s = self.began.elapsed().as_secs_f64() * self.cores.len() as f64;
        let share = |seconds: f64| Some((seconds / time_s.max(1e-3)).clamp(0.0, 1.0));
        Load {
            others: share(now.0 - before.0 - own_s),
            stolen: share(now.1 - before.1),
        }
    }
}

fn read(cores: &[usize]) -> Option<Ticks> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks = ticks(&text, cores)?;
    // A system that doesn't count these shows zeros.
    (ticks.0 > 0.0).then_some(ticks)
}

/// Reads `/proc/stat`, which counts in hundredths of a second: user, nice, system, idle, iowait, irq,
/// softirq, steal.
fn ticks(text: &str, cores: &[usize]) -> Option<Ticks> {
    let mut sum = (0.0, 0.0);
    for core in cores {
        let name = format!("cpu{core}");
        let mut lines = text.lines().map(str::split_whitespace);
        let mut line = lines.find(|words| words.clone().next() == Some(&name))?;
        line.next();
        let numbers = line.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        let at = |place: usize| numbers.get(place).copied().unwrap_or(0) as f64 / 100.0;
        sum.0 += [0, 1, 2, 5, 6].map(at).iter().sum::<f64>();
        sum.1 += at(7);
    }
    Some(sum)
}

fn ms(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

/// Why figures can't be right, or `None`.
pub fn implausible(costs: &WaitCosts) -> Option<String> {
    let WaitCosts {
        wake_ns,
        sleep_ns,
        oversleep_p50_ns,
        oversleep_p99_ns,
    } = *costs;
    if wake_ns == 0 || sleep_ns == 0 || oversleep_p99_ns < oversleep_p50_ns {
        return Some("impossible costs".to_string());
    }
    if oversleep_p50_ns > OVERSLEEP_P50_NS_MAX || oversleep_p99_ns > OVERSLEEP_P99_NS_MAX {
        return Some(tail(costs));
    }
    let cpu_ns = wake_ns.max(sleep_ns);
    (cpu_ns > CPU_NS_MAX).then(|| format!("waits that took {} of CPU time", ms(cpu_ns)))
}

fn tail(costs: &WaitCosts) -> String {
    format!(
        "sleeps of 1 ms that overslept by {} at p99, and by {} at p50",
        ms(costs.oversleep_p99_ns),
        ms(costs.oversleep_p50_ns)
    )
}

/// Why figures are not reliable, or `None`.
pub fn disturbance(costs: &WaitCosts, load: &Load) -> Option<String> {
    if let Some(reason) = implausible(costs) {
        return Some(format!("it measured {reason}"));
    }
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if let Some(others) = load.others.filter(|others| *others > OTHERS_MAX) {
        return Some(format!(
            "other programs used {} of the two measured cores",
            percent(others)
        ));
    }
    if let Some(stolen) = load.stolen.filter(|stolen| *stolen > STOLEN_MAX) {
        return Some(format!(
            "the hypervisor gave {} of the two measured cores to other machines",
            percent(stolen)
        ));
    }
    let allowed_ns = (costs.oversleep_p50_ns * TAIL_FACTOR_MAX).max(TAIL_NS_MIN);
    (costs.oversleep_p99_ns > allowed_ns).then(|| format!("it measured {}", tail(costs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_REST: WaitCosts = WaitCosts {
        wake_ns: 35_000,
        sleep_ns: 20_000,
        oversleep_p50_ns: 37_000,
        oversleep_p99_ns: 66_000,
    };

    fn with_p99(p99_ms: u64) -> WaitCosts {
        WaitCosts {
            oversleep_p99_ns: p99_ms * 1_000_000,
            ..AT_REST
        }
    }

    #[test]
    fn regression_a_sleep_that_lasts_a_second_longer_is_the_load_and_not_the_host() {
        let reason = implausible(&with_p99(968)).unwrap();
        assert!(
            reason.contains("968.00 ms at p99, and by 0.04 ms"),
            "{reason}"
        );
        assert!(disturbance(&with_p99(968), &Load::default()).is_some());
        // It could be a slow timer, but the median says that it is not.
        assert_eq!(implausible(&with_p99(12)), None);
        assert!(disturbance(&with_p99(12), &Load::default()).is_some());
        let slow_timer = WaitCosts {
            oversleep_p50_ns: 4_000_000,
            ..with_p99(12)
        };
        assert_eq!(disturbance(&slow_timer, &Load::default()), None);
        assert_eq!(disturbance(&AT_REST, &Load::default()), None);
    }

    #[test]
    fn work_of_others_and_stolen_time_disturb() {
        let load = |others, stolen| Load {
            others: Some(others),
            stolen: Some(stolen),
        };
        assert_eq!(disturbance(&AT_REST, &load(0.05, 0.01)), None);
        let others = disturbance(&AT_REST, &load(0.62, 0.0)).unwrap();
        assert!(others.contains("used 62 %"), "{others}");
        let stolen = disturbance(&AT_REST, &load(0.0, 0.3)).unwrap();
        assert!(stolen.contains("gave 30 %"), "{stolen}");
    }

    #[test]
    fn the_systems_count_is_read_by_core() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 900 5 0 10 20 0 0\ncpu1 1 0 1 900 0 0 0 0 0 \
                    0\nintr 5\n";
        assert_eq!(ticks(text, &[0]), Some((1.6, 0.2)));
        assert_eq!(ticks(text, &[0, 1]), Some((1.62, 0.2)));
        assert_eq!(ticks(text, &[7]), None);
    }
}
