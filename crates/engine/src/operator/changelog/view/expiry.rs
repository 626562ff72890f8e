//! When rows of a view expire, and how they are found.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};

use super::{View, ViewRetention};
use crate::error::{Error, Result};
use crate::hash::BUCKETS;
use crate::key::Key;
use crate::operator::window::{ticks_to_us, timestamp_ticks, timestamp_unit};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// Old rows are looked for in one of so many parts of the buckets at a time, so that a watermark never
/// looks at all rows.
const PARTS: usize = 64;

/// All parts are looked through this often within the retention time: the view may be larger than necessary
/// by this fraction.
const SWEEPS_PER_RETENTION: i64 = 8;

impl View {
    /// When each row of a batch expires; `None` for never.
    pub(super) fn expiries(&self, batch: &RecordBatch) -> Result<Option<Vec<EventTime>>> {
        let Some(ViewRetention { column, us }) = self.spec.retention else {
            return Ok(None);
        };
        let column = batch.column(column);
        let Some(unit) = timestamp_unit(column.data_type()) else {
            let error = "the time by which rows expire is not a TIMESTAMP";
            return Err(Error::new("materialized view", error));
        };
        let ticks = timestamp_ticks(column)?.iter().enumerate();
        let expiries = ticks.map(|(row, &tick)| match column.is_null(row) {
            true => MAX_WATERMARK,
            false => ticks_to_us(tick, unit).saturating_add(us),
        });
        Ok(Some(expiries.collect()))
    }

    /// The part that is due at a watermark.
    pub(super) fn part(watermark: EventTime, us: i64) -> EventTime {
        watermark.div_euclid((us / SWEEPS_PER_RETENTION / PARTS as i64).max(1))
    }

    /// Removes the rows that have expired from the parts that are due, or at the end of the input from all
    /// parts, and returns them.
    pub(super) fn expire(&mut self, us: i64) -> Result<Option<RecordBatch>> {
        let watermark = self.clock.watermark();
        let parts = PARTS as EventTime;
        let (first, last) = match watermark {
            MIN_WATERMARK => return Ok(None),
            // So that nothing remains that cuts no longer show.
            MAX_WATERMARK => (0, parts - 1),
            _ => {
                self.expired_to = self.expired_to.max(watermark);
                let part = View::part(watermark, us);
                let before = std::mem::replace(&mut self.last_part, part);
                (before.saturating_add(1).max(part - parts + 1), part)
            }
        };
        let size = BUCKETS / PARTS;
        let mut old = Vec::new();
        for part in first..=last {
            let begin = part.rem_euclid(parts) as usize * size;
            for number in begin..begin + size {
                self.expire_bucket(number, &mut old);
            }
        }
        if old.is_empty() {
            return Ok(None);
        }
        let rows = old.iter();
        let rows = rows.flat_map(|(row, count)| std::iter::repeat_n(&**row, *count as usize));
        Ok(Some(self.encoder.decode(rows)?))
    }

    /// Removes the rows of a bucket that have expired, and appends them, with their copies.
    fn expire_bucket(&mut self, number: usize, old: &mut Vec<(Box<[u8]>, u32)>) {
        if self.buckets[number].first_expiry > self.expired_to {
            return;
        }
        let expired = self.buckets[number].rows();
        let expired = expired.filter(|row| row.stamp.expires <= self.expired_to);
        let expired = expired.map(|row| {
            old.push((row.row.into(), row.stamp.count));
            (row.key.hash(), row.key.bytes().into())
        });
        for (hash, key) in expired.collect::<Vec<(u64, Box<[u8]>)>>() {
            self.remove(Key::stored(hash, &key));
        }
        let first = self.buckets[number].rows().map(|row| row.stamp.expires);
        let first = first.min().unwrap_or(MAX_WATERMARK);
        if self.buckets[number].first_expiry != first {
            Arc::make_mut(&mut self.buckets[number]).first_expiry = first;
        }
    }
}
