//! Demand-driven distribution: a block goes to the consumer with the fewest unacknowledged ones.
//!
//! A consumer acknowledges a block when it starts to process it, so a slow one has more of them
//! unacknowledged, and gets fewer. A window limits the blocks on their way to a consumer; when all
//! windows are used up, the producer waits. Pure: no clock, no I/O.

use super::order::COPIES;

/// Blocks that each consumer may have unacknowledged of each producer: one that is on its way while the
/// one before it waits its turn. More of them give more bandwidth, and delay everything after them by as
/// much.
pub const WINDOW: usize = 2;

/// A producer's view of its consumers.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    unacknowledged: [usize; COPIES],
    /// Among equals, the consumer after the one chosen last.
    next: usize,
}

impl Demand {
    /// The consumer that gets the next block; `None` if all windows are used up.
    pub fn choose(&self) -> Option<usize> {
        let in_turn = (0..COPIES).map(|step| (self.next + step) % COPIES);
        let fewest = in_turn.min_by_key(|&consumer| self.unacknowledged[consumer])?;
        (self.unacknowledged[fewest] < WINDOW).then_some(fewest)
    }

    /// Notes that a block is on its way to this consumer.
    pub fn sent(&mut self, consumer: usize) {
        self.unacknowledged[consumer] += 1;
        self.next = (consumer + 1) % COPIES;
    }

    /// Notes that this consumer has started to process a block. False if none was on its way.
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
        let mut demand = Demand::default();
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
        let mut demand = Demand::default();
        let mut counts = [0; COPIES];
        for round in 0..300 {
            let consumer = demand.choose().expect("two of them keep up");
            demand.sent(consumer);
            counts[consumer] += 1;
            // Consumer 2 starts one block in ten rounds, the others all of theirs.
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
    fn a_block_that_was_not_sent_is_not_acknowledged() {
        let mut demand = Demand::default();
        assert!(!demand.acknowledged(0) && !demand.acknowledged(COPIES));
        assert_eq!(demand.choose(), Some(0));
    }
}
