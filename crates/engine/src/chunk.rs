//! Chunks: what travels between operators.
//!
//! A chunk is an Arrow `RecordBatch` of one stream, the ingest time of its oldest row, and, only
//! while something downstream needs it, where its rows came from ([`Origin`]) and what they do to
//! the result ([`RowKind`]).

mod gather;
mod parts;

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch, RecordBatchOptions,
    UInt32Array, UInt64Array,
};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

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
    /// Where the rows came from; `None` once a stateful operator has made new rows.
    pub origin: Option<Origin>,
    /// What each row does to the result (a [`RowKind`] as a number); `None` means that all rows insert.
    pub kinds: Option<Int8Array>,
    /// The hashes of the rows' keys, if routing has computed them.
    pub key_hashes: Option<KeyHashes>,
}

/// Hashes of the rows of a chunk. They stay in this process: a link to another process leaves them out.
#[derive(Debug, Clone)]
pub struct KeyHashes {
    /// The key columns.
    pub columns: Arc<[usize]>,
    /// The [`crate::hash::hash_rows`] of these columns.
    pub hashes: Arc<[u64]>,
}

/// The most partitions of one source. Partitions are numbered uniquely in a query: those of source `n`
/// begin at `n` times this.
pub const PARTITIONS_PER_SOURCE: u32 = 1 << 20;

/// Where the rows of a chunk came from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The source partition of each row.
    pub partitions: Partitions,
    /// The position of each row in its partition.
    pub positions: Positions,
    /// Each row's watermark: the largest event time seen earlier in the partition minus the delay. `None`
    /// when no row of the chunk is earlier than its own watermark, the usual case.
    pub watermarks: Option<Int64Array>,
}

/// The source partitions of a chunk's rows, by number.
#[derive(Debug, Clone)]
pub enum Partitions {
    /// All rows are of one partition, as sources read them.
    One(u32),
    /// One partition per row, for operators that reorder rows. [`Partitions::NONE`] for a row without
    /// one.
    Each(UInt32Array),
}

/// Positions of a chunk's rows in their partitions: line numbers for text (the first is 1), else
/// the record's ordinal. They increase within a chunk as sources read it; rows of one record have the same.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(i8)]
pub enum RowKind {
    /// A new row.
    Insert = 0,
    /// The new value of a row that was sent before.
    Update = 1,
    /// The row no longer exists.
    Delete = 2,
    /// The old value of a row, before the update that follows.
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

    /// Whether a row of this kind retracts an earlier one: `-D` and `-U`.
    pub fn is_retraction(kind: i8) -> bool {
        kind == RowKind::Delete as i8 || kind == RowKind::UpdateBefore as i8
    }
}

impl Partitions {
    /// The partition of a row that a stateful operator has made. The row's position is 0.
    pub const NONE: u32 = u32::MAX;

    /// Partition of row `row`.
    pub fn at(&self, row: usize) -> u32 {
        match self {
            Partitions::One(partition) => *partition,
            Partitions::Each(list) => list.value(row),
        }
    }

