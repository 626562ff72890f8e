//! Aggregation by key, in windows or running.
//!
//! *Windowed*: one table of groups per open window; when the watermark reaches a window's end, its groups
//! are emitted once, final. *Running*: one table; each chunk emits the new value of each key that it
//! touched (changes of one key within a chunk are merged), or, with [`Emit::EveryRow`], one row per input
//! row. Windows that are also emitted before or after their end are in [`refire`].
//!
//! Output columns: `window_start`, `window_end` (windowed only; sessions and count windows have their
//! start among the keys), the keys, the aggregates.

mod combine;
pub(super) mod groups;
mod keys;
mod refire;
mod slices;
mod state;
mod updates;

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Int8Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, SchemaRef};

use super::window::{Windows, ticks_to_us, timestamp_ticks, timestamp_unit};
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::accumulator::AggregateFunction;
use crate::chunk::{Chunk, RowKind};
use crate::error::Result;
use crate::expression::reject;
use crate::key::KeyColumns;
use crate::state::{Clock, KeyedState};
use crate::time::{EventTime, MAX_WATERMARK};
pub use combine::{Combine, FirstPhase};
use groups::Groups;
pub(super) use groups::{order_keys, reject_rows, scan_filtered};
pub use keys::Keys;
pub use refire::Refires;

/// What an aggregation computes.
#[derive(Debug, Clone)]
pub struct AggregateSpec {
    /// The window column of the input, for windowed aggregation.
    pub window: Option<WindowKey>,
    /// Columns of the input to group by, without window columns.
    pub keys: Vec<usize>,
    /// The aggregates.
    pub calls: Vec<AggregateCall>,
    /// The event-time column, by which FIRST_VALUE and LAST_VALUE order.
    pub time_column: Option<usize>,
    /// When a running aggregation emits.
    pub emit: Emit,
    /// When a windowed aggregation emits in addition to the end of each window.
    pub refires: Option<Refires>,
    /// Whether the input of a running aggregation retracts rows.
    pub takes_back: bool,
    /// Whether all of the input's rows may be retracted. The empty total ([`AggregateSpec::is_total`]) is
    /// then emitted before the first row comes; otherwise timing would decide whether it is ever emitted.
    pub starts_empty: bool,
    /// Whether the old row is emitted before its update.
    pub emits_before: bool,
    /// How long groups without changes are kept, in microseconds of event time; `None` for ever.
    pub retention_us: Option<i64>,
    /// The columns of the output.
    pub schema: SchemaRef,
}

/// The column that says which window a row belongs to.
#[derive(Debug, Clone, Copy)]
pub struct WindowKey {
    /// A timestamp column of the input: the windows' ends, or their starts.
    pub column: usize,
    /// Whether the column holds starts.
    pub is_start: bool,
    /// The windows that the column was made with.
    pub windows: Windows,
}

/// One aggregate.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// The function.
    pub function: AggregateFunction,
    /// The columns of the input that the function is called with.
    pub arguments: Vec<usize>,
    /// The Boolean column of the input for `FILTER (WHERE …)`.
    pub filter: Option<usize>,
}

impl AggregateSpec {
    /// Whether each of its rows is final: none is replaced or retracted.
    pub fn is_final(&self) -> bool {
        match self.window {
            Some(_) => self.refires.is_none(),
            None => self.emit == Emit::AtEnd,
        }
    }

    /// Whether the result is one row, even without input rows: a running aggregation without keys.
    pub fn is_total(&self) -> bool {
        self.window.is_none() && self.keys.is_empty() && !self.calls.is_empty()
    }

    /// Whether it needs [`super::changelog::aggregate::UpdatingAggregate`].
    pub fn is_updating(&self) -> bool {
        let is_more = self.takes_back || self.emits_before || self.retention_us.is_some();
        self.window.is_none() && is_more
    }
}

