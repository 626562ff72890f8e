//! Which queries the viewer sends, and when. Pure: times in, queries out.

use std::ops::Range;

use super::image::Cut;
use super::order::{Load, Order};

/// Most complete updates under way at once: a pipeline that falls behind then has at least half a second
/// of work. An update beyond this is left out, and counts as missing.
const COMPLETE_MAX: usize = 16;

/// Most partial updates under way at once: some seconds of them at their highest rate.
const PARTIAL_MAX: usize = 1024;

/// What a query requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The whole image.
    Complete,
    /// A part of the image.
    Partial,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// What the query requests.
    pub kind: Kind,
    /// When the query was due.
    pub due_ns: u64,
    /// The blocks of the answer.
    pub blocks: Range<usize>,
    /// Whether the query was left out because too many were under way.
    pub left_out: bool,
}

/// How many queries are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// Complete updates.
    pub complete: usize,
    /// Partial ones.
    pub partial: usize,
}

/// The queries of a load, one after the other.
pub struct Schedule {
    load: Load,
    cut: Cut,
    image_bytes: usize,
    region_bytes: usize,
    start_ns: u64,
    /// Number of complete updates so far.
    completes: u64,
    /// Number of queries so far.
    asked: u64,
    /// When the next of the random partial updates is due.
    partial_due_ns: Option<u64>,
    random: fastrand::Rng,
}

impl Schedule {
    /// A schedule from `start_ns` on.
    pub fn new(order: &Order, cut: Cut, start_ns: u64) -> Schedule {
        let mut schedule = Schedule {
            load: order.load,
            cut,
            image_bytes: order.image_bytes,
            region_bytes: order.region_bytes.min(order.image_bytes),
            start_ns,
            completes: 0,
            asked: 0,
            partial_due_ns: Some(start_ns),
            random: fastrand::Rng::with_seed(order.seed),
        };
        schedule.draw_partial();
        schedule
    }

    /// When the next query is due, if it depends on time and not on an answer.
    pub fn due_ns(&self) -> Option<u64> {
        let times = [self.complete_due_ns(), self.partial_due_ns];
        times.into_iter().flatten().min()
    }

    /// The next query that is due by now.
    pub fn next(&mut self, now_ns: u64, under_way: UnderWay) -> Option<Query> {
        if now_ns < self.start_ns {
            return None;
        }
        if let Some(due_ns) = self.complete_due_ns().filter(|&due_ns| due_ns <= now_ns) {
            return Some(self.complete(due_ns, under_way.complete >= COMPLETE_MAX));
        }
        if let Some(due_ns) = self.partial_due_ns.filter(|&due_ns| due_ns <= now_ns) {
            self.draw_partial();
            let start = self.random.usize(..=self.image_bytes - self.region_bytes);
            let region = start..start + self.region_bytes;
            let blocks = self.cut.blocks_of_region(region);
            return Some(self.partial(due_ns, blocks, under_way.partial >= PARTIAL_MAX));
        }
        match self.load {
            Load::Full {
                under_way: wanted, ..
            } if under_way.complete < wanted => Some(self.complete(now_ns, false)),
            Load::Mixed { complete_share } if under_way == UnderWay::default() => {
                // Spread evenly: each query brings the share of complete ones as close as possible to the
                // given one.
                let due = ((self.asked + 1) as f64 * complete_share).round() as u64;
                if due > self.completes {
                    return Some(self.complete(now_ns, false));
                }
                let part = self.random.usize(..self.cut.parts());
                let blocks = self.cut.blocks_of_part(part);
                Some(self.partial(now_ns, blocks, false))
            }
            _ => None,
        }
    }

    fn complete(&mut self, due_ns: u64, left_out: bool) -> Query {
        self.completes += 1;
        self.asked += 1;
        Query {
            kind: Kind::Complete,
            due_ns,
            blocks: 0..self.cut.blocks(),
            left_out,
        }
    }

    fn partial(&mut self, due_ns: u64, blocks: Range<usize>, left_out: bool) -> Query {
        self.asked += 1;
        Query {
            kind: Kind::Partial,
            due_ns,
            blocks,
            left_out,
        }
    }

    fn complete_due_ns(&self) -> Option<u64> {
        match self.load {
            Load::Rates { complete_per_s, .. } if complete_per_s > 0.0 => {
                let offset_ns = self.completes as f64 * 1e9 / complete_per_s;
                Some(self.start_ns.saturating_add(offset_ns as u64))
            }
            _ => None,
        }
    }

