//! Sources: they bring rows into the engine.
//!
//! A [`SourceConnector`] is made once per table and makes one [`Source`] per instance. A source never
//! blocks: it returns [`SourcePoll::Pending`] and makes sure that the worker is woken when there is
//! something to read, by a file descriptor registered with the worker's waiter or by a waker handed to
//! another thread.

mod spread;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_link::Waiter;

use crate::chunk::Positions;
use crate::error::Result;
pub use spread::Spread;

/// A table that can be read.
pub trait SourceConnector: Send + Sync {
    /// The columns that the table declares (without computed ones), in order.
    fn schema(&self) -> SchemaRef;

    /// What is known of the source before it is read.
    fn describe(&self) -> SourceDescription;

    /// Makes the source of one instance. The source reads the columns [`SourceRequest::projection`]
    /// (indices into [`SourceConnector::schema`], increasing) and the partitions `p` with `p % instances
    /// == instance`, or those that [`SourceDescription::spread`] gives it.
    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>>;

    /// The local files that it reads, with their lengths when they were found; `None` if it reads something
    /// else, or knows only what other hosts have found.
    fn files(&self) -> Option<Vec<(PathBuf, u64)>> {
        None
    }

    /// What it has found outside (files), as text for the same table in other processes, which then don't
    /// look again; `None` if it doesn't look, or what it finds is the same everywhere.
    fn findings(&self) -> Option<String> {
        None
    }

    /// Checks that a query can resume from these partitions, before it starts; [`SourceConnector::source`]
    /// checks it, too.
    ///
    /// # Errors
    ///
    /// What is missing, and where.
    fn check_resume(&self, _resume: &[Resume]) -> Result<()> {
        Ok(())
    }

    /// Notes that a stored checkpoint has all rows of a partition before `position`
    /// ([`Resume::position`]), so the sender may forget them. Called in the process of the source that
    /// this connector made last, on another thread, with [`SourceRequest::saved`] only.
    fn stored(&self, _partition: &str, _position: u64) {}
}

/// What is known of a source before it is read.
#[derive(Debug, Clone, Default)]
pub struct SourceDescription {
    /// The connector's name (`file`).
    pub connector: String,
    /// The most instances that have something to read.
    pub max_instances: usize,
    /// The names of its partitions ([`Resume::name`]), if they are known before it is opened.
    pub partitions: Option<Vec<String>>,
    /// The hosts that have its partitions, if each host has its own; empty if any host reads any of them.
    pub spread: Spread,
    /// Whether it ends on its own.
    pub bounded: bool,
    /// Whether reading it again gives the same rows.
    pub replayable: bool,
    /// For a source that is not replayable: whether rows that no checkpoint has are delivered again when
    /// the query resumes, because the sender keeps them until it is told ([`SourceConnector::stored`]).
    pub redelivers: bool,
    /// For a source that is not replayable: whether its positions continue when the query resumes, so that it
    /// is told where it was ([`SourceRequest::resume`]).
    pub keeps_positions: bool,
    /// Whether a source that is not bounded still ends when its sender does, also in a query that takes
    /// checkpoints. Other unbounded sources continue there until the query is stopped.
    pub ends_with_peer: bool,
    /// Whether its partitions are connections: there may be any number of them, and none can be found
    /// again when the query resumes.
    pub transient_partitions: bool,
    /// Whether several threads can parse for one instance ([`SourceRequest::parsers`]).
    pub parsers: bool,
    /// The total bytes to read, if known (for progress).
    pub total_bytes: Option<u64>,
    /// Rows per second, if the source sets the pace itself.
    pub rows_per_s: Option<f64>,
}

/// What a source is made with.
#[derive(Clone)]
pub struct SourceRequest {
    /// The indices of the columns that are read, into the connector's schema, increasing.
    pub projection: Vec<usize>,
    /// This instance's number.
    pub instance: usize,
    /// Number of instances.
    pub instances: usize,
    /// The instances that run in this process: they share what limits the whole source.
    pub here: Arc<[usize]>,
    /// How many threads may parse for this instance, its own included; at least one.
    pub parsers: usize,
    /// Settings that may change while the source runs.
    pub tuning: Arc<Tuning>,
    /// Whether each file (or connection) is a unit of work: they are read one after the other, with a
    /// [`SourcePoll::EndOfWork`] after each.
    pub unit_per_partition: bool,
    /// Bytes read so far, for progress; this instance adds to its own slot.
    pub bytes_read: Arc<AtomicU64>,
    /// How far partitions of the table were read before the query was restored, in any order, including
    /// those of other instances. Empty if the query starts from nothing.
    pub resume: Arc<[Resume]>,
    /// Whether the query takes checkpoints.
    pub saved: bool,
}

