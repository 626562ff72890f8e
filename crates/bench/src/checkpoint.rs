//! `slackwater bench checkpoint`: what checkpoints cost, and how long a query takes to come back.
//!
//! A running aggregation by key over made-up rows at a fixed rate, told a latency target and nothing
//! else; its keys come in turn, so each is used as often as any other. Each point is `slackwater run` as
//! a process of its own.
//!
//! ```text
//! plan ──► query with and without checkpoints ── CPU time from the kernel, the query's own report
//!     └──► query on two processes, one killed ── its standard error, the parts that it writes
//! table, JSON ◄── verdicts ◄── summaries ◄── points, kills
//! ```
//!
//! What the figures contain:
//! - **CPU time** is the kernel's count of the query's process and all that it started, behind a warm-up
//!   in which every key came. The difference to the run without checkpoints is taken within each round.
//! - **Latency** is what the sink saw, over the whole run, warm-up included: from the time that a row was
//!   due to its way into the sink. That of a row's *commit* stands apart. *Seconds violated* are those in
//!   which more than one row in a hundred was later than the target.
//! - **A stall** is how long an instance stood still to copy its state; a checkpoint's duration is from
//!   the barrier to the stored manifest.
//! - **A kill** is a SIGKILL to one of two worker processes, each in turn, at a random moment. It is
//!   *noticed* when the parent says so; rows are *back* when the first part of the next incarnation
//!   appears under its hidden name; the output has *caught up* when a committed part has a row as late as
//!   the last one that was due when the process died. A source that made rows up goes on at its pace, so
//!   what was lost since the last checkpoint takes as long again.
//! - **Rounds are interleaved**, every other one backwards. Figures are medians over the rounds.
//!
//! Shutdown: what was started is killed when the experiment ends or fails, and its folders are removed.

mod cost;
mod figures;
mod folder;
mod kill;
mod output;
mod plan;
mod processes;
mod query;
mod running;
mod table;
mod verdict;

pub use plan::Arguments;

use super::common::{check_folders, minutes, write_json};
use figures::Figures;
use plan::Plan;
use slackwater::calibrate::{Host, load_average};

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    check_folders(&[&arguments.json])?;
    eprintln!(
        "{} points and {} kills, about {}",
        plan.specs.len() * plan.rounds as usize,
        plan.killed.len() * plan.kills as usize,
        minutes(plan.expected_s())
    );
    let figures = measure(&plan)?;
    print!("{}", table::table(&figures));
    write_json(arguments.json.as_deref(), &figures)
}

fn measure(plan: &Plan) -> Result<Figures, String> {
    let load_before = load_average();
    let mut points = Vec::new();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        let mut specs = plan.specs.clone();
        if round % 2 == 0 {
            specs.reverse();
        }
        for spec in specs {
            let point = cost::measure(plan, spec, round)?;
            eprintln!("  {}", point.line());
            points.push(point);
        }
    }
    let mut kills = Vec::new();
    for number in 1..=plan.kills {
        eprintln!("kill {number} of {}", plan.kills);
        for &keys in &plan.killed {
            let kill = kill::measure(plan, keys, number)?;
            eprintln!("  {}", kill.line());
            kills.push(kill);
        }
    }
    let costs = figures::costs(&points);
    let recoveries = figures::recoveries(&kills);
    Ok(Figures {
        host: Host::this(),
        load_before,
        load_after: load_average(),
        rate_per_s: plan.rate_per_s,
        rounds: plan.rounds,
        seconds: plan.seconds,
        verdicts: verdict::verdicts(&costs, &recoveries),
        costs,
        recoveries,
        points,
        kills,
    })
}