    fn pick(&self, rows: &UInt32Array) -> Partitions {
        match self {
            Partitions::One(partition) => Partitions::One(*partition),
            Partitions::Each(list) => {
                let rows = rows.values().iter();
                let picked = rows.map(|&row| list.value(row as usize));
                Partitions::Each(UInt32Array::from_iter_values(picked))
            }
        }
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
    /// The source that all rows come from, by its number among those of the query; `None` if an operator
    /// has made some of them, or they come from several.
    pub fn source(&self) -> Option<usize> {
        let source_of = |partition: u32| {
            let source = (partition / PARTITIONS_PER_SOURCE) as usize;
            (partition != Partitions::NONE).then_some(source)
        };
        match &self.partitions {
            Partitions::One(partition) => source_of(*partition),
            Partitions::Each(list) => {
                let mut sources = list.values().iter().map(|&partition| source_of(partition));
                let first = sources.next()??;
                sources.all(|source| source == Some(first)).then_some(first)
            }
        }
    }

    /// The origin of rows that an operator emits in a new order, from their partitions and positions;
    /// `None` if no row has one.
    pub fn of_places(places: impl Iterator<Item = (u32, u64)> + Clone) -> Option<Origin> {
        let partitions = places.clone().map(|(partition, _)| partition);
        let first = partitions.clone().next()?;
        let partitions = match partitions.clone().all(|partition| partition == first) {
            true if first == Partitions::NONE => return None,
            true => Partitions::One(first),
            false => Partitions::Each(UInt32Array::from_iter_values(partitions)),
        };
        let positions = places.map(|(_, position)| position);
        Some(Origin {
            partitions,
            positions: Positions::List(UInt64Array::from_iter_values(positions)),
            watermarks: None,
        })
    }

    /// Partition and position of row `row`.
    pub fn place(&self, row: usize) -> (u32, u64) {
        (self.partitions.at(row), self.positions.at(row))
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

    /// The partition and position of row `row`; ([`Partitions::NONE`], 0) for a row without an origin.
    pub fn place(&self, row: usize) -> (u32, u64) {
        let origin = self.origin.as_ref();
        origin.map_or((Partitions::NONE, 0), |origin| origin.place(row))
    }

    /// The chunk without the rows of some kinds. The other rows keep their kinds: an update whose `-U` is
    /// left out is still an update, unlike in [`Chunk::filter`].
    pub fn without(&self, left_out: &[RowKind]) -> Result<Cow<'_, Chunk>> {
        let is_left_out = |kind: i8| {
            left_out
                .iter()
                .any(|&left_out_kind| left_out_kind as i8 == kind)
        };
        let Some(kinds) = &self.kinds else {
            return Ok(Cow::Borrowed(self));
        };
        if !kinds.values().iter().any(|&kind| is_left_out(kind)) {
            return Ok(Cow::Borrowed(self));
        }
        let rows = kinds.values().iter().enumerate();
        let rows = rows.filter(|&(_, &kind)| !is_left_out(kind));
        let (rows, kinds): (Vec<u32>, Vec<i8>) =
            rows.map(|(row, &kind)| (row as u32, kind)).unzip();
        let mut others = self.take(&UInt32Array::from(rows))?;
        others.kinds = Some(Int8Array::from(kinds));
        Ok(Cow::Owned(others))
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
            partitions: origin.partitions.pick(rows),
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

    /// The `length` rows from row `offset`, without copying.
    pub fn slice(&self, offset: usize, length: usize) -> Chunk {
        Chunk {
            batch: self.batch.slice(offset, length),
            ingest_ns: self.ingest_ns,
            origin: self.origin.as_ref().map(|origin| Origin {
                partitions: match &origin.partitions {
                    Partitions::One(partition) => Partitions::One(*partition),
                    Partitions::Each(list) => Partitions::Each(list.slice(offset, length)),
                },
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

/// The kinds of the rows at the given indices. A `-U` that is no longer followed by its `+U` becomes a
/// `-D`, and a `+U` without its `-U` a `+I`: elsewhere the row is new, or gone.
fn taken_kinds(kinds: &Int8Array, rows: &[u32]) -> Int8Array {
    const BEFORE: i8 = RowKind::UpdateBefore as i8;
    const UPDATE: i8 = RowKind::Update as i8;
    let kinds = kinds.values();
    let taken = rows.iter().enumerate().map(|(at, &row)| {
        let is_next_there = || rows.get(at + 1) == Some(&(row + 1));
        let is_last_there = || at > 0 && rows[at - 1] + 1 == row;
        let kind_at = |row: usize| kinds.get(row).copied();
        let row = row as usize;
        match kinds[row] {
            BEFORE if kind_at(row + 1) != Some(UPDATE) || !is_next_there() => RowKind::Delete as i8,
            UPDATE if row > 0 && kind_at(row - 1) == Some(BEFORE) && !is_last_there() => {
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
    /// No row with an earlier event time follows, except late ones.
    Watermark {
        /// The watermark.
        time: EventTime,
        /// When the input that moved the watermark entered the engine.
        ingest_ns: u64,
    },
    /// The end of a unit of work (DataCutter's end-of-work marker); the next one follows.
    EndOfWork {
        /// When the last input of the unit entered the engine.
        ingest_ns: u64,
    },
    /// No rows come for a while: this link holds no watermark back until the next message.
    Idle,
    /// The silence is over, though no row has come yet: this link holds the watermark back again.
    Active,
    /// A cut through all streams: messages before it belong to one side, those after it to the other.
    Barrier(Barrier),
    /// The end of the stream.
    EndOfStream {
        /// When the last input entered the engine.
        ingest_ns: u64,
        /// Whether the query was stopped before its inputs ended, so that windows stay open.
        stopped: bool,
    },
}

impl Message {
    /// Whether the message ends a timed sleep of its receiver: a barrier, or the end.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Message::EndOfWork { .. } | Message::EndOfStream { .. } | Message::Barrier(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch, rows};

    fn chunk(kinds: &[RowKind]) -> Chunk {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..kinds.len() as i64));
        let kinds = kinds.iter().map(|&kind| kind as i8);
        Chunk {
            kinds: Some(Int8Array::from_iter_values(kinds)),
            ..Chunk::new(batch(vec![("n", numbers)]), 0)
        }
    }

    fn kinds(chunk: &Chunk) -> Vec<&'static str> {
        let kinds = chunk.kinds.as_ref().unwrap().values().iter();
        kinds.map(|&kind| RowKind::symbol(kind)).collect()
    }

    #[test]
    fn an_update_whose_before_is_left_out_is_still_one() {
        use RowKind::{Delete, Insert, Update, UpdateBefore};
        let all = chunk(&[Insert, UpdateBefore, Update, Delete]);
        let without = all.without(&[UpdateBefore]).unwrap();
        assert_eq!(kinds(&without), ["+I", "+U", "-D"]);
        assert_eq!(rows(&[without.into_owned()]), ["n=0", "n=2", "n=3"]);
        let added = all.without(&[UpdateBefore, Delete]).unwrap();
        assert_eq!(kinds(&added), ["+I", "+U"]);
        assert!(matches!(all.without(&[]).unwrap(), Cow::Borrowed(_)));
        let none = chunk(&[UpdateBefore, Delete]);
        assert_eq!(none.without(&[UpdateBefore, Delete]).unwrap().rows(), 0);
    }

    #[test]
    fn rows_keep_their_places_when_they_are_put_into_another_order() {
        let places = [(1, 7), (0, 3), (Partitions::NONE, 0), (1, 8)];
        let mut chunk = chunk(&[RowKind::Insert; 4]);
        chunk.origin = Origin::of_places(places.into_iter());
        let picked = chunk.take(&UInt32Array::from(vec![3, 1])).unwrap();
        assert_eq!([picked.place(0), picked.place(1)], [(1, 8), (0, 3)]);
        let part = chunk.slice(1, 2);
        assert_eq!(
            [part.place(0), part.place(1)],
            [(0, 3), (Partitions::NONE, 0)]
        );
        let one = Origin::of_places([(4, 1), (4, 9)].into_iter()).unwrap();
        assert!(matches!(one.partitions, Partitions::One(4)));
        let none = [(Partitions::NONE, 0); 2];
        assert!(Origin::of_places(none.into_iter()).is_none());
        chunk.origin = None;
        assert_eq!(chunk.place(2), (Partitions::NONE, 0));
    }
}
