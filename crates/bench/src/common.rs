//! What several experiments measure: an interval, CPU time in it, and latencies.

use hdrhistogram::Histogram;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
use serde::{Deserialize, Serialize};
use slackwater::calibrate::{self, WaitCosts};
use slackwater_engine::runtime::Costs;
use slackwater_engine::time::now_ns;

use crate::lab;

/// The largest share of the time for which other processes may hold a core before a point counts as
/// disturbed.
pub const DISTURBED_MAX: f64 = 0.01;

/// The measured interval, on `CLOCK_MONOTONIC`, which all processes of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Messages that are due from this time on are counted,
    pub begin_ns: u64,
    /// and those that are due from this time on are not.
    pub end_ns: u64,
}

impl Interval {
    /// Whether a message that is due at this time is counted.
    #[inline]
    pub fn contains(&self, due_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&due_ns)
    }
}

/// CPU time and waiting of a process within the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the process.
    pub cpu_s: f64,
    /// Elapsed time.
    pub wall_s: f64,
    /// How often threads of the process went to sleep.
    pub voluntary_switches: u64,
    /// Time in which threads of the process were ready to run, and waited for their core.
    pub waited_s: f64,
}

impl Usage {
    /// CPU time in percent of a core.
    pub fn percent(&self) -> f64 {
        self.cpu_s / self.wall_s * 100.0
    }

    /// The share of the time in which other processes had the core that this process needed.
    pub fn disturbed(&self) -> f64 {
        self.waited_s / self.wall_s
    }
}

/// Quantiles, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest latency.
    pub max_us: f64,
}

impl Latency {
    /// The latency from a histogram of nanoseconds.
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

/// The assumed cost of waiting on this host.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Assumed {
    /// The costs.
    pub costs: WaitCosts,
    /// Whether `calibrate` measured the costs; otherwise they are built in.
    pub costs_measured: bool,
}

impl Assumed {
    /// The costs that a query started now would assume.
    pub fn here() -> Assumed {
        let calibration = calibrate::load().ok();
        Assumed {
            costs_measured: calibration.is_some(),
            costs: calibration.map_or_else(|| Costs::default().into(), |known| known.costs),
        }
    }

    /// The end of a sentence that names the costs.
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

/// A histogram of nanoseconds up to 100 s, with three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("these bounds are possible")
}

/// Sleeps until a time and returns the present time; a deadline that has passed takes no system call.
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
        // A signal ends the sleep early; the loop then resumes it.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &deadline);
    }
}

/// Parses a rate: a number, or a number of thousands or millions, such as `10k`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.trim() {
        text if text.ends_with(['k', 'K']) => (&text[..text.len() - 1], 1e3),
        text if text.ends_with('M') => (&text[..text.len() - 1], 1e6),
        text => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number * factor);
    // Rates below one per second are too low to measure; ten million is ten times the highest rate that
    // is reached here.
    rate.filter(|rate| (1.0..=1e7).contains(rate))
        .ok_or_else(|| "expected a rate from 1 to 10M, such as 100, 10k or 1M".to_string())
}

/// Parses a duration in seconds.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.05..=3600.0).contains(seconds))
        .ok_or_else(|| "expected seconds from 0.05 to 3600, such as 2.5".to_string())
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
