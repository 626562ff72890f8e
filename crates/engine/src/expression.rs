//! Expressions over a chunk's columns, and what happens when one fails.
//!
//! The engine doesn't know SQL: an [`Expression`] is anything that maps a batch to a column. An
//! expression that fails rejects its row, not its chunk (I4): the batch is halved until the rows that
//! fail on their own are found, so that `b` bad rows of `n` cost about `b · log2 n` more evaluations.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::concat::concat;

use crate::chunk::Chunk;
use crate::error::Result;
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
    if let Ok(columns) = evaluate_batch(expressions, &chunk.batch) {
        return Ok(Evaluated {
            chunk,
            columns,
            rejected: Vec::new(),
        });
    }
    let mut found = Found::default();
    find_failing(expressions, &chunk.batch, 0, &mut found);
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

fn find_failing(
    expressions: &[Arc<dyn Expression>],
    batch: &RecordBatch,
    first_row: usize,
    found: &mut Found,
) {
    let rows = batch.num_rows();
    match evaluate_batch(expressions, batch) {
        Ok(columns) => found.parts.push(columns),
        Err(error) if rows <= 1 => {
            if rows == 1 {
                found.failing.push((first_row, error.to_string()));
            }
        }
        Err(_) => {
            let half = rows / 2;
            find_failing(expressions, &batch.slice(0, half), first_row, found);
            let rest = batch.slice(half, rows - half);
            find_failing(expressions, &rest, first_row + half, found);
        }
    }
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