/// How far a partition was read, as stored in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The partition's name, which identifies it when the query resumes.
    pub name: String,
    /// The position of the first row or rejected record that was not read.
    pub position: u64,
    /// The result of [`Source::bookmark`].
    pub bookmark: Option<String>,
    /// Whether it was read to its end, so that it need not be opened.
    pub ended: bool,
}

/// How a source cuts its rows into chunks. The values may change at any time; a source reads them when it
/// begins a chunk.
#[derive(Debug)]
pub struct Tuning {
    linger_ns: AtomicU64,
    chunk_rows: AtomicUsize,
    /// Reported by the source: the highest fill of its buffer, in thousandths.
    fill_permille: AtomicU64,
    /// Reported by the source: the names of its records' fields.
    fields: Mutex<Vec<String>>,
}

/// The most field names that are kept: a user who looks for a column's field sees them.
const FIELDS_NOTED_MAX: usize = 200;

impl Tuning {
    /// Rows may be collected for `linger_ns` nanoseconds, at most `chunk_rows` of them.
    pub fn new(linger_ns: u64, chunk_rows: usize) -> Tuning {
        Tuning {
            linger_ns: AtomicU64::new(linger_ns),
            chunk_rows: AtomicUsize::new(chunk_rows),
            fill_permille: AtomicU64::new(0),
            fields: Mutex::default(),
        }
    }

    /// Reports the names of the fields in the source's records, from a few records.
    pub fn note_fields(&self, names: Vec<String>) {
        let mut fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if fields.len() < FIELDS_NOTED_MAX && !fields.contains(&name) {
                fields.push(name);
            }
        }
    }

    /// The field names, in the order in which they were seen; empty if records have no names.
    pub fn fields(&self) -> Vec<String> {
        let fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
        fields.clone()
    }

    /// Reports how full the kernel's receive buffer was when the source came to read: data that doesn't
    /// fit waits unseen at the sender.
    pub fn note_fill(&self, bytes: usize, capacity: usize) {
        let permille = bytes as u64 * 1_000 / capacity.max(1) as u64;
        self.fill_permille.fetch_max(permille, Ordering::Relaxed);
    }

    /// The highest fill since the last call; 1 is full.
    pub fn take_fill(&self) -> f64 {
        self.fill_permille.swap(0, Ordering::Relaxed) as f64 / 1_000.0
    }

    /// How long rows may be collected before they are handed on, in nanoseconds.
    pub fn linger_ns(&self) -> u64 {
        // Relaxed, here and below: each value stands alone, and orders nothing.
        self.linger_ns.load(Ordering::Relaxed)
    }

    /// The most rows per chunk; at least one.
    pub fn chunk_rows(&self) -> usize {
        self.chunk_rows.load(Ordering::Relaxed).max(1)
    }

    /// Changes both.
    pub fn set(&self, linger_ns: u64, chunk_rows: usize) {
        self.linger_ns.store(linger_ns, Ordering::Relaxed);
        self.chunk_rows.store(chunk_rows, Ordering::Relaxed);
    }
}

/// One instance's part of a source.
pub trait Source: Send {
    /// Opens files and sockets, and registers with the waiter. Called once, on the worker's thread.
    /// Returns the partitions known now: number and name (`flights.csv`, `127.0.0.1:9000`).
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>>;

    /// Returns the next rows or event. Never blocks on a peer.
    fn poll(&mut self) -> Result<SourcePoll>;

    /// Where to resume a partition after everything that was handed out, in the source's own form
    /// ([`Resume::bookmark`]). A source that returns `None`, or ignores [`SourceRequest::resume`], is
    /// read from its beginning when the query is restored, and rows before [`Resume::position`] are left
    /// out.
    fn bookmark(&mut self, _partition: u32) -> Option<String> {
        None
    }

    /// What other threads have done for it since the last call.
    fn take_helped(&mut self) -> Helped {
        Helped::default()
    }

    /// Releases files, sockets and threads. Called once, also after an error.
    fn close(&mut self);
}

/// What other threads have done for a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Helped {
    /// The threads that were started.
    pub threads: usize,
    /// The time that they have spent on rows, in nanoseconds.
    pub busy_ns: u64,
}

