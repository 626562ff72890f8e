//! The first of two phases: rows of one chunk that go to the same group are aggregated before they are
//! sent, so that a key with more rows than an instance can process costs it one row per chunk.
//!
//! A **combined** chunk has the input's columns, from the first row of each group, then the accumulators'
//! states, then the number of rows that each group stands for. So keys and windows stay in their columns,
//! and links and balancers need not know. [`super::Aggregate`] merges the states instead of adding rows.

mod first_phase;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::groups::Groups;
use super::{AggregateSpec, Emit};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::KeyColumns;
use crate::operator::{Output, Stateless};

pub use first_phase::FirstPhase;
#[cfg(test)]
pub use first_phase::GROUPS_HELD_MAX;

/// The number of groups per row from which combining doesn't pay: the chunk is sent as it is.
const GROUPS_PER_ROW_MAX: f64 = 0.5;

impl AggregateSpec {
    /// Whether the aggregation can be done in two phases: all functions' states can be merged, but an
    /// aggregation that emits a row for each input row has to see each.
    pub fn can_combine(&self) -> bool {
        !self.is_updating() && (self.window.is_some() || self.emit != Emit::EveryRow)
    }
}

/// Combines the rows of chunks while it is switched on; until then they pass unchanged.
pub struct Combine {
    spec: AggregateSpec,
    /// The columns that distinguish groups: window and keys.
    columns: Vec<usize>,
    table: Groups,
    schema: SchemaRef,
    is_on: Arc<AtomicBool>,
    groups: Vec<u32>,
}

impl Combine {
    /// The first phase of `spec` over chunks with the columns of `input`.
    pub fn new(spec: AggregateSpec, input: &SchemaRef, is_on: Arc<AtomicBool>) -> Result<Combine> {
        let window = spec.window.iter().map(|window| window.column);
        let columns = window.chain(spec.keys.iter().copied()).collect::<Vec<_>>();
        let types = columns
            .iter()
            .map(|&column| input.field(column).data_type().clone());
        let mut table = Groups::new(&types.collect::<Vec<_>>(), &spec.calls)?;
        let mut fields = input.fields().iter().cloned().collect::<Vec<_>>();
        for accumulator in &mut table.accumulators {
            for state in accumulator.state(&[])? {
                let name = format!("state {}", fields.len());
                fields.push(Arc::new(Field::new(name, state.data_type().clone(), true)));
            }
        }
        fields.push(Arc::new(Field::new("rows", DataType::UInt64, false)));
        Ok(Combine {
            spec,
            columns,
            table,
            schema: Arc::new(Schema::new(fields)),
            is_on,
            groups: Vec::new(),
        })
    }

    /// Combines a chunk into its groups; `None` if there are too many.
    fn combine(&mut self, chunk: &Chunk, output: &mut Output) -> Result<Option<Chunk>> {
        self.table.clear();
        let keys = KeyColumns::of_batch(&chunk.batch, &self.columns)?;
        let table = &mut self.table;
        table.keys.groups(&keys, &mut self.groups)?;
        let count = table.keys.len();
        if count as f64 > GROUPS_PER_ROW_MAX * chunk.rows() as f64 {
            return Ok(None);
        }
        table.resize();
        table.update(&self.spec, &self.groups, chunk, output)?;
        let mut rows = vec![0u64; count];
        // Groups are numbered in the order of their first rows.
        let mut firsts = Vec::with_capacity(count);
        for (row, &group) in self.groups.iter().enumerate() {
            if group as usize == firsts.len() {
                firsts.push(row as u32);
            }
            rows[group as usize] += 1;
        }
        let first_rows = chunk.take(&UInt32Array::from(firsts))?;
        let mut columns = first_rows.batch.columns().to_vec();
        let all = (0..count as u32).collect::<Vec<u32>>();
        for accumulator in &mut table.accumulators {
            columns.extend(accumulator.state(&all)?);
        }
        columns.push(Arc::new(UInt64Array::from(rows)));
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        Ok(Some(Chunk::new(batch, chunk.ingest_ns)))
    }
}

impl Stateless for Combine {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        // Relaxed: it may be switched on a chunk earlier or later.
        if chunk.rows() == 0 || !self.is_on.load(Ordering::Relaxed) {
            output.emit(chunk);
            return Ok(());
        }
        match self.combine(&chunk, output)? {
            Some(combined) => output.emit(combined),
            None => output.emit(chunk),
        }
        Ok(())
    }
}

/// The number of rows that a chunk stands for; `columns` is the number of columns without combining.
pub fn rows_of(chunk: &Chunk, columns: usize) -> u64 {
    if chunk.batch.num_columns() == columns {
        return chunk.rows() as u64;
    }
    let rows = chunk.batch.column(chunk.batch.num_columns() - 1);
    rows.as_primitive::<UInt64Type>().values().iter().sum()
}
