//! Event times of rows, and rows that are late only after idleness.

use arrow_array::{Array, ArrayRef, BooleanArray};

use super::Output;
use super::window::{ticks_to_us, timestamp_ticks, timestamp_unit};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::time::EventTime;

/// The event times of rows, in microseconds; `operator` names the operator in errors.
pub fn event_times(column: &ArrayRef, operator: &str) -> Result<Vec<EventTime>> {
    let unit = timestamp_unit(column.data_type());
    let (0, Some(unit)) = (column.null_count(), unit) else {
        return Err(Error::new(operator, "an event time is NULL"));
    };
    let ticks = timestamp_ticks(column)?.iter();
    Ok(ticks.map(|&tick| ticks_to_us(tick, unit)).collect())
}

/// Keeps the rows whose times are `in_time`, with their times; the others are counted as late.
///
/// Such rows only come after idleness: a partition that appears or resumes while the query runs may be
/// behind the watermark that the others have reached. All other rows were judged by their own watermark
/// (I2).
pub fn only_in_time(
    chunk: Chunk,
    times: Vec<i64>,
    output: &mut Output,
    in_time: impl Fn(i64) -> bool,
) -> Result<(Chunk, Vec<i64>)> {
    if times.iter().all(|&time| in_time(time)) {
        return Ok((chunk, times));
    }
    let keep = times.iter().map(|&time| Some(in_time(time)));
    let keep = keep.collect::<BooleanArray>();
    output.count_late((keep.len() - keep.true_count()) as u64);
    let times = times.into_iter().filter(|&time| in_time(time)).collect();
    Ok((chunk.filter(&keep)?, times))
}
