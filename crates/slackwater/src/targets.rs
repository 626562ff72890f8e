//! The latency targets of sinks: what the SQL says, until somebody changes one while the query runs.
//!
//! A changed target holds for the rest of the run, also after a restart; the next run starts with the SQL's.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The latency targets that were changed, by the sink's node.
#[derive(Debug, Default)]
pub struct Targets(Mutex<BTreeMap<usize, Changed>>);

#[derive(Debug, Clone, Copy)]
struct Changed {
    target_ns: u64,
    times: u64,
}

impl Targets {
    /// The target of the sink at `node`, for which the SQL says `declared_ns`.
    pub fn of(&self, node: usize, declared_ns: Option<u64>) -> Option<u64> {
        let changed = self.lock().get(&node).map(|changed| changed.target_ns);
        changed.or(declared_ns)
    }

    /// Changes the target of the sink at `node`.
    pub fn set(&self, node: usize, target_ns: u64) {
        let mut targets = self.lock();
        let changed = targets.entry(node).or_insert(Changed {
            target_ns,
            times: 0,
        });
        changed.target_ns = target_ns;
        changed.times += 1;
    }

    /// How often the target of the sink at `node` was changed.
    pub fn changes(&self, node: usize) -> u64 {
        self.lock().get(&node).map_or(0, |changed| changed.times)
    }

    /// The changed targets, with their nodes.
    pub fn changed(&self) -> Vec<(usize, u64)> {
        let targets = self.lock();
        let targets = targets
            .iter()
            .map(|(&node, changed)| (node, changed.target_ns));
        targets.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Changed>> {
        // Each change is complete when the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_target_replaces_what_the_sql_says() {
        let targets = Targets::default();
        assert_eq!(targets.of(3, Some(5)), Some(5));
        assert_eq!((targets.of(3, None), targets.changes(3)), (None, 0));
        targets.set(3, 7);
        targets.set(3, 9);
        assert_eq!(targets.of(3, Some(5)), Some(9));
        assert_eq!(targets.of(4, Some(5)), Some(5));
        assert_eq!((targets.changes(3), targets.changes(4)), (2, 0));
        assert_eq!(targets.changed(), [(3, 9)]);
    }
}
