//! Rows into records, with a function that a build brings.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{Field, Schema, SchemaRef};
use slackwater_engine::error::panic_text;
use slackwater_engine::format::RecordEncoder;
use slackwater_engine::{Error, Result};

use super::Encode;
use super::table::Wanted;
use crate::functions::operator::Row;

/// Encodes rows in one thread.
pub(super) struct Encoder {
    encode: Arc<Encode>,
    format: String,
    /// The columns that the format has asked for, by their index in the table.
    indices: Vec<usize>,
    /// These columns, in the types in which it has asked for them.
    schema: SchemaRef,
    record: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(encode: Arc<Encode>, wanted: &[Wanted], format: &str) -> Encoder {
        let fields = wanted.iter().map(|wanted| {
            let name = wanted.index.to_string();
            Field::new(name, wanted.data_type.clone(), true)
        });
        Encoder {
            encode,
            format: format.to_string(),
            indices: wanted.iter().map(|wanted| wanted.index).collect(),
            schema: Arc::new(Schema::new(fields.collect::<Vec<Field>>())),
            record: Vec::new(),
        }
    }

    /// The columns that the format has asked for.
    fn wanted(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let columns = self.indices.iter().zip(self.schema.fields());
        let columns = columns.map(|(&index, field)| {
            let column = rows.column(index);
            match column.data_type() == field.data_type() {
                true => Ok(Arc::clone(column)),
                false => cast_with_options(column, field.data_type(), &strict),
            }
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let wanted = columns.and_then(|columns| {
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
        });
        wanted.map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, reason: &str) -> Error {
        let reason = format!("format {} can't write a row: {reason}", self.format);
        let hint = "leave such rows out with WHERE";
        Error::new("", reason).hint(hint).final_one()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an encoder of format {}", self.format)
    }
}

impl RecordEncoder for Encoder {
    fn encode(
        &mut self,
        rows: &RecordBatch,
        out: &mut Vec<u8>,
        written: &mut dyn FnMut(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let batch = self.wanted(rows)?;
        for row in 0..batch.num_rows() {
            self.record.clear();
            let record = &mut self.record;
            let encode = || (self.encode)(&Row::of(&batch, row), record);
            let done = catch_unwind(AssertUnwindSafe(encode)).unwrap_or_else(|panic| {
                Err(format!(
                    "the encoder panicked: {}",
                    panic_text(panic.as_ref())
                ))
            });
            done.map_err(|reason| self.failed(&reason))?;
            out.extend_from_slice(&self.record);
            written(out)?;
        }
        Ok(())
    }
}
