//! Helpers of this crate's tests: batches from plain values, and rows as strings to compare.

pub mod instances;

use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{Field, Schema, SchemaRef};

use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::row_text;
use crate::operator::{Output, Progress, Stateful};
use crate::source::{DeadLetters, Rejected};
use crate::time::EventTime;

/// A batch of nullable columns.
pub fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
        .unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// A schema of nullable columns.
pub fn schema(fields: &[(&str, arrow_schema::DataType)]) -> SchemaRef {
    let fields = fields
        .iter()
        .map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The values of a column as strings, NULL as `None`.
pub fn shown(column: &ArrayRef) -> Vec<Option<String>> {
    (0..column.len())
        .map(|row| {
            column
                .is_valid(row)
                .then(|| array_value_to_string(column, row).unwrap())
        })
        .collect()
}

/// All rows as strings, in order.
pub fn rows(chunks: &[Chunk]) -> Vec<String> {
    chunks
        .iter()
        .flat_map(|chunk| (0..chunk.rows()).map(|row| row_text(&chunk.batch, row)))
        .collect()
}

/// All rows as strings, sorted.
pub fn sorted_rows(chunks: &[Chunk]) -> Vec<String> {
    let mut rows = rows(chunks);
    rows.sort();
    rows
}

/// Calls `advance` until it is done.
pub fn advance(operator: &mut dyn Stateful, time: EventTime, output: &mut Output) {
    while operator.advance(time, output).unwrap() == Progress::More {}
}

/// Keeps rejected records in memory.
#[derive(Default)]
pub struct Letters(pub Mutex<Vec<Rejected>>);

impl DeadLetters for Letters {
    fn name_partition(&self, _: u32, _: &str) {}
    fn reject(&self, rejected: &Rejected) -> Result<()> {
        self.0.lock().unwrap().push(rejected.clone());
        Ok(())
    }
}
