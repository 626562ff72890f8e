//! Operators over changelogs: streams whose rows may replace earlier ones or take them back
//! ([`crate::chunk::RowKind`]; Flink's changelog).
//!
//! Two forms of a changelog travel. *With befores*: each `+U` comes right behind the `−U` that takes the
//! old row back, in the same chunk; what can compute only with whole rows needs this. *By key*: `+U` alone,
//! and `−D` where the row goes; enough for who knows the key. Who makes updates is told which form is
//! wanted ([`super::aggregate::AggregateSpec::emits_before`] and its like). A row whose kind takes back
//! is in every column what was sent before.
//!
//! Changes of one key come from one instance, in order. So what is taken back has been there, unless
//! [`Retention`] has dropped it.

pub mod aggregate;
pub mod final_rows;
pub mod join;
pub mod rows;
pub mod to_rows;
pub mod top_n;

use crate::chunk::{Chunk, RowKind};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// Which rows of a chunk take rows back; `None` for none.
pub(super) fn retractions(chunk: &Chunk) -> Option<Vec<bool>> {
    let kinds = chunk.kinds.as_ref()?;
    let of = kinds.values().iter();
    let of = of.map(|&kind| RowKind::is_retraction(kind));
    let of = of.collect::<Vec<bool>>();
    of.contains(&true).then_some(of)
}

/// How long state is kept that nothing touches: `SET 'state_ttl'`. Its clock is the watermark, so a
/// replay of old rows forgets what the rows' own time says, at whatever speed.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    us: Option<i64>,
    /// The first watermark that came: what was touched before it counts from there.
    first: EventTime,
    watermark: EventTime,
    /// When old entries are looked for next.
    sweep_at: EventTime,
}

/// Old entries are looked for so often within the time that they are kept: state may be by this
/// much larger than need be.
const SWEEPS_PER_RETENTION: i64 = 8;

impl Retention {
    /// For so many microseconds of event time; `None` for ever.
    pub fn new(us: Option<i64>) -> Retention {
        Retention {
            us,
            first: MIN_WATERMARK,
            watermark: MIN_WATERMARK,
            sweep_at: MIN_WATERMARK,
        }
    }

    /// What is touched now was touched then.
    pub fn now(&self) -> EventTime {
        self.watermark
    }

    /// Whether what was touched `at` is forgotten.
    pub fn is_over(&self, at: EventTime) -> bool {
        self.us
            .is_some_and(|us| at.max(self.first).saturating_add(us) <= self.watermark)
    }

    /// The watermark has moved: whether it is time to look for old entries. The last watermark, the end
    /// of the stream, makes nothing old.
    pub fn advance(&mut self, watermark: EventTime) -> bool {
        if watermark == MAX_WATERMARK || watermark <= self.watermark {
            return false;
        }
        if self.first == MIN_WATERMARK {
            self.first = watermark;
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

    /// A unit of work begins.
    pub fn restart(&mut self) {
        *self = Retention::new(self.us);
    }
}

#[cfg(test)]
pub(super) mod tests;
