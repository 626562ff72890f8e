//! Which buckets of keys move to which instance, so that no instance has more work than it can do.
//!
//! A pure function of counts. The time that an instance needs is its buckets' rows times its own cost per
//! row, so a slow instance (its core is shared, or clocked down) is relieved like one with hot keys. The
//! lower bound is the time that all would need if work were divided by their speeds; buckets move, the
//! largest that fits first, until every instance is near it. A bucket that alone takes longer is *hot*:
//! no move helps, and its rows must become fewer before they are sent (aggregation in two phases).
//!
//! Buckets and their moves are those of UPM-CEP's load balancer (`papers.md` P5); speeds are our
//! addition.

/// Nothing moves unless an instance needs this many times the time of the best division: a move costs a
/// barrier, some milliseconds.
pub const UNEVEN_MIN: f64 = 1.25;

/// Buckets move until no instance needs more than this many times the best time.
const EVEN: f64 = 1.05;

/// The keyed rows of one subquery.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// The rows of each bucket, in any unit.
    pub rows: &'a [f64],
    /// The instance of each bucket.
    pub owners: &'a [u16],
    /// The cost of a row on each instance, in any unit of time, above zero.
    pub cost: &'a [f64],
}

/// What to do about a load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relief {
    /// The moves: bucket, old instance, new instance; each bucket once.
    pub moves: Vec<(usize, usize, usize)>,
    /// Whether some bucket alone is more than an instance's share.
    pub is_hot: bool,
}

