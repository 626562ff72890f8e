//! Snapshots of an updating aggregation: a row per group with its keys, its number of rows, the watermark
//! when it last changed, and the states of its accumulators. A group without rows is gone.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};

use super::UpdatingAggregate;
use super::table::{Group, Table, Values};
use crate::accumulator;
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::operator::aggregate::Emit;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

fn wrong() -> Error {
    snapshot::wrong(
        "an aggregation",
        "its columns are not those of the aggregation",
    )
}

impl Table {
    /// A row per group of `chosen`.
    pub(super) fn rows(&mut self, chosen: &[u32]) -> Result<RecordBatch> {
        let of_group = chosen.iter().map(|&group| self.of_group[group as usize]);
        let of_group = of_group.collect::<Vec<Group>>();
        let rows = of_group.iter().map(|group| group.rows);
        let touched_at = of_group.iter().map(|group| group.touched_at);
        let mut columns = self.keys.columns(chosen)?;
        columns.push(Arc::new(Int64Array::from_iter_values(rows)));
        columns.push(Arc::new(Int64Array::from_iter_values(touched_at)));
        let accumulators = self.accumulators.iter_mut().map(Values::accumulator);
        columns.extend(accumulator::states(accumulators, chosen)?);
        snapshot::unnamed(columns)
    }

    /// Puts rows of [`Table::rows`] in the place of those of the same groups; `of_group` has the metadata
    /// of each, with the mark of its last change.
    fn put(&mut self, batch: &RecordBatch, of_group: &[(Group, Mark)], keys: usize) -> Result<()> {
        let mut groups = Vec::new();
        let columns = KeyColumns::new(batch.columns()[..keys].to_vec(), batch.num_rows())?;
        let known = self.keys.len();
        self.keys.groups(&columns, &mut groups)?;
        self.resize();
        for (&group, (row, mark)) in groups.iter().zip(of_group) {
            let before = std::mem::replace(&mut self.of_group[group as usize], *row);
            self.empty += usize::from(row.rows == 0);
            self.empty -= usize::from(before.rows == 0);
            self.touched.touch(group, *mark);
        }
        let replaced = groups
            .iter()
            .copied()
            .filter(|&group| (group as usize) < known);
        let replaced = replaced.collect::<Vec<u32>>();
        let accumulators = self.accumulators.iter_mut().map(Values::accumulator);
        accumulators.for_each(|accumulator| accumulator.reset(&replaced));
        let accumulators = self.accumulators.iter_mut().map(Values::accumulator);
        accumulator::merge_states(accumulators, &groups, &batch.columns()[keys + 2..])
    }
}

impl Table {
    /// The metadata of groups, with the marks of their last changes.
    fn known(&self, groups: &[u32]) -> Vec<(Group, Mark)> {
        let of_group = |&group: &u32| (self.of_group[group as usize], self.touched.mark(group));
        groups.iter().map(of_group).collect()
    }
}

impl UpdatingAggregate {
    /// Rebuilds the table with the groups that have rows and stay. Accumulators can't forget single
    /// groups, so the others are copied over. Groups that go are kept without rows until a snapshot has
    /// recorded that they are gone.
    pub(super) fn rebuild(&mut self, stays: impl Fn(&Group) -> bool) -> Result<()> {
        self.copy_rest()?;
        let (mut staying, mut gone) = (Vec::new(), Vec::new());
        let mark = self.clock.mark();
        for (index, group) in self.table.of_group.iter_mut().enumerate() {
            let number = index as u32;
            if group.rows > 0 && stays(group) {
                staying.push(number);
            } else if !mark.is_first() {
                if group.rows > 0 {
                    group.rows = 0;
                    self.table.touched.touch(number, mark);
                }
                if self.table.touched.mark(number) > self.saved {
                    gone.push(number);
                }
            }
        }
        let mut table = self.new_table()?;
        let (of_staying, of_gone) = (self.table.known(&staying), self.table.known(&gone));
        let keys = self.key_types.len();
        table.put(&self.table.rows(&staying)?, &of_staying, keys)?;
        if !gone.is_empty() {
            let mut groups = Vec::new();
            let columns = KeyColumns::new(self.table.keys.columns(&gone)?, gone.len())?;
            table.keys.groups(&columns, &mut groups)?;
            table.resize();
            for (&group, (known, mark)) in groups.iter().zip(&of_gone) {
                table.of_group[group as usize] = *known;
                table.touched.touch(group, *mark);
            }
        }
        self.table = table;
        Ok(())
    }

    /// Drops the given groups, as if they had never existed.
    fn remove(&mut self, gone: &[bool]) -> Result<()> {
        let all = 0..self.table.of_group.len() as u32;
        let staying = all
            .filter(|&group| !gone[group as usize])
            .collect::<Vec<u32>>();
        let known = self.table.known(&staying);
        let mut table = self.new_table()?;
        table.put(&self.table.rows(&staying)?, &known, self.key_types.len())?;
        self.table = table;
        Ok(())
    }
}

impl KeyedState for UpdatingAggregate {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        self.saved = self.saved.max(since);
        let chosen = self.table.touched.since(since);
        let mut chosen = self.mentioned(chosen, since == Mark::default());
        chosen.retain(|&group| buckets.contains_hash(self.table.keys.hash(group as usize)));
        match chosen.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(vec![self.table.rows(&chosen)?]),
        }
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        Some(self)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys = self.key_types.len();
        let types = batch.columns().iter().take(keys).map(|key| key.data_type());
        if batch.num_columns() < keys + 2 || !types.eq(&self.key_types) {
            return Err(wrong());
        }
        let number = |index: usize| batch.column(index).as_primitive_opt::<Int64Type>();
        let rows = number(keys).ok_or_else(wrong)?;
        let touched_at = number(keys + 1).ok_or_else(wrong)?;
        let of_group = rows.values().iter().zip(touched_at.values());
        let mark = self.clock.mark();
        // What was touched before any watermark counts from now.
        let now = self.retention.early();
        let of_group = of_group.map(|(&rows, &touched_at)| {
            let touched_at = if touched_at == MIN_WATERMARK {
                now
            } else {
                touched_at
            };
            (Group { rows, touched_at }, mark)
        });
        let of_group = of_group.collect::<Vec<(Group, Mark)>>();
        // Groups without rows are gone: their values are empty, too.
        self.table.put(batch, &of_group, keys)?;
        self.make_room()
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        let groups = 0..self.table.of_group.len();
        let gone = groups.map(|group| buckets.contains_hash(self.table.keys.hash(group)));
        self.remove(&gone.collect::<Vec<bool>>())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        self.begin_retention(watermark)?;
        self.retention.advance(watermark);
        if watermark == MAX_WATERMARK {
            // The input had ended, so the total was emitted, and with `Emit::AtEnd` all groups.
            self.has_ended = true;
            if self.spec.emit == Emit::AtEnd {
                self.table = self.new_table()?;
            }
        }
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
