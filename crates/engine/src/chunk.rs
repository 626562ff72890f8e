//! Chunks: what travels between operators.
//!
//! A chunk is an Arrow `RecordBatch` of one stream, the ingest time of its oldest row, and, only
//! while something downstream needs it, where its rows came from ([`Origin`]) and what they do to
//! the result ([`RowKind`]).

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch, RecordBatchOptions,
    UInt32Array, UInt64Array,
};
use arrow_schema::SchemaRef;

use crate::barrier::Barrier;
use crate::error::Result;
use crate::time::EventTime;

/// Rows of one stream.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The rows.
    pub batch: RecordBatch,
    /// When the oldest row entered the engine, on the clock of [`crate::time::now_ns`].
    pub ingest_ns: u64,
    /// Where the rows came from; `None` once a stateful operator has made them.
    pub origin: Option<Origin>,
    /// What each row does to the result ([`RowKind`] as its number); `None` means all insert.
    pub kinds: Option<Int8Array>,
    /// The hashes of the rows' keys, where whoever routed them by these has computed them.
    pub key_hashes: Option<KeyHashes>,
}

/// Hashes of the rows of a chunk. They stay in the process: a link to another one leaves them out.
#[derive(Debug, Clone)]
pub struct KeyHashes {
    /// The key columns.
    pub columns: Arc<[usize]>,
    /// [`crate::hash::hash_rows`] over these.
    pub hashes: Arc<[u64]>,
}

/// Partitions that one source can have, so that every source's partitions get numbers of their own: those of
/// source `n` of a query begin at `n` times this.
pub const PARTITIONS_PER_SOURCE: u32 = 1 << 20;

/// The source partition that the rows of a chunk came from. One chunk has rows of one partition.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Number of the partition in its source.
    pub partition: u32,
    /// Position of each row in the partition.
    pub positions: Positions,
    /// Each row's watermark: the largest event time seen earlier in the partition minus the
    /// delay. `None` when no row of the chunk lies behind its own watermark, the usual case.
    pub watermarks: Option<Int64Array>,
}

/// Positions of a chunk's rows in their partition: line numbers for text (the first is 1), else
/// the record's ordinal. They increase within a chunk.
#[derive(Debug, Clone)]
pub enum Positions {
    /// Row `i` has position `first + i`.
    Run {
        /// Position of row 0.
        first: u64,
    },
    /// One position per row.
    List(UInt64Array),
}

/// What a row does to the result (Flink's changelog).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum RowKind {
    /// A new row.
    Insert = 0,
    /// The new value of a row sent before.
    Update = 1,
    /// The row is gone.
    Delete = 2,
    /// What a row was before the update that follows it.
    UpdateBefore = 3,
}

impl RowKind {
    /// Flink's short form: `+I`, `+U`, `-D`, `-U`.
    pub fn symbol(kind: i8) -> &'static str {
        match kind {
            0 => "+I",
            1 => "+U",
            2 => "-D",
            _ => "-U",
        }
    }

    /// Whether a row of this kind takes one back: `-D` and `-U`.
    pub fn is_retraction(kind: i8) -> bool {
        kind == RowKind::Delete as i8 || kind == RowKind::UpdateBefore as i8
    }
}

impl Positions {
    /// Position of row `row`.
    pub fn at(&self, row: usize) -> u64 {
        match self {
            Positions::Run { first } => first + row as u64,
            Positions::List(list) => list.value(row),
        }
    }

    fn pick(&self, rows: &UInt32Array) -> Positions {
        let rows = rows.values().iter();
        Positions::List(match self {
            Positions::Run { first } => {
                UInt64Array::from_iter_values(rows.map(|&row| first + u64::from(row)))
            }
            Positions::List(list) => {
                UInt64Array::from_iter_values(rows.map(|&row| list.value(row as usize)))
            }
        })
    }
}

impl Origin {
    /// The source, numbered among those of the query.
    pub fn source(&self) -> usize {
        (self.partition / PARTITIONS_PER_SOURCE) as usize
    }

    /// Row `row`'s watermark; [`crate::time::MIN_WATERMARK`] when the row can't be late.
    pub fn watermark(&self, row: usize) -> EventTime {
        match &self.watermarks {
            Some(watermarks) => watermarks.value(row),
            None => crate::time::MIN_WATERMARK,
        }
    }
}

impl Chunk {
    /// A chunk of inserts without an origin.
    pub fn new(batch: RecordBatch, ingest_ns: u64) -> Chunk {
        Chunk {
            batch,
            ingest_ns,
            origin: None,
            kinds: None,
            key_hashes: None,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The same rows with other columns.
    pub fn with_batch(&self, batch: RecordBatch) -> Chunk {
        debug_assert_eq!(batch.num_rows(), self.rows());
        Chunk {
            batch,
            ingest_ns: self.ingest_ns,
            origin: self.origin.clone(),
            kinds: self.kinds.clone(),
            key_hashes: None,
        }
    }

    /// The same rows with other columns of another schema.
    pub fn with_columns(&self, schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<Chunk> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows()));
        Ok(self.with_batch(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?))
    }

