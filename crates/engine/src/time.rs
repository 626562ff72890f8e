//! The two times of a stream: event time (in the data) and the engine's clock (of this host).

use std::sync::OnceLock;
use std::time::Instant;

/// Event time in microseconds since 1970-01-01T00:00:00Z.
///
/// Finer time stamps are rounded down. Windows begin and end on whole microseconds, so
/// `window_end <= watermark` has the same answer for the rounded watermark as for the exact one.
pub type EventTime = i64;

/// The watermark before any row was seen: it closes nothing.
pub const MIN_WATERMARK: EventTime = i64::MIN;

/// The watermark of an ended input: it holds nobody back and closes every window.
pub const MAX_WATERMARK: EventTime = i64::MAX;

/// Nanoseconds on the engine's monotonic clock since the process first asked.
///
/// Taken per chunk, never per row: one call costs tens of nanoseconds.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
