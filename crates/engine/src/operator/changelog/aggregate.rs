//! Running aggregation over a changelog, or into one: it retracts rows, emits old rows before their
//! updates, and removes groups that have no rows left or have not changed for long.
//!
//! A query that needs none of this gets [`crate::operator::aggregate::Aggregate`].

mod slices;
mod state;
mod table;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Int8Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, SchemaRef};

use self::table::{Group, Table, Values};
use super::{Retention, retractions};
use crate::accumulator::Failures;
use crate::chunk::{Chunk, RowKind};
use crate::error::{Error, Result};
use crate::expression::{reject, row_text};
use crate::key::KeyColumns;
use crate::operator::aggregate::{AggregateSpec, Emit, emit_updates, order_keys, reject_rows};
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{Clock, KeyedState, Mark};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// Running aggregation over or into a changelog.
pub struct UpdatingAggregate {
    spec: AggregateSpec,
    key_types: Vec<DataType>,
    argument_types: Vec<Vec<DataType>>,
    table: Table,
    retention: Retention,
    /// The next group to emit, if all are emitted at the end of the input.
    emitted: usize,
    clock: Clock,
    /// A snapshot that is being taken in slices.
    open: Option<slices::Open>,
    /// The mark that the last snapshot was taken since: groups removed before it need no mention.
    saved: Mark,
    /// Whether the input had ended before a restart, so that the row of a total has been emitted.
    has_ended: bool,
    /// Whether a unit of work has ended. Another one may never begin, so its total waits for its first
    /// row, or for its end.
    is_later_unit: bool,
    groups: Vec<u32>,
}

/// A table is rebuilt when this many groups, and more than half of them, have no rows.
const EMPTY_GROUPS_MIN: usize = 1024;

/// Groups of a chunk with their result rows, and which of them have none.
struct Results {
    batch: RecordBatch,
    is_there: Vec<bool>,
    failed: Vec<Option<String>>,
}

impl UpdatingAggregate {
    /// An aggregation over chunks with the columns of `input`.
    pub fn new(spec: AggregateSpec, input: &SchemaRef) -> Result<UpdatingAggregate> {
        let type_of = |column: &usize| input.field(*column).data_type().clone();
        let key_types = spec.keys.iter().map(type_of).collect::<Vec<_>>();
        let arguments = spec.calls.iter();
        let arguments = arguments.map(|call| call.arguments.iter().map(type_of).collect());
        let argument_types = arguments.collect::<Vec<Vec<DataType>>>();
        let table = Table::new(&spec, &key_types, &argument_types)?;
        Ok(UpdatingAggregate {
            retention: Retention::new(spec.retention_us),
            spec,
            key_types,
            argument_types,
            table,
            emitted: 0,
            clock: Clock::default(),
            open: None,
            saved: Mark::default(),
            has_ended: false,
            is_later_unit: false,
            groups: Vec::new(),
        })
    }

    fn new_table(&self) -> Result<Table> {
        Table::new(&self.spec, &self.key_types, &self.argument_types)
    }

    /// Whether the only group stays without rows: without keys, COUNT(*) is then 0.
    fn stays_empty(&self) -> bool {
        self.spec.keys.is_empty()
    }

    /// Finds the groups of the chunk's rows, into `self.groups`, and returns the previous number of
    /// groups; groups that are too old start over.
    fn find_groups(&mut self, chunk: &Chunk) -> Result<usize> {
        let keys = KeyColumns::of_chunk(chunk, &self.spec.keys)?;
        let mut existed = self.table.keys.len();
        self.table.keys.groups(&keys, &mut self.groups)?;
        self.table.resize();
        let is_over = |&group: &u32| {
            let group = &self.table.of_group[group as usize];
            group.rows > 0 && self.retention.is_over(group.touched_at)
        };
        if self.groups.iter().any(is_over) {
            self.drop_old()?;
            existed = self.table.keys.len();
            self.table.keys.groups(&keys, &mut self.groups)?;
            self.table.resize();
        }
        Ok(existed)
    }

