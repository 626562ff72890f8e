//! `slackwater bench checkpoint`: what checkpoints cost, and how long a query takes to recover.
//!
//! A running aggregation by key over generated rows at a fixed rate, with a latency target as its only
//! setting; its keys come in turn, so each is used as often as any other. Each point is `slackwater run`
//! as a process of its own.
//!
//! ```text
//! plan ──► query with and without checkpoints ── CPU time from the kernel, the query's own report
//!     └──► query on two processes, one killed ── its standard error, the parts that it writes
//! table, JSON ◄── verdicts ◄── summaries ◄── points, kills
//! ```
//!
//! What the figures contain:
//! - **CPU time** is the kernel's count of the query's process and all processes that it started, after a
//!   warm-up in which every key occurred. The difference to the run without checkpoints is calculated
//!   within each round.
//! - **Latency** is what the sink measured, over the whole run, warm-up included: from the time that a
//!   row was due until it reached the sink. The latency of a row's *commit* is reported separately.
//!   *Seconds violated* are those in which more than one row in a hundred was later than the target.
//! - **A stall** is how long an instance stopped to copy its state; a checkpoint's duration is from the
//!   barrier to the stored manifest.
//! - **A kill** is a SIGKILL to one of two worker processes, each in turn, at a random moment. It is
//!   *noticed* when the parent reports it; rows are *back* when the first part of the next incarnation
//!   appears under its hidden name; the output has *caught up* when a committed part contains a row as
//!   late as the last one that was due when the process died. A source of generated rows continues at its
//!   pace, so repeating what was lost since the last checkpoint takes as long again.
//! - **Waited for a core** is how long workers were ready to run while another thread had their core, of
//!   the time. What rows waited for that is neither the query's work nor that of checkpoints.
//! - **Rounds are interleaved**, every other one backwards. Figures are medians over the rounds.
//!
//! Shutdown: the processes started here are killed when the experiment ends or fails, and its folders are
//! removed.

mod cost;
mod figures;
mod kill;
pub mod output;
mod plan;
pub mod query;
pub mod running;
mod table;
mod verdict;
pub mod workers;

pub use plan::Arguments;

use figures::Figures;
use plan::Plan;

use crate::lab::{self, Experiment, Verdict, minutes};

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    lab::conduct(&Plan::of(arguments)?, &arguments.files, None)
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        format!(
            "{} points and {} kills, about {}",
            self.specs.len() * self.rounds as usize,
            self.killed.len() * self.kills as usize,
            minutes(self.expected_s())
        )
    }

    fn measure(&self) -> Result<Figures, String> {
        let mut points = Vec::new();
        for round in lab::rounds(self.rounds) {
            for &spec in round.order(&self.specs) {
                let point = cost::measure(self, spec, round.number)?;
                round.note(point.line());
                points.push(point);
            }
        }
        let mut kills = Vec::new();
        for number in 1..=self.kills {
            for &keys in &self.killed {
                let kill = kill::measure(self, keys, number)?;
                eprintln!("kill {number} of {}: {}", self.kills, kill.line());
                kills.push(kill);
            }
        }
        Ok(Figures {
            rate_per_s: self.rate_per_s,
            rounds: self.rounds,
            seconds: self.seconds,
            costs: figures::costs(&points),
            recoveries: figures::recoveries(&kills),
            points,
            kills,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(&figures.points, &figures.costs, &figures.recoveries)
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}
