//! Sources: where rows come from.
//!
//! A [`SourceConnector`] is made once per table and asked for one [`Source`] per instance. A source
//! never blocks: it says [`SourcePoll::Pending`] and makes sure that the worker is woken when there
//! is something to read, by a file descriptor registered with the worker's waiter or by a waker
//! handed to a foreign thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_link::Waiter;

use crate::chunk::Positions;
use crate::error::Result;

/// A table that can be read.
pub trait SourceConnector: Send + Sync {
    /// The columns that the table declares (without computed ones), in order.
    fn schema(&self) -> SchemaRef;

    /// What is known of the source before it is read.
    fn describe(&self) -> SourceDescription;

    /// The source of instance `instance` of `instances`. It reads the columns `projection` (indices
    /// into [`SourceConnector::schema`], increasing) and the partitions `p` with
    /// `p % instances == instance`.
    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>>;

    /// A checkpoint is stored that has all rows of a partition before `position`
    /// ([`Resume::position`]): who sent them may forget them. Called in the process of the source that
    /// this connector has made last, on another thread, with [`SourceRequest::saved`] only.
    fn stored(&self, _partition: &str, _position: u64) {}
}

/// What is known of a source before it is read.
#[derive(Debug, Clone, Default)]
pub struct SourceDescription {
    /// The connector's name (`file`).
    pub connector: String,
    /// More instances than this would have nothing to read.
    pub max_instances: usize,
    /// It ends by itself.
    pub bounded: bool,
    /// Reading it again gives the same rows.
    pub replayable: bool,
    /// What it has brought and no checkpoint has comes again by itself when the query goes on, where it
    /// is not replayable: somebody keeps it until he is told ([`SourceConnector::stored`]).
    pub redelivers: bool,
    /// It is not bounded, and ends all the same when whoever sends to it does, also in a query that takes
    /// checkpoints. What is neither this nor bounded goes on there until the query is stopped.
    pub ends_with_peer: bool,
    /// Its partitions are connections: there may be any number of them, and none is found again when the
    /// query goes on.
    pub transient_partitions: bool,
    /// Bytes to read in all, where known (progress).
    pub total_bytes: Option<u64>,
    /// Rows per second, where it sets their pace itself.
    pub rows_per_s: Option<f64>,
}

/// What a source is made with.
#[derive(Clone)]
pub struct SourceRequest {
    /// Indices of the columns that are read, into the connector's schema, increasing.
    pub projection: Vec<usize>,
    /// This instance's number.
    pub instance: usize,
    /// Number of instances.
    pub instances: usize,
    /// What may change while it runs.
    pub tuning: Arc<Tuning>,
    /// Each file (or connection) is a unit of work: read one after the other, an
    /// [`SourcePoll::EndOfWork`] after each.
    pub unit_per_partition: bool,
    /// Bytes read so far, for progress; this instance adds to its own slot.
    pub bytes_read: Arc<AtomicU64>,
    /// How far partitions of the table were read before the query was restored, in any order; all of
    /// them, also those of other instances. Empty where it begins from nothing.
    pub resume: Arc<[Resume]>,
    /// The query takes checkpoints.
    pub saved: bool,
}

/// How far a partition was read, as a checkpoint has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The partition's name, by which it is found again.
    pub name: String,
    /// The position of the first row or refused record that was not read.
    pub position: u64,
    /// What [`Source::bookmark`] said.
    pub bookmark: Option<String>,
    /// It was read to its end: there is no need to open it.
    pub ended: bool,
}

/// How a source cuts its rows into chunks. May change at any time; a source looks when it begins a
/// chunk.
#[derive(Debug)]
pub struct Tuning {
    linger_ns: AtomicU64,
    chunk_rows: AtomicUsize,
    /// The other way: how full the source's buffer was at most, in thousandths.
    fill_permille: AtomicU64,
    /// So is this: what its records call their fields.
    fields: Mutex<Vec<String>>,
}

/// Names of fields that are kept: they are shown to somebody who looks for a column's.
const FIELDS_NOTED_MAX: usize = 200;

impl Tuning {
    /// Rows may be collected for so long, in nanoseconds, and so many.
    pub fn new(linger_ns: u64, chunk_rows: usize) -> Tuning {
        Tuning {
            linger_ns: AtomicU64::new(linger_ns),
            chunk_rows: AtomicUsize::new(chunk_rows),
            fill_permille: AtomicU64::new(0),
            fields: Mutex::default(),
        }
    }

