//! Rows as JSON, an object per line.

use arrow_array::{Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::SchemaRef;
use slackwater_engine::error::Result;

use super::cell::{Cell, Kind};

/// Writes JSON lines.
#[derive(Debug)]
pub(crate) struct JsonEncoder {
    /// `"name":` of each column.
    keys: Vec<Vec<u8>>,
}

impl JsonEncoder {
    pub(crate) fn new(schema: &SchemaRef) -> JsonEncoder {
        JsonEncoder {
            keys: schema
                .fields()
                .iter()
                .map(|field| key(field.name()))
                .collect(),
        }
    }

    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        out: &mut Vec<u8>,
        mut written: impl FnMut(usize),
    ) -> Result<()> {
        let columns = batch.columns().iter().map(|column| Column::new(column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            write_object(&self.keys, &columns, row, out)?;
            out.push(b'\n');
            written(out.len());
        }
        Ok(())
    }
}

/// A column and its NULLs.
struct Column<'a> {
    cell: Cell<'a>,
    nulls: Option<NullBuffer>,
}

impl<'a> Column<'a> {
    fn new(array: &'a dyn Array) -> Result<Column<'a>> {
        Ok(Column {
            cell: Cell::new(array)?,
            nulls: array.logical_nulls(),
        })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        if let Some(text) = self.cell.text(row) {
            write_string(text, out);
            return Ok(());
        }
        match self.cell.kind() {
            // JSON can't express infinity.
            Kind::Float if !self.cell.is_finite(row) => out.extend_from_slice(b"null"),
            Kind::Text => {
                let mut text = vec![];
                self.cell.write(row, &mut text)?;
                write_string(&String::from_utf8_lossy(&text), out);
            }
            _ => self.cell.write(row, out)?,
        }
        Ok(())
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string can be written into memory");
}

fn key(name: &str) -> Vec<u8> {
    let mut key = vec![];
    write_string(name, &mut key);
    key.push(b':');
    key
}

fn write_object(
    keys: &[Vec<u8>],
    columns: &[Column<'_>],
    row: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.push(b'{');
    for (nth, (key, column)) in keys.iter().zip(columns).enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend_from_slice(key);
        column.write(row, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Appends one value of a ROW column.
pub(super) fn write_row(array: &StructArray, row: usize, out: &mut Vec<u8>) -> Result<()> {
    let keys = array
        .fields()
        .iter()
        .map(|field| key(field.name()))
        .collect::<Vec<_>>();
    let columns = array.columns().iter().map(|column| Column::new(column));
    write_object(&keys, &columns.collect::<Result<Vec<_>>>()?, row, out)
}

/// Appends one value of an ARRAY column.
pub(super) fn write_list(array: &ListArray, row: usize, out: &mut Vec<u8>) -> Result<()> {
    let items = array.value(row);
    let column = Column::new(&items)?;
    out.push(b'[');
    for item in 0..items.len() {
        if item > 0 {
            out.push(b',');
        }
        column.write(item, out)?;
    }
    out.push(b']');
    Ok(())
}
