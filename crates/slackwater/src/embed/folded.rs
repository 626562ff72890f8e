//! The rows of a result that are left after all changes.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use arrow_row::{RowConverter, SortField};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take_record_batch;
use slackwater_engine::chunk::RowKind;
use slackwater_sql::node::Changes;

use super::results::{Batch, Results};

/// The rows of a result after these changes: without those that were deleted or replaced, in the order that
/// the query asks for. `None` if a row replaces another one and no column says which, so that only the
/// changes can be read.
///
/// # Errors
///
/// If the rows can't be joined.
pub fn folded(
    results: &Results,
    batches: &[Batch],
) -> Result<Option<Vec<RecordBatch>>, ArrowError> {
    let rows = batches.iter().map(|batch| batch.rows.clone());
    let key = match results.changes() {
        Changes::None => None,
        Changes::HiddenKey => return Ok(None),
        Changes::ByKey(key) => Some(key.clone()),
        Changes::ByRow => Some((0..results.schema().fields().len()).collect()),
    };
    let left = match key {
        _ if batches.is_empty() => return Ok(Some(Vec::new())),
        None => rows.collect(),
        Some(key) => {
            let is_keyed = matches!(results.changes(), Changes::ByKey(_));
            vec![remaining(batches, &key, is_keyed)?]
        }
    };
    if results.order().is_empty() {
        return Ok(Some(left));
    }
    let all = concat_batches(&left[0].schema(), &left)?;
    let by = results.order().iter().map(|&(column, options)| SortColumn {
        values: all.column(column).clone(),
        options: Some(options),
    });
    let places = lexsort_to_indices(&by.collect::<Vec<_>>(), None)?;
    Ok(Some(vec![take_record_batch(&all, &places)?]))
}

/// Which of the keys came as the first, and the places of its rows, each a batch and a row in it; several if
/// equal rows occur several times.
type Left = (usize, Vec<(usize, usize)>);

/// The rows that are left, by the order in which each key came first.
fn remaining(batches: &[Batch], key: &[usize], is_keyed: bool) -> Result<RecordBatch, ArrowError> {
    let schema = batches[0].rows.schema();
    let fields = key.iter();
    let fields = fields.map(|&column| SortField::new(schema.field(column).data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let mut left = HashMap::<Vec<u8>, Left>::new();
    let mut keys_seen = 0;
    for (number, batch) in batches.iter().enumerate() {
        let columns = key.iter().map(|&column| batch.rows.column(column).clone());
        let keys = converter.convert_columns(&columns.collect::<Vec<_>>())?;
        for row in 0..batch.rows.num_rows() {
            let kind = batch.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
            // The result of an aggregate without GROUP BY has a key of no columns.
            let of_row = match key.is_empty() {
                true => Vec::new(),
                false => keys.row(row).as_ref().to_vec(),
            };
            let known = left.entry(of_row);
            if !RowKind::is_retraction(kind) {
                let (_, places) = known.or_insert_with(|| {
                    keys_seen += 1;
                    (keys_seen, Vec::new())
                });
                if is_keyed {
                    places.clear();
                }
                places.push((number, row));
            } else if let std::collections::hash_map::Entry::Occupied(mut known) = known {
                // The new value of a key follows its old one, and replaces it.
                if is_keyed && kind == RowKind::UpdateBefore as i8 {
                    continue;
                }
                known.get_mut().1.pop();
                if known.get().1.is_empty() {
                    known.remove();
                }
            }
        }
    }
    let mut left = left.into_values().collect::<Vec<_>>();
    left.sort_unstable_by_key(|(seen, _)| *seen);
    let places = left.into_iter().flat_map(|(_, places)| places);
    let all = batches.iter().map(|batch| &batch.rows).collect::<Vec<_>>();
    interleave_record_batch(&all, &places.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int8Array, Int64Array, StringArray};
    use arrow_schema::SortOptions;

    use super::*;

    fn batch(rows: &[(i8, &str, i64)]) -> Batch {
        let keys = StringArray::from_iter_values(rows.iter().map(|row| row.1));
        let numbers = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
        let columns = [("k", Arc::new(keys) as _), ("n", Arc::new(numbers) as _)];
        Batch {
            rows: RecordBatch::try_from_iter(columns).unwrap(),
            kinds: Some(Int8Array::from_iter_values(rows.iter().map(|row| row.0))),
        }
    }

    fn left(
        changes: Changes,
        order: &[(usize, SortOptions)],
        batches: &[Batch],
    ) -> Vec<(String, i64)> {
        let schema = batches[0].rows.schema();
        let results = Results::new(schema, changes, order.to_vec());
        let folded = folded(&results, batches).unwrap().unwrap();
        let rows = folded.iter().flat_map(|batch| {
            let keys = batch.column(0).as_string::<i32>();
            let numbers = batch.column(1).as_primitive::<Int64Type>();
            let keys = keys.iter().map(|key| key.unwrap_or_default().to_string());
            keys.zip(numbers.values().to_vec()).collect::<Vec<_>>()
        });
        rows.collect()
    }

    fn rows(rows: &[(&str, i64)]) -> Vec<(String, i64)> {
        rows.iter().map(|(key, n)| (key.to_string(), *n)).collect()
    }

    #[test]
    fn a_row_replaces_that_of_its_key() {
        let batches = [
            batch(&[(0, "a", 1), (0, "b", 2), (3, "a", 1), (1, "a", 3)]),
            batch(&[(2, "b", 2), (0, "c", 9), (1, "c", 8)]),
        ];
        let changed = left(Changes::ByKey(vec![0]), &[], &batches);
        assert_eq!(changed, rows(&[("a", 3), ("c", 8)]));
        let descending = SortOptions::default().desc();
        let ordered = left(Changes::ByKey(vec![0]), &[(1, descending)], &batches);
        assert_eq!(ordered, rows(&[("c", 8), ("a", 3)]));
    }

    #[test]
    fn a_row_retracts_an_equal_one() {
        let batches = [batch(&[
            (0, "a", 1),
            (0, "a", 1),
            (0, "b", 1),
            (2, "a", 1),
            (2, "b", 1),
        ])];
        assert_eq!(left(Changes::ByRow, &[], &batches), rows(&[("a", 1)]));
    }

    #[test]
    fn a_result_of_one_row_has_a_key_of_no_columns() {
        let batches = [batch(&[(0, "a", 1), (3, "a", 1), (1, "a", 2)])];
        let changed = left(Changes::ByKey(Vec::new()), &[], &batches);
        assert_eq!(changed, rows(&[("a", 2)]));
    }

    #[test]
    fn everything_may_be_gone() {
        let batches = [batch(&[(0, "a", 1), (2, "a", 1)])];
        assert_eq!(left(Changes::ByRow, &[], &batches), rows(&[]));
    }
}