    /// Draws the time of the next partial update, which is independent of earlier ones.
    fn draw_partial(&mut self) {
        let rate_per_s = match self.load {
            Load::Full { partial_per_s, .. } | Load::Rates { partial_per_s, .. } => partial_per_s,
            Load::Mixed { .. } => 0.0,
        };
        let gap_ns = 1e9 / rate_per_s * -(1.0 - self.random.f64()).ln();
        let last_ns = self.partial_due_ns.filter(|_| rate_per_s > 0.0);
        self.partial_due_ns = last_ns.map(|last_ns| last_ns.saturating_add(gap_ns as u64));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::chunking::order::Transport;

    /// An image of 1 MiB in blocks of 4 KiB.
    pub fn order(load: Load) -> Order {
        Order {
            transport: Transport::Shm,
            image_bytes: 1 << 20,
            partitions: 1,
            block_bytes: 4 << 10,
            region_bytes: 2 << 10,
            rounds_per_byte: 0.0,
            load,
            seed: 1,
        }
    }

    fn schedule(order: &Order) -> Schedule {
        let cut = Cut::new(order.image_bytes, order.partitions, order.block_bytes).unwrap();
        Schedule::new(order, cut, 1_000)
    }

    #[test]
    fn complete_updates_are_regular_and_partial_ones_random_at_their_rates() {
        let mut schedule = schedule(&order(Load::Rates {
            complete_per_s: 10.0,
            partial_per_s: 1_000.0,
        }));
        let under_way = UnderWay::default();
        assert_eq!(schedule.next(999, under_way), None);
        let (mut completes, mut partials) = (Vec::new(), Vec::new());
        while let Some(due_ns) = schedule.due_ns().filter(|&due_ns| due_ns < 10_000_000_000) {
            assert_eq!(schedule.next(due_ns - 1, under_way), None);
            let query = schedule.next(due_ns, under_way).expect("it is due");
            assert_eq!(query.due_ns, due_ns);
            match query.kind {
                Kind::Complete => {
                    assert_eq!(query.blocks, 0..256);
                    completes.push(due_ns);
                }
                Kind::Partial => {
                    // 2 KiB are in one or two blocks of 4 KiB.
                    assert!((1..=2).contains(&query.blocks.len()) && query.blocks.end <= 256);
                    partials.push(query.blocks.start);
                }
            }
        }
        assert_eq!(completes.len(), 100);
        assert!(
            completes
                .windows(2)
                .all(|pair| pair[1] - pair[0] == 100_000_000)
        );
        // Ten thousand, with a tolerance of three standard errors.
        assert!(
            (9_700..10_300).contains(&partials.len()),
            "{}",
            partials.len()
        );
        let middle = partials.iter().filter(|&&block| block < 128).count() as f64;
        assert!((middle / partials.len() as f64 - 0.5).abs() < 0.02);
    }

    #[test]
    fn a_full_load_keeps_its_number_of_updates_under_way() {
        let mut schedule = schedule(&order(Load::Full {
            under_way: 2,
            partial_per_s: 0.0,
        }));
        assert_eq!(schedule.due_ns(), None);
        let mut under_way = UnderWay::default();
        while let Some(query) = schedule.next(2_000, under_way) {
            assert_eq!((query.kind, query.due_ns), (Kind::Complete, 2_000));
            under_way.complete += 1;
        }
        assert_eq!(under_way.complete, 2);
    }

    #[test]
    fn mixed_queries_follow_each_other_and_keep_their_share() {
        for complete_share in [0.0, 0.3, 0.5, 1.0] {
            let mut schedule = schedule(&Order {
                partitions: 8,
                ..order(Load::Mixed { complete_share })
            });
            let busy = UnderWay {
                complete: 0,
                partial: 1,
            };
            assert_eq!(schedule.next(2_000, busy), None);
            let mut completes = 0;
            for asked in 1..=100 {
                let query = schedule.next(2_000, UnderWay::default()).unwrap();
                completes += u32::from(query.kind == Kind::Complete);
                let blocks = if query.kind == Kind::Complete {
                    256
                } else {
                    32
                };
                assert_eq!(query.blocks.len(), blocks);
                assert_eq!(query.blocks.start % 32, 0);
                assert!((f64::from(completes) - f64::from(asked) * complete_share).abs() <= 0.51);
            }
        }
    }

    #[test]
    fn a_pipeline_that_falls_behind_does_not_get_ever_more_queries() {
        let mut schedule = schedule(&order(Load::Rates {
            complete_per_s: 1e6,
            partial_per_s: 0.0,
        }));
        let mut under_way = UnderWay::default();
        let mut left_out = 0;
        for now_ns in (1_000..101_000).step_by(1_000) {
            let query = schedule.next(now_ns, under_way).unwrap();
            under_way.complete += usize::from(!query.left_out);
            left_out += usize::from(query.left_out);
        }
        assert_eq!(
            (under_way.complete, left_out),
            (COMPLETE_MAX, 100 - COMPLETE_MAX)
        );
    }
}
