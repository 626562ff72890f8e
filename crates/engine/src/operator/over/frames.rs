//! A piece of work: complete rows, the rows before them that their frames need, and the values of
//! functions with such frames.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_row::RowConverter;

use super::rows::{KeyRows, Place};
use super::{Frame, OverCall, OverFunction};
use crate::accumulator::{Accumulator, AggregateFunction, Failures, OrderKey, Values};
use crate::error::Result;
use crate::operator::keyed::Keyed;
use crate::time::EventTime;

/// About the most rows that are given to an accumulator at once: otherwise a frame of many rows would be
/// copied for a whole chunk of rows at the same time.
const ROWS_AT_ONCE: usize = 65_536;

/// Rows of one key.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// The number of the key.
    pub key: u32,
    /// The first row of the piece among the key's rows that are done.
    pub from: usize,
    /// The number of rows that are there for the frames only.
    pub before: usize,
    /// The number of rows to compute.
    pub rows: usize,
}

/// Rows of some keys, one key after the other.
pub struct Piece {
    segments: Vec<Segment>,
    /// The event times of all rows.
    times: Vec<EventTime>,
    /// The partitions and positions of all rows.
    places: Vec<(u32, u64)>,
    /// The columns of all rows.
    columns: Vec<ArrayRef>,
    /// Which rows to compute.
    rows: Vec<u32>,
}

/// A row to compute.
struct Row {
    /// The row's place in the piece.
    at: usize,
    /// The places of its key's rows.
    of_key: Range<usize>,
}

