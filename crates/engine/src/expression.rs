//! Expressions over a chunk's columns, and what happens when one fails.
//!
//! The engine doesn't know SQL: an [`Expression`] is anything that maps a batch to a column. An
//! expression that fails rejects its row, not its chunk (I4): the batch is halved until the rows that
//! fail on their own are found, so that `b` bad rows of `n` cost about `b · log2 n` more evaluations. If
//! the error names a row, the batch is cut around it instead.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::concat::concat;

use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::source::{REJECTED_RECORD_BYTES_MAX, Rejected};

/// Maps the columns of a batch to one column with as many rows.
pub trait Expression: Send + Sync + fmt::Debug {
    /// Evaluates the expression; an error means that at least one row fails.
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef>;

    /// The type of the resulting column.
    fn data_type(&self) -> DataType;

    /// The column's index, if the expression is just that column.
    fn column(&self) -> Option<usize> {
        None
    }
}

/// The expression that is one column of the batch.
#[derive(Debug)]
pub struct Column {
    index: usize,
    data_type: DataType,
}

impl Column {
    /// Column `index`, which has type `data_type`.
    pub fn new(index: usize, data_type: DataType) -> Column {
        Column { index, data_type }
    }
}

impl Expression for Column {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        Ok(batch.column(self.index).clone())
    }
    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }
    fn column(&self) -> Option<usize> {
        Some(self.index)
    }
}

/// The result of evaluating expressions over a chunk.
pub struct Evaluated {
    /// The rows for which all expressions succeeded (usually the chunk itself).
    pub chunk: Chunk,
    /// A column per expression, for the rows of `chunk`.
    pub columns: Vec<ArrayRef>,
    /// The rows that failed.
    pub rejected: Vec<Rejected>,
}

