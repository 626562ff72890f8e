//! The kinds of windows, and which of their edges identify a window.

use std::fmt;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, TimeUnit};

use super::{ticks_to_us, timestamp_column};
use crate::time::EventTime;

/// Windows over event time, half open: `[start, end)`. All lengths are in ticks of `unit`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Windows {
    /// The kind of the windows.
    pub kind: WindowKind,
    /// The length of a window; the gap of sessions; the rows of a count window. Positive.
    pub size: i64,
    /// The distance of two windows' starts (for cumulating windows: of their ends), positive. Tumbling
    /// when `slide == size`.
    pub slide: i64,
    /// The unit of a tick; the columns `window_start` and `window_end` have it too.
    pub unit: TimeUnit,
}

/// The kinds of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Windows of `size` that begin at every multiple of `slide` since 1970-01-01T00:00:00Z.
    Aligned,
    /// Windows that begin at every multiple of `size`, and end `slide`, 2 `slide`, … up to `size` later.
    Cumulating,
    /// Rows of a key that are less than `size` apart.
    Session,
    /// `size` rows of a key in order of event time, a new window every `slide` rows.
    Count,
}

/// The most windows that a row may belong to. 10,000 copies of a row of 100 bytes are a megabyte; beyond
/// that the slide is a mistake.
pub const WINDOWS_PER_ROW_MAX: i64 = 10_000;

/// The most rows of a count window: they are kept until the window is full, a gigabyte of rows of 1 KB.
pub const COUNT_MAX: i64 = 1 << 20;

/// Event times must be within this many microseconds of 1970 (about 73,000 years), so that no sum
/// of an event time, a delay and a window overflows.
pub const EVENT_TIME_MAX_US: i64 = i64::MAX / 4;

// An aligned window is written without its kind, as it was before there were others: checkpoints identify
// windows by this string.
impl fmt::Debug for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Windows");
        if self.kind != WindowKind::Aligned {
            text.field("kind", &self.kind);
        }
        let text = text.field("size", &self.size).field("slide", &self.slide);
        text.field("unit", &self.unit).finish()
    }
}

impl Windows {
    /// Windows of `size` every `slide`. Checks sizes: positive, whole microseconds, not more than
    /// [`WINDOWS_PER_ROW_MAX`] per row.
    pub fn new(size: i64, slide: i64, unit: TimeUnit) -> Result<Windows, String> {
        if size <= 0 || slide <= 0 {
            return Err("a window's size and slide must be positive".to_string());
        }
        if size / slide > WINDOWS_PER_ROW_MAX {
            return Err(format!(
                "each row would belong to {} windows, at most {WINDOWS_PER_ROW_MAX} are allowed",
                size / slide
            ));
        }
        if unit == TimeUnit::Nanosecond && (size % 1000 != 0 || slide % 1000 != 0) {
            return Err("a window's size and slide must be whole microseconds".to_string());
        }
        if ticks_to_us_checked(size, unit).is_none_or(|us| us > EVENT_TIME_MAX_US) {
            return Err("the window is longer than event time can be".to_string());
        }
        Ok(Windows {
            kind: WindowKind::Aligned,
            size,
            slide,
            unit,
        })
    }

    /// Windows that grow by `step` until they are `size` long.
    pub fn cumulating(size: i64, step: i64, unit: TimeUnit) -> Result<Windows, String> {
        let windows = Windows::new(size, step, unit)?;
        if size % step != 0 {
            return Err("the size must be a multiple of the step".to_string());
        }
        Ok(Windows {
            kind: WindowKind::Cumulating,
            ..windows
        })
    }

    /// Sessions that end `gap` after their last row.
    pub fn sessions(gap: i64, unit: TimeUnit) -> Result<Windows, String> {
        Ok(Windows {
            kind: WindowKind::Session,
            ..Windows::new(gap, gap, unit)?
        })
    }