impl Load<'_> {
    /// The time that each instance needs.
    pub fn times(&self) -> Vec<f64> {
        let mut times = vec![0.0; self.cost.len()];
        for (rows, &owner) in self.rows.iter().zip(self.owners) {
            times[usize::from(owner)] += rows * self.cost[usize::from(owner)];
        }
        times
    }

    /// The time that each instance would need if work could be divided at will.
    pub fn best(&self) -> f64 {
        let speed = self.cost.iter().map(|cost| 1.0 / cost).sum::<f64>();
        self.rows.iter().sum::<f64>() / speed
    }

    /// The busiest instance's time divided by the best; 1 without any rows.
    pub fn unevenness(&self) -> f64 {
        let most = self.times().into_iter().fold(0.0, f64::max);
        let best = self.best();
        if best > 0.0 { most / best } else { 1.0 }
    }

    /// The moves that relieve the busiest instances.
    pub fn relieve(&self) -> Relief {
        let best = self.best();
        if self.unevenness() <= UNEVEN_MIN {
            return Relief::default();
        }
        let mut times = self.times();
        let mut owners = self.owners.to_vec();
        // Each instance's buckets that have rows, the smallest first.
        let mut buckets = vec![Vec::new(); times.len()];
        for (bucket, &owner) in owners.iter().enumerate() {
            if self.rows[bucket] > 0.0 {
                buckets[usize::from(owner)].push(bucket);
            }
        }
        for own in &mut buckets {
            own.sort_by(|&one, &other| self.rows[one].total_cmp(&self.rows[other]));
        }
        let fastest = self.cost.iter().copied().fold(f64::INFINITY, f64::min);
        let is_hot = self
            .rows
            .iter()
            .any(|rows| rows * fastest > UNEVEN_MIN * best);
        // Instances that can't be relieved any further.
        let mut settled = vec![false; times.len()];
        // Bounded: a bucket moves only to an instance whose time stays below that of the old one, so the
        // sorted times fall with each move; and there are at most as many moves as buckets.
        for _ in 0..owners.len() {
            let open = (0..times.len()).filter(|&instance| !settled[instance]);
            let Some(from) = open.max_by(|&one, &other| times[one].total_cmp(&times[other])) else {
                break;
            };
            if times[from] <= EVEN * best {
                break;
            }
            let Some((place, to)) = self.step(from, &buckets[from], &times, best) else {
                settled[from] = true;
                continue;
            };
            let bucket = buckets[from].remove(place);
            owners[bucket] = to as u16;
            times[from] -= self.rows[bucket] * self.cost[from];
            times[to] += self.rows[bucket] * self.cost[to];
            let at = buckets[to].partition_point(|&other| self.rows[other] < self.rows[bucket]);
            buckets[to].insert(at, bucket);
        }
        let changed = (0..owners.len()).filter(|&bucket| owners[bucket] != self.owners[bucket]);
        let moves = changed.map(|bucket| {
            let owner = |owners: &[u16]| usize::from(owners[bucket]);
            (bucket, owner(self.owners), owner(&owners))
        });
        Relief {
            moves: moves.collect(),
            is_hot,
        }
    }

    /// The place in `buckets` of the one to move from `from`, and its new instance: the largest that
    /// leaves the old instance no less than its share, or else the smallest.
    fn step(
        &self,
        from: usize,
        buckets: &[usize],
        times: &[f64],
        best: f64,
    ) -> Option<(usize, usize)> {
        let excess = (times[from] - best) / self.cost[from];
        let fitting = buckets.partition_point(|&bucket| self.rows[bucket] <= excess);
        let place = fitting.saturating_sub(1);
        let rows = self.rows[*buckets.get(place)?];
        let after = |to: usize| times[to] + rows * self.cost[to];
        let others = (0..times.len()).filter(|&to| to != from);
        let to = others.min_by(|&one, &other| after(one).total_cmp(&after(other)))?;
        (after(to) < times[from]).then_some((place, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(load: &Load<'_>, relief: &Relief) -> Vec<u16> {
        let mut owners = load.owners.to_vec();
        for &(bucket, from, to) in &relief.moves {
            assert_eq!(usize::from(owners[bucket]), from);
            assert_ne!(from, to);
            owners[bucket] = to as u16;
        }
        owners
    }

    #[test]
    fn an_even_load_is_left_alone() {
        let load = Load {
            rows: &[1.0; 64],
            owners: &(0..64).map(|bucket| bucket % 4).collect::<Vec<u16>>(),
            cost: &[2.0; 4],
        };
        assert_eq!(load.relieve(), Relief::default());
    }

    #[test]
    fn a_slow_instance_keeps_its_share_of_the_speed() {
        let owners = (0..64).map(|bucket| bucket % 4).collect::<Vec<u16>>();
        let load = Load {
            rows: &[1.0; 64],
            owners: &owners,
            cost: &[4.0, 1.0, 1.0, 1.0],
        };
        let relief = load.relieve();
        let owners = after(&load, &relief);
        // 64 rows over a speed of 3.25 are 19.7 for each: the slow one keeps 5 of 16, which take 20.
        let kept = owners.iter().filter(|&&owner| owner == 0).count();
        assert_eq!((kept, relief.moves.len(), relief.is_hot), (5, 11, false));
    }

    #[test]
    fn a_hot_bucket_is_left_alone_with_its_instance_and_named() {
        let mut rows = vec![1.0; 64];
        rows[5] = 200.0;
        let owners = (0..64).map(|bucket| bucket % 4).collect::<Vec<u16>>();
        let load = Load {
            rows: &rows,
            owners: &owners,
            cost: &[1.0; 4],
        };
        let relief = load.relieve();
        assert!(relief.is_hot);
        let owners = after(&load, &relief);
        let others = (0..64).filter(|&bucket| bucket != 5 && owners[bucket] == owners[5]);
        assert_eq!(others.count(), 0);
    }

    proptest! {
        #[test]
        fn moves_make_the_busiest_instance_less_busy(
            rows in prop::collection::vec(0.0f64..100.0, 256),
            dealt in prop::collection::vec(0u16..8, 256),
            cost in prop::collection::vec(0.5f64..8.0, 8),
        ) {
            let load = Load { rows: &rows, owners: &dealt, cost: &cost };
            let relief = load.relieve();
            let owners = after(&load, &relief);
            let new = Load { owners: &owners, ..load };
            prop_assert!(new.unevenness() <= load.unevenness() + 1e-9);
            if load.unevenness() > UNEVEN_MIN {
                // A bucket has at most 100 of some 12,800 rows, so that much is always reached.
                prop_assert!(new.unevenness() <= UNEVEN_MIN, "{}", new.unevenness());
            }
        }
    }
}