    /// A source says what the fields of its records are called, of a few records in which it has looked.
    pub fn note_fields(&self, names: Vec<String>) {
        let mut fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if fields.len() < FIELDS_NOTED_MAX && !fields.contains(&name) {
                fields.push(name);
            }
        }
    }

    /// What they are called, in the order in which they were seen; empty where records have no names.
    pub fn fields(&self) -> Vec<String> {
        let fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
        fields.clone()
    }

    /// A source says how full the buffer was that the kernel keeps for it, when it came to look:
    /// what doesn't fit waits unseen at the sender.
    pub fn note_fill(&self, bytes: usize, capacity: usize) {
        let permille = bytes as u64 * 1_000 / capacity.max(1) as u64;
        self.fill_permille.fetch_max(permille, Ordering::Relaxed);
    }

    /// How full it was at most since the last call, 1 being full.
    pub fn take_fill(&self) -> f64 {
        self.fill_permille.swap(0, Ordering::Relaxed) as f64 / 1_000.0
    }

    /// How long rows may be collected before they are handed on, in nanoseconds.
    pub fn linger_ns(&self) -> u64 {
        // Relaxed, here and below: each is a wish of its own, and orders nothing.
        self.linger_ns.load(Ordering::Relaxed)
    }

    /// Rows per chunk at most; at least one.
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
    /// Opens files and sockets, registers with the waiter. Called once, on the worker's thread.
    /// Returns the partitions known now: number and name (`flights.csv`, `127.0.0.1:9000`).
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>>;

    /// The next thing that the source has to say. Never blocks on a peer.
    fn poll(&mut self) -> Result<SourcePoll>;

    /// Where to go on in a partition behind all that was handed out of it, in the source's own form
    /// ([`Resume::bookmark`]). A source that has no answer, or doesn't look at [`SourceRequest::resume`],
    /// is read from its beginning when the query is restored, and rows before [`Resume::position`] are
    /// left out.
    fn bookmark(&mut self, _partition: u32) -> Option<String> {
        None
    }

    /// Releases files, sockets and threads. Called once, also after an error.
    fn close(&mut self);
}

/// What a source says when it is polled.
pub enum SourcePoll {
    /// Rows of one partition, with what was wrong beside them.
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
    /// The connection of a partition was lost: it broke, or its peer left and another connection is waited
    /// for. This is counted, and nothing else: the partition has not ended.
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
    /// Nothing any more.
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
    /// When the oldest of them entered the engine, or the latest time before which it can't have
    /// (nanoseconds on the clock of [`crate::time::now_ns`]): the wake-up's time where the worker
    /// waited for it, the last look that found nothing where the worker slept or was busy, the
    /// row's deadline for a source that sets the pace.
    pub ingest_ns: u64,
    /// Records that are no rows: wrong number of fields, a column that can't be parsed.
    pub rejected: Vec<Rejected>,
}

impl SourceRows {
    /// Leaves out rows and refused records before this position.
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

    /// `length` rows from row `offset`, without what was refused; `None` for none.
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

    /// The position behind all of its rows and refused records; none where there are none.
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

/// A record that was refused, as it is kept in the dead-letter file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The partition, where the record came straight from a source.
    pub partition: Option<u32>,
    /// The position in the partition (line number for text).
    pub position: Option<u64>,
    /// Why it was refused; names the column.
    pub reason: String,
    /// The record as it was read, or its columns as JSON; cut to [`REJECTED_RECORD_BYTES_MAX`].
    pub record: String,
}

/// How much of a refused record is kept: 4 KiB shows what is wrong with a line, and a file of bad
/// 100 MB lines does not become a dead-letter file of the same size.
pub const REJECTED_RECORD_BYTES_MAX: usize = 4096;

/// Where refused records go: counted and kept (I4).
pub trait DeadLetters: Send + Sync {
    /// Names a partition, so that a refused record is found again as `flights.csv:812`.
    fn name_partition(&self, partition: u32, name: &str);

    /// The partition has ended. Records that were read of it may still be refused.
    fn forget_partition(&self, _partition: u32) {}

    /// Keeps the record; an error ends the query (`'on_error' = 'fail'`, or the file can't be
    /// written).
    fn reject(&self, rejected: &Rejected) -> Result<()>;
}