impl AggregateCall {
    /// Whether its value is the same to the last bit in whatever order rows come, and whether they are
    /// added one by one or merged from parts. Floating-point sums are not, and nothing is known about
    /// functions of an outside library. `input` has the columns that the functions are called with.
    pub fn is_exact(&self, input: &SchemaRef) -> bool {
        let mut arguments = self.arguments.iter().map(|&column| input.field(column));
        match &self.function {
            AggregateFunction::Count
            | AggregateFunction::Extreme { .. }
            | AggregateFunction::FirstLast { .. }
            | AggregateFunction::Quantile { .. } => true,
            AggregateFunction::Sum { to } => !to.is_floating(),
            AggregateFunction::Average => arguments.all(|field| !field.data_type().is_floating()),
            AggregateFunction::Distinct { function, .. } => {
                matches!(**function, AggregateFunction::Count)
            }
            AggregateFunction::Other(_) => false,
        }
    }
}

/// When a running aggregation emits (`SET 'emit'`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emit {
    /// Once per chunk for each key that it touched.
    Changes,
    /// Once per input row.
    EveryRow,
    /// Once for each key, when the input has ended (`SET 'emit' = 'final'`). Without keys this gives a
    /// row even if the input had none, as in SQL over tables.
    AtEnd,
}

/// Aggregation by key.
pub struct Aggregate {
    spec: AggregateSpec,
    /// The number of columns of its input; a combined chunk has more ([`combine`]).
    input_columns: usize,
    key_types: Vec<DataType>,
    /// Open windows by their end in ticks; a running aggregation has one, at [`RUNNING`].
    tables: BTreeMap<i64, Groups>,
    /// The window that is being emitted: its end in ticks, its groups, the next group.
    firing: Option<(i64, Groups, usize)>,
    /// Empty tables, kept for their memory: as many as were open at once, at most [`SPARE_TABLES`].
    spare: Vec<Groups>,
    clock: Clock,
    /// A snapshot that is being taken in slices.
    open: Option<slices::Open>,
    /// When to emit what has changed ([`Refires`]).
    due_ns: Option<u64>,
    /// Encodes old rows, if they are emitted before their updates.
    befores: Option<arrow_row::RowConverter>,
    /// Whether the input had ended before a restart, so that the row of a total has been emitted.
    has_ended: bool,
    groups: Vec<u32>,
}

/// The key of a running aggregation's table among the windows.
const RUNNING: i64 = i64::MAX;

/// The most empty tables that are kept: a sliding window of 10 slides closes and opens one at a time, so
/// a few are enough to avoid allocations.
const SPARE_TABLES: usize = 4;

impl Aggregate {
    /// An aggregation over chunks with the columns of `input`.
    pub fn new(spec: AggregateSpec, input: &SchemaRef) -> Result<Aggregate> {
        let key_types = spec
            .keys
            .iter()
            .map(|&key| input.field(key).data_type().clone())
            .collect::<Vec<_>>();
        // Made once here, so that unsupported types are rejected before the first row.
        let spare = vec![Groups::new(&key_types, &spec.calls)?];
        let wants_befores = spec.refires.is_some() && spec.emits_before;
        let befores = wants_befores.then(|| refire::converter(&spec.calls));
        Ok(Aggregate {
            befores: befores.transpose()?,
            spec,
            input_columns: input.fields().len(),
            key_types,
            tables: BTreeMap::new(),
            firing: None,
            spare,
            clock: Clock::default(),
            open: None,
            due_ns: None,
            has_ended: false,
            groups: Vec::new(),
        })
    }

    fn table(&mut self, end: i64) -> Result<&mut Groups> {
        if !self.tables.contains_key(&end) {
            let mut table = match self.spare.pop() {
                Some(table) => table,
                None => Groups::new(&self.key_types, &self.spec.calls)?,
            };
            if self.spec.refires.is_some() {
                table.updates.get_or_insert_default();
            }
            self.tables.insert(end, table);
        }
        Ok(self.tables.get_mut(&end).expect("inserted just above"))
    }

    fn recycle(&mut self, mut table: Groups) {
        if self.spare.len() < SPARE_TABLES {
            table.clear();
            self.spare.push(table);
        }
    }

