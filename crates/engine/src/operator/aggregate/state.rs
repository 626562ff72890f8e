//! Snapshots of an aggregation: a row per group with the columns `window_end` (ticks; the largest integer
//! for a running aggregation), the keys, the emission flags (if windows are emitted more than once, with
//! the old row if requested), and the states of the accumulators.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int8Array, Int64Array, RecordBatch};
use arrow_row::RowConverter;

use super::groups::Groups;
use super::refire::{befores_of, restore_befores};
use super::{Aggregate, Emit};
use crate::error::Result;
use crate::key::KeyColumns;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::{EventTime, MAX_WATERMARK};

impl Aggregate {
    fn snapshot_table(
        &mut self,
        end: i64,
        buckets: &BucketSet,
        since: Mark,
    ) -> Result<Option<RecordBatch>> {
        let Some(table) = self.tables.get_mut(&end) else {
            return Ok(None);
        };
        let mut chosen = table.touched.since(since);
        chosen.retain(|&group| buckets.contains_hash(table.keys.hash(group as usize)));
        if chosen.is_empty() {
            return Ok(None);
        }
        Ok(Some(table.snapshot(end, &chosen, self.befores.as_ref())?))
    }
}

impl Groups {
    /// A row per group of `chosen`.
    pub(super) fn snapshot(
        &mut self,
        end: i64,
        chosen: &[u32],
        befores: Option<&RowConverter>,
    ) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![end; chosen.len()]))];
        columns.extend(self.keys.columns(chosen)?);
        if let Some(updates) = &self.updates {
            columns.push(Arc::new(Int8Array::from(updates.states(chosen))));
            if let Some(converter) = befores {
                columns.extend(befores_of(converter, updates, chosen)?);
            }
        }
        columns.extend(self.states(chosen)?);
        snapshot::unnamed(columns)
    }
}

impl KeyedState for Aggregate {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(self.firing.is_some());
        let ends = self.tables.keys().copied().collect::<Vec<i64>>();
        let mut batches = Vec::new();
        for end in ends {
            batches.extend(self.snapshot_table(end, buckets, since)?);
        }
        Ok(batches)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        // What was emitted is part of the state of windows that are emitted more than once.
        match self.spec.refires {
            None => Some(self),
            Some(_) => None,
        }
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let wrong = |reason: &str| snapshot::wrong("an aggregation", reason);
        let ends = batch
            .columns()
            .first()
            .and_then(|column| column.as_primitive_opt::<Int64Type>())
            .ok_or_else(|| wrong("its first column is not BIGINT"))?;
        if ends.is_empty() {
            return Ok(());
        }
        let key_count = self.key_types.len();
        if batch.num_columns() < 1 + key_count {
            return Err(wrong("it has too few columns"));
        }
        let keys = batch.columns()[1..1 + key_count].to_vec();
        let mut types = keys.iter().map(|key| key.data_type());
        if !types.by_ref().eq(&self.key_types) {
            return Err(wrong("its keys are of other types"));
        }
        let mut groups = Vec::new();
        let keys = KeyColumns::new(keys, batch.num_rows())?;
        let mark = self.clock.mark();
        let end = ends.value(0);
        self.table(end)?;
        let table = self.tables.get_mut(&end).expect("made just above");
        let before = table.keys.len();
        table.keys.groups(&keys, &mut groups)?;
        table.resize();
        let known = groups.iter().copied();
        let known = known.filter(|&group| (group as usize) < before);
        table.reset(&known.collect::<Vec<u32>>());
        table.touch(&groups, mark);
        let mut next = 1 + key_count;
        if let Some(updates) = &mut table.updates {
            let states = batch.columns().get(next);
            let states = states.and_then(|states| states.as_primitive_opt::<Int8Type>());
            let states = states.filter(|states| states.null_count() == 0);
            let states = states.ok_or_else(|| wrong("it has too few columns"))?;
            for (&group, &state) in groups.iter().zip(states.values()) {
                updates.restore(group, state);
            }
            next += 1;
            if let Some(converter) = &self.befores {
                let until = next + self.spec.calls.len();
                let columns = batch.columns().get(next..until);
                let columns = columns.ok_or_else(|| wrong("it has too few columns"))?;
                restore_befores(converter, updates, &groups, columns)?;
                next = until;
            }
        }
        table.merge_states(&groups, &batch.columns()[next..])?;
        if let Some(refires) = self.spec.refires {
            self.ask_for_time(refires);
        }
        Ok(())
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        snapshot::discard_by_copy(self, buckets, |all| all.tables.clear())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        if let Some(window) = self.spec.window {
            let lateness_us = self.lateness_us();
            let kept_until = |end: i64| {
                window
                    .windows
                    .to_event_time(end)
                    .saturating_add(lateness_us)
            };
            let is_open = |end: i64| kept_until(end) > watermark;
            self.tables.retain(|&end, _| is_open(end));
        } else if watermark == MAX_WATERMARK {
            // The input had ended, so the total was emitted, and with `Emit::AtEnd` all groups.
            self.has_ended = true;
            if self.spec.emit == Emit::AtEnd {
                self.tables.clear();
            }
        }
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
