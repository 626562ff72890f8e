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
use crate::state::{BucketSet, Clock, KeyedState, Mark, snapshot};
use crate::time::{EventTime, MAX_WATERMARK};

fn wrong() -> Error {
    snapshot::wrong(
        "an aggregation",
        "its columns are not those of the aggregation",
    )
}

impl Table {
    /// A row per group of `chosen`.
    fn rows(&mut self, chosen: &[u32]) -> Result<RecordBatch> {
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

    /// Adds rows of [`Table::rows`]; `of_group` has the metadata of each. None of the groups may exist
    /// yet.
    fn add(&mut self, batch: &RecordBatch, of_group: &[Group], keys: usize) -> Result<()> {
        let mut groups = Vec::new();
        let columns = KeyColumns::new(batch.columns()[..keys].to_vec(), batch.num_rows())?;
        self.keys.groups(&columns, &mut groups)?;
        self.resize();
        for (&group, known) in groups.iter().zip(of_group) {
            self.empty -= usize::from(known.rows != 0);
            self.of_group[group as usize] = *known;
        }
        let accumulators = self.accumulators.iter_mut().map(Values::accumulator);
        accumulator::merge_states(accumulators, &groups, &batch.columns()[keys + 2..])
    }
}

impl UpdatingAggregate {
    /// Rebuilds the table with the groups that have rows and stay. Accumulators can't forget single
    /// groups, so the others are copied over. Groups that go are kept without rows until a snapshot has
    /// recorded that they are gone.
    pub(super) fn rebuild(&mut self, stays: impl Fn(&Group) -> bool) -> Result<()> {
        let (mut staying, mut gone) = (Vec::new(), Vec::new());
        for (index, group) in self.table.of_group.iter_mut().enumerate() {
            if group.rows > 0 && stays(group) {
                staying.push(index as u32);
            } else if !self.clock.mark().is_first() {
                if group.rows > 0 {
                    *group = Group {
                        rows: 0,
                        touched: self.clock.mark(),
                        ..*group
                    };
                }
                if group.touched > self.saved {
                    gone.push(index as u32);
                }
            }
        }
        let mut table = self.new_table()?;
        let known = |groups: &[u32]| {
            let groups = groups
                .iter()
                .map(|&group| self.table.of_group[group as usize]);
            groups.collect::<Vec<Group>>()
        };
        let (of_staying, of_gone) = (known(&staying), known(&gone));
        let keys = self.key_types.len();
        table.add(&self.table.rows(&staying)?, &of_staying, keys)?;
        if !gone.is_empty() {
            let mut groups = Vec::new();
            let columns = KeyColumns::new(self.table.keys.columns(&gone)?, gone.len())?;
            table.keys.groups(&columns, &mut groups)?;
            table.resize();
            for (&group, known) in groups.iter().zip(&of_gone) {
                table.of_group[group as usize] = *known;
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
        let known = staying
            .iter()
            .map(|&group| self.table.of_group[group as usize]);
        let known = known.collect::<Vec<Group>>();
        let mut table = self.new_table()?;
        table.add(&self.table.rows(&staying)?, &known, self.key_types.len())?;
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
        let is_full = since == Mark::default();
        let stays_empty = self.spec.keys.is_empty();
        let of_group = self.table.of_group.iter().enumerate();
        let chosen = of_group.filter(|(index, group)| {
            let is_worth_it = group.rows > 0 || stays_empty || !is_full;
            let hash = self.table.keys.hash(*index);
            is_worth_it && group.touched > since && buckets.contains_hash(hash)
        });
        let chosen = chosen.map(|(index, _)| index as u32).collect::<Vec<u32>>();
        match chosen.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(vec![self.table.rows(&chosen)?]),
        }
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
        let of_group = of_group.map(|(&rows, &touched_at)| Group {
            rows,
            touched: self.clock.mark(),
            touched_at,
        });
        let of_group = of_group.collect::<Vec<Group>>();
        let mut groups = Vec::new();
        let columns = KeyColumns::new(batch.columns()[..keys].to_vec(), batch.num_rows())?;
        let known = self.table.keys.len();
        self.table.keys.groups(&columns, &mut groups)?;
        self.table.resize();
        // Existing groups are replaced; those without rows are removed.
        let mut gone = vec![false; self.table.keys.len()];
        gone[known..].fill(true);
        groups.iter().for_each(|&group| gone[group as usize] = true);
        self.remove(&gone)?;
        if self.spec.keys.is_empty() {
            return self.table.add(batch, &of_group, keys);
        }
        let there = of_group.iter().map(|group| Some(group.rows > 0));
        let there = there.collect::<arrow_array::BooleanArray>();
        let batch = arrow_select::filter::filter_record_batch(batch, &there)?;
        let of_group = of_group.into_iter().filter(|group| group.rows > 0);
        self.table.add(&batch, &of_group.collect::<Vec<_>>(), keys)
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        let groups = 0..self.table.of_group.len();
        let gone = groups.map(|group| buckets.contains_hash(self.table.keys.hash(group)));
        self.remove(&gone.collect::<Vec<bool>>())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
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
}
