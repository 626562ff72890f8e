//! Rows of Arrow as changes: values are written as on the other doors.

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Schema};

use super::table::{Change, Column, TableSchema, key_of};

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// How values are written as text.
const DISPLAY: FormatOptions<'static> = FormatOptions::new()
    .with_timestamp_format(Some(TIMESTAMP))
    .with_timestamp_tz_format(Some(TIMESTAMP));

impl TableSchema {
    /// A view with these columns, of which `key` are the key.
    pub fn new(name: &str, schema: &Schema, key: Vec<usize>) -> TableSchema {
        let is_plain = |kind: &DataType| kind.is_numeric() || *kind == DataType::Boolean;
        let columns = schema.fields().iter().map(|field| Column {
            name: field.name().as_str().into(),
            is_plain: is_plain(field.data_type()),
        });
        TableSchema {
            name: name.into(),
            columns: columns.collect(),
            key,
        }
    }

    /// The changes of rows, in their order; a row that is removed is one for which `is_removed` is true.
    ///
    /// # Errors
    ///
    /// When a value can't be written.
    pub fn changes(
        &self,
        batch: &RecordBatch,
        is_removed: impl Fn(usize) -> bool,
    ) -> Result<Vec<Change>, ArrowError> {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &DISPLAY));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let value = |column: usize, row: usize| {
            let is_null = batch.column(column).is_null(row);
            let text = || columns[column].value(row).try_to_string();
            let text = (!is_null).then(text).transpose()?;
            Ok::<_, ArrowError>(text.map(|text| Box::<[u8]>::from(text.into_bytes())))
        };
        let mut changes = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            if is_removed(row) {
                let key = self.key.iter().map(|&column| value(column, row));
                let key = key.collect::<Result<Vec<_>, _>>()?;
                let key = key_of(&self.name, key.iter().map(Option::as_deref));
                changes.push(Change::Remove(key));
                continue;
            }
            let values = (0..columns.len()).map(|column| value(column, row));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let key = self.key.iter().map(|&column| values[column].as_deref());
            changes.push(Change::Put(key_of(&self.name, key), values.into()));
        }
        Ok(changes)
    }
}
