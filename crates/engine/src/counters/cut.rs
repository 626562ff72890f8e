//! What an instance had counted at a barrier: exactly the rows that a checkpoint has.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::InstanceCounters;

/// The rows that an instance had counted since its start, at a barrier or at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutCounts {
    rows: [u64; 4],
    late_by_source: Vec<u64>,
    /// The rows that each step took.
    steps: Vec<u64>,
}

impl CutCounts {
    /// What the counters show now. Only the worker that writes them sees them as of a barrier.
    pub fn of(counters: &InstanceCounters) -> CutCounts {
        let late = counters.late_by_source.each_ref();
        let mut late_by_source = late.map(InstanceCounters::read).to_vec();
        // Most queries have one source.
        let used = late_by_source.iter().rposition(|rows| *rows > 0);
        late_by_source.truncate(used.map_or(0, |last| last + 1));
        let steps = counters.steps.iter();
        CutCounts {
            rows: slots(counters).map(InstanceCounters::read),
            late_by_source,
            steps: steps
                .map(|step| InstanceCounters::read(&step.rows))
                .collect(),
        }
    }

    /// Puts the counts into slots that nobody else writes.
    pub fn store(&self, counters: &InstanceCounters) {
        // Relaxed: nobody else sees these slots.
        let store = |slot: &AtomicU64, rows: &u64| slot.store(*rows, Ordering::Relaxed);
        let own = slots(counters).into_iter().zip(&self.rows);
        own.for_each(|(slot, rows)| store(slot, rows));
        let late = counters.late_by_source.iter().zip(&self.late_by_source);
        late.for_each(|(slot, rows)| store(slot, rows));
        let steps = counters.steps.iter().zip(&self.steps);
        steps.for_each(|(step, rows)| store(&step.rows, rows));
    }
}

fn slots(counters: &InstanceCounters) -> [&AtomicU64; 4] {
    [
        &counters.rows_in,
        &counters.rows_out,
        &counters.rows_late,
        &counters.rows_bad,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_put_where_they_came_from() {
        let counters = InstanceCounters::new(2, &[], &[]);
        for (slot, rows) in slots(&counters).into_iter().zip([7, 5, 3, 1]) {
            InstanceCounters::add(slot, rows);
        }
        InstanceCounters::add(&counters.late_by_source[1], 2);
        InstanceCounters::add(&counters.steps[1].rows, 4);
        let cut = CutCounts::of(&counters);
        assert_eq!(cut.late_by_source, [0, 2]);
        let again = InstanceCounters::new(2, &[], &[]);
        cut.store(&again);
        assert_eq!(CutCounts::of(&again), cut);
        assert_eq!(InstanceCounters::read(&again.rows_bad), 1);
    }
}