    /// Adds the rows of `chunk`, all of one window, to its table. Returns the previous number of groups;
    /// the rows' groups are left in `self.groups`.
    fn add(&mut self, end: i64, chunk: &Chunk) -> Result<usize> {
        let keys = KeyColumns::of_chunk(chunk, &self.spec.keys)?;
        let mut groups = std::mem::take(&mut self.groups);
        let table = self.table(end)?;
        let before = table.keys.len();
        table.keys.groups(&keys, &mut groups)?;
        table.resize();
        self.touch(end, &groups)?;
        self.groups = groups;
        Ok(before)
    }

    /// Updates all accumulators of the table at `end` with the rows of `chunk`, or with the states of
    /// a combined one. Rows that a function can't add are rejected.
    fn accumulate(&mut self, end: i64, chunk: &Chunk, output: &mut Output) -> Result<()> {
        let table = self.tables.get_mut(&end).expect("`add` has made the table");
        match chunk.batch.columns().get(self.input_columns..) {
            Some([states @ .., _rows]) => table.merge(&self.groups, states),
            _ => table.update(&self.spec, &self.groups, chunk, output),
        }
    }

    /// Processes rows of one window, or of a running aggregation.
    fn process_window(&mut self, end: i64, chunk: &Chunk, output: &mut Output) -> Result<()> {
        self.add(end, chunk)?;
        self.note_befores(end)?;
        self.accumulate(end, chunk, output)
    }

    fn process_windowed(
        &mut self,
        window: WindowKey,
        chunk: Chunk,
        output: &mut Output,
    ) -> Result<()> {
        // An outer join before this operator pads window columns with NULL: such a row is in no window.
        let column = chunk.batch.column(window.column);
        if column.null_count() > 0 {
            let in_a_window = arrow_array::BooleanArray::from_iter(
                (0..column.len()).map(|row| Some(column.is_valid(row))),
            );
            let chunk = chunk.filter(&in_a_window)?;
            return match chunk.rows() {
                0 => Ok(()),
                _ => self.process_windowed(window, chunk, output),
            };
        }
        let offset = if window.is_start {
            window.windows.size
        } else {
            0
        };
        let ends = timestamp_ticks(column)?;
        let unit = window.windows.unit;
        debug_assert_eq!(timestamp_unit(column.data_type()), Some(unit));
        // Closed only for rows of a partition that appeared or resumed while the query ran (I2): all
        // others have already been judged by their own watermark.
        let watermark = self.clock.watermark();
        let lateness_us = self.lateness_us();
        let closed = |end: i64| {
            let end = ticks_to_us(end.saturating_add(offset), unit);
            end.saturating_add(lateness_us) <= watermark
        };
        let first = ends.first().copied().unwrap_or_default();
        if ends.iter().all(|&end| end == first) {
            if closed(first) {
                output.count_late(combine::rows_of(&chunk, self.input_columns));
                return Ok(());
            }
            let end = first.saturating_add(offset);
            self.process_window(end, &chunk, output)?;
            return self.note_changes(window, end, output);
        }
        let mut rows_of = BTreeMap::<i64, Vec<u32>>::new();
        for (row, &end) in ends.iter().enumerate() {
            rows_of.entry(end).or_default().push(row as u32);
        }
        for (end, rows) in rows_of {
            let part = chunk.take(&UInt32Array::from(rows))?;
            if closed(end) {
                output.count_late(combine::rows_of(&part, self.input_columns));
            } else {
                let end = end.saturating_add(offset);
                self.process_window(end, &part, output)?;
                self.note_changes(window, end, output)?;
            }
        }
        Ok(())
    }

    fn process_running(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        // DISTINCT: a known key changes nothing.
        let only_new = self.spec.calls.is_empty();
        if self.spec.emit == Emit::EveryRow && !only_new {
            return self.process_every_row(chunk, output);
        }
        let before = self.add(RUNNING, &chunk)?;
        self.accumulate(RUNNING, &chunk, output)?;
        if self.spec.emit == Emit::AtEnd {
            return Ok(());
        }
        // Each touched group once, in the order in which the chunk first touched it.
        let mut touched = Vec::new();
        let groups = std::mem::take(&mut self.groups);
        let table = self
            .tables
            .get_mut(&RUNNING)
            .expect("`add` has made the table");
        table.distinct(&groups, &mut touched);
        self.groups = groups;
        if only_new {
            touched.retain(|&group| group as usize >= before);
        }
        let kinds = touched
            .iter()
            .map(|&group| kind(group, before))
            .collect::<Int8Array>();
        let (batch, failed) = table.result(&touched, &[], &self.spec.schema)?;
        emit_updates(
            Chunk {
                kinds: Some(kinds),
                ..Chunk::new(batch, chunk.ingest_ns)
            },
            &failed,
            output,
        )
    }

