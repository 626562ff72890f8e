//! Decides when an instance writes all of its state again, instead of only what has changed.
//!
//! An instance's state is stored in a *base*, which holds everything, and the *increments* after it. A
//! restore reads all of them. With B the bytes of the base, I those of the increments since then, i those of
//! the last increment and L those of the present state, the next snapshot is an increment while
//!
//! ```text
//! B + I + i  ≤  2 · L + small
//! ```
//!
//! so that a restore never reads much more than twice the state: this assumes that the next increment is as
//! long as the last one. L isn't known in bytes of the store, but the operator knows its size in memory, M;
//! with M₀ at the time of the base, L is B · M / M₀.
//!
//! The cost: state of a constant size that changes by d bytes per checkpoint gets a base after about L/d
//! increments. So as much is written in bases as in increments, and every byte of change is written at most
//! twice. State that shrinks gets a base early, because L falls. State that changes entirely between two
//! checkpoints (small windows) gets a base every time, which is as long as the increment would have been.

/// The size of state that is not worth an increment: writing it takes less time than a request to an object
/// store (20 ms at 3 MB/s).
const SMALL_BYTES: u64 = 64 << 10;

/// The most objects of one instance that a restore reads: with 4,096 instances 65,536 requests, and a
/// manifest of 16 MiB.
pub const CHAIN_MAX: usize = 16;

/// When a base is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainRule {
    /// How many bytes may be read beyond twice the state.
    pub small_bytes: u64,
    /// The most parts of a chain.
    pub parts_max: usize,
}

impl Default for ChainRule {
    fn default() -> ChainRule {
        ChainRule {
            small_bytes: SMALL_BYTES,
            parts_max: CHAIN_MAX,
        }
    }
}

/// The sizes of one instance's chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// Bytes of the base.
    pub base_bytes: u64,
    /// Bytes of the increments after it.
    pub increment_bytes: u64,
    /// Bytes of the last increment.
    pub last_bytes: u64,
    /// How many parts the base and the increments have.
    pub parts: usize,
    /// The size of the state in memory at the time of the base.
    pub base_memory: u64,
    /// The present size of the state in memory.
    pub memory: u64,
}

impl Chain {
    /// Whether the next snapshot must be a base.
    pub fn needs_base(&self, rule: &ChainRule) -> bool {
        // Without a part there is nothing to build upon, and nothing that would be written twice.
        if self.parts == 0 || self.parts >= rule.parts_max {
            return true;
        }
        let scale = u128::from(self.memory) * u128::from(self.base_bytes);
        let live = scale / u128::from(self.base_memory.max(1));
        let read = u128::from(self.base_bytes) + u128::from(self.increment_bytes);
        let next = u128::from(self.last_bytes);
        read + next > 2 * live + u128::from(rule.small_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_or_a_long_chain_ends() {
        let rule = ChainRule::default();
        assert!(Chain::default().needs_base(&rule));
        let chain = Chain {
            base_bytes: 1 << 30,
            base_memory: 1,
            memory: 1,
            parts: CHAIN_MAX,
            ..Chain::default()
        };
        assert!(chain.needs_base(&rule));
        let shorter = Chain { parts: 2, ..chain };
        assert!(!shorter.needs_base(&rule));
    }

    proptest! {
        /// A restore reads at most twice the state, plus the last change and the constant. In the long run at
        /// most two bytes are written for each byte that changed.
        #[test]
        fn a_restore_reads_little_more_than_twice_the_state(
            start in 1_000_000u64..100_000_000,
            steps in proptest::collection::vec((1u64..500_000, -300_000i64..300_000), 1..300),
        ) {
            let rule = ChainRule { parts_max: usize::MAX, ..ChainRule::default() };
            let mut live = start;
            let mut chain = Chain::default();
            for (changed, growth) in steps {
                live = live.saturating_add_signed(growth).max(1);
                let changed = changed.min(live);
                let before = live;
                if chain.needs_base(&rule) {
                    chain = Chain {
                        base_bytes: live,
                        parts: 1,
                        base_memory: live * 3,
                        memory: live * 3,
                        ..Chain::default()
                    };
                } else {
                    chain.increment_bytes += changed;
                    chain.last_bytes = changed;
                    chain.parts += 1;
                    chain.memory = live * 3;
                }
                let read = chain.base_bytes + chain.increment_bytes;
                // The last increment may be longer than the one before it, and the state may have shrunk.
                let slack = 500_000 + 2 * 300_000 + rule.small_bytes;
                prop_assert!(read <= 2 * before + slack, "{read} of {before}");
            }
        }
    }

    #[test]
    fn state_of_constant_size_is_written_at_most_twice() {
        let rule = ChainRule {
            parts_max: usize::MAX,
            ..ChainRule::default()
        };
        let (live, changed) = (50_000_000, 1_000_000);
        let (mut written, mut chain) = (0, Chain::default());
        for _ in 0..1_000 {
            if chain.needs_base(&rule) {
                written += live;
                let memory = live;
                chain = Chain {
                    base_bytes: live,
                    parts: 1,
                    base_memory: memory,
                    memory,
                    ..Chain::default()
                };
            } else {
                written += changed;
                chain.increment_bytes += changed;
                chain.last_bytes = changed;
                chain.parts += 1;
            }
        }
        let ratio = written as f64 / (1_000.0 * changed as f64);
        assert!(ratio < 2.05, "{ratio}");
    }
}