    /// The rows where `keep` is true (NULL counts as false).
    pub fn filter(&self, keep: &BooleanArray) -> Result<Chunk> {
        let kept = keep.true_count();
        if kept == self.rows() {
            return Ok(self.clone());
        }
        if self.origin.is_some() || self.kinds.is_some() {
            let rows = (0..keep.len() as u32)
                .filter(|&row| keep.is_valid(row as usize) && keep.value(row as usize))
                .collect::<Vec<u32>>();
            return self.take(&UInt32Array::from(rows));
        }
        let batch = arrow_select::filter::filter_record_batch(&self.batch, keep)?;
        Ok(Chunk::new(batch, self.ingest_ns))
    }

    /// The rows at the given indices, in that order; an index may occur several times.
    pub fn take(&self, rows: &UInt32Array) -> Result<Chunk> {
        let batch = if self.batch.num_columns() == 0 {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            RecordBatch::try_new_with_options(self.batch.schema(), vec![], &options)?
        } else {
            arrow_select::take::take_record_batch(&self.batch, rows)?
        };
        let origin = self.origin.as_ref().map(|origin| Origin {
            partition: origin.partition,
            positions: origin.positions.pick(rows),
            watermarks: origin.watermarks.as_ref().map(|watermarks| {
                rows.values()
                    .iter()
                    .map(|&row| watermarks.value(row as usize))
                    .collect()
            }),
        });
        let kinds = self.kinds.as_ref();
        let kinds = kinds.map(|kinds| taken_kinds(kinds, rows.values()));
        Ok(Chunk {
            batch,
            ingest_ns: self.ingest_ns,
            origin,
            kinds,
            key_hashes: None,
        })
    }

    /// `length` rows from row `offset`; no copy.
    pub fn slice(&self, offset: usize, length: usize) -> Chunk {
        Chunk {
            batch: self.batch.slice(offset, length),
            ingest_ns: self.ingest_ns,
            origin: self.origin.as_ref().map(|origin| Origin {
                partition: origin.partition,
                positions: match &origin.positions {
                    Positions::Run { first } => Positions::Run {
                        first: first + offset as u64,
                    },
                    Positions::List(list) => Positions::List(list.slice(offset, length)),
                },
                watermarks: origin.watermarks.as_ref().map(|w| w.slice(offset, length)),
            }),
            kinds: self.kinds.as_ref().map(|kinds| kinds.slice(offset, length)),
            key_hashes: None,
        }
    }
}

/// The kinds of the rows at the given indices. A `-U` that its `+U` does not follow any more is a `-D`, and
/// a `+U` whose `-U` is gone a `+I`: somewhere else the row is new, or gone.
fn taken_kinds(kinds: &Int8Array, rows: &[u32]) -> Int8Array {
    const BEFORE: i8 = RowKind::UpdateBefore as i8;
    const UPDATE: i8 = RowKind::Update as i8;
    let kinds = kinds.values();
    let taken = rows.iter().enumerate().map(|(at, &row)| {
        let is_next_there = || rows.get(at + 1) == Some(&(row + 1));
        let is_last_there = || at > 0 && rows[at - 1] + 1 == row;
        let of = |row: usize| kinds.get(row).copied();
        let row = row as usize;
        match kinds[row] {
            BEFORE if of(row + 1) != Some(UPDATE) || !is_next_there() => RowKind::Delete as i8,
            UPDATE if row > 0 && of(row - 1) == Some(BEFORE) && !is_last_there() => {
                RowKind::Insert as i8
            }
            kind => kind,
        }
    });
    Int8Array::from_iter_values(taken)
}

/// What travels on a link, in order: data and control in one stream (I5).
// Most messages are chunks: a box would be one more allocation for each, to save memory for few.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub enum Message {
    /// Rows.
    Chunk(Chunk),
    /// Nothing with an earlier event time follows that is not late.
    Watermark {
        /// The watermark.
        time: EventTime,
        /// When the input that moved the watermark entered the engine.
        ingest_ns: u64,
    },
    /// A unit of work has ended (DataCutter's end-of-work marker); the next one follows.
    EndOfWork {
        /// When the last input of the unit entered the engine.
        ingest_ns: u64,
    },
    /// No rows for a while: this link holds no watermark back until the next message.
    Idle,
    /// The silence is over, though no row has come yet: this link holds the watermark back again.
    Active,
    /// A cut through all streams: what was sent before it belongs to one side, the rest to the other.
    Barrier(Barrier),
    /// Nothing follows.
    EndOfStream {
        /// When the last input entered the engine.
        ingest_ns: u64,
        /// The query was stopped before its inputs ended: windows stay open.
        stopped: bool,
    },
}

impl Message {
    /// Whether it ends a timed sleep of its receiver: a barrier, or the end.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Message::EndOfWork { .. } | Message::EndOfStream { .. } | Message::Barrier(_)
        )
    }
}
