//! Sources and sinks that the process itself has, in whatever language it is written.
//!
//! ```text
//! Reader::start(Outlet) ─ its own thread ─ Outlet::push() ─► lane ─► source.rs, on its worker
//! sink.rs, on its worker ─► Writer::write(), prepare();  when the checkpoint is stored: commit()
//! ```
//!
//! - They are offered under a name, as the rows of a [`feed`](crate::feed) are; the table's option `name`
//!   names them. They live as long as their [`Offer`] or a query that uses them.
//! - A [`Reader`] reads each partition on a thread of its own, and hands rows on with the offset after them.
//!   A checkpoint has the offset of the last rows that it contains; the partition resumes there.
//! - What waits for the query is bounded ([`lane`]); a reader that is ahead waits.
//! - A [`Writer`] that is exactly once secures its rows when a checkpoint is taken, and makes them visible
//!   when it is stored.

mod lane;
mod rows;
mod sink;
mod source;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use slackwater_engine::error::Result;

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::file_format::Formats;
use crate::options::{OptionError, Options, option};
pub use lane::Outlet;
pub use rows::{Bad, Piece};
use sink::CustomSink;
use source::CustomSource;

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "custom",
    aliases: &[],
    source: Some(|table, options| Ok(Arc::new(CustomSource::new(table, options)?))),
    sink: Some(|table, options| Ok(Arc::new(CustomSink::new(table, options)?))),
    lookup: None,
    formats: Formats::None,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Name("name"),
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Always,
    options: &[option(
        "name",
        "required",
        "the name under which the process offers the source or the sink",
    )],
    source_options: &[],
    sink_options: &[],
    lookup_options: &[],
};

/// The most partitions of a source: each has a thread.
pub const PARTITIONS_MAX: u32 = 256;

/// Reads the partitions of a table.
pub trait Reader: Send + Sync {
    /// Starts to read a partition from [`Outlet::offset`] on, on a thread of its own, and returns. Called on
    /// the worker's thread.
    ///
    /// # Errors
    ///
    /// If the partition can't be read.
    fn start(&self, outlet: Outlet) -> Result<Box<dyn Reading>>;
}

/// A partition that is read.
pub trait Reading: Send {
    /// The query takes no more rows of the partition: whoever reads it should end soon. Called once, unless
    /// the partition has ended, on the worker's thread; does not wait.
    fn stop(&self);
}

/// Writes the rows of a table. It is called by one thread at a time, though not always by the same one.
pub trait Writer: Send + Sync {
    /// Begins to write: rows that were written before and are in no checkpoint are forgotten, because they
    /// come again. Everything that was prepared and counts is committed by now.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    fn begin(&self) -> Result<()>;

    /// Writes rows.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    fn write(&self, rows: &RecordBatch) -> Result<()>;

    /// Writes out the rows so far, for a writer that is not exactly once: a checkpoint will contain them.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    fn flush(&self) -> Result<()>;

    /// Makes the rows since the last call durable, but not visible; returns the text to commit them by.
    /// `checkpoint` is a name that no other call gets.
    ///
    /// # Errors
    ///
    /// If they can't be stored.
    fn prepare(&self, checkpoint: &str) -> Result<String>;

    /// Makes what was prepared visible. May be called again for the same text, also after later ones; it then
    /// does nothing.
    ///
    /// # Errors
    ///
    /// If it can't be committed now.
    fn commit(&self, prepared: &str) -> Result<()>;

    /// Ends writing. Called once for each `begin`, also after an error.
    fn close(&self);
}

/// What a process offers.
pub enum Custom {
    /// A table that is read.
    Source(Source),
    /// A table that is written.
    Sink(Sink),
}

/// How a table is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The number of its partitions, at most [`PARTITIONS_MAX`].
    pub partitions: u32,
    /// Whether whoever reads a partition hands on the offset after each of its pieces, and gives the same
    /// rows again in the same order after an offset.
    pub has_offsets: bool,
    /// Whether all partitions end.
    pub ends: bool,
}

/// A table that is read.
pub struct Source {
    reader: Box<dyn Reader>,
    terms: Terms,
    running: Running,
}

/// A table that is written.
pub struct Sink {
    writer: Mutex<Box<dyn Writer>>,
    is_exactly_once: bool,
    /// Whether a query writes to it.
    is_written: Mutex<bool>,
}

