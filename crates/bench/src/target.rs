//! `slackwater bench target`: what a latency target costs, and whether it is met.
//!
//! Records of 200 bytes come over TCP from another process, at rates from 100 to 500,000 a second;
//! two queries read them and send rows back. The engine is told a target and nothing else, or how to
//! wait and to collect and no target; a program written by hand does one of the queries, too.
//!
//! ```text
//! plan ──► generator (a process: sender, receiver) ══ records ══► engine, or a program by hand
//!                            ▲══════════════ rows ═══════════════════╝     │ its CPU time
//! table, JSON, chart ◄── verdicts ◄── figures ◄── points ◄─────────────────┘
//! ```
//!
//! What the figures contain:
//! - **Open loop.** Records are due at absolute times, the same in all settings, and all that are due
//!   in a millisecond at its beginning, in one write. Latency counts from the time that the last
//!   record was due that a row needed to the row's receipt in the other process; so a sender that is
//!   held up shows, and so does a receiver. What the engine says of itself stands beside it.
//! - **CPU time** is the kernel's count of the process that runs the query, within the interval.
//!   Start, warm-up and end are not in it, and neither are sender and receiver.
//! - **All rows are accounted for**: what comes back must be what the records make, to the row, or
//!   the experiment fails.
//! - **Disturbance** is measured: the time in which the query's process could have run and its core
//!   was taken, and what all others used meanwhile. Behind each round the points with the most of it
//!   are measured again, at most a fifth of them, and the less disturbed measurement counts.
//! - **Rounds are interleaved**: each goes through all rates and queries, and there through all
//!   settings, every other round backwards. Figures are medians over the rounds.
//! - **Windows close once a second**, so the p99 of that query is nearly the slowest of some fifteen
//!   closings; more rounds make it the median of such.
//!
//! Shutdown: the experiment kills and waits for what it has started, also when it fails. When it is
//! killed itself the generator dies with it, and the query ends for want of its connections.

mod chart;
mod child;
mod comparison;
mod figures;
mod order;
mod part;
mod plan;
mod point;
mod query;
mod receiver;
mod records;
mod sender;
mod setting;
mod table;
mod usage;
mod verdict;

pub use plan::Arguments;

use child::Programs;
use figures::{Figures, Summary};
use order::{Point, Spec};
use plan::Plan;

use crate::common::Assumed;
use crate::lab::{self, Chart, Experiment, Verdict, distinct, rate};
use crate::party::PartArguments;

/// Runs the generator.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
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
            // A multiple of what passes.
            let again = |point: &Point| measure(point.spec, point.round);
            repeated += round.repeat(&mut measured, 1.0, Point::disturbance, again)?;
            points.extend(measured);
        }
        Ok(summarise(self, repeated, points))
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(&figures.summaries, &figures.comparisons)
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }

    fn charts(&self, figures: &Figures) -> Vec<Chart> {
        chart::charts(figures)
    }
}

fn summarise(plan: &Plan, repeated: usize, points: Vec<Point>) -> Figures {
    let specs = distinct(plan.groups.iter().flatten().copied());
    let summaries = specs
        .into_iter()
        .filter_map(|spec| Summary::of(spec, &points));
    let summaries = summaries.collect::<Vec<_>>();
    Figures {
        core: plan.core,
        assumed: Assumed::here(),
        record_bytes: records::RECORD_BYTES,
        rounds: plan.rounds,
        seconds: plan.seconds,
        warm_up_s: plan.warm_up_s,
        comparisons: comparison::comparisons(&summaries),
        summaries,
        repeated,
        disturbed: points.iter().filter(|point| point.is_disturbed()).count(),
        points,
    }
}