    /// Windows of `size` rows, a new one every `slide` rows.
    pub fn of_rows(size: i64, slide: i64, unit: TimeUnit) -> Result<Windows, String> {
        if size <= 0 || slide <= 0 {
            return Err("a window's number of rows must be positive".to_string());
        }
        if size.max(slide) > COUNT_MAX {
            return Err(format!("a window has at most {COUNT_MAX} rows"));
        }
        if size / slide > WINDOWS_PER_ROW_MAX {
            return Err(format!(
                "each row would belong to {} windows, at most {WINDOWS_PER_ROW_MAX} are allowed",
                size / slide
            ));
        }
        Ok(Windows {
            kind: WindowKind::Count,
            size,
            slide,
            unit,
        })
    }

    /// The type of the columns `window_start` and `window_end`.
    pub fn data_type(&self) -> DataType {
        DataType::Timestamp(self.unit, None)
    }

    /// The same windows with edges in a unit that is not coarser; `None` beyond 64 bits.
    pub fn in_unit(&self, unit: TimeUnit) -> Option<Windows> {
        let per_tick = ticks_per_second(unit) / ticks_per_second(self.unit);
        // The lengths of count windows are numbers of rows.
        let per_length = match self.kind {
            WindowKind::Count => 1,
            _ => per_tick,
        };
        (per_tick > 0).then_some(Windows {
            kind: self.kind,
            size: self.size.checked_mul(per_length)?,
            slide: self.slide.checked_mul(per_length)?,
            unit,
        })
    }

    /// The end of a window, in event time.
    pub fn to_event_time(&self, ticks: i64) -> EventTime {
        ticks_to_us(ticks, self.unit)
    }

    /// The largest number of ticks that is not after `watermark`.
    pub fn watermark_ticks(&self, watermark: EventTime) -> i64 {
        match self.unit {
            TimeUnit::Second => watermark.div_euclid(1_000_000),
            TimeUnit::Millisecond => watermark.div_euclid(1000),
            TimeUnit::Microsecond => watermark,
            TimeUnit::Nanosecond => watermark.saturating_mul(1000).saturating_add(999),
        }
    }

    /// Whether the end alone determines a window.
    pub fn is_fixed(&self) -> bool {
        matches!(self.kind, WindowKind::Aligned | WindowKind::Cumulating)
    }

    /// Whether the start alone determines a window.
    pub fn is_named_by_start(&self) -> bool {
        self.kind == WindowKind::Aligned
    }

    /// The start of the window that ends at `end`, if [`Windows::is_fixed`].
    pub fn start_of(&self, end: i64) -> i64 {
        match self.kind {
            WindowKind::Cumulating => {
                let last_step = end - self.slide;
                last_step - last_step.rem_euclid(self.size)
            }
            _ => end - self.size,
        }
    }

    /// The columns before the keys in an aggregation's output for the window that ends at `end`: start
    /// and end, or the end alone if the start is one of the keys.
    pub fn edges(&self, end: i64, rows: usize) -> Vec<ArrayRef> {
        let column = |ticks: i64| timestamp_column(vec![ticks; rows], self.unit);
        match self.is_fixed() {
            true => vec![column(self.start_of(end)), column(end)],
            false => vec![column(end)],
        }
    }

    /// When all windows of a row of time `tick` are closed: their latest end, or the end of the session
    /// that it alone would make. `None` for a row in no window, a time beyond 64 bits, and count windows:
    /// for these a row is late when its own time is before the watermark
    /// ([`crate::operator::drop_late`]).
    pub fn last_end(&self, tick: i64) -> Option<i64> {
        match self.kind {
            WindowKind::Aligned => {
                let start = tick - tick.rem_euclid(self.slide);
                let end = start.checked_add(self.size)?;
                (end > tick).then_some(end)
            }
            WindowKind::Cumulating => (tick - tick.rem_euclid(self.size)).checked_add(self.size),
            WindowKind::Session => tick.checked_add(self.size),
            WindowKind::Count => None,
        }
    }
}

fn ticks_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn ticks_to_us_checked(ticks: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => ticks.checked_mul(1_000_000),
        TimeUnit::Millisecond => ticks.checked_mul(1000),
        TimeUnit::Microsecond => Some(ticks),
        TimeUnit::Nanosecond => Some(ticks.div_euclid(1000)),
    }
}
