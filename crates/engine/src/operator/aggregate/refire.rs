//! Windows whose value is emitted more than once: before they close (early firing), and after (allowed
//! lateness).
//!
//! The first row for a group is an insert, each further one an update of it; a group is emitted only if
//! it has changed since. So the number of rows depends on the run; the last one, after the end of the
//! window and its lateness, does not. If requested, the old row is emitted before its update
//! ([`super::AggregateSpec::emits_before`]): it is recorded when the group first changes.

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_select::take::take;

use super::groups::Groups;
use super::updates::Updates;
use super::{Aggregate, AggregateCall, WindowKey, emit_updates};
use crate::chunk::{Chunk, RowKind};
use crate::error::Result;
use crate::operator::window::ticks_to_us;
use crate::operator::{Output, Progress};
use crate::time::{EventTime, now_ns};

/// When the value of a window is emitted in addition to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refires {
    /// This long after the value has changed, in nanoseconds of the engine's clock.
    pub every_ns: Option<u64>,
    /// For each row that comes until the watermark is this many microseconds after the end.
    pub lateness_us: EventTime,
}

impl Groups {
    fn has_changed(&self) -> bool {
        self.updates.as_ref().is_some_and(Updates::has_changed)
    }
}

impl Aggregate {
    /// How long after its end a window accepts rows.
    pub(super) fn lateness_us(&self) -> EventTime {
        self.spec.refires.map_or(0, |refires| refires.lateness_us)
    }

    /// Notes that rows of the window at `end` were added to the groups in `self.groups`.
    pub(super) fn note_changes(
        &mut self,
        window: WindowKey,
        end: i64,
        output: &mut Output,
    ) -> Result<()> {
        let Some(refires) = self.spec.refires else {
            return Ok(());
        };
        let groups = std::mem::take(&mut self.groups);
        if let Some(updates) = self.updates(end) {
            updates.change(&groups);
        }
        self.groups = groups;
        if ticks_to_us(end, window.windows.unit) <= self.clock.watermark() {
            // The window has been emitted; there are no more groups than the chunk has rows.
            return self.emit_changed(window, end, usize::MAX, output);
        }
        self.ask_for_time(refires);
        Ok(())
    }

    fn updates(&mut self, end: i64) -> Option<&mut Updates> {
        self.tables.get_mut(&end)?.updates.as_mut()
    }

    /// Sets the timer only if something has changed: an idle query has no timer.
    pub(super) fn ask_for_time(&mut self, refires: Refires) {
        if let (Some(every_ns), None) = (refires.every_ns, self.due_ns) {
            self.due_ns = Some(now_ns().saturating_add(every_ns));
        }
    }

    /// Emits up to `most` groups of a window that have changed.
    fn emit_changed(
        &mut self,
        window: WindowKey,
        end: i64,
        most: usize,
        output: &mut Output,
    ) -> Result<()> {
        let mark = self.clock.mark();
        let Some(table) = self.tables.get_mut(&end) else {
            return Ok(());
        };
        let Some(updates) = &mut table.updates else {
            return Ok(());
        };
        let (groups, kinds) = updates.take(most);
        let befores = groups.iter().map(|&group| updates.take_before(group));
        let befores = befores.collect::<Vec<_>>();
        // That the groups were emitted is part of the state.
        table.touch(&groups, mark);
        let front = window.windows.edges(end, groups.len());
        let (batch, failed) = table.result(&groups, &front, &self.spec.schema)?;
        if let Some(updates) = &mut table.updates {
            failed
                .iter()
                .for_each(|(row, _)| updates.was_refused(groups[*row]));
        }
        let chunk = Chunk {
            kinds: Some(kinds.into()),
            ..Chunk::new(batch, output.ingest_ns)
        };
        match &self.befores {
            None => emit_updates(chunk, &failed, output),
            Some(converter) => {
                let (chunk, places) = with_befores(converter, chunk, &befores)?;
                let failed = failed.into_iter();
                let failed = failed.map(|(row, reason)| (places[row], reason));
                emit_updates(chunk, &failed.collect::<Vec<_>>(), output)
            }
        }
    }

    /// Called before rows of the window at `end` change groups: records the old rows of those that were
    /// emitted.
    pub(super) fn note_befores(&mut self, end: i64) -> Result<()> {
        let (Some(converter), Some(table)) = (&self.befores, self.tables.get_mut(&end)) else {
            return Ok(());
        };
        let Some(updates) = &mut table.updates else {
            return Ok(());
        };
        let groups = updates.unchanged(&self.groups);
        if groups.is_empty() {
            return Ok(());
        }
        let values = table.accumulators.iter_mut();
        let values = values.map(|accumulator| Ok(accumulator.evaluate(&groups)?.column));
        let values = values.collect::<Result<Vec<ArrayRef>>>()?;
        let rows = converter.convert_columns(&values)?;
        for (row, &group) in groups.iter().enumerate() {
            updates.note_before(group, rows.row(row).as_ref());
        }
        Ok(())
    }

