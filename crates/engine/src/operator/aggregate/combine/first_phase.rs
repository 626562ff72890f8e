//! The first phase of an aggregation, kept from chunk to chunk: rows that reach the same sender are
//! aggregated there until their window closes, and each group leaves as one combined row
//! ([`super::combine`]). So what goes to another NUMA node or host is groups and not rows.
//!
//! It holds rows back, so it has to let go of them before anything that may overtake them:
//!
//! - a watermark lets go of the windows that it closes, before the receivers learn of it;
//! - "idle" of everything: the receivers no longer wait for this sender;
//! - a barrier of everything: so it has no state that a checkpoint would have to store, or a move of buckets
//!   to bring along;
//! - the end of a unit of work and of the stream of everything.
//!
//! It holds at most [`GROUPS_HELD_MAX`] groups and about [`HELD_BYTES_MAX`] bytes. Where most groups get a
//! single row, rows pass unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::KeyColumns;
use crate::operator::aggregate::groups::Groups;
use crate::operator::aggregate::{AggregateSpec, RUNNING, WindowKey};
use crate::operator::window::{timestamp_column, timestamp_ticks};
use crate::operator::{Output, Progress};
use crate::time::EventTime;

/// The most groups of all windows together: with a string key and two accumulators some 6 MB, and at most 8
/// chunks of 8,192 rows that leave at once.
pub const GROUPS_HELD_MAX: usize = 1 << 16;

/// About the most bytes, for functions whose states grow with their rows (COUNT DISTINCT).
pub const HELD_BYTES_MAX: usize = 16 << 20;

/// The number of groups per row from which holding rows back doesn't pay.
const GROUPS_PER_ROW_MAX: f64 = 0.5;

/// After that was so, this many chunks pass unchanged before it is tried again: trying costs 1 chunk in 65 at
/// most 8 times what it saves.
const PASSED_CHUNKS: u32 = 64;

impl AggregateSpec {
    /// Whether the first phase may hold groups back until a window closes or the input ends: no result is
    /// emitted before that.
    pub fn can_hold(&self) -> bool {
        self.can_combine() && self.is_final()
    }
}

/// The first phase of an aggregation, in the instance that sends to it.
pub struct FirstPhase {
    spec: AggregateSpec,
    input: SchemaRef,
    schema: SchemaRef,
    key_types: Vec<DataType>,
    /// The open windows by the value of their column; without windows one, at [`RUNNING`].
    tables: BTreeMap<i64, Held>,
    /// What is leaving: its window, and its next group.
    leaving: Option<(i64, Held, usize)>,
    /// An empty table, kept for its memory.
    spare: Option<Held>,
    /// The groups of all open windows.
    held: usize,
    /// The rows since the held bytes were last counted: counting costs as much as there are groups.
    uncounted: usize,
    /// How many chunks pass unchanged.
    passes: u32,
    groups: Vec<u32>,
}

/// The groups of one window.
struct Held {
    table: Groups,
    /// The rows of each group.
    rows: Vec<u64>,
    /// When the oldest row entered the engine.
    ingest_ns: u64,
}

impl Held {
    fn clear(&mut self) {
        self.table.clear();
        self.rows.clear();
        self.ingest_ns = u64::MAX;
    }
}

