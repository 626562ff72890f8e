//! Rows as CSV.

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use memchr::{memchr, memchr3};
use slackwater_engine::error::Result;

use super::cell::{Cell, Kind};
use crate::format::CsvOptions;

/// Writes CSV according to the options.
#[derive(Debug)]
pub(crate) struct CsvEncoder {
    delimiter: u8,
    null: Vec<u8>,
    /// The delimiter may occur in numbers and dates, or the NULL marker may look like one of them.
    checks_all: bool,
    /// Whether there is one column: a row whose only value is empty would be an empty line, which is not a
    /// row.
    is_single: bool,
    /// The header, until it is written.
    header: Option<Vec<String>>,
}

impl CsvEncoder {
    pub(crate) fn new(options: &CsvOptions, schema: &SchemaRef) -> CsvEncoder {
        let names = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let delimiter = options.delimiter;
        CsvEncoder {
            delimiter,
            null: options.null.clone().into_bytes(),
            checks_all: delimiter.is_ascii_alphanumeric()
                || b" +-.:".contains(&delimiter)
                || !options.null.is_empty(),
            is_single: schema.fields().len() == 1,
            header: options.header.then_some(names),
        }
    }

    /// Writes the header, once.
    pub(crate) fn header(&mut self, out: &mut Vec<u8>) {
        let Some(names) = self.header.take() else {
            return;
        };
        for (nth, name) in names.iter().enumerate() {
            if nth > 0 {
                out.push(self.delimiter);
            }
            self.text(name.as_bytes(), out);
        }
        out.push(b'\n');
    }

    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        out: &mut Vec<u8>,
        mut written: impl FnMut(usize),
    ) -> Result<()> {
        self.header(out);
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((Cell::new(column)?, column.logical_nulls())))
            .collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            for (nth, (cell, nulls)) in columns.iter().enumerate() {
                if nth > 0 {
                    out.push(self.delimiter);
                }
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    let written: &[u8] = if self.is_single && self.null.is_empty() {
                        b"\"\""
                    } else {
                        &self.null
                    };
                    out.extend_from_slice(written);
                } else if let Some(text) = cell.text(row) {
                    self.text(text.as_bytes(), out);
                } else if self.checks_all || matches!(cell.kind(), Kind::Row | Kind::List) {
                    let mut value = vec![];
                    cell.write(row, &mut value)?;
                    self.text(&value, out);
                } else {
                    cell.write(row, out)?;
                }
            }
            out.push(b'\n');
            written(out.len());
        }
        Ok(())
    }

    /// Appends text, in quotes where it would be read as something else.
    fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        if text != self.null.as_slice()
            && !(self.is_single && text.is_empty())
            && memchr3(self.delimiter, b'"', b'\n', text).is_none()
            && memchr(b'\r', text).is_none()
        {
            out.extend_from_slice(text);
            return;
        }
        out.push(b'"');
        let mut from = 0;
        while let Some(length) = memchr(b'"', &text[from..]) {
            out.extend_from_slice(&text[from..=from + length]);
            out.push(b'"');
            from += length + 1;
        }
        out.extend_from_slice(&text[from..]);
        out.push(b'"');
    }
}
