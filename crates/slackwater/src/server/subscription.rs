//! The changes of a view as rows: what happened, and the row.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int8Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use slackwater_engine::chunk::RowKind;

/// The name of the column that says what happened to a row: `+I`, `-U`, `+U` or `-D`, as in the formats that
/// write changelogs.
pub const OP: &str = "op";

/// The columns of the changes of a view.
pub fn columns(view: &Schema) -> SchemaRef {
    let mut fields = vec![Arc::new(Field::new(OP, DataType::Utf8, false))];
    fields.extend(view.fields().iter().cloned());
    Arc::new(Schema::new(fields))
}

/// Rows with what happened to them before them; without kinds, all are new.
///
/// # Errors
///
/// If there is not one kind for each row.
pub fn with_kinds(
    rows: &RecordBatch,
    kinds: Option<&Int8Array>,
) -> Result<RecordBatch, ArrowError> {
    let all_new = RowKind::symbol(RowKind::Insert as i8);
    let symbols: StringArray = match kinds {
        None => StringArray::from(vec![all_new; rows.num_rows()]),
        Some(kinds) => {
            let symbols = kinds.values().iter().map(|&kind| RowKind::symbol(kind));
            StringArray::from(symbols.take(kinds.len()).collect::<Vec<&str>>())
        }
    };
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(symbols)];
    arrays.extend(rows.columns().iter().cloned());
    RecordBatch::try_new(columns(rows.schema_ref()), arrays)
}
