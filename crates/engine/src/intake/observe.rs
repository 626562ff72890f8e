//! Event times of a chunk: how they move their partition's watermark, and which rows are earlier than it.

use arrow_array::Int64Array;

use super::EventTimeSpec;
use super::notices::{Looking, Notice, Place};
use crate::chunk::{Chunk, Origin};
use crate::counted::{Counted, Times};
use crate::error::Result;
use crate::operator::late_rows::Lateness;
use crate::operator::window::{ticks_to_us, timestamp_ticks, timestamp_unit};
use crate::time::{EventTime, MIN_WATERMARK, now_ns};

/// How far a partition was read.
pub(super) struct Partition {
    pub(super) name: String,
    /// The position of the next row.
    pub(super) next: u64,
    /// The watermark of the source when the partition appeared or resumed.
    pub(super) floor: EventTime,
    /// When the partition appeared.
    pub(super) since_ns: u64,
    /// When the last row came or, before the first one, when the partition appeared.
    pub(super) last_row_ns: u64,
    /// Whether a row has come since then.
    pub(super) has_sent: bool,
    pub(super) idle: bool,
    /// How long the partition was silent before it was last no longer idle.
    pub(super) silence_us: Option<u64>,
    pub(super) ended: bool,
    /// What was counted of its rows, the largest event time among them.
    pub(super) counted: Counted,
}

impl Partition {
    pub(super) fn new(name: String, floor: EventTime, counted: Counted) -> Partition {
        let since_ns = now_ns();
        Partition {
            name,
            next: 0,
            floor,
            since_ns,
            last_row_ns: since_ns,
            has_sent: false,
            idle: false,
            silence_us: None,
            ended: false,
            counted,
        }
    }

    pub(super) fn watermark(&self, delay_us: i64) -> EventTime {
        self.counted
            .largest
            .map_or(self.floor, |largest| (largest - delay_us).max(self.floor))
    }
}

/// The smallest and the largest of some ticks; swapped extremes if there are none.
pub(super) fn extremes(ticks: &[i64]) -> (i64, i64) {
    let ends = (i64::MAX, i64::MIN);
    ticks.iter().fold(ends, |(least, most), &ticks| {
        (least.min(ticks), most.max(ticks))
    })
}

pub(super) fn place(origin: &Origin, row: usize) -> Place {
    let (partition, position) = origin.place(row);
    Place {
        partition,
        position,
    }
}

/// Moves the partition's watermark over the rows of `chunk`, and counts those that are behind; returns each
/// row's own watermark if one of them is earlier than its own.
pub(super) fn observe(
    partition: &mut Partition,
    spec: EventTimeSpec,
    judged: &[Lateness],
    chunk: &Chunk,
    looking: Option<&mut Looking>,
) -> Result<Option<Int64Array>> {
    let column = chunk.batch.column(spec.column);
    let unit = timestamp_unit(column.data_type()).expect("checked by `check_event_time`");
    let ticks = timestamp_ticks(column)?;
    let before = (
        partition.counted.largest,
        partition.watermark(spec.delay_us),
    );
    let mut largest = before.0.unwrap_or(MIN_WATERMARK);
    let mut watermark = before.1;
    let mut behind = false;
    // Of rows that are earlier than `edge`, or at it if that makes them late, the least.
    let mut edge = largest.max(watermark);
    let mut least = i64::MAX;
    let ties = EventTime::from(spec.marks_at_watermark);
    let mut furthest_us = looking
        .as_ref()
        .map_or(i64::MAX, |looking| looking.furthest_us);
    let mut jump = None;
    for (row, &ticks) in ticks.iter().enumerate() {
        let time = ticks_to_us(ticks, unit);
        behind |= time < watermark || (spec.marks_at_watermark && time == watermark);
        if time < edge.saturating_add(ties) {
            least = least.min(ticks);
        }
        if time > largest {
            edge = edge.max(time);
            let by_us = time.saturating_sub(largest);
            if by_us > furthest_us && largest > MIN_WATERMARK {
                furthest_us = by_us;
                jump = Some((row, largest, time));
            }
            largest = time;
            watermark = watermark.max(largest - spec.delay_us);
        }
    }
    if least < i64::MAX && !partition.counted.rows_only {
        let times = Times {
            ticks,
            unit,
            largest: before.0.unwrap_or(MIN_WATERMARK),
            watermark: before.1,
            delay_us: spec.delay_us,
            least,
            edge: largest.max(watermark),
        };
        let silence_us = partition.silence_us;
        partition.counted.add(&times, judged, silence_us);
    }
    if !ticks.is_empty() {
        partition.counted.largest = Some(largest);
    }
    let mut looking = looking.zip(chunk.origin.as_ref());
    if let Some((looking, origin)) = &mut looking {
        looking.furthest_us = furthest_us;
        if let (None, Some(&ticks)) = (before.0, ticks.first()) {
            looking.say(Notice::First(place(origin, 0), ticks_to_us(ticks, unit)));
        }
        if let Some((row, from, to)) = jump {
            let place = place(origin, row);
            looking.say(Notice::Jump { place, from, to });
        }
    }
    if !behind {
        return Ok(None);
    }
    let mut largest = before.0.unwrap_or(MIN_WATERMARK);
    let mut watermark = before.1;
    let mut behind_us = 0;
    let watermarks = ticks.iter().map(|&ticks| {
        let own = watermark;
        let time = ticks_to_us(ticks, unit);
        behind_us = behind_us.max(own.saturating_sub(time));
        if time > largest {
            largest = time;
            watermark = watermark.max(largest - spec.delay_us);
        }
        own
    });
    let watermarks = Int64Array::from_iter_values(watermarks);
    if let Some((looking, _)) = looking {
        looking.behind(behind_us);
    }
    Ok(Some(watermarks))
}
