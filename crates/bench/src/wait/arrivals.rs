//! Due times of messages: at random or regular, and the same for every mode.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How messages are distributed over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Independent of each other, at a mean rate.
    Poisson,
    /// At equal intervals.
    Regular,
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Arrivals, String> {
        match text {
            "poisson" => Ok(Arrivals::Poisson),
            "regular" => Ok(Arrivals::Regular),
            _ => Err("expected poisson or regular".to_string()),
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Arrivals::Poisson => "poisson",
            Arrivals::Regular => "regular",
        })
    }
}

/// The due times of messages, one after the other, in nanoseconds from `start_ns` on.
pub struct Schedule {
    arrivals: Arrivals,
    start_ns: u64,
    interval_ns: f64,
    /// Nanoseconds since the start. A double counts nanoseconds exactly for a hundred days.
    offset_ns: f64,
    random: fastrand::Rng,
}

impl Schedule {
    /// A schedule with a mean rate above zero.
    pub fn new(arrivals: Arrivals, rate_per_s: f64, seed: u64, start_ns: u64) -> Schedule {
        Schedule {
            arrivals,
            start_ns,
            interval_ns: 1e9 / rate_per_s,
            offset_ns: 0.0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// When the next message is due.
    #[inline]
    pub fn next_due_ns(&mut self) -> u64 {
        self.offset_ns += match self.arrivals {
            Arrivals::Regular => self.interval_ns,
            Arrivals::Poisson => self.interval_ns * -(1.0 - self.random.f64()).ln(),
        };
        self.start_ns + self.offset_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 5_000;

    fn intervals_ns(arrivals: Arrivals, seed: u64) -> Vec<f64> {
        let mut schedule = Schedule::new(arrivals, 10_000.0, seed, START_NS);
        let mut last_ns = START_NS;
        let dues = std::iter::repeat_with(|| schedule.next_due_ns()).take(100_000);
        let mut intervals = Vec::new();
        for due_ns in dues {
            assert!(due_ns >= last_ns, "time runs backwards");
            intervals.push((due_ns - last_ns) as f64);
            last_ns = due_ns;
        }
        intervals
    }

    #[test]
    fn regular_messages_are_equally_far_apart() {
        for interval_ns in intervals_ns(Arrivals::Regular, 1) {
            assert!((interval_ns - 100_000.0).abs() <= 1.0, "{interval_ns}");
        }
    }

    #[test]
    fn random_messages_keep_the_rate_with_exponential_intervals() {
        let intervals = intervals_ns(Arrivals::Poisson, 7);
        let count = intervals.len() as f64;
        let mean = intervals.iter().sum::<f64>() / count;
        // Three standard errors of 100,000 exponential intervals are one percent.
        assert!((mean / 100_000.0 - 1.0).abs() < 0.01, "{mean}");
        let longer = intervals.iter().filter(|&&ns| ns > 100_000.0).count() as f64 / count;
        assert!((longer - (-1.0f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn a_seed_always_gives_the_same_messages() {
        let once = intervals_ns(Arrivals::Poisson, 3);
        assert_eq!(once, intervals_ns(Arrivals::Poisson, 3));
        assert_ne!(once, intervals_ns(Arrivals::Poisson, 4));
    }
}
