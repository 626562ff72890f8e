//! A table's columns as a file of columns holds them.
//!
//! A string column shares the blocks that its rows were read into; Arrow's format would write all of them.
//! And Parquet has no times in seconds.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
#[cfg(feature = "parquet")]
use arrow_schema::TimeUnit;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use slackwater_engine::error::{Error, Result};

/// The columns that are written.
pub(super) struct Written {
    pub(super) schema: SchemaRef,
}

impl Written {
    pub(super) fn for_arrow(schema: &SchemaRef) -> Written {
        Written::of(schema, |data_type| match data_type {
            DataType::Utf8View => Some(DataType::Utf8),
            _ => None,
        })
    }

    #[cfg(feature = "parquet")]
    pub(super) fn for_parquet(schema: &SchemaRef) -> Written {
        Written::of(schema, |data_type| match data_type {
            DataType::Timestamp(TimeUnit::Second, zone) => {
                Some(DataType::Timestamp(TimeUnit::Millisecond, zone.clone()))
            }
            _ => None,
        })
    }

    fn of(schema: &Schema, change: fn(&DataType) -> Option<DataType>) -> Written {
        let fields = schema.fields().iter().map(|field| changed(field, change));
        Written {
            schema: Arc::new(Schema::new(fields.collect::<Fields>())),
        }
    }

    /// A batch as it is written. Its columns are matched by position.
    pub(super) fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| written(column, field));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::clone(&self.schema);
        let columns = columns.collect::<std::result::Result<Vec<ArrayRef>, ArrowError>>();
        let batch = columns
            .and_then(|columns| RecordBatch::try_new_with_options(schema, columns, &options));
        batch.map_err(|error| Error::new("", format!("rows can't be written: {error}")))
    }
}

fn written(column: &ArrayRef, field: &Field) -> std::result::Result<ArrayRef, ArrowError> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    // A value that can't be represented is an error and never a NULL.
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, field.data_type(), &options)
}

/// The field with the types of the file. Everything is nullable.
fn changed(field: &Field, change: fn(&DataType) -> Option<DataType>) -> Field {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| changed(field, change));
            DataType::Struct(fields.collect())
        }
        DataType::List(item) => DataType::List(Arc::new(changed(item, change))),
        other => change(other).unwrap_or_else(|| other.clone()),
    };
    Field::new(field.name(), data_type, true)
}

/// A buffer between a format's writer, which wants to own its output, and a file.
#[derive(Clone, Default)]
pub(super) struct Shared {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // A panic elsewhere can't leave bytes half-appended in a way that matters: the file is given up.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves what was written to the end of `out`.
    pub(super) fn drain(&self, out: &mut Vec<u8>) {
        out.append(&mut self.lock());
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
