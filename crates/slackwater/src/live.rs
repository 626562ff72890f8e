//! `run --live`: a line a second with the rate, the latency against its target, and the cores used.
//!
//! ```text
//!   12 s    48,213 rows/s |######            | p99  17.9 of 20 ms   0.12 cores  1 worker
//! ```
//!
//! It reads counters, like the tuner, and wakes up once a second while the query runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_control::latency::lateness::Late;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{Deployment, StepKind};
use slackwater_engine::latency::{SLOTS, upper_ns};
use slackwater_sql::program::Program;

use crate::catalog::ProgramCatalog;
use crate::explain::sink_name;
use crate::hosts::Execution;
use crate::report::{LatenessReport, count};
use crate::targets::Targets;
use crate::terminal::say;

const EVERY: Duration = Duration::from_secs(1);

/// The width of the bar in columns.
const WIDTH: usize = 24;

/// How long before each line worker processes are asked for their counts: far longer than an answer takes.
const ASKED_BEFORE: Duration = Duration::from_millis(100);

struct SinkSlots {
    counters: Arc<InstanceCounters>,
    step: usize,
    /// The sink, as an index into those of the query.
    target: usize,
    last: Box<[u64; SLOTS]>,
}

/// A sink.
struct Target {
    node: usize,
    name: String,
    /// The target that the SQL says.
    declared_ns: Option<u64>,
}

/// A sink with a target, and the latency of its rows since the last line.
struct Kept<'a> {
    name: &'a str,
    target_ns: u64,
    p99_ns: Option<u64>,
}

/// Draws a running query.
pub struct Live {
    sinks: Vec<SinkSlots>,
    targets: Vec<Target>,
    changed: Arc<Targets>,
    began: Instant,
    last: Instant,
    /// Whether worker processes were asked for their counts for the next line.
    is_asked: bool,
    has_processes: bool,
    rows: u64,
    cpu_s: f64,
    /// The highest rate so far, which is the bar's full length.
    rate_max: f64,
    /// The late rows until the last line.
    late: Late,
}

impl Live {
    /// Starts to draw a query. The sources declare a highest rate of so many rows per second, or 0.
    pub fn new(
        program: &Program,
        deployment: &Deployment,
        host: &Execution,
        rate_max: f64,
        changed: &Arc<Targets>,
    ) -> Live {
        let mut sinks = Vec::new();
        let mut targets: Vec<Target> = Vec::new();
        for (instance, counters) in deployment.instances.iter().zip(host.counters()) {
            for (step, plan) in instance.steps.iter().enumerate() {
                let StepKind::Sink {
                    latency_target_ns: declared_ns,
                    ..
                } = plan.kind
                else {
                    continue;
                };
                let known = targets.iter().position(|target| target.node == plan.node);
                let target = known.unwrap_or_else(|| {
                    targets.push(Target {
                        node: plan.node,
                        name: sink_name(program, plan.node),
                        declared_ns,
                    });
                    targets.len() - 1
                });
                sinks.push(SinkSlots {
                    counters: counters.clone(),
                    step,
                    target,
                    last: Box::new([0; SLOTS]),
                });
            }
        }
        let now = Instant::now();
        let has_processes = host.worker_processes() > 0;
        Live {
            sinks,
            targets,
            changed: Arc::clone(changed),
            began: now,
            last: now,
            is_asked: !has_processes,
            has_processes,
            rows: 0,
            cpu_s: host.cpu_s(),
            rate_max,
            late: Late::default(),
        }
    }

    /// The time of the next line, or of the request for counts before it.
    pub fn next(&self) -> Instant {
        match self.is_asked {
            true => self.last + EVERY,
            false => self.last + EVERY - ASKED_BEFORE,
        }
    }

    /// Requests the counts or draws a line; `workers` are those in use, `late` the late rows so far.
    pub fn go_on(
        &mut self,
        host: &Execution,
        catalog: &ProgramCatalog<'_>,
        workers: Option<&BTreeSet<usize>>,
        late: Late,
    ) {
        if !self.is_asked {
            host.count(catalog);
            self.is_asked = true;
            return;
        }
        self.is_asked = !self.has_processes;
        self.draw(host, workers, late);
    }