    /// Emits what has changed in windows that are closed, and forgets those that accept no more rows.
    pub(super) fn advance_refiring(
        &mut self,
        window: WindowKey,
        output: &mut Output,
    ) -> Result<Progress> {
        let watermark = self.clock.watermark();
        let ends_at = |end: i64| window.windows.to_event_time(end);
        let closed = self.tables.iter();
        let closed = closed.take_while(|(end, _)| ends_at(**end) <= watermark);
        let mut changed = closed.filter(|(_, table)| table.has_changed());
        if let Some((&end, _)) = changed.next() {
            self.emit_changed(window, end, output.chunk_rows, output)?;
            return Ok(Progress::More);
        }
        let lateness_us = self.lateness_us();
        while let Some((&end, _)) = self.tables.first_key_value()
            && ends_at(end).saturating_add(lateness_us) <= watermark
        {
            let (_, table) = self.tables.pop_first().expect("looked at just above");
            self.recycle(table);
        }
        Ok(Progress::Done)
    }

    /// Emits some of what has changed in all windows, when the timer is due.
    pub(super) fn emit_early(&mut self, output: &mut Output) -> Result<Progress> {
        let mut changed = self.tables.iter().filter(|(_, table)| table.has_changed());
        match (changed.next(), self.spec.window) {
            (Some((&end, _)), Some(window)) => {
                self.emit_changed(window, end, output.chunk_rows, output)?;
                Ok(Progress::More)
            }
            _ => {
                self.due_ns = None;
                Ok(Progress::Done)
            }
        }
    }
}

/// The chunk with each old row before its update, and the new positions of its own rows.
fn with_befores(
    converter: &RowConverter,
    chunk: Chunk,
    befores: &[Option<Box<[u8]>>],
) -> Result<(Chunk, Vec<usize>)> {
    let kinds = chunk.kinds.iter().flat_map(|kinds| kinds.values().iter());
    let (mut rows, mut all_kinds, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let of_new = chunk.rows() as u32;
    let mut old = Vec::new();
    for (row, (&kind, before)) in kinds.zip(befores).enumerate() {
        if before.is_some() {
            rows.push(of_new + old.len() as u32);
            all_kinds.push(RowKind::UpdateBefore as i8);
            old.push(row as u32);
        }
        places.push(rows.len());
        rows.push(row as u32);
        all_kinds.push(kind);
    }
    let taken = UInt32Array::from(old);
    let old_rows = arrow_select::take::take_record_batch(&chunk.batch, &taken)?;
    let parser = converter.parser();
    let values = befores.iter().flatten().map(|before| parser.parse(before));
    let values = converter.convert_rows(values)?;
    let mut columns = old_rows.columns().to_vec();
    columns.truncate(columns.len() - values.len());
    columns.extend(values);
    let schema = chunk.batch.schema();
    let old_rows = RecordBatch::try_new(schema.clone(), columns)?;
    let both = arrow_select::concat::concat_batches(&schema, [&chunk.batch, &old_rows])?;
    let batch = arrow_select::take::take_record_batch(&both, &UInt32Array::from(rows))?;
    let paired = Chunk {
        kinds: Some(all_kinds.into()),
        ..Chunk::new(batch, chunk.ingest_ns)
    };
    Ok((paired, places))
}

/// A converter for the values of an aggregation.
pub fn converter(calls: &[AggregateCall]) -> Result<RowConverter> {
    let fields = calls
        .iter()
        .map(|call| SortField::new(call.function.data_type()));
    Ok(RowConverter::new(fields.collect())?)
}

/// The old rows of changed groups, as columns of a snapshot: NULL for groups without changes.
pub fn befores_of(
    converter: &RowConverter,
    updates: &Updates,
    groups: &[u32],
) -> Result<Vec<ArrayRef>> {
    let befores = groups.iter().map(|&group| updates.before(group));
    let mut next = 0;
    let places = befores.clone().map(|before| {
        before.map(|_| {
            next += 1;
            next - 1
        })
    });
    let places = places.collect::<UInt32Array>();
    let parser = converter.parser();
    let rows = befores.flatten().map(|before| parser.parse(before));
    let columns = converter.convert_rows(rows)?;
    let spread = columns.iter().map(|column| take(column, &places, None));
    Ok(spread.collect::<std::result::Result<Vec<_>, _>>()?)
}

/// Restores the columns of [`befores_of`].
pub fn restore_befores(
    converter: &RowConverter,
    updates: &mut Updates,
    groups: &[u32],
    columns: &[ArrayRef],
) -> Result<()> {
    let rows = converter.convert_columns(columns)?;
    for (row, &group) in groups.iter().enumerate() {
        if updates.has_changed_since(group) {
            updates.note_before(group, rows.row(row).as_ref());
        }
    }
    Ok(())
}
