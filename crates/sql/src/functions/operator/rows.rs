//! Operators without state as functions of the engine.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use slackwater_engine::operator::custom_rows::{Rows, RowsFailure, RowsFunction};

struct Function<F>(F);

impl<F> fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an operator without state")
    }
}

impl<F> RowsFunction for Function<F>
where
    F: Fn(&RecordBatch) -> Result<Vec<Rows>, String> + Send + Sync,
{
    fn rows(&self, batch: &RecordBatch) -> Result<Vec<Rows>, RowsFailure> {
        Ok((self.0)(batch)?)
    }
}

/// A function of the engine.
pub fn function(
    function: impl Fn(&RecordBatch) -> Result<Vec<Rows>, String> + Send + Sync + 'static,
) -> Arc<dyn RowsFunction> {
    Arc::new(Function(function))
}
