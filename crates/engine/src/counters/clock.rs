//! The clock of a deployment on several hosts: that of the host where the query was started.
//!
//! The hosts' own clocks, `CLOCK_MONOTONIC`, begin when each host does. Ingest times travel with chunks, so
//! they are stamps of the deployment's clock, and sinks compare them with it.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::time::now_ns;

/// How far the deployment's clock is ahead of this host's, in nanoseconds.
static AHEAD_NS: AtomicI64 = AtomicI64::new(0);

/// Sets how far the deployment's clock is ahead of this host's; 0 on the host where the query was started.
pub fn set(ahead_ns: i64) {
    AHEAD_NS.store(ahead_ns, Ordering::Relaxed);
}

/// The deployment's time when this host's clock shows `local_ns`.
#[inline]
pub fn stamp(local_ns: u64) -> u64 {
    local_ns.wrapping_add_signed(AHEAD_NS.load(Ordering::Relaxed))
}

/// The deployment's time now.
pub fn stamp_now() -> u64 {
    stamp(now_ns())
}