impl Custom {
    /// A source.
    pub fn source(reader: Box<dyn Reader>, terms: Terms) -> Custom {
        assert!(
            (1..=PARTITIONS_MAX).contains(&terms.partitions),
            "a source has partitions"
        );
        Custom::Source(Source {
            reader,
            terms,
            running: Running::default(),
        })
    }

    /// A sink. With `is_exactly_once` the writer prepares and commits.
    pub fn sink(writer: Box<dyn Writer>, is_exactly_once: bool) -> Custom {
        Custom::Sink(Sink {
            writer: Mutex::new(writer),
            is_exactly_once,
            is_written: Mutex::new(false),
        })
    }

    /// Waits until the readers have ended whose query takes no more rows, but no longer than `limit`; returns
    /// the partitions that are still read.
    pub fn settle(&self, limit: Duration) -> Vec<u32> {
        match self {
            Custom::Source(source) => source.running.wait(limit, |_| true),
            Custom::Sink(_) => Vec::new(),
        }
    }
}

impl Sink {
    fn writer(&self) -> MutexGuard<'_, Box<dyn Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The readers that have not ended.
#[derive(Debug, Default)]
struct Running {
    state: Mutex<RunningState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct RunningState {
    /// The number of the reader that was started last.
    last: u64,
    readers: Vec<Run>,
}

/// A reader that has not ended.
#[derive(Debug)]
struct Run {
    number: u64,
    partition: u32,
    /// Whether its query takes no more rows.
    is_over: bool,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, RunningState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a reader, and returns its number.
    fn begin(&self, partition: u32) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.readers.push(Run {
            number,
            partition,
            is_over: false,
        });
        number
    }

    /// The query of a reader takes no more rows.
    fn over(&self, number: u64) {
        let mut state = self.state();
        let own = state.readers.iter_mut().find(|run| run.number == number);
        if let Some(run) = own {
            run.is_over = true;
        }
    }

    /// A reader has ended.
    fn end(&self, number: u64) {
        self.state().readers.retain(|run| run.number != number);
        self.ended.notify_all();
    }

    /// Waits until none of the readers whose query is over is `meant`, but no longer than `limit`; returns
    /// the partitions of those that are.
    fn wait(&self, limit: Duration, meant: impl Fn(&Run) -> bool) -> Vec<u32> {
        let until = Instant::now() + limit;
        let mut state = self.state();
        loop {
            let left = state.readers.iter().filter(|run| run.is_over && meant(run));
            let left = left.map(|run| run.partition).collect::<Vec<_>>();
            let patience = until.saturating_duration_since(Instant::now());
            if left.is_empty() || patience.is_zero() {
                return left;
            }
            let waited = self.ended.wait_timeout(state, patience);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What is offered under a name; dropping it takes the name back.
pub struct Offer {
    name: String,
    custom: Arc<Custom>,
}

/// What this process offers.
static OFFERED: Mutex<BTreeMap<String, Weak<Custom>>> = Mutex::new(BTreeMap::new());

fn offered() -> MutexGuard<'static, BTreeMap<String, Weak<Custom>>> {
    OFFERED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offer {
    /// Offers a source or a sink to the tables whose option `name` has this name, instead of the one before.
    pub fn new(name: &str, custom: Custom) -> Offer {
        let custom = Arc::new(custom);
        offered().insert(name.to_string(), Arc::downgrade(&custom));
        Offer {
            name: name.to_string(),
            custom,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source or sink.
    pub fn custom(&self) -> &Arc<Custom> {
        &self.custom
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut offered = offered();
        let is_own = |known: &Weak<Custom>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&self.custom));
        if offered.get(&self.name).is_some_and(is_own) {
            offered.remove(&self.name);
        }
    }
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is offered under the name in the option.
fn named(options: &Options<'_>) -> std::result::Result<Arc<Custom>, OptionError> {
    let name = options.required("name", "readings")?;
    let custom = offered().get(name).and_then(Weak::upgrade);
    custom.ok_or_else(|| {
        OptionError::new(
            "name",
            format!("this process offers nothing as '{name}'"),
            "the connector is for programs that embed the engine: Session.source and Session.sink of the \
             Python package declare such tables",
        )
    })
}

#[cfg(test)]
mod sink_tests;
#[cfg(test)]
mod source_tests;
