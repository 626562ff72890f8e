//! The rows of a reader, as its table has them: columns are found by their names and cast; rows with a value
//! that does not fit are rejected.

use arrow_array::builder::BooleanBuilder;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use slackwater_engine::source::REJECTED_RECORD_BYTES_MAX;

use crate::feed::fitted;
use crate::format::sql_type_name;

/// Rows that a reader hands on together.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The rows.
    pub rows: RecordBatch,
    /// Rows that could not be made, by increasing number; the others are `rows`, in order.
    pub bad: Vec<Bad>,
    /// Where to resume after them; `None` if the next piece says so, or nobody does.
    pub offset: Option<String>,
}

/// A row that could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The number of the row in its piece, from 0.
    pub row: u64,
    /// Why; names the column.
    pub reason: String,
    /// The row as it was read.
    pub record: String,
}

/// Rows that fit the table.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) rows: RecordBatch,
    /// The number of each row in its piece; `None` if there are no other rows.
    pub(super) places: Option<UInt64Array>,
    pub(super) bad: Vec<Bad>,
}

impl Fitted {
    /// The number of rows, bad ones included.
    pub(super) fn total(&self) -> u64 {
        (self.rows.num_rows() + self.bad.len()) as u64
    }
}

/// The rows with the columns of the table.
///
/// # Errors
///
/// If a column is missing or can't be cast at all.
pub(super) fn fit(piece: Piece, schema: &SchemaRef) -> Result<Fitted, String> {
    let Piece { rows, mut bad, .. } = piece;
    bad.sort_by_key(|bad| bad.row);
    for bad in &mut bad {
        bad.record = cut(std::mem::take(&mut bad.record));
    }
    let reason = match fitted(&rows, schema) {
        Ok(rows) if bad.is_empty() => {
            return Ok(Fitted {
                rows,
                places: None,
                bad,
            });
        }
        Ok(rows) => {
            let places = places(rows.num_rows(), &bad);
            return Ok(Fitted {
                rows,
                places: Some(UInt64Array::from(places)),
                bad,
            });
        }
        Err(reason) => reason,
    };
    // Whatever is wrong with the columns themselves remains wrong without the rows.
    let empty = fitted(&rows.slice(0, 0), schema);
    empty.map_err(|_| reason.clone())?;
    let places = places(rows.num_rows(), &bad);
    let reasons = unfit(&rows, schema);
    let mut fits = BooleanBuilder::with_capacity(rows.num_rows());
    let mut left = Vec::with_capacity(rows.num_rows());
    for (row, wrong) in reasons.into_iter().enumerate() {
        fits.append_value(wrong.is_none());
        match wrong {
            None => left.push(places[row]),
            Some(reason) => bad.push(Bad {
                row: places[row],
                reason,
                record: cut(record(&rows, row)),
            }),
        }
    }
    bad.sort_by_key(|bad| bad.row);
    let rows = filter_record_batch(&rows, &fits.finish()).map_err(|error| error.to_string())?;
    Ok(Fitted {
        // What is left still does not fit if a value inside of a ROW or an ARRAY does not.
        rows: fitted(&rows, schema)?,
        places: Some(UInt64Array::from(left)),
        bad,
    })
}

/// The numbers of the rows that are not bad.
fn places(rows: usize, bad: &[Bad]) -> Vec<u64> {
    let mut bad = bad.iter().map(|bad| bad.row).peekable();
    let mut next = 0;
    let places = (0..rows).map(|_| {
        while bad.next_if_eq(&next).is_some() {
            next += 1;
        }
        next += 1;
        next - 1
    });
    places.collect()
}

/// For each row, why it does not fit; the first column counts.
fn unfit(rows: &RecordBatch, schema: &SchemaRef) -> Vec<Option<String>> {
    let mut reasons = vec![None; rows.num_rows()];
    let lenient = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    for field in schema.fields() {
        let Some(given) = rows.column_by_name(field.name()) else {
            continue;
        };
        let is_plain = given.data_type() != field.data_type() && !field.data_type().is_nested();
        let cast = is_plain.then(|| cast_with_options(given, field.data_type(), &lenient));
        let Some(Ok(cast)) = cast else { continue };
        for (row, reason) in reasons.iter_mut().enumerate() {
            if reason.is_none() && given.is_valid(row) && cast.is_null(row) {
                let kind = sql_type_name(field.data_type());
                let value = cut(shown(given, row));
                let name = field.name();
                *reason = Some(format!("column '{name}': '{value}' is not a valid {kind}"));
            }
        }
    }
    reasons
}

fn shown(column: &ArrayRef, row: usize) -> String {
    match column.is_null(row) {
        true => "NULL".to_string(),
        false => array_value_to_string(column, row).unwrap_or_default(),
    }
}

/// A row as a dead letter shows it.
fn record(rows: &RecordBatch, row: usize) -> String {
    let schema = rows.schema();
    let values = schema.fields().iter().zip(rows.columns());
    let values = values.map(|(field, column)| format!("{}: {}", field.name(), shown(column, row)));
    format!("{{{}}}", values.collect::<Vec<_>>().join(", "))
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(REJECTED_RECORD_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
