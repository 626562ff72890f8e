//! What Prometheus is shown of a running query.
//!
//! ```text
//! HTTP's thread ─ Look ─► Watch ─ gather.rs: counters of the incarnation ─► Board ─ text.rs ─► page
//! ```
//!
//! - Nothing is gathered but for a scrape, from the counters that the report is made of (I7, I8).
//! - Counters never go backwards: when an incarnation has ended, its last counts are kept, and those of the
//!   next one are added to them.
//! - A scrape is answered in bounded time: between incarnations with what was known last.

mod gather;
mod snapshot;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use slackwater_serve::http::{Answer, Reply};
use slackwater_serve::prometheus::CONTENT_TYPE;

use crate::machine;
pub use gather::Gatherer;
pub use snapshot::{CheckpointCounts, Snapshot};
use text::Totals;

/// What is known of a run, for those who look at it.
pub struct Board {
    /// The run's name.
    pipeline: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The counts of incarnations that have ended.
    before: Snapshot,
    /// The counts of this incarnation, as of the last look.
    now: Option<Snapshot>,
    /// The number of incarnations that have begun.
    begun: u64,
    /// Whether an incarnation runs, and hears requests.
    is_running: bool,
    /// The most CPU time that was shown: that of a process which has just ended is counted in two places.
    cpu_s: f64,
}

impl Board {
    /// The board of a run.
    pub fn new(pipeline: String) -> Board {
        Board {
            pipeline,
            state: Mutex::default(),
        }
    }

    /// Whether an incarnation runs, and hears requests.
    pub fn is_running(&self) -> bool {
        self.lock().is_running
    }

    /// An incarnation begins.
    pub fn begin(&self) {
        let mut state = self.lock();
        state.begun += 1;
        state.is_running = true;
    }

    /// The counts of this incarnation until now.
    pub fn show(&self, mut now: Snapshot) {
        let mut state = self.lock();
        if let Some(earlier) = &state.now {
            now.keep_up_with(earlier);
        }
        state.now = Some(now);
    }

    /// The incarnation no longer hears requests.
    pub fn pause(&self) {
        self.lock().is_running = false;
    }

    /// The incarnation has ended, with these counts.
    pub fn end(&self, counts: Snapshot) {
        let mut state = self.lock();
        state.before.add(counts);
        // Its processes have ended, and the system counts what they have used.
        state.before.processes_ended();
        state.now = None;
    }

    /// The page for Prometheus.
    pub fn page(&self) -> String {
        let mut state = self.lock();
        let mut counts = state.before.clone();
        if let Some(now) = &state.now {
            counts.add(now.clone());
        }
        let cpu_s = machine::process_cpu_s() + machine::children_cpu_s() + counts.processes_cpu_s;
        state.cpu_s = state.cpu_s.max(cpu_s);
        let totals = Totals {
            cpu_s: state.cpu_s,
            resident_bytes: machine::resident_bytes() + counts.processes_resident_bytes,
            restarts: state.begun.saturating_sub(1),
        };
        drop(state);
        text::page(&self.pipeline, &counts, &totals)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A scrape. Dropping it answers it with what the board then knows, so it is always answered.
pub struct Look {
    board: Arc<Board>,
    reply: Option<Reply>,
}

impl Look {
    /// A scrape of `board`, to be answered to `reply`.
    pub fn new(board: &Arc<Board>, reply: Reply) -> Look {
        Look {
            board: Arc::clone(board),
            reply: Some(reply),
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            let answer = Answer::new(
                slackwater_serve::http::StatusCode::OK,
                CONTENT_TYPE,
                self.board.page(),
            );
            // A scraper comes once in a while: an open connection would need a timer until then.
            reply.send(answer.closing());
        }
    }
}

/// The seconds since 1970.
fn unix_s(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs_f64()
}

#[cfg(test)]
mod tests;
