//! Rows as a table for people. The first rows decide how wide a column is; a longer value moves its row's
//! others to the right.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_cast::display::ArrayFormatter;
use arrow_schema::{ArrowError, Schema};

use super::forms::DISPLAY;

/// The most characters of a column that others are lined up with.
const WIDTH_MAX: usize = 60;

/// A table that is being written.
pub struct Table {
    names: Vec<String>,
    /// Whether the values are numbers, which end at the same place.
    are_numbers: Vec<bool>,
    /// The characters of each column, as soon as they are known.
    widths: Vec<usize>,
}

impl Table {
    /// A table with these columns.
    pub fn new(schema: &Schema) -> Table {
        let fields = schema.fields().iter();
        Table {
            names: fields.clone().map(|field| plain(field.name())).collect(),
            are_numbers: fields.map(|field| field.data_type().is_numeric()).collect(),
            widths: Vec::new(),
        }
    }

    /// Writes rows.
    pub fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &DISPLAY));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let cells = |row: usize| {
            columns
                .iter()
                .map(move |column| column.value(row).try_to_string())
        };
        let mut rows = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let cells = cells(row).map(|cell| cell.map(|cell| plain(&cell)));
            rows.push(cells.collect::<Result<Vec<String>, _>>()?);
        }
        self.head(&rows, out);
        for row in &rows {
            self.line(row, out);
        }
        Ok(())
    }

    /// The last row was written; so many there were.
    pub fn end(&mut self, rows: u64, out: &mut Vec<u8>) {
        self.head(&[], out);
        let word = if rows == 1 { "row" } else { "rows" };
        let _ = writeln!(out, "({rows} {word})");
    }

    /// Writes the names, before the first rows.
    fn head(&mut self, rows: &[Vec<String>], out: &mut Vec<u8>) {
        if !self.widths.is_empty() || self.names.is_empty() {
            return;
        }
        let widths = self.names.iter().enumerate().map(|(column, name)| {
            let values = rows.iter().map(|row| row[column].chars().count());
            let widest = values.chain([name.chars().count()]).max();
            widest.unwrap_or_default().min(WIDTH_MAX)
        });
        self.widths = widths.collect();
        self.line(&self.names, out);
        let rules = self.widths.iter().map(|width| "-".repeat(width + 2));
        let _ = writeln!(out, "{}", rules.collect::<Vec<_>>().join("+"));
    }

    fn line(&self, cells: &[String], out: &mut Vec<u8>) {
        let columns = cells.iter().zip(&self.widths).zip(&self.are_numbers);
        let cells = columns.map(|((cell, width), is_number)| match is_number {
            true => format!(" {cell:>width$} "),
            false => format!(" {cell:<width$} "),
        });
        let line = cells.collect::<Vec<_>>().join("|");
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// A value without characters that would move the others, or mean something to a terminal.
fn plain(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter.is_control() {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    text
}