impl FirstPhase {
    /// The first phase of `spec` over chunks with the columns of `input`.
    pub fn new(spec: AggregateSpec, input: &SchemaRef) -> Result<FirstPhase> {
        let types = spec.keys.iter();
        let types = types.map(|&key| input.field(key).data_type().clone());
        let key_types = types.collect::<Vec<DataType>>();
        let mut table = Groups::new(&key_types, &spec.calls)?;
        // Columns other than keys and window are NULL: whoever merges states does not look at them.
        let nullable = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_nullable(true));
        let mut fields = input.fields().iter().map(nullable).collect::<Vec<_>>();
        for state in table.states(&[])? {
            let name = format!("state {}", fields.len());
            fields.push(Arc::new(Field::new(name, state.data_type().clone(), true)));
        }
        fields.push(Arc::new(Field::new("rows", DataType::UInt64, false)));
        Ok(FirstPhase {
            spec,
            input: Arc::clone(input),
            schema: Arc::new(Schema::new(fields)),
            key_types,
            tables: BTreeMap::new(),
            leaving: None,
            spare: None,
            held: 0,
            uncounted: 0,
            passes: 0,
            groups: Vec::new(),
        })
    }

    /// Takes rows. They leave later, or at once if there is no room, or nothing to gain.
    pub fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        if self.passes > 0 {
            self.passes -= 1;
            output.emit(chunk);
            return Ok(());
        }
        match self.spec.window {
            Some(window) => self.add_to_windows(window, chunk, output)?,
            None => self.add(RUNNING, &chunk, output)?,
        }
        if self.is_full() {
            let rows = self
                .tables
                .values()
                .flat_map(|held| &held.rows)
                .sum::<u64>();
            if self.held as f64 > GROUPS_PER_ROW_MAX * rows as f64 {
                self.passes = PASSED_CHUNKS;
            }
            while self.let_go(None, output)? == Progress::More {}
        }
        Ok(())
    }

    /// Emits what a watermark closes, or everything if there is none: at most about [`Output::chunk_rows`]
    /// rows a call. Returns whether there is more.
    pub fn let_go(
        &mut self,
        watermark: Option<EventTime>,
        output: &mut Output,
    ) -> Result<Progress> {
        let (at, mut held, first) = match self.leaving.take() {
            Some(leaving) => leaving,
            None => match self.closed(watermark) {
                Some((at, held)) => (at, held, 0),
                None => return Ok(Progress::Done),
            },
        };
        let end = (first + output.chunk_rows).min(held.rows.len());
        let chunk = self.combined(at, &mut held, first..end)?;
        output.emit(chunk);
        if end < held.rows.len() {
            self.leaving = Some((at, held, end));
        } else {
            held.clear();
            self.spare = Some(held);
        }
        Ok(Progress::More)
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let leaving = self.leaving.iter().map(|(_, held, _)| held);
        let held = self.tables.values().chain(leaving).chain(&self.spare);
        held.map(|held| held.table.bytes() + held.rows.capacity() * size_of::<u64>())
            .sum()
    }

    /// The number of groups in open windows.
    pub fn held(&self) -> usize {
        self.held
    }

    fn is_full(&mut self) -> bool {
        if self.held > GROUPS_HELD_MAX {
            return true;
        }
        if self.uncounted < self.held {
            return false;
        }
        self.uncounted = 0;
        self.bytes() > HELD_BYTES_MAX
    }

    /// Takes out the groups of the first window that a watermark closes; of any window without one.
    fn closed(&mut self, watermark: Option<EventTime>) -> Option<(i64, Held)> {
        let (&at, _) = self.tables.first_key_value()?;
        let is_closed = match (watermark, self.spec.window) {
            (None, _) => true,
            (Some(watermark), Some(window)) => closes(window, at) <= watermark,
            (Some(_), None) => false,
        };
        if !is_closed {
            return None;
        }
        let held = self.tables.remove(&at)?;
        self.held -= held.rows.len();
        Some((at, held))
    }

    fn add_to_windows(
        &mut self,
        window: WindowKey,
        mut chunk: Chunk,
        output: &mut Output,
    ) -> Result<()> {
        let column = chunk.batch.column(window.column);
        if column.null_count() > 0 {
            // Rows in no window; the receiver knows what to do with them.
            let column = Arc::clone(column);
            let are_in = |wanted: bool| {
                let rows = (0..column.len()).map(|row| Some(column.is_valid(row) == wanted));
                BooleanArray::from_iter(rows)
            };
            output.emit(chunk.filter(&are_in(false))?);
            chunk = chunk.filter(&are_in(true))?;
            if chunk.rows() == 0 {
                return Ok(());
            }
        }
        let ticks = timestamp_ticks(chunk.batch.column(window.column))?;
        let first = ticks.first().copied().unwrap_or_default();
        if ticks.iter().all(|&at| at == first) {
            return self.add(first, &chunk, output);
        }
        let mut rows_of = BTreeMap::<i64, Vec<u32>>::new();
        for (row, &at) in ticks.iter().enumerate() {
            rows_of.entry(at).or_default().push(row as u32);
        }
        rows_of.into_iter().try_for_each(|(at, rows)| {
            let part = chunk.take(&UInt32Array::from(rows))?;
            self.add(at, &part, output)
        })
    }

    /// Adds rows of one window.
    fn add(&mut self, at: i64, chunk: &Chunk, output: &mut Output) -> Result<()> {
        let keys = KeyColumns::of_chunk(chunk, &self.spec.keys)?;
        if !self.tables.contains_key(&at) {
            let held = match self.spare.take() {
                Some(held) => held,
                None => Held {
                    table: Groups::new(&self.key_types, &self.spec.calls)?,
                    rows: Vec::new(),
                    ingest_ns: u64::MAX,
                },
            };
            self.tables.insert(at, held);
        }
        let held = self.tables.get_mut(&at).expect("inserted just above");
        let before = held.rows.len();
        held.table.keys.groups(&keys, &mut self.groups)?;
        held.table.resize();
        held.table.update(&self.spec, &self.groups, chunk, output)?;
        held.rows.resize(held.table.keys.len(), 0);
        for &group in &self.groups {
            held.rows[group as usize] += 1;
        }
        held.ingest_ns = held.ingest_ns.min(chunk.ingest_ns);
        self.held += held.rows.len() - before;
        self.uncounted += chunk.rows();
        Ok(())
    }

    /// Some groups of a window as combined rows.
    fn combined(&self, at: i64, held: &mut Held, groups: std::ops::Range<usize>) -> Result<Chunk> {
        let numbers = (groups.start as u32..groups.end as u32).collect::<Vec<u32>>();
        let count = numbers.len();
        let fields = self.input.fields().iter();
        let mut columns = fields
            .map(|field| new_null_array(field.data_type(), count))
            .collect::<Vec<ArrayRef>>();
        if let Some(window) = self.spec.window {
            columns[window.column] = timestamp_column(vec![at; count], window.windows.unit);
        }
        let keys = held.table.keys.columns(&numbers)?;
        for (&key, column) in self.spec.keys.iter().zip(keys) {
            columns[key] = column;
        }
        columns.extend(held.table.states(&numbers)?);
        columns.push(Arc::new(UInt64Array::from(held.rows[groups].to_vec())));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(Chunk::new(batch, held.ingest_ns))
    }
}

/// The watermark that closes a window; `at` is the value of its column.
fn closes(window: WindowKey, at: i64) -> EventTime {
    let offset = if window.is_start {
        window.windows.size
    } else {
        0
    };
    window.windows.to_event_time(at.saturating_add(offset))
}
