//! `run --live`: a line a second with the rate, the latency against its target, and the cores used.
//!
//! ```text
//!   12 s    48,213 rows/s |######            | p99  17.9 of 20 ms   0.12 cores  1 worker
//! ```
//!
//! It reads counters, like the tuner, and wakes once a second for as long as the query runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{Deployment, StepKind};
use slackwater_engine::latency::{SLOTS, upper_ns};

use crate::cli::say;
use crate::machine;
use crate::report::count;

const EVERY: Duration = Duration::from_secs(1);

/// Columns of the bar.
const WIDTH: usize = 24;

struct SinkSlots {
    counters: Arc<InstanceCounters>,
    step: usize,
    last: Box<[u64; SLOTS]>,
}

/// Draws a running query.
pub struct Live {
    sinks: Vec<SinkSlots>,
    target_ns: Option<u64>,
    began: Instant,
    last: Instant,
    rows: u64,
    cpu_s: f64,
    /// The highest rate so far: the bar's full length.
    rate_max: f64,
}

impl Live {
    /// A drawing of a query that begins now, whose sources say that they bring so many rows per second
    /// at most, or 0.
    pub fn new(deployment: &Deployment, counters: &[Arc<InstanceCounters>], rate_max: f64) -> Live {
        let mut sinks = Vec::new();
        let mut target_ns: Option<u64> = None;
        for (instance, counters) in deployment.instances.iter().zip(counters) {
            for (step, plan) in instance.steps.iter().enumerate() {
                let StepKind::Sink {
                    latency_target_ns: Some(target),
                    ..
                } = plan.kind
                else {
                    continue;
                };
                target_ns = Some(target_ns.map_or(target, |tightest| tightest.min(target)));
                sinks.push(SinkSlots {
                    counters: counters.clone(),
                    step,
                    last: Box::new([0; SLOTS]),
                });
            }
        }
        let now = Instant::now();
        Live {
            sinks,
            target_ns,
            began: now,
            last: now,
            rows: 0,
            cpu_s: machine::process_cpu_s(),
            rate_max,
        }
    }

    /// When the next line is due.
    pub fn next(&self) -> Instant {
        self.last + EVERY
    }

    /// Draws a line.
    pub fn draw(&mut self, counters: &[Arc<InstanceCounters>], workers: Option<&BTreeSet<usize>>) {
        let now = Instant::now();
        let seconds = now.duration_since(self.last).as_secs_f64().max(1e-3);
        self.last = now;
        let rows = counters
            .iter()
            .map(|slots| InstanceCounters::read(&slots.rows_in));
        let rows = rows.sum::<u64>();
        let rate = (rows - std::mem::replace(&mut self.rows, rows)) as f64 / seconds;
        let cpu_s = machine::process_cpu_s();
        let cores = (cpu_s - std::mem::replace(&mut self.cpu_s, cpu_s)) / seconds;
        let mut seen = Box::new([0; SLOTS]);
        for sink in &mut self.sinks {
            if let Some(slots) = &sink.counters.steps[sink.step].latency {
                slots.add_new(&mut sink.last, &mut seen);
            }
        }
        self.rate_max = self.rate_max.max(rate);
        say(&line(&Figures {
            second: now.duration_since(self.began).as_secs(),
            rate,
            share: rate / self.rate_max.max(1.0),
            p99_ns: p99(&seen),
            target_ns: self.target_ns,
            cores,
            workers: workers.map(BTreeSet::len),
        }));
    }
}

struct Figures {
    second: u64,
    rate: f64,
    share: f64,
    p99_ns: Option<u64>,
    target_ns: Option<u64>,
    cores: f64,
    workers: Option<usize>,
}

fn line(figures: &Figures) -> String {
    let filled = ((figures.share * WIDTH as f64).round() as usize).min(WIDTH);
    let bar = format!("{}{}", "#".repeat(filled), " ".repeat(WIDTH - filled));
    let ms = |ns: u64| ns as f64 / 1e6;
    let latency = match (figures.p99_ns, figures.target_ns) {
        (None, None) => "no latency target    ".to_string(),
        (None, Some(_)) => "no rows went out     ".to_string(),
        (Some(p99_ns), Some(target_ns)) => format!(
            "p99 {:6.2} of {} ms{}",
            ms(p99_ns),
            ms(target_ns),
            if p99_ns > target_ns { " LATE" } else { "     " }
        ),
        (Some(p99_ns), None) => format!("p99 {:6.2} ms", ms(p99_ns)),
    };
    let workers = match figures.workers {
        None => String::new(),
        Some(1) => "  1 worker".to_string(),
        Some(many) => format!("  {many} workers"),
    };
    format!(
        "{:5} s {:>11} rows/s |{bar}| {latency} {:5.3} cores{workers}\n",
        figures.second,
        count(figures.rate as u64),
        figures.cores
    )
}

/// The latency that 99 of 100 rows kept.
fn p99(seen: &[u64; SLOTS]) -> Option<u64> {
    let total = seen.iter().sum::<u64>();
    let mut left = (total * 99).div_ceil(100);
    for (slot, rows) in seen.iter().enumerate() {
        left = left.saturating_sub(*rows);
        if left == 0 && total > 0 {
            return Some(upper_ns(slot));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_the_ninety_ninth_of_a_hundred_counts() {
        let mut seen = [0; SLOTS];
        assert_eq!(p99(&seen), None);
        seen[3] = 99;
        seen[7] = 1;
        assert_eq!(p99(&seen), Some(upper_ns(3)));
        seen[7] = 2;
        assert_eq!(p99(&seen), Some(upper_ns(7)));
    }

    #[test]
    fn late_seconds_stand_out() {
        let figures = |p99_ns| Figures {
            second: 12,
            rate: 48_213.0,
            share: 0.25,
            p99_ns,
            target_ns: Some(20_000_000),
            cores: 0.1234,
            workers: Some(1),
        };
        let text = line(&figures(Some(17_900_000)));
        assert_eq!(
            text,
            "   12 s      48,213 rows/s |######                  | p99  17.90 of 20 ms      0.123 cores  \
             1 worker\n"
        );
        assert!(line(&figures(Some(20_000_001))).contains("LATE"));
        assert!(line(&figures(None)).contains("no rows went out"));
    }
}
