//! Time for decisions, from a clock that may jump.

/// The most by which time passes from one call to the next, in nanoseconds: ten seconds, of ticks that come
/// once a second on a machine that is not overloaded.
const AHEAD_MAX_NS: u64 = 10_000_000_000;

/// Time as it passes for decisions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    told_ns: Option<u64>,
    passed_ns: u64,
}

impl Clock {
    /// The time that has passed by `now_ns` of the caller's clock.
    pub fn at(&mut self, now_ns: u64) -> u64 {
        let told_ns = self.told_ns.replace(now_ns).unwrap_or(now_ns);
        let passed_ns = now_ns.saturating_sub(told_ns).min(AHEAD_MAX_NS);
        self.passed_ns += passed_ns;
        self.passed_ns
    }
}
