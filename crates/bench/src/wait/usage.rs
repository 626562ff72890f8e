//! What a process uses between two moments.

use super::order::{Interval, Usage};
use slackwater::machine;

/// Reads the clocks of the process at the first message of an interval and at the first one after it.
pub struct Meter {
    interval: Interval,
    begin: Option<Reading>,
    usage: Option<Usage>,
}

#[derive(Clone, Copy)]
struct Reading {
    now_ns: u64,
    cpu_s: f64,
    voluntary_switches: u64,
    waited_s: f64,
}

impl Meter {
    /// A meter for an interval.
    pub fn new(interval: Interval) -> Meter {
        Meter {
            interval,
            begin: None,
            usage: None,
        }
    }

    /// Notes the present time, or that a message has arrived that was due then. Must be called with
    /// increasing times.
    #[inline]
    pub fn at(&mut self, time_ns: u64) {
        let next_ns = match self.begin {
            None => self.interval.begin_ns,
            Some(_) => self.interval.end_ns,
        };
        if time_ns >= next_ns && self.usage.is_none() {
            self.read();
        }
    }

    #[cold]
    fn read(&mut self) {
        match self.begin {
            // Reading the files of the process takes a while, and is not included in the measurement.
            None => {
                let voluntary_switches = machine::voluntary_switches();
                let waited_s = waited_s();
                self.begin = Some(Reading {
                    now_ns: slackwater_engine::time::now_ns(),
                    cpu_s: machine::process_cpu_s(),
                    voluntary_switches,
                    waited_s,
                });
            }
            Some(begin) => {
                let cpu_s = machine::process_cpu_s() - begin.cpu_s;
                let wall_ns = slackwater_engine::time::now_ns() - begin.now_ns;
                let waited_s = waited_s() - begin.waited_s;
                let switches = machine::voluntary_switches();
                self.usage = Some(Usage {
                    cpu_s,
                    wall_s: wall_ns.max(1) as f64 / 1e9,
                    voluntary_switches: switches.saturating_sub(begin.voluntary_switches),
                    waited_s,
                });
            }
        }
    }

    /// What was used: up to now, if no message arrived after the interval; zeros if no message arrived at
    /// all.
    pub fn finish(mut self) -> Usage {
        if self.begin.is_some() && self.usage.is_none() {
            self.read();
        }
        self.usage.unwrap_or(Usage {
            wall_s: (self.interval.end_ns - self.interval.begin_ns) as f64 / 1e9,
            ..Usage::default()
        })
    }
}

/// How long threads of this process have waited for a core so far; 0 if the kernel doesn't count it.
fn waited_s() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let waited_ns = tasks.flatten().filter_map(|task| {
        // Time on a core, time waiting for one, and number of time slices; the first two in nanoseconds.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    waited_ns.sum::<u64>() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_reads_at_the_first_time_within_and_the_first_one_after() {
        let interval = Interval {
            begin_ns: 100,
            end_ns: 200,
        };
        let mut meter = Meter::new(interval);
        meter.at(99);
        assert!(meter.begin.is_none());
        meter.at(120);
        assert!(meter.begin.is_some());
        meter.at(199);
        assert!(meter.usage.is_none());
        meter.at(200);
        let usage = meter.usage.unwrap();
        meter.at(300);
        assert_eq!(meter.finish(), usage);
        assert_eq!(Meter::new(interval).finish().cpu_s, 0.0);
    }
}
