//! Columns that are declared NOT NULL.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use slackwater_engine::Error;
use slackwater_engine::expression::Expression;

/// An expression that fails for rows with a NULL in one of some columns.
#[derive(Debug)]
pub struct NotNull {
    inner: Arc<dyn Expression>,
    /// The indices and names of the columns.
    columns: Vec<(usize, String)>,
}

impl NotNull {
    /// `inner`, for rows without a NULL in any of `columns`.
    pub fn around(
        inner: Arc<dyn Expression>,
        columns: Vec<(usize, String)>,
    ) -> Arc<dyn Expression> {
        match columns.is_empty() {
            true => inner,
            false => Arc::new(NotNull { inner, columns }),
        }
    }
}

impl Expression for NotNull {
    fn evaluate(&self, batch: &RecordBatch) -> slackwater_engine::Result<ArrayRef> {
        let missing = self
            .columns
            .iter()
            .find(|(index, _)| batch.column(*index).null_count() > 0);
        match missing {
            Some((_, name)) => Err(Error::new(
                format!("column '{name}'"),
                "NULL in a column that is declared NOT NULL",
            )),
            None => self.inner.evaluate(batch),
        }
    }

    fn data_type(&self) -> DataType {
        self.inner.data_type()
    }
}
