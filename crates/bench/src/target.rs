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

use clap::Args;

pub use plan::Arguments;

use super::common::{REPEATED_SHARE_MAX, check_folders, minutes, rate, write, write_json};
use child::Programs;
use figures::{Figures, Summary, distinct};
use order::{Point, Spec};
use plan::Plan;
use slackwater::calibrate::{self, Host, load_average};

/// The generator of a point, in a process of its own.
#[derive(Args)]
pub struct PartArguments {
    /// The descriptor of the socket to whoever measures
    #[arg(long)]
    control: i32,
}

/// Runs the generator.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    check_folders(&[&arguments.json, &arguments.svg])?;
    let programs = Programs::find(plan.needs_hand())?;
    eprintln!(
        "{} points, about {}; up to {} where other processes disturb",
        plan.points(),
        minutes(plan.expected_s()),
        minutes(plan.expected_max_s())
    );
    let figures = measure(&plan, &programs)?;
    print!("{}", figures.text());
    write_json(arguments.json.as_deref(), &figures)?;
    if let Some(path) = &arguments.svg {
        write(path, &chart::draw(&figures))?;
    }
    Ok(())
}

fn measure(plan: &Plan, programs: &Programs) -> Result<Figures, String> {
    let load_before = load_average();
    let measure =
        |spec: Spec, round: u32| point::measure(programs, spec, &plan.order(&spec), round);
    let mut points = Vec::new();
    let mut repeated = 0;
    for round in 1..=plan.rounds {
        let mut measured = Vec::new();
        for group in &plan.groups {
            let mut group = group.clone();
            if round % 2 == 0 {
                group.reverse();
            }
            for spec in group {
                eprintln!(
                    "round {round} of {}, point {} of {}: {}, {} at {}",
                    plan.rounds,
                    measured.len() + 1,
                    plan.points_per_round(),
                    spec.setting,
                    spec.query,
                    rate(spec.rate_per_s as f64)
                );
                measured.push(measure(spec, round)?);
            }
        }
        repeated += repeat(&measure, &mut measured)?;
        points.extend(measured);
    }
    Ok(summarise(plan, load_before, repeated, points))
}

/// Measures the most disturbed points of a round again, and keeps the better measurement of each.
fn repeat(
    measure: &impl Fn(Spec, u32) -> Result<Point, String>,
    points: &mut [Point],
) -> Result<usize, String> {
    let most = (points.len() as f64 * REPEATED_SHARE_MAX) as usize;
    let disturbed = points.iter_mut().filter(|point| point.is_disturbed());
    let mut disturbed = disturbed.collect::<Vec<_>>();
    disturbed.sort_by(|one, other| other.disturbance().total_cmp(&one.disturbance()));
    disturbed.truncate(most);
    if !disturbed.is_empty() {
        eprintln!(
            "again, since other processes disturbed: {} points",
            disturbed.len()
        );
    }
    let count = disturbed.len();
    for point in disturbed {
        let again = measure(point.spec, point.round)?;
        if again.disturbance() < point.disturbance() {
            *point = again;
        }
    }
    Ok(count)
}

fn summarise(plan: &Plan, load_before: [f64; 3], repeated: usize, points: Vec<Point>) -> Figures {
    let specs = distinct(plan.groups.iter().flatten().copied());
    let summaries = specs
        .into_iter()
        .filter_map(|spec| Summary::of(spec, &points));
    let summaries = summaries.collect::<Vec<_>>();
    let comparisons = comparison::comparisons(&summaries);
    let calibration = calibrate::load().ok();
    Figures {
        host: Host::this(),
        load_before,
        load_after: load_average(),
        core: plan.core,
        costs_measured: calibration.is_some(),
        costs: calibration.map_or_else(
            || slackwater_engine::runtime::Costs::default().into(),
            |calibration| calibration.costs,
        ),
        record_bytes: records::RECORD_BYTES,
        rounds: plan.rounds,
        seconds: plan.seconds,
        warm_up_s: plan.warm_up_s,
        verdicts: verdict::verdicts(&summaries, &comparisons),
        comparisons,
        summaries,
        repeated,
        disturbed: points.iter().filter(|point| point.is_disturbed()).count(),
        points,
    }
}
