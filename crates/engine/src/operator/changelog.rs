//! Operators over changelogs: streams whose rows may replace or retract earlier ones
//! ([`crate::chunk::RowKind`]; Flink's changelog).
//!
//! A changelog has one of two forms. *With befores*: each `+U` directly follows the `−U` that retracts
//! the old row, in the same chunk; operators that need whole rows need this form. *By key*: `+U` alone,
//! and `−D` when the row goes; enough for operators that know the key. The operator that makes updates is
//! told which form is needed (for example, by [`super::aggregate::AggregateSpec::emits_before`]). A row
//! that retracts another has the same values in every column.
//!
//! Changes of one key come from one instance, in order. So a row that is retracted exists, unless
//! [`Retention`] has dropped it.

pub mod aggregate;
pub mod final_rows;
pub mod join;
pub mod rows;
pub mod to_rows;
pub mod top_n;
pub mod view;

use crate::chunk::{Chunk, RowKind};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// Which rows of a chunk retract others; `None` if none does.
pub(super) fn retractions(chunk: &Chunk) -> Option<Vec<bool>> {
    let kinds = chunk.kinds.as_ref()?;
    let of = kinds.values().iter();
    let of = of.map(|&kind| RowKind::is_retraction(kind));
    let of = of.collect::<Vec<bool>>();
    of.contains(&true).then_some(of)
}

/// How long unchanged state is kept: `SET 'state_ttl'`. Its clock is the watermark, so a replay of old
/// rows forgets by the rows' own time, at any speed.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    us: Option<i64>,
    watermark: EventTime,
    /// When to look for old entries next.
    sweep_at: EventTime,
}

/// How often old entries are looked for within the retention time: the state may be larger than necessary
/// by this fraction.
const SWEEPS_PER_RETENTION: i64 = 8;

impl Retention {
    /// A retention of this many microseconds of event time; `None` for ever.
    pub fn new(us: Option<i64>) -> Retention {
        Retention {
            us,
            watermark: MIN_WATERMARK,
            sweep_at: MIN_WATERMARK,
        }
    }

    /// The time that entries touched now get. If they are kept for ever it is always the same: rows without a
    /// time take less memory.
    pub fn now(&self) -> EventTime {
        self.us.map_or(MIN_WATERMARK, |_| self.watermark)
    }

    /// The time of what is restored now and was touched before any watermark.
    pub fn early(&self) -> EventTime {
        match self.us {
            Some(_) => self.watermark,
            None => MIN_WATERMARK,
        }
    }

    /// Whether an entry touched `at` this time is forgotten.
    pub fn is_over(&self, at: EventTime) -> bool {
        self.us
            .is_some_and(|us| at.saturating_add(us) <= self.watermark)
    }

    /// Whether this would be the first watermark. Then what was touched before it counts from it, and the
    /// caller stamps that: a snapshot must say so, because after a restore another watermark is the first.
    pub fn begins(&self, watermark: EventTime) -> bool {
        let is_first = self.watermark == MIN_WATERMARK && watermark > MIN_WATERMARK;
        self.us.is_some() && is_first && watermark < MAX_WATERMARK
    }

    /// Moves the watermark; returns whether it is time to look for old entries. The last watermark, at
    /// the end of the stream, makes nothing old.
    pub fn advance(&mut self, watermark: EventTime) -> bool {
        if watermark == MAX_WATERMARK || watermark <= self.watermark {
            return false;
        }
        self.watermark = watermark;
        let Some(us) = self.us else {
            return false;
        };
        let is_due = watermark >= self.sweep_at;
        if is_due {
            self.sweep_at = watermark.saturating_add(us / SWEEPS_PER_RETENTION);
        }
        is_due
    }

    /// Starts a unit of work.
    pub fn restart(&mut self) {
        *self = Retention::new(self.us);
    }
}

#[cfg(test)]
pub(super) mod tests;
