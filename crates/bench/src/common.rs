//! What several experiments measure: an interval, what was used in it, and how late things came.

use hdrhistogram::Histogram;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
use serde::{Deserialize, Serialize};
use slackwater::calibrate::{self, WaitCosts};
use slackwater_engine::runtime::Costs;
use slackwater_engine::time::now_ns;

use crate::lab;

/// The share of the time for which something else may hold a core that is measured before a point
/// counts as disturbed.
pub const DISTURBED_MAX: f64 = 0.01;

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

    /// The median of each quantile.
    pub fn medians(latencies: &[Latency]) -> Latency {
        let median = |pick: fn(&Latency) -> f64| lab::median(latencies, pick);
        Latency {
            p50_us: median(|latency| latency.p50_us),
            p99_us: median(|latency| latency.p99_us),
            p999_us: median(|latency| latency.p999_us),
            max_us: median(|latency| latency.max_us),
        }
    }
}

/// What waiting is taken to cost on this host.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Assumed {
    /// The costs.
    pub costs: WaitCosts,
    /// Whether `calibrate` measured them; else they are built in.
    pub costs_measured: bool,
}

impl Assumed {
    /// What a query that is started now takes them to be.
    pub fn here() -> Assumed {
        let calibration = calibrate::load().ok();
        Assumed {
            costs_measured: calibration.is_some(),
            costs: calibration.map_or_else(|| Costs::default().into(), |known| known.costs),
        }
    }

    /// The end of a sentence.
    pub fn describe(&self) -> String {
        let source = match self.costs_measured {
            true => "calibrated",
            false => "built in",
        };
        format!(
            "a wake-up to cost {:.1} us and a sleep {:.1} us ({source})",
            self.costs.wake_ns as f64 / 1e3,
            self.costs.sleep_ns as f64 / 1e3
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_their_factors() {
        let read = ["50", "2.5k", "1M"].map(|text| parse_rate(text).unwrap());
        assert_eq!(read, [50.0, 2_500.0, 1e6]);
        for text in ["0", "fast", "k", "11M"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
