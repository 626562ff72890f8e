//! Rows as JSON, an object per line.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_engine::error::Result;

use super::cell::{Column, key, write_object};

/// Writes JSON lines.
#[derive(Debug)]
pub(crate) struct JsonEncoder {
    /// `"name":` of each column.
    keys: Vec<Vec<u8>>,
}

impl JsonEncoder {
    pub(crate) fn new(schema: &SchemaRef) -> JsonEncoder {
        JsonEncoder {
            keys: schema
                .fields()
                .iter()
                .map(|field| key(field.name()))
                .collect(),
        }
    }

    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        out: &mut Vec<u8>,
        mut written: impl FnMut(usize),
    ) -> Result<()> {
        let columns = batch.columns().iter().map(|column| Column::new(column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            write_object(&self.keys, &columns, row, out)?;
            out.push(b'\n');
            written(out.len());
        }
        Ok(())
    }
}