    /// The table of a total, with its group, even without rows.
    fn make_total(&mut self) -> Result<(&mut Groups, Vec<u32>)> {
        let mut groups = Vec::new();
        let none = KeyColumns::new(Vec::new(), 1)?;
        let table = self.table(RUNNING)?;
        table.keys.groups(&none, &mut groups)?;
        table.resize();
        Ok((table, groups))
    }

    /// Emits the total over no rows, if none has come and the input has ended.
    fn emit_total(&mut self, output: &mut Output) -> Result<()> {
        if self.has_ended || self.tables.contains_key(&RUNNING) {
            return Ok(());
        }
        let schema = self.spec.schema.clone();
        let (table, groups) = self.make_total()?;
        let (batch, failed) = table.result(&groups, &[], &schema)?;
        let chunk = Chunk {
            kinds: Some(Int8Array::from(vec![RowKind::Insert as i8])),
            ..Chunk::new(batch, output.ingest_ns)
        };
        emit_updates(chunk, &failed, output)
    }

    fn process_every_row(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let mut before = self.add(RUNNING, &chunk)?;
        let order = order_keys(&self.spec, &chunk)?;
        let groups = std::mem::take(&mut self.groups);
        let table = self
            .tables
            .get_mut(&RUNNING)
            .expect("`add` has made the table");
        // A row's key is its group's: no need to build it again.
        let keys = self.spec.keys.iter();
        let mut columns = keys
            .map(|&key| chunk.batch.column(key).clone())
            .collect::<Vec<ArrayRef>>();
        let mut failed = Vec::new();
        for (call, accumulator) in self.spec.calls.iter().zip(&mut table.accumulators) {
            let arguments = call
                .arguments
                .iter()
                .map(|&index| chunk.batch.column(index).clone());
            let arguments = arguments.collect::<Vec<ArrayRef>>();
            let order = if call.function.needs_order() {
                order.as_slice()
            } else {
                &[]
            };
            let values = match call.filter {
                None => accumulator.scan(&groups, &arguments, order)?,
                Some(filter) => {
                    let filter = chunk.batch.column(filter).as_boolean();
                    groups::scan_filtered(accumulator, &groups, &arguments, order, filter)?
                }
            };
            columns.push(values.column);
            failed.extend(values.failed);
        }
        let kinds = groups.iter().map(|&group| {
            let kind = kind(group, before);
            before = before.max(group as usize + 1);
            kind
        });
        let kinds = kinds.collect::<Int8Array>();
        self.groups = groups;
        let batch = RecordBatch::try_new(self.spec.schema.clone(), columns)?;
        emit_updates(
            Chunk {
                kinds: Some(kinds),
                ..Chunk::new(batch, chunk.ingest_ns)
            },
            &failed,
            output,
        )
    }

    /// Emits all groups of a running aggregation that emits nothing before its input ends.
    fn advance_running(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        if self.spec.emit != Emit::AtEnd || watermark < MAX_WATERMARK {
            return Ok(Progress::Done);
        }
        if self.firing.is_none() {
            if self.spec.is_total() && !self.has_ended {
                self.make_total()?;
            }
            self.copy_rest(RUNNING)?;
            let Some(table) = self.tables.remove(&RUNNING) else {
                return Ok(Progress::Done);
            };
            self.firing = Some((RUNNING, table, 0));
        }
        self.fire(output)?;
        Ok(match self.firing {
            Some(_) => Progress::More,
            None => Progress::Done,
        })
    }

