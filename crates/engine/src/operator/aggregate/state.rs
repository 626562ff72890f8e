//! Snapshots of an aggregation: a row per group with the columns `window_end` (ticks; the largest
//! integer for a running aggregation), the keys, what has been emitted of it (where windows are emitted
//! more than once, with what it was before where that is wanted), and the states of the accumulators.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int8Array, Int64Array, RecordBatch};
use arrow_row::RowConverter;
use arrow_schema::{Field, Schema};

use super::groups::Groups;
use super::refire::{befores_of, restore_befores};
use super::{Aggregate, Emit};
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::state::{BucketSet, KeyedState, Mark};
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
        let chosen = (0..table.keys.len())
            .filter(|&group| {
                table.touched[group] > since && buckets.contains_hash(table.keys.hash(group))
            })
            .map(|group| group as u32)
            .collect::<Vec<u32>>();
        if chosen.is_empty() {
            return Ok(None);
        }
        Ok(Some(table.snapshot(end, &chosen, self.befores.as_ref())?))
    }

    /// Drops the given groups of a table: accumulators can't forget a single one, so the others
    /// are copied over.
    fn replace(&mut self, end: i64, groups_before: usize, gone: &[u32]) -> Result<()> {
        let Some(mut table) = self.tables.remove(&end) else {
            return Ok(());
        };
        let mut stays = vec![true; groups_before.max(table.keys.len())];
        gone.iter().for_each(|&group| stays[group as usize] = false);
        let others = (0..groups_before as u32).filter(|&group| stays[group as usize]);
        let others = others.collect::<Vec<_>>();
        let others = table.snapshot(end, &others, self.befores.as_ref())?;
        self.restore(&others)
    }
}

impl Groups {
    /// A row per group of `chosen`.
    fn snapshot(
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
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(chosen)?);
        }
        let fields = columns.iter().enumerate().map(|(index, column)| {
            Field::new(format!("c{index}"), column.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

impl KeyedState for Aggregate {
    fn mark(&mut self) -> Mark {
        let ended = self.mark;
        self.mark = Mark(ended.0 + 1);
        ended
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        assert!(
            self.firing.is_none(),
            "a snapshot is taken between inputs: these rows would be lost"
        );
        let ends = self.tables.keys().copied().collect::<Vec<i64>>();
        let mut batches = Vec::new();
        for end in ends {
            batches.extend(self.snapshot_table(end, buckets, since)?);
        }
        Ok(batches)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let place = "snapshot of an aggregation";
        let ends = batch
            .columns()
            .first()
            .and_then(|column| column.as_primitive_opt::<Int64Type>())
            .ok_or_else(|| Error::new(place, "its first column is not BIGINT"))?;
        if ends.is_empty() {
            return Ok(());
        }
        let key_count = self.key_types.len();
        if batch.num_columns() < 1 + key_count {
            return Err(Error::new(place, "it has too few columns"));
        }
        let keys = batch.columns()[1..1 + key_count].to_vec();
        let mut types = keys.iter().map(|key| key.data_type());
        if !types.by_ref().eq(&self.key_types) {
            return Err(Error::new(place, "its keys are of other types"));
        }
        let mut groups = Vec::new();
        let keys = KeyColumns::new(keys, batch.num_rows())?;
        let mark = self.mark;
        let end = ends.value(0);
        self.table(end)?;
        let table = self.tables.get_mut(&end).expect("made just above");
        let before = table.keys.len();
        table.keys.groups(&keys, &mut groups)?;
        if groups.iter().any(|&group| (group as usize) < before) {
            self.replace(end, before, &groups)?;
            return self.restore(batch);
        }
        table.resize();
        table.touch(&groups, mark);
        let mut next = 1 + key_count;
        if let Some(updates) = &mut table.updates {
            let states = batch.columns().get(next);
            let states = states.and_then(|states| states.as_primitive_opt::<Int8Type>());
            let states = states.filter(|states| states.null_count() == 0);
            let states = states.ok_or_else(|| Error::new(place, "it has too few columns"))?;
            for (&group, &state) in groups.iter().zip(states.values()) {
                updates.restore(group, state);
            }
            next += 1;
            if let Some(converter) = &self.befores {
                let until = next + self.spec.calls.len();
                let columns = batch.columns().get(next..until);
                let columns = columns.ok_or_else(|| Error::new(place, "it has too few columns"))?;
                restore_befores(converter, updates, &groups, columns)?;
                next = until;
            }
        }
        for accumulator in &mut table.accumulators {
            let layout = accumulator.state(&[])?;
            let states = batch.columns().get(next..next + layout.len());
            let states = states.ok_or_else(|| Error::new(place, "it has too few columns"))?;
            let types = states.iter().map(|state| state.data_type());
            if !types.eq(layout.iter().map(|state| state.data_type())) {
                return Err(Error::new(place, "its states are of other types"));
            }
            accumulator.merge(&groups, states)?;
            next += layout.len();
        }
        if let Some(refires) = self.spec.refires {
            self.ask_for_time(refires);
        }
        Ok(())
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        // Tables have no removal: what stays is copied over by its snapshot.
        let keep = BucketSet::of(|bucket| !buckets.contains(bucket));
        let batches = self.snapshot(&keep, Mark::default())?;
        self.tables.clear();
        batches.iter().try_for_each(|batch| self.restore(batch))
    }

    fn expire(&mut self, watermark: EventTime) -> Result<()> {
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
            // The input had ended, so a total was emitted, and with `Emit::AtEnd` all groups were.
            self.has_ended = true;
            if self.spec.emit == Emit::AtEnd {
                self.tables.clear();
            }
        }
        self.watermark = self.watermark.max(watermark);
        Ok(())
    }
}
