//! `slackwater bench wait`: what waiting for messages costs, by wait mode and rate.
//!
//! The experiment of Akram and Bilas, "A Sleep-based Communication Mechanism to Save Processor
//! Utilization in Distributed Streaming Systems": a sender and a receiver, each a process pinned to a
//! core of its own, messages of 200 bytes at rates from 100 to 1,000,000 per second, and the CPU time of
//! both, for every wait mode, compared with TCP and interrupts.
//!
//! ```text
//! plan ──────► part (two processes a point) ──► sender ══ ends ══► receiver
//!                                                  │                  │
//! table, JSON, chart ◄── verdict ◄── figures ◄── points ◄─────────────┘
//! ```
//!
//! What the figures contain:
//! - **Open loop.** Messages are due at absolute times, at random or regularly, the same ones in all
//!   modes. Latency counts from the time at which a message was due, so delays of the sender are visible.
//! - **CPU time** is the kernel's count of each process, from the first message of the interval to the
//!   first one after it.
//! - **The sender's own waiting** (a timed sleep per message, or per tick at high rates) is the same in
//!   all modes. A sender that does everything except sending is measured as well, and subtracted where
//!   figures say so.
//! - **Disturbance** is measured: the time in which a side was ready to run and its core was taken. After
//!   each round the most disturbed points are measured again, at most a fifth of them, and the less
//!   disturbed measurement counts.
//! - **Rounds are interleaved**: each goes through all rates, and at each rate through all modes,
//!   every other one backwards. Figures are medians over the rounds.
//!
//! Results: `docs/benchmarks/wait.md`.

mod arrivals;
mod chart;
mod ends;
mod figures;
mod order;
mod oversleep;
mod part;
mod plan;
mod queries;
mod receiver;
mod sender;
mod table;
mod usage;
mod verdict;
mod way;

pub use plan::Arguments;

use figures::{Baseline, Figures, Summary};
use order::Point;
use oversleep::Oversleep;
use plan::Plan;
use way::Way;

use crate::common::{DISTURBED_MAX, Latency};
use crate::lab::{self, Chart, Experiment, Verdict, rate};
use crate::part_process::PartArguments;

/// Runs one side of a point.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.query {
        return queries::run(arguments);
    }
    let plan = Plan::of(arguments)?;
    lab::conduct(&plan, &arguments.files, Some(&arguments.drawing))
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let about = lab::about(self.expected_s(), self.expected_max_s());
        format!("{} points, {about}", self.points())
    }

    fn measure(&self) -> Result<Figures, String> {
        let mut points = Vec::new();
        let mut oversleeps: Vec<Vec<Oversleep>> = Vec::new();
        let delays = self.delays();
        let mut repeated = 0;
        let mut ways = vec![Way::BASELINE];
        ways.extend(&self.ways);
        for round in lab::rounds(self.rounds) {
            let mut measured = Vec::new();
            oversleeps.push(oversleep::oversleeps(self.cores.follower, &delays)?);
            for &rate_per_s in &self.rates {
                round.note(rate(rate_per_s));
                for &way in round.order(&ways) {
                    measured.push(self.measure_point(way, rate_per_s, round.number)?);
                }
            }
            let again =
                |point: &Point| self.measure_point(point.way, point.rate_per_s, point.round);
            repeated += round.repeat(&mut measured, DISTURBED_MAX, Point::disturbed, again)?;
            points.extend(measured);
        }
        Ok(summarise(self, &oversleeps, points, repeated))
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(&figures.summaries, &figures.oversleeps)
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }

    fn charts(&self, figures: &Figures) -> Vec<Chart> {
        chart::charts(figures)
    }
}

fn summarise(
    plan: &Plan,
    oversleeps: &[Vec<Oversleep>],
    points: Vec<Point>,
    repeated: usize,
) -> Figures {
    let baselines = plan.rates.iter();
    let baselines = baselines.filter_map(|&rate_per_s| Baseline::of(rate_per_s, &points));
    let baselines = baselines.collect::<Vec<_>>();
    let mut summaries = Vec::new();
    for baseline in &baselines {
        let ways = plan.ways.iter();
        summaries.extend(ways.filter_map(|&way| Summary::of(way, baseline, &points)));
    }
    let disturbed = points.iter();
    let disturbed = disturbed.filter(|point| point.disturbed() > DISTURBED_MAX);
    Figures {
        assumed: plan.assumed,
        cores: plan.cores,
        arrivals: plan.arrivals,
        seed: plan.seed,
        message_bytes: order::MESSAGE_BYTES,
        rounds: plan.rounds,
        seconds: plan.seconds,
        oversleeps: medians(oversleeps),
        baselines,
        summaries,
        repeated,
        disturbed: disturbed.count(),
        points,
    }
}

/// The median of each quantile over the rounds.
fn medians(rounds: &[Vec<Oversleep>]) -> Vec<Oversleep> {
    let first = rounds.first().map(Vec::as_slice).unwrap_or_default();
    let sleeps = first.iter().enumerate().map(|(place, sleep)| {
        let late = rounds.iter().map(|round| round[place].late);
        Oversleep {
            sleep_us: sleep.sleep_us,
            late: Latency::medians(&late.collect::<Vec<_>>()),
        }
    });
    sleeps.collect()
}
