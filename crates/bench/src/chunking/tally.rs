//! The viewer's measurements: which queries are under way, and how long the answered ones took.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::order::{Interval, Load, Responses, Seen};
use super::queries::{Kind, Query, UnderWay};

/// A query that is under way.
struct Open {
    kind: Kind,
    due_ns: u64,
    /// Number of blocks that have not arrived.
    missing: usize,
}

/// The queries of one kind that were due in the interval.
struct KindTally {
    times: Histogram<u64>,
    sum_ns: f64,
    /// Queries that are under way.
    open: u64,
    left_out: u64,
}

impl KindTally {
    fn new() -> KindTally {
        // Up to 100 s, with three digits.
        let times = Histogram::new_with_bounds(1, 100_000_000_000, 3);
        KindTally {
            times: times.expect("these bounds are possible"),
            sum_ns: 0.0,
            open: 0,
            left_out: 0,
        }
    }

    fn responses(&self) -> Responses {
        let at = |quantile: f64| self.times.value_at_quantile(quantile) as f64 / 1e3;
        let count = self.times.len();
        if count == 0 {
            return Responses {
                missing: self.open + self.left_out,
                ..Responses::default()
            };
        }
        Responses {
            count,
            missing: self.open + self.left_out,
            mean_us: self.sum_ns / count as f64 / 1e3,
            p50_us: at(0.5),
            p95_us: at(0.95),
            max_us: self.times.max() as f64 / 1e3,
        }
    }
}

/// Queries and their answers.
pub struct Tally {
    interval: Interval,
    image_bytes: usize,
    /// Whether queries follow each other; if so, complete ones are waited for as well.
    is_mixed: bool,
    open: HashMap<u64, Open>,
    under_way: UnderWay,
    next_id: u64,
    complete: KindTally,
    partial: KindTally,
    /// Bytes of complete updates that arrived within the interval.
    complete_bytes: u64,
}

impl Tally {
    /// A tally without queries.
    pub fn new(interval: Interval, image_bytes: usize, load: Load) -> Tally {
        Tally {
            interval,
            image_bytes,
            is_mixed: matches!(load, Load::Mixed { .. }),
            open: HashMap::new(),
            under_way: UnderWay::default(),
            next_id: 0,
            complete: KindTally::new(),
            partial: KindTally::new(),
            complete_bytes: 0,
        }
    }

    /// Number of queries that are under way.
    pub fn under_way(&self) -> UnderWay {
        self.under_way
    }

    /// Adds a query, which may have been left out; returns its number.
    pub fn ask(&mut self, query: &Query) -> u64 {
        let counts = self.interval.contains(query.due_ns);
        let id = self.next_id;
        self.next_id += 1;
        let tally = self.tally_of(query.kind);
        if query.left_out {
            tally.left_out += u64::from(counts);
            return id;
        }
        tally.open += u64::from(counts);
        *self.count(query.kind) += 1;
        let open = Open {
            kind: query.kind,
            due_ns: query.due_ns,
            missing: query.blocks.len(),
        };
        self.open.insert(id, open);
        id
    }

    /// Counts a block of a query's answer. False if the query is not waiting for one.
    pub fn came(&mut self, id: u64, bytes: usize, now_ns: u64) -> bool {
        let Some(open) = self.open.get_mut(&id) else {
            return false;
        };
        open.missing -= 1;
        let (kind, due_ns, done) = (open.kind, open.due_ns, open.missing == 0);
        if kind == Kind::Complete && self.interval.contains(now_ns) {
            self.complete_bytes += bytes as u64;
        }
        if done {
            self.open.remove(&id);
            *self.count(kind) -= 1;
            if self.interval.contains(due_ns) {
                let tally = self.tally_of(kind);
                let time_ns = now_ns.saturating_sub(due_ns);
                tally.open -= 1;
                tally.sum_ns += time_ns as f64;
                tally.times.saturating_record(time_ns);
            }
        }
        true
    }

