//! `slackwater bench standby`: what a standby costs, and how soon it goes on.
//!
//! The aggregation of `slackwater bench checkpoint`: a running count, sum and last row per key over generated
//! rows at a fixed rate, all keys in turn. Each run is a process of its own.
//!
//! ```text
//! cost       CPU time of a run without checkpoints, with its own, and with a standby that stores them
//! take-over  from kill -9 of the active to rows: restarted, by a standby, by one with slow storage
//! ```
//!
//! What the figures contain:
//! - **CPU time** is the kernel's count of the process, after a warm-up in which every key occurred; *beside
//!   workers* is the part of threads that do not process rows. With a standby, checkpoints are as often as
//!   without: every `--interval`.
//! - **Notice** is when the standby says that the active is gone; for a restart, when this program has
//!   collected the process, whose command it then runs again at once.
//! - **Rows** are back when the first part of the next incarnation appears in the folder of the sink, under
//!   its hidden name.
//! - **Slow storage**: `blkio.throttle` of the group of both processes limits what they write to the disk of
//!   `--folder` (needs root and a cgroup with that controller; otherwise not measured).
//! - **Rounds** are interleaved, every other one backwards; figures are medians.
//!
//! Shutdown: the processes started here are killed when the experiment ends or fails, and its folders are
//! removed.
//!
//! Results: `docs/benchmarks/standby.md`.

mod cost;
mod figures;
mod plan;
mod slow;
mod takeover;

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
            "{} cost(s) and {} take-over(s) in {} round(s), about {}",
            self.costs().len(),
            self.takeovers().len(),
            self.rounds,
            minutes(self.expected_s())
        )
    }

    fn measure(&self) -> Result<Figures, String> {
        let mut figures = Figures {
            rate_per_s: self.rate_per_s,
            interval_ms: self.interval_ms,
            seconds: self.seconds,
            rounds: self.rounds,
            ..Figures::default()
        };
        for round in lab::rounds(self.rounds) {
            for case in round.order(&self.costs()) {
                let point = cost::measure(self, *case)?;
                round.note(point.line());
                figures.points.push(point);
            }
            for case in round.order(&self.takeovers()) {
                match takeover::measure(self, *case, round.number)? {
                    Some(takeover) => {
                        round.note(takeover.line());
                        figures.takeovers.push(takeover);
                    }
                    None => round.note("slow storage: not measured here".to_string()),
                }
            }
        }
        Ok(figures)
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        figures.verdicts()
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }
}
