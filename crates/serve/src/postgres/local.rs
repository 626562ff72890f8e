//! Answers that this door has itself.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};

use super::rows::{Columns, columns};
use super::settings::Settings;

/// The only row of `SHOW name`.
pub fn show(settings: &Settings, name: &str) -> RecordBatch {
    let value: ArrayRef = Arc::new(StringArray::from(vec![
        settings.get(name).unwrap_or_default(),
    ]));
    RecordBatch::try_new(schema(name), vec![value]).expect("one column of strings")
}

fn schema(name: &str) -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8, false)]))
}

/// The columns of `SHOW name`.
pub fn show_columns(name: &str) -> Columns {
    columns(&schema(name))
}
