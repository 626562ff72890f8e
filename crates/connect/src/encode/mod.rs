//! Rows as text: CSV and JSON lines for sinks, and the values of both and of the terminal.

mod cell;
mod csv;
mod json;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;

use crate::format::Format;
pub(crate) use cell::Cell;

/// Turns chunks into bytes of a format.
#[derive(Debug)]
pub(crate) enum Encoder {
    Csv(csv::CsvEncoder),
    Json(json::JsonEncoder),
}

impl Encoder {
    /// Makes an encoder for a table's columns, in CSV or JSON.
    pub(crate) fn new(format: &Format, schema: &SchemaRef) -> Encoder {
        match format {
            Format::Csv(options) => Encoder::Csv(csv::CsvEncoder::new(options, schema)),
            _ => Encoder::Json(json::JsonEncoder::new(schema)),
        }
    }

    /// Appends the rows.
    pub(crate) fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> Result<()> {
        self.encode_each(&chunk.batch, out, |_| ())
    }

    /// Appends the rows, and records the length of the output after each of them; a row ends with its line
    /// end.
    pub(crate) fn encode_each(
        &mut self,
        batch: &RecordBatch,
        out: &mut Vec<u8>,
        written: impl FnMut(usize),
    ) -> Result<()> {
        match self {
            Encoder::Csv(encoder) => encoder.encode(batch, out, written),
            Encoder::Json(encoder) => encoder.encode(batch, out, written),
        }
    }

    /// Appends the header of a result without rows (CSV), and the end of the output.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Encoder::Csv(encoder) = self {
            encoder.header(out);
        }
    }
}

/// A row as JSON, for the dead-letter file.
pub(crate) fn json_row(batch: &RecordBatch, row: usize) -> Vec<u8> {
    let mut out = vec![];
    let written =
        json::JsonEncoder::new(&batch.schema()).encode(&batch.slice(row, 1), &mut out, |_| ());
    if let Err(error) = written {
        out = error.to_string().into_bytes();
    }
    out.trim_ascii_end().to_vec()
}