    /// Emits up to a chunk of the window that is being emitted.
    fn fire(&mut self, output: &mut Output) -> Result<()> {
        let Some((end, mut table, next)) = self.firing.take() else {
            return Ok(());
        };
        let until = (next + output.chunk_rows).min(table.keys.len());
        let rows = (next as u32..until as u32).collect::<Vec<u32>>();
        let window = self.spec.window;
        let front = window.map_or(Vec::new(), |window| window.windows.edges(end, rows.len()));
        let (batch, failed) = table.result(&rows, &front, &self.spec.schema)?;
        emit_updates(Chunk::new(batch, output.ingest_ns), &failed, output)?;
        if until < table.keys.len() {
            self.firing = Some((end, table, until));
        } else {
            self.recycle(table);
        }
        Ok(())
    }
}

fn kind(group: u32, groups_before: usize) -> i8 {
    let kind = if (group as usize) < groups_before {
        RowKind::Update
    } else {
        RowKind::Insert
    };
    kind as i8
}

/// Emits result rows; rows for which an aggregate failed are rejected instead.
pub(crate) fn emit_updates(
    chunk: Chunk,
    failed: &[(usize, String)],
    output: &mut Output,
) -> Result<()> {
    if failed.is_empty() {
        output.emit(chunk);
        return Ok(());
    }
    let mut keep = vec![true; chunk.rows()];
    for (row, reason) in failed {
        if std::mem::replace(&mut keep[*row], false) {
            output.reject(reject(&chunk, *row, reason.clone()));
        }
    }
    output.emit(chunk.filter(&BooleanArray::from(keep))?);
    Ok(())
}

impl Stateful for Aggregate {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.spec.keys.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // The engine's own accumulators and the keys copy values; those of libraries may keep arrays.
            shares_input: {
                let functions = self.spec.calls.iter().map(|call| &call.function);
                functions.into_iter().any(AggregateFunction::is_foreign)
            },
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        match self.spec.window {
            Some(window) => self.process_windowed(window, chunk, output),
            None => self.process_running(chunk, output),
        }
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        let Some(window) = self.spec.window else {
            return self.advance_running(watermark, output);
        };
        if self.spec.refires.is_some() {
            return self.advance_refiring(window, output);
        }
        if self.firing.is_none() {
            let closed = |end: i64| window.windows.to_event_time(end) <= watermark;
            match self.tables.first_key_value() {
                Some((&end, _)) if closed(end) => {
                    self.copy_rest(end)?;
                    let (end, table) = self.tables.pop_first().expect("looked at just above");
                    self.firing = Some((end, table, 0));
                }
                _ => return Ok(Progress::Done),
            }
        }
        self.fire(output)?;
        Ok(Progress::More)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        Some(self)
    }

    fn end_unit(&mut self, output: &mut Output) -> Result<()> {
        if self.spec.is_total() && self.spec.emit != Emit::AtEnd {
            self.emit_total(output)?;
        }
        let tables = std::mem::take(&mut self.tables);
        tables.into_values().for_each(|table| self.recycle(table));
        self.clock.restart();
        self.due_ns = None;
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        let firing = self.firing.iter().map(|(_, table, _)| table.bytes());
        self.tables
            .values()
            .map(|table| table.bytes())
            .chain(firing)
            .sum()
    }
}

impl Timer for Aggregate {
    fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    fn on_time(&mut self, output: &mut Output) -> Result<Progress> {
        self.emit_early(output)
    }
}

/// The columns of an aggregation's output: the edges of its windows ([`Windows::edges`]), keys, aggregates.
pub fn output_types(
    spec_window: Option<WindowKey>,
    keys: &[DataType],
    calls: &[AggregateCall],
) -> Vec<DataType> {
    let edges = spec_window.map_or(0, |window| 1 + usize::from(window.windows.is_fixed()));
    let edge = spec_window.map(|window| window.windows.data_type());
    let edges = edge.iter().cycle().take(edges).cloned();
    edges
        .chain(keys.iter().cloned())
        .chain(calls.iter().map(|call| call.function.data_type()))
        .collect()
}

/// Shared by the tests of this operator and its parts.
#[cfg(test)]
mod tests;
