//! The rows that instances had counted at the barriers of checkpoints: what counts if the query resumes
//! there.

use std::collections::{BTreeMap, VecDeque};

use slackwater_engine::counters::CutCounts;

/// The most barriers for which an instance's counts are kept: one checkpoint is taken at a time, and few in a
/// row may fail.
const BARRIERS_MAX: usize = 64;

/// What instances have counted, by barrier.
#[derive(Debug, Default)]
pub struct Cuts {
    /// By instance, in order: the barrier, whether the instance has ended after it, and its counts.
    of_instance: BTreeMap<usize, VecDeque<(u64, bool, CutCounts)>>,
    /// The barriers of the last checkpoints that were to be stored, with the counts of each instance.
    stored: VecDeque<(u64, Vec<(usize, CutCounts)>)>,
}

impl Cuts {
    /// An instance has passed a barrier, or has ended after it.
    pub fn add(&mut self, barrier: u64, instance: usize, has_ended: bool, counts: CutCounts) {
        let known = self.of_instance.entry(instance).or_default();
        known.push_back((barrier, has_ended, counts));
        if known.len() > BARRIERS_MAX {
            known.pop_front();
        }
    }

    /// All instances have passed a barrier, and its checkpoint is about to be stored. It may be found even if
    /// nobody hears any more that it was. So many are kept.
    pub fn store(&mut self, barrier: u64, kept: usize) {
        let mut counted = Vec::new();
        for (instance, known) in &mut self.of_instance {
            // What an instance counts after the last barrier that it has passed belongs to the next one.
            let is_before = |at: &(u64, bool, CutCounts)| match at.1 {
                true => at.0 < barrier,
                false => at.0 <= barrier,
            };
            // Later ones are those that follow.
            while known.get(1).is_some_and(is_before) {
                known.pop_front();
            }
            if let Some((_, _, counts)) = known.front().filter(|at| is_before(at)) {
                counted.push((*instance, counts.clone()));
            }
        }
        self.stored.push_back((barrier, counted));
        while self.stored.len() > kept {
            self.stored.pop_front();
        }
    }

    /// The barriers of the last checkpoints, with the counts of instances.
    pub fn all(&self) -> impl Iterator<Item = &(u64, Vec<(usize, CutCounts)>)> {
        self.stored.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use slackwater_engine::counters::InstanceCounters;

    use super::*;

    fn counts(rows: u64) -> CutCounts {
        let counters = InstanceCounters::default();
        counters.rows_in.store(rows, Ordering::Relaxed);
        CutCounts::of(&counters)
    }

    #[test]
    fn a_checkpoint_has_what_was_counted_before_its_barrier() {
        let mut cuts = Cuts::default();
        let mut expected = Vec::new();
        for barrier in 1..6 {
            cuts.add(barrier, 0, false, counts(barrier * 10));
            // The second instance is ahead, and ends after barrier 3.
            match barrier {
                1..=3 => cuts.add(barrier, 1, false, counts(barrier)),
                4 => cuts.add(3, 1, true, counts(100)),
                _ => {}
            }
            // The third barrier had no checkpoint.
            if barrier != 3 {
                cuts.store(barrier, 3);
                let second = if barrier < 4 { barrier } else { 100 };
                let all = vec![(0, counts(barrier * 10)), (1, counts(second))];
                expected.push((barrier, all));
            }
        }
        let kept = cuts.all().cloned().collect::<Vec<_>>();
        assert_eq!(kept, expected[1..]);
        assert!(cuts.of_instance.values().all(|known| known.len() <= 2));
    }

    #[test]
    fn an_instance_that_ends_on_the_way_is_not_counted_twice() {
        let mut cuts = Cuts::default();
        cuts.add(1, 0, false, counts(5));
        cuts.add(1, 0, true, counts(9));
        cuts.store(1, 3);
        assert_eq!(cuts.all().next().unwrap().1, [(0, counts(5))]);
        cuts.store(2, 3);
        assert_eq!(cuts.all().nth(1).unwrap().1, [(0, counts(9))]);
    }
}