    /// Which rows of the chunk count: a row that retracts from a forgotten group does not.
    fn count_rows(&mut self, retracts: Option<&[bool]>) -> [Vec<u32>; 2] {
        let (mut added, mut taken_back) = (Vec::new(), Vec::new());
        let (mark, now) = (self.clock.mark(), self.retention.now());
        for (row, &group) in self.groups.iter().enumerate() {
            let of_group = &mut self.table.of_group[group as usize];
            let before = of_group.rows;
            if retracts.is_some_and(|retracts| retracts[row]) {
                if before == 0 {
                    continue;
                }
                of_group.rows -= 1;
                taken_back.push(row as u32);
            } else {
                of_group.rows += 1;
                added.push(row as u32);
            }
            of_group.touched_at = now;
            self.table.touched.touch(group, mark);
            self.table.empty += usize::from(of_group.rows == 0);
            self.table.empty -= usize::from(before == 0);
        }
        [added, taken_back]
    }

    /// Adds rows to the accumulators, or retracts them. Returns the rows that a function could not add.
    fn accumulate(&mut self, chunk: &Chunk, rows: &[u32], retracts: bool) -> Result<Failures> {
        let mut failed = Failures::new();
        if rows.is_empty() {
            return Ok(failed);
        }
        let is_all = rows.len() == chunk.rows();
        let order = order_keys(&self.spec, chunk)?;
        for (call, accumulator) in self.spec.calls.iter().zip(&mut self.table.accumulators) {
            let filter = call
                .filter
                .map(|filter| chunk.batch.column(filter).as_boolean());
            let passes = |row: &u32| {
                let row = *row as usize;
                filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
            };
            let chosen = rows.iter().copied().filter(passes).collect::<Vec<u32>>();
            let groups = chosen.iter().map(|&row| self.groups[row as usize]);
            let groups = groups.collect::<Vec<u32>>();
            let of_call = call
                .arguments
                .iter()
                .map(|&index| chunk.batch.column(index).clone());
            let mut arguments = of_call.collect::<Vec<ArrayRef>>();
            let order = match call.function.needs_order() {
                true => chosen.iter().map(|&row| order[row as usize]).collect(),
                false => Vec::new(),
            };
            let chosen = UInt32Array::from(chosen);
            if !is_all || chosen.len() < rows.len() {
                for argument in &mut arguments {
                    *argument = arrow_select::take::take(argument, &chosen, None)?;
                }
            }
            match retracts {
                true => accumulator.retract(&groups, &arguments)?,
                false => {
                    let accumulator = accumulator.accumulator();
                    let refused = accumulator.update(&groups, &arguments, &order)?;
                    let refused = refused.into_iter();
                    failed
                        .extend(refused.map(|(row, reason)| (chosen.value(row) as usize, reason)));
                }
            }
        }
        Ok(failed)
    }

    fn results(&mut self, touched: &[u32], existed: usize) -> Result<Results> {
        let (batch, failed) = self.table.result(touched, &self.spec.schema)?;
        let stays_empty = self.stays_empty();
        let is_there = touched.iter().map(|&group| {
            let rows = self.table.of_group[group as usize].rows;
            rows > 0 || (stays_empty && (group as usize) < existed)
        });
        Ok(Results {
            is_there: is_there.collect(),
            batch,
            failed,
        })
    }

    fn process_chunk(&mut self, chunk: &Chunk, output: &mut Output) -> Result<()> {
        let existed = self.find_groups(chunk)?;
        if self.spec.emit == Emit::AtEnd {
            self.take_in(chunk, output)?;
            return self.make_room();
        }
        let touched = distinct(&self.groups, self.table.keys.len());
        let before = self.results(&touched, existed)?;
        self.take_in(chunk, output)?;
        let after = self.results(&touched, usize::MAX)?;
        self.emit(before, after, chunk.ingest_ns, output)?;
        self.make_room()
    }

    /// Adds the chunk's rows to their groups, or retracts them.
    fn take_in(&mut self, chunk: &Chunk, output: &mut Output) -> Result<()> {
        self.copy_early()?;
        let retracts = retractions(chunk);
        let [added, taken_back] = self.count_rows(retracts.as_deref());
        let failed = self.accumulate(chunk, &added, false)?;
        if !self.spec.takes_back {
            reject_rows(chunk, failed, output);
        } else if let Some((row, reason)) = failed.into_iter().next() {
            // If it were left out, it would be retracted later without having been added.
            let place = row_text(&chunk.batch, row);
            return Err(Error::new(format!("row {place}"), reason)
                .hint("a row that is retracted later can't be left out: handle it in the function")
                .final_one());
        }
        self.accumulate(chunk, &taken_back, true)?;
        Ok(())
    }

