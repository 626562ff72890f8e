//! Demand-driven distribution: a block goes to the consumer with the fewest unacknowledged ones.
//!
//! A consumer acknowledges a block when it starts on it, so a slow one has more of them
//! unacknowledged, and gets fewer. What is on its way to a consumer is bounded by a window; with
//! all windows used up, the producer waits. Pure: no clock, no I/O.

use super::order::{COPIES, LANES};

/// Bytes that may be on their way to one stage however small blocks are: a wake-up takes some
/// 40 µs, in which shared memory moves 200 KB at 5 GB/s. With fewer the stages would take turns
/// sleeping.
const BYTES_MIN: usize = 256 << 10;

/// Blocks that each consumer may have unacknowledged of each producer, at least: one that arrives
/// while the one before it is worked on.
const WINDOW_MIN: usize = 2;

/// And at most, however small they are: a lane has room for this many.
const WINDOW_MAX: usize = 64;

/// The window for blocks of this size.
pub fn window(block_bytes: usize) -> usize {
    let blocks = BYTES_MIN.div_ceil(block_bytes.max(1) * LANES);
    blocks.clamp(WINDOW_MIN, WINDOW_MAX)
}

/// What one producer knows of its consumers.
#[derive(Clone, Debug)]
pub struct Demand {
    unacknowledged: [usize; COPIES],
    window: usize,
    /// Among equals, the one behind the one chosen last.
    next: usize,
}

impl Demand {
    /// Nothing is on its way.
    pub fn new(window: usize) -> Demand {
        Demand {
            unacknowledged: [0; COPIES],
            window,
            next: 0,
        }
    }

    /// The consumer that gets the next block, unless all have a window's worth.
    pub fn choose(&self) -> Option<usize> {
        let in_turn = (0..COPIES).map(|step| (self.next + step) % COPIES);
        let fewest = in_turn.min_by_key(|&consumer| self.unacknowledged[consumer])?;
        (self.unacknowledged[fewest] < self.window).then_some(fewest)
    }

    /// A block is on its way to this consumer.
    pub fn sent(&mut self, consumer: usize) {
        self.unacknowledged[consumer] += 1;
        self.next = (consumer + 1) % COPIES;
    }

    /// This consumer has started on a block. False where none was on its way.
    pub fn acknowledged(&mut self, consumer: usize) -> bool {
        let Some(count) = self.unacknowledged.get_mut(consumer) else {
            return false;
        };
        let known = *count > 0;
        *count = count.saturating_sub(1);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_take_turns_until_all_windows_are_used_up() {
        let mut demand = Demand::new(2);
        let mut chosen = Vec::new();
        while let Some(consumer) = demand.choose() {
            demand.sent(consumer);
            chosen.push(consumer);
        }
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
        assert!(demand.acknowledged(1));
        assert_eq!(demand.choose(), Some(1));
    }

    #[test]
    fn a_slow_consumer_gets_fewer() {
        let mut demand = Demand::new(4);
        let mut counts = [0; COPIES];
        for round in 0..300 {
            let consumer = demand.choose().expect("two of them keep up");
            demand.sent(consumer);
            counts[consumer] += 1;
            // Consumer 2 starts on one block in ten rounds, the others on all.
            for fast in 0..2 {
                while demand.acknowledged(fast) {}
            }
            if round % 10 == 0 {
                demand.acknowledged(2);
            }
        }
        assert!(counts[2] < 40 && counts[0] > 100, "{counts:?}");
    }

    #[test]
    fn what_nobody_sent_is_not_acknowledged() {
        let mut demand = Demand::new(2);
        assert!(!demand.acknowledged(0) && !demand.acknowledged(COPIES));
        assert_eq!(demand.choose(), Some(0));
    }

    #[test]
    fn windows_cover_a_wake_up_and_hold_two_blocks_at_least() {
        assert_eq!(window(1 << 20), 2);
        assert_eq!(window(64 << 10), 2);
        assert_eq!(window(4 << 10), 8);
        assert_eq!(window(64), 64);
    }
}