    /// The measurements, once no more answers are waited for.
    pub fn seen(&self, now_ns: u64) -> Option<Seen> {
        let end_ns = self.interval.end_ns;
        let answered = self.partial.open == 0 && (!self.is_mixed || self.complete.open == 0);
        let over = now_ns >= end_ns && (answered || now_ns >= end_ns + self.interval.grace_ns);
        over.then(|| {
            let complete_per_s = self.complete_bytes as f64 / self.image_bytes as f64;
            Seen {
                complete_per_s: complete_per_s / self.interval.seconds(),
                complete: self.complete.responses(),
                partial: self.partial.responses(),
            }
        })
    }

    fn tally_of(&mut self, kind: Kind) -> &mut KindTally {
        match kind {
            Kind::Complete => &mut self.complete,
            Kind::Partial => &mut self.partial,
        }
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Complete => &mut self.under_way.complete,
            Kind::Partial => &mut self.under_way.partial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Interval = Interval {
        start_ns: 0,
        begin_ns: 1_000_000,
        end_ns: 2_000_000,
        grace_ns: 500_000,
    };

    fn query(kind: Kind, due_ns: u64, blocks: usize) -> Query {
        Query {
            kind,
            due_ns,
            blocks: 0..blocks,
            left_out: false,
        }
    }

    fn tally(load: Load) -> Tally {
        Tally::new(INTERVAL, 4096, load)
    }

    const RATES: Load = Load::Rates {
        complete_per_s: 1.0,
        partial_per_s: 1.0,
    };

    #[test]
    fn a_query_is_answered_by_its_last_block_and_counts_by_when_it_was_due() {
        let mut tally = tally(RATES);
        let early = tally.ask(&query(Kind::Partial, 900_000, 1));
        let first = tally.ask(&query(Kind::Partial, 1_100_000, 2));
        let second = tally.ask(&query(Kind::Partial, 1_200_000, 1));
        assert_eq!(tally.under_way().partial, 3);
        for (id, now_ns) in [
            (early, 1_150_000),
            (first, 1_150_000),
            (first, 1_300_000),
            (second, 1_600_000),
        ] {
            assert!(tally.came(id, 64, now_ns));
        }
        assert!(!tally.came(first, 64, 1_700_000));
        assert_eq!(tally.under_way(), UnderWay::default());
        assert_eq!(tally.seen(1_999_999), None);
        let seen = tally.seen(2_000_000).unwrap();
        assert_eq!((seen.partial.count, seen.partial.missing), (2, 0));
        assert_eq!(
            (seen.partial.mean_us, seen.partial.max_us.round()),
            (300.0, 400.0)
        );
        assert_eq!(seen.complete.count, 0);
    }

    #[test]
    fn complete_updates_are_counted_by_their_bytes_within_the_interval() {
        let mut tally = tally(RATES);
        let id = tally.ask(&query(Kind::Complete, 900_000, 4));
        for now_ns in [950_000, 1_000_000, 1_500_000, 2_000_000] {
            assert!(tally.came(id, 1024, now_ns));
        }
        // Half an image in a millisecond.
        let seen = tally.seen(2_000_000).unwrap();
        assert!((seen.complete_per_s - 500.0).abs() < 1e-9);
    }

    #[test]
    fn answers_are_waited_for_but_not_forever() {
        let mut waiting = tally(RATES);
        waiting.ask(&query(Kind::Partial, 1_900_000, 1));
        waiting.ask(&Query {
            left_out: true,
            ..query(Kind::Partial, 1_950_000, 1)
        });
        assert_eq!(waiting.under_way().partial, 1);
        assert_eq!(waiting.seen(2_400_000), None);
        assert_eq!(waiting.seen(2_500_000).unwrap().partial.missing, 2);
        // A complete update is only waited for where its response time is measured.
        let complete = query(Kind::Complete, 1_900_000, 1);
        let mut rates = tally(RATES);
        rates.ask(&complete);
        assert!(rates.seen(2_000_000).is_some());
        let mut mixed = tally(Load::Mixed {
            complete_share: 1.0,
        });
        mixed.ask(&complete);
        assert_eq!(mixed.seen(2_000_000), None);
    }
}