    /// Emits up to a chunk of the groups that have rows; without keys the only group, even without rows.
    fn emit_at_end(&mut self, output: &mut Output) -> Result<Progress> {
        if self.lacks_total() {
            self.make_total()?;
        }
        let until = (self.emitted + output.chunk_rows).min(self.table.keys.len());
        let stays_empty = self.stays_empty();
        let of_group = &self.table.of_group;
        let groups = (self.emitted..until)
            .filter(|&group| stays_empty || of_group[group].rows > 0)
            .map(|group| group as u32);
        let groups = groups.collect::<Vec<u32>>();
        let (batch, failed) = self.table.result(&groups, &self.spec.schema)?;
        let failed = failed.into_iter().enumerate();
        let failed = failed.filter_map(|(row, reason)| Some((row, reason?)));
        let chunk = Chunk::new(batch, output.ingest_ns);
        emit_updates(chunk, &failed.collect::<Vec<_>>(), output)?;
        self.emitted = until;
        Ok(match until < self.table.keys.len() {
            true => Progress::More,
            false => Progress::Done,
        })
    }

    fn emit(
        &self,
        before: Results,
        after: Results,
        ingest_ns: u64,
        output: &mut Output,
    ) -> Result<()> {
        let is_same = self.are_same(&before.batch, &after.batch)?;
        let rows = before.is_there.len();
        let (mut indices, mut kinds) = (Vec::new(), Vec::new());
        let mut push = |index: usize, kind: RowKind| {
            indices.push((index / rows, index % rows));
            kinds.push(kind as i8);
        };
        let emitted = Chunk::new(after.batch.clone(), ingest_ns);
        let is_every_row = self.spec.emit == Emit::EveryRow;
        for (row, &is_same) in is_same.iter().enumerate() {
            // A row without a value was rejected, and doesn't exist for the operators after this one.
            let was_there = before.is_there[row] && before.failed[row].is_none();
            if after.is_there[row]
                && let Some(reason) = &after.failed[row]
            {
                output.reject(reject(&emitted, row, reason.clone()));
            }
            let is_there = after.is_there[row] && after.failed[row].is_none();
            match (was_there, is_there) {
                // One update for each row, also if the operator is shared with a reader of changes.
                (true, true) if is_same && (self.spec.takes_back || !is_every_row) => {}
                (true, true) => {
                    if self.spec.emits_before {
                        push(row, RowKind::UpdateBefore);
                    }
                    push(rows + row, RowKind::Update);
                }
                (true, false) => push(row, RowKind::Delete),
                (false, true) => push(rows + row, RowKind::Insert),
                (false, false) => {}
            }
        }
        if indices.is_empty() {
            return Ok(());
        }
        let batch = arrow_select::interleave::interleave_record_batch(
            &[&before.batch, &after.batch],
            &indices,
        )?;
        output.emit(Chunk {
            kinds: Some(Int8Array::from(kinds)),
            ..Chunk::new(batch, ingest_ns)
        });
        Ok(())
    }

    /// Whether the row of a total is still to be emitted: it exists even without input rows.
    fn lacks_total(&self) -> bool {
        self.spec.is_total() && !self.has_ended && self.table.keys.is_empty()
    }

    /// Whether the row of a total is emitted before the first row of the input.
    fn starts_with_total(&self) -> bool {
        self.spec.starts_empty && self.lacks_total()
    }

    /// Makes the group of a total that has no rows yet.
    fn make_total(&mut self) -> Result<Vec<u32>> {
        let mut groups = Vec::new();
        let none = KeyColumns::new(Vec::new(), 1)?;
        let keys = &mut self.table.keys;
        keys.groups(&none, &mut groups)?;
        self.table.resize();
        for &group in &groups {
            self.table.touched.touch(group, self.clock.mark());
        }
        Ok(groups)
    }

    /// Emits the total over no rows.
    fn emit_total(&mut self, output: &mut Output) -> Result<()> {
        let groups = self.make_total()?;
        let before = self.results(&groups, 0)?;
        let after = self.results(&groups, usize::MAX)?;
        self.emit(before, after, output.ingest_ns, output)
    }

