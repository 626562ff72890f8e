//! `slackwater bench target`: what a latency target costs, and whether it is met.
//!
//! Records of 200 bytes arrive over TCP from another process, at rates from 100 to 500,000 per second;
//! two queries read them and send rows back. The engine has either a target as its only setting, or fixed
//! settings for waiting and collecting and no target; a hand-written program runs one of the queries,
//! too.
//!
//! ```text
//! plan ──► generator (a process: sender, receiver) ══ records ══► engine, or a program by hand
//!                            ▲══════════════ rows ═══════════════════╝     │ its CPU time
//! table, JSON, chart ◄── verdicts ◄── figures ◄── points ◄─────────────────┘
//! ```
//!
//! What the figures contain:
//! - **Open loop.** Records are due at absolute times, the same in all settings; all records of a
//!   millisecond are due at its beginning, in one write. Latency counts from the time at which the last
//!   record that a row needed was due, to the row's receipt in the other process; so delays of the sender
//!   or the receiver are visible. The engine's own figures are reported as well.
//! - **CPU time** is the kernel's count of the process that runs the query, within the interval. It
//!   excludes start-up, warm-up and shutdown, and the sender and receiver.
//! - **All rows are checked**: the rows that come back must be exactly those that the records produce, or
//!   the experiment fails.
//! - **Disturbance** is measured: the time in which the query's process was ready to run and its core was
//!   taken, and the CPU time of all other processes. After each round the most disturbed points are
//!   measured again, at most a fifth of them, and the less disturbed measurement counts.
//! - **Rounds are interleaved**: each goes through all rates and queries, and there through all settings,
//!   every other round backwards. Figures are medians over the rounds.
//! - **Windows close once a second**, so the p99 of that query is nearly the slowest of some fifteen
//!   closings; with more rounds it is a median of these.
//!
//! Shutdown: the experiment kills the processes that it started and waits for them, also when it fails.
//! If the experiment is killed, the generator ends with it, and the query ends because its connections
//! are closed.

mod chart;
mod child;
mod comparison;
mod disturbed;
mod disturber;
mod figures;
mod order;
mod part;
mod plan;
mod point;
mod predicted;
mod query;
mod receiver;
mod records;
mod sender;
mod setting;
mod summary;
mod table;
mod verdict;

pub use plan::Arguments;

use child::Programs;
use disturbed::Disturbed;
use figures::Figures;
use order::{Point, Spec};
use plan::Plan;
use summary::Summary;

use crate::common::Assumed;
use crate::lab::{self, Chart, Experiment, Verdict, distinct, rate};
use crate::part_process::PartArguments;

/// Runs the generator.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    if let Some(disturbances) = &arguments.disturb {
        let disturbed = Disturbed::of(&plan, disturbances);
        return lab::conduct(&disturbed, &arguments.files, None);
    }
    lab::conduct(&plan, &arguments.files, Some(&arguments.drawing))
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let about = lab::about(self.expected_s(), self.expected_max_s());
        format!("{} points, {about}", self.points())
    }

    fn measure(&self) -> Result<Figures, String> {
        let programs = Programs::find(self.needs_hand())?;
        let measure =
            |spec: Spec, round: u32| point::measure(&programs, spec, &self.order(&spec), round);
        let mut points = Vec::new();
        let mut repeated = 0;
        for round in lab::rounds(self.rounds) {
            let mut measured = Vec::new();
            for group in &self.groups {
                for &spec in round.order(group) {
                    let Spec { setting, query, .. } = spec;
                    round.note(format!(
                        "point {} of {}: {setting}, {query} at {}",
                        measured.len() + 1,
                        self.points_per_round(),
                        rate(spec.rate_per_s as f64)
                    ));
                    measured.push(measure(spec, round.number)?);
                }
            }
            // As a multiple of the limit.
            let again = |point: &Point| measure(point.spec, point.round);
            repeated += round.repeat(&mut measured, 1.0, Point::disturbance, again)?;
            points.extend(measured);
        }
        summarise(self, repeated, points)
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        let mut verdicts = verdict::verdicts(&figures.summaries, &figures.comparisons);
        verdicts.push(predicted::verdict(&figures.predictions));
        verdicts
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }

    fn charts(&self, figures: &Figures) -> Vec<Chart> {
        chart::charts(figures)
    }
}

fn summarise(plan: &Plan, repeated: usize, points: Vec<Point>) -> Result<Figures, String> {
    let specs = distinct(plan.groups.iter().flatten().copied());
    let summaries = specs
        .into_iter()
        .filter_map(|spec| Summary::of(spec, &points));
    let summaries = summaries.collect::<Vec<_>>();
    Ok(Figures {
        core: plan.core,
        assumed: Assumed::here(),
        record_bytes: records::RECORD_BYTES,
        rounds: plan.rounds,
        seconds: plan.seconds,
        warm_up_s: plan.warm_up_s,
        comparisons: comparison::comparisons(&summaries),
        predictions: predicted::predictions(&summaries)?,
        summaries,
        repeated,
        disturbed: points.iter().filter(|point| point.is_disturbed()).count(),
        points,
    })
}