/// What a source returns when it is polled.
pub enum SourcePoll {
    /// Rows of one partition, with the records that were rejected.
    Rows(SourceRows),
    /// A partition appeared while the query runs.
    PartitionStarted {
        /// Its number.
        partition: u32,
        /// Its name, for messages.
        name: String,
    },
    /// A partition ended.
    PartitionEnded {
        /// Its number.
        partition: u32,
    },
    /// The connection of a partition was lost: it broke, or its peer left and another connection is
    /// waited for. This is only counted: the partition has not ended.
    ConnectionLost,
    /// The unit of work ended (only with [`SourceRequest::unit_per_partition`]).
    EndOfWork,
    /// Nothing now; the waiter will be woken.
    Pending,
    /// Nothing before this time on the engine's clock (a paced replay, a linger).
    NotBefore {
        /// Nanoseconds on the clock of [`crate::time::now_ns`].
        time_ns: u64,
    },
    /// The source has ended.
    End,
}

/// Rows as a source has read them.
pub struct SourceRows {
    /// The columns of [`SourceRequest::projection`], in that order.
    pub batch: RecordBatch,
    /// The partition they come from.
    pub partition: u32,
    /// Their positions in it.
    pub positions: Positions,
    /// When the oldest of the rows entered the engine, or the latest time before which it can't have
    /// (nanoseconds on the clock of [`crate::time::now_ns`]): the wake-up's time if the worker waited for
    /// it; the last look that found nothing if the worker slept or was busy; the row's deadline for a
    /// source that sets the pace.
    pub ingest_ns: u64,
    /// Records that could not become rows: wrong number of fields, a column that can't be parsed.
    pub rejected: Vec<Rejected>,
}

impl SourceRows {
    /// Drops rows and rejected records before this position.
    pub fn skip_before(&mut self, position: u64) {
        let rows = self.batch.num_rows();
        let is_before = |row: &u64| self.positions.at(*row as usize) < position;
        if rows > 0 && is_before(&0) {
            let skipped = match &self.positions {
                Positions::Run { first } => (position - first).min(rows as u64),
                Positions::List(list) => list.values().partition_point(|&at| at < position) as u64,
            };
            let skipped = skipped as usize;
            self.batch = self.batch.slice(skipped, rows - skipped);
            self.positions = match &self.positions {
                Positions::Run { first } => Positions::Run {
                    first: first + skipped as u64,
                },
                Positions::List(list) => Positions::List(list.slice(skipped, rows - skipped)),
            };
        }
        self.rejected
            .retain(|rejected| rejected.position.is_none_or(|at| at >= position));
    }

    /// The `length` rows from row `offset`, without rejected records; `None` if there are none.
    pub fn slice(&self, offset: usize, length: usize) -> Option<SourceRows> {
        (length > 0).then(|| SourceRows {
            batch: self.batch.slice(offset, length),
            partition: self.partition,
            positions: match &self.positions {
                Positions::Run { first } => Positions::Run {
                    first: first + offset as u64,
                },
                Positions::List(list) => Positions::List(list.slice(offset, length)),
            },
            ingest_ns: self.ingest_ns,
            rejected: Vec::new(),
        })
    }

    /// The position after all of its rows and rejected records; `None` if there are none.
    pub fn end(&self) -> Option<u64> {
        let last = self.batch.num_rows().checked_sub(1);
        let last = last.map(|row| self.positions.at(row));
        let rejected = self
            .rejected
            .iter()
            .filter_map(|rejected| rejected.position);
        rejected.chain(last).max().map(|last| last + 1)
    }
}

/// A rejected record, as the dead-letter file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The partition, if the record came straight from a source.
    pub partition: Option<u32>,
    /// The position in the partition (line number for text).
    pub position: Option<u64>,
    /// Why it was rejected; names the column.
    pub reason: String,
    /// The record as it was read, or its columns as JSON; cut to [`REJECTED_RECORD_BYTES_MAX`].
    pub record: String,
}

/// How much of a rejected record is kept: 4 KiB shows what is wrong with a line, and a file of bad 100 MB
/// lines does not become a dead-letter file of the same size.
pub const REJECTED_RECORD_BYTES_MAX: usize = 4096;

/// Takes rejected records: they are counted and kept (I4).
pub trait DeadLetters: Send + Sync {
    /// Names a partition, so that a rejected record can be found as `flights.csv:812`.
    fn name_partition(&self, partition: u32, name: &str);

    /// Notes that the partition has ended. Records that were read from it may still be rejected.
    fn forget_partition(&self, _partition: u32) {}

    /// Keeps the record; an error ends the query (`'on_error' = 'fail'`, or the file can't be
    /// written).
    fn reject(&self, rejected: &Rejected) -> Result<()>;
}
