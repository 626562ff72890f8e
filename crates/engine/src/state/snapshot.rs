//! Helpers for the snapshots of operators: building their batches, and the errors for a snapshot that
//! belongs to another operator.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};

use super::{BucketSet, KeyedState, Mark};
use crate::error::{Error, Result};

/// A batch of columns `c0`, `c1`, …, all nullable.
pub fn unnamed(columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let fields = columns.iter().enumerate();
    let fields = fields
        .map(|(index, column)| Field::new(format!("c{index}"), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Rows with the operator's own columns in front: name, column, and whether it may hold NULL.
pub fn with_own<const N: usize>(
    own: [(&str, ArrayRef, bool); N],
    rows: &RecordBatch,
) -> Result<RecordBatch> {
    let fields = own.iter().map(|(name, column, is_nullable)| {
        Arc::new(Field::new(*name, column.data_type().clone(), *is_nullable))
    });
    let of_rows = rows.schema();
    let fields = fields.chain(of_rows.fields().iter().cloned());
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = own.into_iter().map(|(_, column, _)| column);
    let columns = columns.chain(rows.columns().iter().cloned());
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        schema,
        columns.collect(),
        &options,
    )?)
}

/// The error for a snapshot that does not belong to the restored operator.
pub fn wrong(snapshot_of: &str, reason: &str) -> Error {
    let place = format!("snapshot of {snapshot_of}");
    Error::new(&place, reason).hint("restore from another checkpoint")
}

/// Checks that a snapshot is taken between inputs: an operator with rows left to emit would lose them.
pub fn assert_between_inputs(has_rows_left: bool) {
    assert!(
        !has_rows_left,
        "a snapshot is taken between inputs: these rows would be lost"
    );
}

/// [`KeyedState::discard`] for state that can't remove single entries: the entries that stay are copied,
/// `clear` forgets all, and the copies are restored.
pub fn discard_by_copy<S: KeyedState>(
    state: &mut S,
    buckets: &BucketSet,
    clear: impl FnOnce(&mut S),
) -> Result<()> {
    let stay = BucketSet::of(|bucket| !buckets.contains(bucket));
    let batches = state.snapshot(&stay, Mark::default())?;
    clear(state);
    batches.iter().try_for_each(|batch| state.restore(batch))
}
