//! What an intake notices in its rows besides counting them: values that are most likely wrong. The
//! receiver turns notices into sentences.
//!
//! The rows are examined only where they are read anyway, and notices are rare. Only the number of rows
//! is reported chunk by chunk.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Fields, Schema};

use crate::time::EventTime;

/// Where a row was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The partition, numbered as in dead letters.
    pub partition: u32,
    /// The position in the partition.
    pub position: u64,
}

/// Something that was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// This many more rows were read.
    Read(u64),
    /// A column had its first value that is not NULL; the column's number among [`leaves`].
    Filled(usize),
    /// The first row of a partition.
    First(Place, EventTime),
    /// A row moved the largest event time of its partition further than any row before it.
    Jump {
        /// The row.
        place: Place,
        /// The largest event time before it.
        from: EventTime,
        /// The row's event time.
        to: EventTime,
    },
    /// A row arrived this many microseconds behind its partition's watermark.
    Behind(i64),
    /// The first event time before 1980 or after 2099.
    OddTime(Place, EventTime),
}

/// Receives what the intakes of a source notice.
pub trait Notices: Send + Sync {
    /// Takes a notice.
    fn notice(&self, notice: Notice);
}

/// The columns of a schema with their names; a ROW is replaced by its fields: `e.price`.
pub fn leaves(schema: &Schema) -> Vec<(Vec<usize>, String)> {
    fn walk(fields: &Fields, way: &[usize], path: &str, found: &mut Vec<(Vec<usize>, String)>) {
        for (number, field) in fields.iter().enumerate() {
            let way = [way, &[number]].concat();
            let path = match path {
                "" => field.name().clone(),
                path => format!("{path}.{}", field.name()),
            };
            match field.data_type() {
                DataType::Struct(fields) => walk(fields, &way, &path, found),
                _ => found.push((way, path)),
            }
        }
    }
    let mut found = Vec::new();
    walk(schema.fields(), &[], "", &mut found);
    found
}

/// 1980-01-01 and 2100-01-01.
const PLAUSIBLE: std::ops::Range<EventTime> = 315_532_800_000_000..4_102_444_800_000_000;

/// Times this close to 1970 are counted from zero, and not times of day that were misread: 1980 in
/// seconds, read as milliseconds, is later.
const FROM_ZERO_US: EventTime = PLAUSIBLE.start / 1_000;

/// Whether a time is likely in today's data.
pub fn is_plausible(time: EventTime) -> bool {
    PLAUSIBLE.contains(&time)
}

/// What an intake still looks for.
pub(super) struct Looking {
    notices: Arc<dyn Notices>,
    /// Columns that have had no value so far; empty before the first batch and once all have had one.
    unfilled: Vec<(usize, Vec<usize>)>,
    has_begun: bool,
    /// Whether the first event time was near 1970.
    counts_from_zero: Option<bool>,
    has_odd_time: bool,
    /// The furthest that a row has moved the largest event time.
    pub(super) furthest_us: i64,
    behind_us: i64,
}

impl Looking {
    pub(super) fn new(notices: Arc<dyn Notices>) -> Looking {
        Looking {
            notices,
            unfilled: Vec::new(),
            has_begun: false,
            counts_from_zero: None,
            has_odd_time: false,
            furthest_us: 0,
            behind_us: 0,
        }
    }

    pub(super) fn say(&self, notice: Notice) {
        self.notices.notice(notice);
    }

    /// Checks which columns of a batch have their first value.
    pub(super) fn at_columns(&mut self, batch: &RecordBatch) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let leaves = leaves(&batch.schema()).into_iter().enumerate();
            self.unfilled = leaves.map(|(number, (way, _))| (number, way)).collect();
        }
        let notices = &self.notices;
        self.unfilled.retain(|(number, way)| {
            let has_none = is_null(batch.columns(), way);
            if !has_none {
                notices.notice(Notice::Filled(*number));
            }
            has_none
        });
        self.say(Notice::Read(batch.num_rows() as u64));
    }

    /// Whether there is an unlikely time between these two that must be reported.
    pub(super) fn is_odd(&mut self, first: EventTime, least: EventTime, most: EventTime) -> bool {
        let from_zero = *self
            .counts_from_zero
            .get_or_insert(first.abs() < FROM_ZERO_US);
        let is_odd = most >= PLAUSIBLE.end || (least < PLAUSIBLE.start && !from_zero);
        is_odd && !self.has_odd_time
    }

    /// Whether a time is unlikely for a partition whose first time is known.
    pub(super) fn finds_odd(&self, time: EventTime) -> bool {
        let from_zero = self.counts_from_zero == Some(true);
        time >= PLAUSIBLE.end || (time < PLAUSIBLE.start && !from_zero)
    }

    pub(super) fn odd_time(&mut self, place: Place, time: EventTime) {
        self.has_odd_time = true;
        self.say(Notice::OddTime(place, time));
    }

    pub(super) fn behind(&mut self, us: i64) {
        if us > self.behind_us {
            self.behind_us = us;
            self.say(Notice::Behind(us));
        }
    }
}

/// Whether a column, or a field of one, is NULL in all rows.
fn is_null(columns: &[ArrayRef], way: &[usize]) -> bool {
    let Some((number, way)) = way.split_first() else {
        return false;
    };
    let column = &columns[*number];
    if column.null_count() == column.len() {
        return true;
    }
    let inner = column.as_any().downcast_ref::<StructArray>();
    inner.is_some_and(|row| is_null(row.columns(), way))
}
