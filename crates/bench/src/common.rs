//! What several experiments share: an interval and what is measured in it, and how people write
//! rates and times.

use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
use serde::{Deserialize, Serialize};
use slackwater_engine::time::now_ns;

use slackwater::calibrate::WaitCosts;

/// The share of the time for which something else may hold a core that is measured before a point
/// counts as disturbed.
pub const DISTURBED_MAX: f64 = 0.01;

/// Of a round's points, how many may be measured again because they were disturbed.
pub const REPEATED_SHARE_MAX: f64 = 0.2;

/// From when until when it counts, on `CLOCK_MONOTONIC`, which all processes of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Messages due from here on count,
    pub begin_ns: u64,
    /// and those due from here on don't.
    pub end_ns: u64,
}

impl Interval {
    /// Whether a message that is due then counts.
    #[inline]
    pub fn contains(&self, due_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&due_ns)
    }
}

/// What a process used within the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the process.
    pub cpu_s: f64,
    /// Time that passed.
    pub wall_s: f64,
    /// How often its threads went to sleep.
    pub voluntary_switches: u64,
    /// Time in which its threads could have run, and waited for their core.
    pub waited_s: f64,
}

impl Usage {
    /// CPU time in per cent of a core.
    pub fn percent(&self) -> f64 {
        self.cpu_s / self.wall_s * 100.0
    }

    /// The share of the time in which something else had the core that this process wanted.
    pub fn disturbed(&self) -> f64 {
        self.waited_s / self.wall_s
    }
}

/// Quantiles, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_us: f64,
    /// One in a hundred is longer.
    pub p99_us: f64,
    /// One in a thousand is longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latency {
    /// Of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// A histogram of nanoseconds up to 100 s, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("these bounds are possible")
}

/// Sleeps and returns the time; a deadline that has passed takes no system call.
pub fn sleep_until(deadline_ns: u64) -> u64 {
    loop {
        let now_ns = now_ns();
        if now_ns >= deadline_ns {
            return now_ns;
        }
        let deadline = Timespec {
            tv_sec: (deadline_ns / 1_000_000_000) as i64,
            tv_nsec: (deadline_ns % 1_000_000_000) as i64,
        };
        // A signal ends it early, and then it is taken up again.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &deadline);
    }
}

/// Of at least one value, all above zero.
pub fn geometric_mean(values: &[f64]) -> f64 {
    let sum = values.iter().map(|value| value.ln()).sum::<f64>();
    (sum / values.len() as f64).exp()
}

/// A rate as people write it: `10 k/s`.
pub fn rate(rate_per_s: f64) -> String {
    if rate_per_s >= 1e6 {
        format!("{} M/s", rate_per_s / 1e6)
    } else if rate_per_s >= 1e3 {
        format!("{} k/s", rate_per_s / 1e3)
    } else {
        format!("{rate_per_s}/s")
    }
}

/// Reads a rate: a number, or one of thousands or millions, such as `10k`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.trim() {
        text if text.ends_with(['k', 'K']) => (&text[..text.len() - 1], 1e3),
        text if text.ends_with('M') => (&text[..text.len() - 1], 1e6),
        text => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number * factor);
    // One in ten seconds is no rate to measure; ten million is ten times what anything here takes.
    rate.filter(|rate| (1.0..=1e7).contains(rate))
        .ok_or_else(|| "a rate is a number from 1 to 10M, such as 100, 10k or 1M".to_string())
}

/// Reads how long something is to be measured.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.05..=3600.0).contains(seconds))
        .ok_or_else(|| "write seconds from 0.05 to 3600, such as 2.5".to_string())
}

/// Microseconds as people write them, with three digits.
pub fn time(us: f64) -> String {
    match us {
        ..99.95 => format!("{us:.1} us"),
        ..999.5 => format!("{us:.0} us"),
        ..9_995.0 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.1} ms", us / 1e3),
    }
}

/// Seconds as minutes and seconds.
pub fn minutes(seconds: f64) -> String {
    format!(
        "{:.0} min {:.0} s",
        (seconds / 60.0).floor(),
        seconds % 60.0
    )
}

/// Whether the folders of files to be written are there; looked at before an experiment and not
/// behind it, since figures that can't be kept are lost.
pub fn check_folders(files: &[&Option<PathBuf>]) -> Result<(), String> {
    for path in files.iter().filter_map(|file| file.as_ref()) {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("there is no folder {}", folder.display()));
        }
    }
    Ok(())
}

/// Writes figures as JSON, where that was asked for.
pub fn write_json(path: Option<&Path>, figures: &impl Serialize) -> Result<(), String> {
    let Some(path) = path else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(figures).map_err(|error| error.to_string())?;
    write(path, &(text + "\n"))
}

/// What waiting is taken to cost, and whether that was measured: the end of a sentence.
pub fn wait_costs(costs: WaitCosts, measured: bool) -> String {
    let source = if measured { "calibrated" } else { "built in" };
    format!(
        "a wake-up to cost {:.1} us and a sleep {:.1} us ({source})",
        costs.wake_ns as f64 / 1e3,
        costs.sleep_ns as f64 / 1e3
    )
}

/// Writes a file of figures.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_of_a_half_and_two_is_one() {
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn rates_and_times_are_short() {
        let rates = [100.0, 1e3, 1e4, 2.5e5, 1e6].map(rate);
        assert_eq!(rates, ["100/s", "1 k/s", "10 k/s", "250 k/s", "1 M/s"]);
        let times = [3.26, 99.97, 999.6, 12_345.0].map(time);
        assert_eq!(times, ["3.3 us", "100 us", "1.00 ms", "12.3 ms"]);
        assert_eq!(minutes(130.0), "2 min 10 s");
    }

    #[test]
    fn rates_are_read_with_their_factors() {
        let read = ["50", "2.5k", "1M"].map(|text| parse_rate(text).unwrap());
        assert_eq!(read, [50.0, 2_500.0, 1e6]);
        for text in ["0", "fast", "k", "11M"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