    fn draw(&mut self, host: &Execution, workers: Option<&BTreeSet<usize>>, late: Late) {
        let now = Instant::now();
        let seconds = now.duration_since(self.last).as_secs_f64().max(1e-3);
        self.last = now;
        let rows = host.counters().iter();
        let rows = rows.map(|slots| InstanceCounters::read(&slots.rows_in));
        let rows = rows.sum::<u64>();
        // Restarted processes count from zero.
        let since = rows.saturating_sub(std::mem::replace(&mut self.rows, rows));
        let rate = since as f64 / seconds;
        let cpu_s = host.cpu_s();
        let cores = (cpu_s - std::mem::replace(&mut self.cpu_s, cpu_s)).max(0.0) / seconds;
        let targets = self.targets.iter();
        let mut seen = targets
            .map(|_| Box::new([0; SLOTS]))
            .collect::<Vec<Box<[u64; SLOTS]>>>();
        for sink in &mut self.sinks {
            if let Some(slots) = &sink.counters.steps[sink.step].latency {
                let seen = &mut seen[sink.target];
                for (slot, rows) in slots.new_since(&mut sink.last) {
                    seen[slot] += rows;
                }
            }
        }
        let sinks = self.targets.iter().zip(&seen);
        let kept = sinks.filter_map(|(target, seen)| {
            Some(Kept {
                name: &target.name,
                target_ns: self.changed.of(target.node, target.declared_ns)?,
                p99_ns: p99(seen),
            })
        });
        let latency = latency(&kept.collect::<Vec<Kept<'_>>>());
        self.rate_max = self.rate_max.max(rate);
        say(&line(&Figures {
            second: now.duration_since(self.began).as_secs(),
            rate,
            share: rate / self.rate_max.max(1.0),
            latency,
            cores,
            workers: workers.map(BTreeSet::len),
            late: late.since(&std::mem::replace(&mut self.late, late)),
        }));
    }
}

/// The latency of the sink that is nearest to its target, or furthest above it; with the sink's name if there
/// are several.
fn latency(sinks: &[Kept<'_>]) -> String {
    if sinks.is_empty() {
        return "no latency target    ".to_string();
    }
    let measured = sinks.iter().filter_map(|sink| Some((sink, sink.p99_ns?)));
    let share = |(sink, p99_ns): &(&Kept<'_>, u64)| *p99_ns as f64 / sink.target_ns as f64;
    let worst = measured.max_by(|one, other| share(one).total_cmp(&share(other)));
    let Some((sink, p99_ns)) = worst else {
        return "no rows went out     ".to_string();
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    let name = match sinks.len() {
        1 => String::new(),
        _ => format!(" in {}", sink.name),
    };
    let late = match p99_ns > sink.target_ns {
        true => " LATE",
        false => "     ",
    };
    let (p99_ms, target_ms) = (ms(p99_ns), ms(sink.target_ns));
    format!("p99 {p99_ms:6.2} of {target_ms} ms{name}{late}")
}

struct Figures {
    second: u64,
    rate: f64,
    share: f64,
    latency: String,
    cores: f64,
    workers: Option<usize>,
    /// The late rows since the last line.
    late: Late,
}

fn line(figures: &Figures) -> String {
    let filled = ((figures.share * WIDTH as f64).round() as usize).min(WIDTH);
    let bar = format!("{}{}", "#".repeat(filled), " ".repeat(WIDTH - filled));
    let workers = match figures.workers {
        None => String::new(),
        Some(1) => "  1 worker".to_string(),
        Some(many) => format!("  {many} workers"),
    };
    format!(
        "{:5} s {:>11} rows/s |{bar}| {} {:5.3} cores{workers}{}\n",
        figures.second,
        count(figures.rate as u64),
        figures.latency,
        figures.cores,
        by_host(&figures.late)
    )
}

/// What the host did, if it made most of the late rows late.
fn by_host(late: &Late) -> String {
    match LatenessReport::of(late).filter(|_| late.is_by_host()) {
        None => String::new(),
        Some(lateness) => match lateness.how().as_str() {
            "" => "  late by the host".to_string(),
            how => format!("  late by the host: {how}"),
        },
    }
}

/// The 99th percentile of the latency.
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
    use slackwater_control::latency::lateness::Lost;

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
        let sink = |name: &'static str, target_ms: u64, p99_ns| Kept {
            name,
            target_ns: target_ms * 1_000_000,
            p99_ns,
        };
        let quick = |p99_ns| sink("quick", 20, p99_ns);
        let slow = |p99_ns| sink("slow", 50, p99_ns);
        let text = line(&Figures {
            second: 12,
            rate: 48_213.0,
            share: 0.25,
            latency: latency(&[quick(Some(17_900_000))]),
            cores: 0.1234,
            workers: Some(1),
            late: Late::default(),
        });
        assert_eq!(
            text,
            "   12 s      48,213 rows/s |######                  | p99  17.90 of 20 ms      0.123 cores  \
             1 worker\n"
        );
        assert!(latency(&[quick(Some(20_000_001))]).ends_with("LATE"));
        let mut late = Late::default();
        assert_eq!(by_host(&late), "");
        let lost = Lost {
            stolen_ns: 40_000_000,
            ..Lost::default()
        };
        late.add(9, 8, &lost, 1_000_000_000);
        assert_eq!(by_host(&late), "  late by the host: steal 4 %");
        late.add(9, 0, &lost, 1_000_000_000);
        assert_eq!(by_host(&late), "");
        assert!(latency(&[quick(None)]).contains("no rows went out"));
        assert!(latency(&[]).contains("no latency target"));
        // Each sink is compared with its own target.
        let both = latency(&[quick(Some(19_000_000)), slow(Some(45_000_000))]);
        assert_eq!(both, "p99  19.00 of 20 ms in quick     ");
        let both = latency(&[quick(None), slow(Some(51_000_000))]);
        assert_eq!(both, "p99  51.00 of 50 ms in slow LATE");
    }
}