    /// Which rows have the same values.
    fn are_same(&self, before: &RecordBatch, after: &RecordBatch) -> Result<Vec<bool>> {
        let mut same = vec![true; before.num_rows()];
        let first = before.num_columns() - self.spec.calls.len();
        for (before, after) in before.columns()[first..]
            .iter()
            .zip(&after.columns()[first..])
        {
            // Nested values can't be compared this way: they count as changed.
            let equal = match arrow_ord::cmp::not_distinct(before, after) {
                Ok(equal) => equal,
                Err(_) => BooleanArray::from(vec![false; before.len()]),
            };
            for (same, equal) in same.iter_mut().zip(equal.values()) {
                *same &= equal;
            }
        }
        Ok(same)
    }

    /// Rebuilds the table when most of its groups are gone.
    fn make_room(&mut self) -> Result<()> {
        let table = &self.table;
        let is_worth_it = table.empty > EMPTY_GROUPS_MIN && 2 * table.empty > table.of_group.len();
        match self.stays_empty() || !is_worth_it {
            true => Ok(()),
            false => self.rebuild(|_| true),
        }
    }

    /// Called before the watermark moves: groups that were touched before the first one change now.
    fn begin_retention(&mut self, watermark: EventTime) -> Result<()> {
        if !self.retention.begins(watermark) {
            return Ok(());
        }
        let groups = self.table.of_group.iter().enumerate();
        let early = groups.filter(|(_, group)| group.touched_at == MIN_WATERMARK);
        self.groups = early.map(|(group, _)| group as u32).collect();
        self.copy_early()?;
        let mark = self.clock.mark();
        for &group in &self.groups {
            self.table.of_group[group as usize].touched_at = watermark;
            self.table.touched.touch(group, mark);
        }
        Ok(())
    }

    /// Drops groups that have not changed for long.
    fn drop_old(&mut self) -> Result<()> {
        let retention = self.retention;
        let is_old = |group: &Group| group.rows > 0 && retention.is_over(group.touched_at);
        match self.table.of_group.iter().any(is_old) {
            true => self.rebuild(|group| !is_old(group)),
            false => Ok(()),
        }
    }
}

/// Each of `groups` once, in the order in which they come.
fn distinct(groups: &[u32], number: usize) -> Vec<u32> {
    let mut seen = std::collections::HashSet::<u32, foldhash::fast::FixedState>::default();
    seen.reserve(groups.len().min(number));
    let groups = groups.iter().copied();
    groups.filter(|&group| seen.insert(group)).collect()
}

impl Stateful for UpdatingAggregate {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.spec.keys.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: {
                let functions = self.spec.calls.iter().map(|call| &call.function);
                functions.into_iter().any(|function| function.is_foreign())
            },
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        if self.is_later_unit && self.starts_with_total() {
            self.emit_total(output)?;
        }
        if self.spec.emit == Emit::EveryRow && !self.spec.calls.is_empty() {
            return (0..chunk.rows())
                .try_for_each(|row| self.process_chunk(&chunk.slice(row, 1), output));
        }
        self.process_chunk(&chunk, output)
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        if self.spec.emit == Emit::AtEnd && watermark == MAX_WATERMARK {
            return self.emit_at_end(output);
        }
        self.begin_retention(watermark)?;
        if self.retention.advance(watermark) {
            self.drop_old()?;
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        Some(self)
    }

    fn end_unit(&mut self, output: &mut Output) -> Result<()> {
        if self.spec.emit != Emit::AtEnd && self.lacks_total() {
            self.emit_total(output)?;
        }
        (self.is_later_unit, self.emitted) = (true, 0);
        self.table = self.new_table()?;
        self.retention.restart();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        let accumulators = self.table.accumulators.iter();
        let accumulators = accumulators.map(Values::bytes);
        let of_group = self.table.of_group.capacity() * size_of::<Group>();
        self.table.keys.bytes()
            + of_group
            + self.table.touched.bytes()
            + accumulators.sum::<usize>()
    }
}

impl Timer for UpdatingAggregate {
    fn due_ns(&self) -> Option<u64> {
        (!self.is_later_unit && self.starts_with_total()).then_some(0)
    }

    fn on_time(&mut self, output: &mut Output) -> Result<Progress> {
        if self.lacks_total() {
            self.emit_total(output)?;
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests;
