//! Time as the state machines see it: it only increases, and never by more than one step at once.

/// The time that has passed, from a clock that may jump.
#[derive(Debug, Clone)]
pub(crate) struct Elapsed {
    last_ns: Option<u64>,
    elapsed_ns: u64,
    step_max_ns: u64,
}

impl Elapsed {
    /// A jump forward counts for at most `step_max_ns`, a jump back for nothing.
    pub fn new(step_max_ns: u64) -> Elapsed {
        Elapsed {
            last_ns: None,
            elapsed_ns: 0,
            step_max_ns: step_max_ns.max(1),
        }
    }

    /// Takes the clock's time, and returns the time that has passed.
    pub fn advance(&mut self, now_ns: u64) -> u64 {
        let step = now_ns.saturating_sub(self.last_ns.unwrap_or(now_ns));
        self.last_ns = Some(now_ns);
        self.elapsed_ns = self.elapsed_ns.saturating_add(step.min(self.step_max_ns));
        self.elapsed_ns
    }

    /// The time that has passed.
    pub fn ns(&self) -> u64 {
        self.elapsed_ns
    }

    /// The clock's time at which to check again for what is due at `due_ns`: never more than one step ahead,
    /// or the time until then would not count in full.
    pub fn clock_ns(&self, due_ns: u64) -> u64 {
        let left = due_ns.saturating_sub(self.elapsed_ns);
        let last = self.last_ns.unwrap_or(0);
        last.saturating_add(left.min(self.step_max_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_count_for_one_step_or_nothing() {
        let mut elapsed = Elapsed::new(10);
        assert_eq!(elapsed.advance(1_000), 0);
        assert_eq!(elapsed.advance(1_007), 7);
        assert_eq!(elapsed.clock_ns(9), 1_009);
        assert_eq!(elapsed.advance(1_000_000), 17);
        assert_eq!(elapsed.advance(500), 17);
        assert_eq!(elapsed.advance(505), 22);
        assert_eq!(elapsed.clock_ns(100), 515);
        assert_eq!(elapsed.advance(u64::MAX), 32);
    }
}
