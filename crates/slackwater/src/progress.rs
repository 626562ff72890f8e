//! The progress line on standard error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_engine::counters::InstanceCounters;
use slackwater_sql::program::Program;

use crate::catalog::ProgramCatalog;
use crate::report::count;
use crate::terminal::say;

/// The progress line on standard error, for bounded inputs that take a while.
pub struct Progress {
    next: Option<Instant>,
    every: Duration,
    terminal: bool,
    bytes_total: u64,
    last: (Instant, u64),
    /// Whether the counters were asked for.
    is_counted: bool,
    visible: bool,
}

/// What a progress line needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// The counters.
    Count,
    /// To be drawn.
    Show,
}

/// How long after the question the counters of other processes and hosts are there.
const ANSWER_AFTER: Duration = Duration::from_millis(100);

/// The line is shown only for runs that are longer than this.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);

impl Progress {
    /// A line for bounded inputs, if it is `wanted`.
    pub fn new(wanted: bool, program: &Program) -> Progress {
        use std::io::IsTerminal;
        let sources = program.sources();
        let sources = sources.map(|(_, source)| source.connector.describe());
        let sources = sources.collect::<Vec<_>>();
        let bounded = sources.iter().all(|source| source.bounded);
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Progress {
            next: (wanted && bounded).then(|| now + PROGRESS_AFTER),
            every: if terminal {
                Duration::from_secs(1)
            } else {
                Duration::from_secs(10)
            },
            terminal,
            bytes_total: sources.iter().filter_map(|source| source.total_bytes).sum(),
            last: (now, 0),
            is_counted: false,
            visible: false,
        }
    }

    /// The time of the next update, if there is a line.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// What is due: the counters are asked for, and shown when other processes and hosts have answered.
    pub fn due(&mut self, now: Instant) -> Due {
        if self.next.is_none_or(|next| next > now) {
            return Due::Nothing;
        }
        self.is_counted = !self.is_counted;
        match self.is_counted {
            true => {
                self.next = Some(now + ANSWER_AFTER);
                Due::Count
            }
            false => Due::Show,
        }
    }

    /// Draws the line.
    pub fn show(
        &mut self,
        now: Instant,
        program: &Program,
        catalog: &ProgramCatalog<'_>,
        counters: &[Arc<InstanceCounters>],
        started: Instant,
    ) {
        self.next = Some(now + self.every);
        let rows: u64 = counters
            .iter()
            .map(|c| InstanceCounters::read(&c.rows_in))
            .sum();
        let seconds = now.duration_since(self.last.0).as_secs_f64().max(1e-3);
        let rate = (rows - self.last.1) as f64 / seconds;
        self.last = (now, rows);
        let bytes: u64 = (0..program.nodes.len())
            .map(|node| catalog.bytes_read(node))
            .sum();
        let percent = match self.bytes_total {
            0 => String::new(),
            total => format!(
                ", {:.0} %",
                (bytes as f64 / total as f64 * 100.0).min(100.0)
            ),
        };
        let latency_ns = counters
            .iter()
            .map(|c| InstanceCounters::read(&c.latency_recent_ns))
            .max();
        let text = format!(
            "{:.0} s: {} rows, {} rows/s{percent}, latency {:.1} ms",
            now.duration_since(started).as_secs_f64(),
            count(rows),
            count(rate as u64),
            latency_ns.unwrap_or(0) as f64 / 1e6
        );
        if self.terminal {
            say(&format!("\r\x1b[K{text}"));
            self.visible = true;
        } else {
            say(&format!("{text}\n"));
        }
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.visible) {
            say("\r\x1b[K");
        }
    }
}