impl Piece {
    /// A piece with the rows of these segments.
    pub fn new(
        segments: Vec<Segment>,
        keys: &Keyed<KeyRows>,
        converter: &RowConverter,
    ) -> Result<Piece> {
        let places = || {
            let kept = segments.iter();
            let kept = kept.flat_map(|segment| keys.get(segment.key).done.range(segment.from..));
            kept.map(|row| &row.place)
        };
        let parser = converter.parser();
        let values = places().map(|place: &Place| parser.parse(&place.values));
        let columns = converter.convert_rows(values)?;
        let times = places().map(|place| place.time).collect::<Vec<_>>();
        let of_origin = places().map(|place| (place.partition, place.position));
        let of_origin = of_origin.collect::<Vec<_>>();
        let mut rows = Vec::new();
        let mut first = 0;
        for segment in &segments {
            let (new, end) = (
                first + segment.before,
                first + segment.before + segment.rows,
            );
            rows.extend(new as u32..end as u32);
            first = end;
        }
        Ok(Piece {
            segments,
            times,
            places: of_origin,
            columns,
            rows,
        })
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The event times of the rows to compute.
    pub fn times(&self) -> impl Iterator<Item = EventTime> {
        self.rows.iter().map(|&row| self.times[row as usize])
    }

    /// The partitions and positions of the rows to compute.
    pub fn places(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        self.rows.iter().map(|&row| self.places[row as usize])
    }

    /// One column of the rows to compute.
    pub fn column(&self, column: usize) -> Result<ArrayRef> {
        let column = &self.columns[column];
        if self.rows.len() == column.len() {
            return Ok(column.clone());
        }
        let rows = UInt32Array::from(self.rows.clone());
        Ok(arrow_select::take::take(column, &rows, None)?)
    }

    /// All columns of the rows to compute.
    pub fn rows(&self) -> Result<Vec<ArrayRef>> {
        let columns = 0..self.columns.len();
        columns.map(|column| self.column(column)).collect()
    }

    fn each_row(&self) -> impl Iterator<Item = Row> {
        let mut first = 0;
        self.segments.iter().flat_map(move |segment| {
            let of_key = first..first + segment.before + segment.rows;
            first = of_key.end;
            let new = of_key.start + segment.before..of_key.end;
            new.map(move |at| Row {
                at,
                of_key: of_key.clone(),
            })
        })
    }

    /// The places of the rows in a row's frame.
    fn frame(&self, row: &Row, frame: Frame) -> Range<usize> {
        let first = row.of_key.start;
        match frame {
            Frame::Rows(rows) => {
                let rows = rows.and_then(|rows| usize::try_from(rows).ok());
                let from = rows.map_or(first, |rows| row.at.saturating_sub(rows).max(first));
                from..row.at + 1
            }
            Frame::Range(us) => {
                let time = self.times[row.at];
                let times = &self.times[row.of_key.clone()];
                let from = us.map_or(0, |us| {
                    times.partition_point(|&other| other < time.saturating_sub(us))
                });
                let to = times.partition_point(|&other| other <= time);
                first + from..first + to
            }
        }
    }

    /// The values of a function that is not running.
    pub fn values(&self, call: &OverCall) -> Result<Values> {
        match &call.function {
            OverFunction::Aggregate { function, frame } => self.aggregates(call, function, *frame),
            OverFunction::Lag { offset, .. } => self.lag(call, *offset),
            OverFunction::RowNumber | OverFunction::Rank | OverFunction::DenseRank => {
                unreachable!("they are running")
            }
        }
    }

    /// Adds the rows of each frame to a group of its own, in order: so sums of floating-point numbers are
    /// the same to the last bit, however the rows arrived.
    fn aggregates(
        &self,
        call: &OverCall,
        function: &AggregateFunction,
        frame: Frame,
    ) -> Result<Values> {
        let mut accumulator = function.accumulator()?;
        accumulator.resize(self.rows.len());
        let filter = call.filter.map(|filter| self.columns[filter].as_boolean());
        let (mut groups, mut rows) = (Vec::new(), Vec::new());
        let mut failed = Failures::new();
        for (group, row) in self.each_row().enumerate() {
            for at in self.frame(&row, frame) {
                // NULL counts as false.
                if filter.is_none_or(|filter| {
                    arrow_array::Array::is_valid(filter, at) && filter.value(at)
                }) {
                    groups.push(group as u32);
                    rows.push(at as u32);
                }
            }
            if rows.len() >= ROWS_AT_ONCE {
                failed.extend(self.add(call, function, &mut accumulator, &groups, &rows)?);
                groups.clear();
                rows.clear();
            }
        }
        failed.extend(self.add(call, function, &mut accumulator, &groups, &rows)?);
        let mut values = accumulator.evaluate(&(0..self.rows.len() as u32).collect::<Vec<_>>())?;
        values.failed.extend(failed);
        Ok(values)
    }

    /// Adds rows to groups. Returns the groups whose own row could not be added; the frames of other rows
    /// leave it out.
    fn add(
        &self,
        call: &OverCall,
        function: &AggregateFunction,
        accumulator: &mut Box<dyn Accumulator>,
        groups: &[u32],
        rows: &[u32],
    ) -> Result<Failures> {
        let picked = UInt32Array::from(rows.to_vec());
        let arguments = call.arguments.iter();
        let arguments = arguments.map(|&column| {
            let column = &self.columns[column];
            Ok(arrow_select::take::take(column, &picked, None)?)
        });
        let arguments = arguments.collect::<Result<Vec<ArrayRef>>>()?;
        let order = match function.needs_order() {
            true => rows.iter().map(|&row| (i64::from(row), 0, 0)).collect(),
            false => Vec::<OrderKey>::new(),
        };
        let failed = accumulator.update(groups, &arguments, &order)?.into_iter();
        let failed = failed.map(|(at, reason)| (groups[at], rows[at], reason));
        let own = failed.filter(|(group, row, _)| self.rows[*group as usize] == *row);
        Ok(own
            .map(|(group, _, reason)| (group as usize, reason))
            .collect())
    }

    fn lag(&self, call: &OverCall, offset: u64) -> Result<Values> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        // From two arrays: the values, and the replacements for missing ones.
        let missing = match call.arguments.get(1) {
            Some(&column) => self.columns[column].clone(),
            None => {
                let of = self.columns[call.arguments[0]].data_type();
                arrow_array::new_null_array(of, self.times.len())
            }
        };
        let picks = self.each_row().map(|row| match row.at.checked_sub(offset) {
            Some(before) if before >= row.of_key.start => (0, before),
            _ => (1, row.at),
        });
        let picks = picks.collect::<Vec<(usize, usize)>>();
        let values = Arc::clone(&self.columns[call.arguments[0]]);
        let column = arrow_select::interleave::interleave(&[&values, &missing], &picks)?;
        Ok(Values::all(column))
    }
}
