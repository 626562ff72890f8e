//! Which changes are worth a command, because a command wakes a worker. Pure.

use slackwater_engine::runtime::WaitMode;

/// Smaller changes of a delay are not sent.
const CHANGE_MIN: f64 = 0.02;

/// The factor by which the cost of finding work must change before workers are told again.
const FOUND_CHANGE: u64 = 4;

/// Whether a new wait mode, with the cost of finding work, is so similar that the worker need not be told.
pub fn same_wait((told, told_ns): (WaitMode, u64), (mode, found_ns): (WaitMode, u64)) -> bool {
    let near = found_ns.abs_diff(told_ns) <= found_ns.max(told_ns) / FOUND_CHANGE;
    near && match (told, mode) {
        (WaitMode::Auto { delay: one }, WaitMode::Auto { delay: other }) => {
            !differs(one.as_nanos() as u64, other.as_nanos() as u64)
        }
        (one, other) => one == other,
    }
}

/// Whether two delays differ by more than what is not sent.
pub fn differs(one: u64, other: u64) -> bool {
    one.abs_diff(other) as f64 > CHANGE_MIN * one.max(other) as f64
}