/// Evaluates all expressions over a chunk; rows for which one fails are taken out.
///
/// An expression may fail for a row together with others but not for the row alone: `y > 0 AND 10 / y >
/// 1` computes its right side for all rows or for none. A row counts as failed only if it fails alone.
pub fn evaluate(expressions: &[Arc<dyn Expression>], chunk: Chunk) -> Result<Evaluated> {
    let error = match evaluate_batch(expressions, &chunk.batch) {
        Ok(columns) => {
            return Ok(Evaluated {
                chunk,
                columns,
                rejected: Vec::new(),
            });
        }
        Err(error) => error,
    };
    let found = find_failing(expressions, &chunk.batch, error)?;
    let failing = found.failing.iter();
    let rejected = failing.map(|(row, reason)| reject(&chunk, *row, reason.clone()));
    let rejected = rejected.collect();
    let mut keep = vec![true; chunk.rows()];
    for (row, _) in &found.failing {
        keep[*row] = false;
    }
    let chunk = chunk.filter(&BooleanArray::from(keep))?;
    let columns = expressions.iter().enumerate().map(|(index, expression)| {
        let parts = found.parts.iter().map(|part| part[index].as_ref());
        match parts.collect::<Vec<&dyn Array>>().as_slice() {
            [] => Ok(arrow_array::new_empty_array(&expression.data_type())),
            parts => Ok(concat(parts)?),
        }
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
    Ok(Evaluated {
        chunk,
        columns,
        rejected,
    })
}

/// The rows that fail alone, and the columns of the others.
#[derive(Default)]
struct Found {
    failing: Vec<(usize, String)>,
    /// The columns of the other rows, in row order.
    parts: Vec<Vec<ArrayRef>>,
}

fn evaluate_batch(
    expressions: &[Arc<dyn Expression>],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    expressions
        .iter()
        .map(|expression| expression.evaluate(batch))
        .collect()
}

/// Finds the rows of a batch that fail alone; `error` is what the whole batch has failed with.
///
/// # Errors
///
/// If an expression can't be evaluated for any row.
fn find_failing(
    expressions: &[Arc<dyn Expression>],
    batch: &RecordBatch,
    error: Error,
) -> Result<Found> {
    let mut found = Found::default();
    // What is left to look at, the first rows on top: the first row and the number of rows. If it has been
    // evaluated already, its error.
    let mut open = vec![(0, batch.num_rows(), Some(error))];
    while let Some((first, rows, error)) = open.pop() {
        let evaluated = match error {
            Some(error) => Err(error),
            None => evaluate_batch(expressions, &batch.slice(first, rows)),
        };
        match evaluated {
            Ok(columns) => found.parts.push(columns),
            Err(error) if error.is_final => return Err(error),
            Err(error) if rows == 1 => found.failing.push((first, error.to_string())),
            Err(error) => {
                let cuts = match error.row.filter(|row| *row < rows) {
                    Some(row) => [0, row, row + 1, rows],
                    None => [0, rows / 2, rows / 2, rows],
                };
                let parts = cuts
                    .windows(2)
                    .rev()
                    .map(|ends| (ends[0], ends[1] - ends[0]));
                let parts = parts.filter(|(_, rows)| *rows > 0);
                open.extend(parts.map(|(at, rows)| (first + at, rows, None)));
            }
        }
    }
    Ok(found)
}

/// Row `row` of `chunk` as a rejected record.
pub fn reject(chunk: &Chunk, row: usize, reason: String) -> Rejected {
    Rejected {
        partition: chunk
            .origin
            .as_ref()
            .map(|origin| origin.partitions.at(row)),
        position: chunk.origin.as_ref().map(|origin| origin.positions.at(row)),
        reason,
        record: row_text(&chunk.batch, row),
    }
}

/// One row as `name=value, …`, for messages; cut to [`REJECTED_RECORD_BYTES_MAX`].
pub fn row_text(batch: &RecordBatch, row: usize) -> String {
    let mut text = String::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let value = if column.is_null(row) {
            "NULL".to_string()
        } else {
            arrow_cast::display::array_value_to_string(column, row)
                .unwrap_or_else(|error| error.to_string())
        };
        text.push_str(&format!("{}={value}", field.name()));
    }
    if text.len() > REJECTED_RECORD_BYTES_MAX {
        let mut end = REJECTED_RECORD_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

/// The indices of the rows that are true (NULL counts as false).
pub fn true_rows(mask: &BooleanArray) -> UInt32Array {
    (0..mask.len() as u32)
        .filter(|&row| mask.is_valid(row as usize) && mask.value(row as usize))
        .map(Some)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Chunk;
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_schema::{Field, Schema};
    use std::sync::Mutex;

    /// Fails for numbers that are divisible by 10, and for all if one is negative.
    #[derive(Debug)]
    struct Picky {
        names_rows: bool,
        calls: Mutex<usize>,
    }

    impl Expression for Picky {
        fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
            *self.calls.lock().unwrap() += 1;
            let column = batch.column(0);
            let numbers = column.as_primitive::<Int64Type>().values();
            if numbers.iter().any(|number| *number < 0) {
                return Err(Error::new("", "no more").final_one());
            }
            let Some(row) = numbers.iter().position(|number| number % 10 == 0) else {
                return Ok(column.clone());
            };
            let error = Error::new("", format!("not {}", numbers[row]));
            Err(match self.names_rows {
                true => error.row(row),
                false => error,
            })
        }
        fn data_type(&self) -> DataType {
            DataType::Int64
        }
    }

    fn evaluated(numbers: Vec<i64>, names_rows: bool) -> (Result<Evaluated>, usize) {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from(numbers)) as ArrayRef;
        let batch = RecordBatch::try_new(schema, vec![column]).unwrap();
        let picky = Arc::new(Picky {
            names_rows,
            calls: Mutex::new(0),
        });
        let expression = Arc::clone(&picky) as Arc<dyn Expression>;
        let evaluated = evaluate(&[expression], Chunk::new(batch, 0));
        (evaluated, *picky.calls.lock().unwrap())
    }

    #[test]
    fn rows_that_fail_are_found_by_halves_and_by_what_errors_name() {
        for names_rows in [false, true] {
            let (evaluated, calls) = evaluated((1..=64).collect(), names_rows);
            let evaluated = evaluated.unwrap();
            let kept = evaluated.columns[0].as_primitive::<Int64Type>();
            let wanted = (1..=64).filter(|number| number % 10 != 0);
            assert!(kept.values().iter().copied().eq(wanted));
            let reasons = evaluated.rejected.iter().map(|row| row.reason.as_str());
            let wanted = ["not 10", "not 20", "not 30", "not 40", "not 50", "not 60"];
            assert!(reasons.eq(wanted));
            // Six rows: the row alone, those before it, and those after it, which fail for the next one.
            assert!(!names_rows || calls == 1 + 3 * 6, "{calls}");
        }
    }

    #[test]
    fn an_error_that_is_final_rejects_no_row() {
        let error = evaluated(vec![1, 10, 20, -1], true).0.err().unwrap();
        assert!(error.is_final, "{error}");
    }
}
