//! What Prometheus and the page are shown of a running query.
//!
//! ```text
//! HTTP's thread ─ Look ─► Watch ─ gather.rs: counters of the incarnation ─► Board ─┬─ text.rs ─► /metrics
//!                                                                              └─ json.rs ─► the page
//! ```
//!
//! - Nothing is gathered but for a scrape, from the counters that the report is made of (I7, I8).
//! - Counters never go backwards: when an incarnation has ended, its last counts are kept, and those of the
//!   next one are added to them.
//! - A scrape is answered in bounded time: between incarnations with what was known last.

mod bad_rows;
mod gather;
mod hosts;
mod job;
mod json;
mod snapshot;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use slackwater_sql::node::SinkSpec;

use crate::machine;
use bad_rows::BadRows;
pub use gather::Gatherer;
pub use hosts::Spread;
pub use job::Job;
pub use snapshot::{CheckpointCounts, Snapshot, StandbyCounts};
use text::Totals;

/// What is known of a run, for those who look at it.
pub struct Board {
    /// The run's name.
    pipeline: String,
    job: Job,
    born: Instant,
    state: Mutex<State>,
    /// Counts the hosts that are there, if hosts can join.
    joined: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
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
    /// Whether the inputs have ended, and no other incarnation follows.
    is_finished: bool,
    /// The most CPU time that was shown: that of a process which has just ended is counted in two places.
    cpu_s: f64,
    bad_rows: BadRows,
}

impl Board {
    /// The board of a run.
    pub fn new(pipeline: String, mut job: Job) -> Board {
        let state = State {
            bad_rows: BadRows::new(std::mem::take(&mut job.dead_letters)),
            ..State::default()
        };
        Board {
            pipeline,
            job,
            born: Instant::now(),
            state: Mutex::new(state),
            joined: OnceLock::new(),
        }
    }

    /// Also shows how many hosts there are, which `joined` counts. Only the first call counts.
    pub fn count_hosts(&self, joined: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.joined.set(Box::new(joined));
    }

    /// The hosts of the query as of the last look, and how many are there now, as a line of JSON; `null` if
    /// hosts can't join.
    pub fn hosts_json(&self) -> String {
        let (counts, _) = self.counted(&mut self.lock());
        // Numbers and words: it can't fail.
        serde_json::to_string(&counts.hosts).unwrap_or_default() + "\n"
    }

    /// The run's name.
    pub fn name(&self) -> &str {
        &self.pipeline
    }

    /// What the run does.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Whether an incarnation runs, in a word.
    pub fn status(&self) -> &'static str {
        status(&self.lock())
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
    pub fn end(&self, mut counts: Snapshot) {
        let mut state = self.lock();
        // What it wanted as of the last look is wanted until the next one.
        let known = state.now.as_ref().and_then(|now| now.hosts);
        counts.hosts = counts.hosts.or(known);
        state.before.add(counts);
        // Its processes have ended, and the system counts what they have used.
        state.before.processes_ended();
        state.now = None;
    }

    /// The run has ended, and what is known of it is shown from now on.
    pub fn finish(&self) {
        self.lock().is_finished = true;
    }

    /// The page for Prometheus.
    pub fn page(&self) -> String {
        self.page_with(false)
    }

    /// The page for Prometheus, with the watermark of each partition if it is wanted.
    pub fn page_with(&self, partitions: bool) -> String {
        let (counts, totals) = self.counted(&mut self.lock());
        text::page(&self.pipeline, &counts, &totals, partitions)
    }

    /// The counts for the page.
    pub fn json(&self) -> String {
        let state = &mut *self.lock();
        let (counts, totals) = self.counted(state);
        let sources = counts.sources.values();
        let bad = sources.map(|source| source.bad).sum::<u64>() + counts.unknown[1];
        let at = (self.born.elapsed().as_secs_f64(), status(state));
        json::json(at, &counts, &totals, state.bad_rows.last(bad))
    }

    /// All that is known.
    fn counted(&self, state: &mut State) -> (Snapshot, Totals) {
        let (mut counts, totals) = counted(state);
        if let (Some(hosts), Some(joined)) = (&mut counts.hosts, self.joined.get()) {
            // They come and go between looks, too.
            hosts.joined = joined();
        }
        (counts, totals)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn status(state: &State) -> &'static str {
    match (state.is_running, state.begun) {
        (true, _) => "running",
        (false, _) if state.is_finished => "finished",
        (false, 0) => "starting",
        (false, _) => "restarting",
    }
}

/// All that is known.
fn counted(state: &mut State) -> (Snapshot, Totals) {
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
    (counts, totals)
}

/// The name of a query's own output among the tables.
const TERMINAL: &str = "print";

/// The name of a sink's table.
fn name_of(sink: &SinkSpec) -> &str {
    let table = sink.table.as_ref().map(|table| table.name.as_str());
    table.unwrap_or(TERMINAL)
}

/// What makes an answer of what the board knows.
type Teller = Box<dyn FnOnce(&Board) + Send>;

/// Somebody looks at the board. Dropping it answers them with what the board then knows, so they are always
/// answered.
pub struct Look {
    board: Arc<Board>,
    tell: Option<Teller>,
    shows_partitions: bool,
}

impl Look {
    /// A look at `board`; `tell` answers it.
    pub fn new(board: &Arc<Board>, tell: impl FnOnce(&Board) + Send + 'static) -> Look {
        Look {
            board: Arc::clone(board),
            tell: Some(Box::new(tell)),
            shows_partitions: false,
        }
    }

    /// Also shows what sources say of their partitions.
    pub fn with_partitions(mut self) -> Look {
        self.shows_partitions = true;
        self
    }

    /// Whether it shows what sources say of their partitions.
    pub fn shows_partitions(&self) -> bool {
        self.shows_partitions
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(&self.board);
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
