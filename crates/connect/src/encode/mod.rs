//! Rows as text: CSV and JSON lines for sinks, and the values of both and of the terminal.

mod cell;
mod csv;
mod json;

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
    /// An encoder for a table's columns. Sinks have CSV or JSON.
    pub(crate) fn new(format: &Format, schema: &SchemaRef) -> Encoder {
        match format {
            Format::Csv(options) => Encoder::Csv(csv::CsvEncoder::new(options, schema)),
            _ => Encoder::Json(json::JsonEncoder::new(schema)),
        }
    }

    /// Appends the rows.
    pub(crate) fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Encoder::Csv(encoder) => encoder.encode(&chunk.batch, out),
            Encoder::Json(encoder) => encoder.encode(&chunk.batch, out),
        }
    }

    /// Appends what a result without rows has (the CSV header), and what comes at the end.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Encoder::Csv(encoder) = self {
            encoder.header(out);
        }
    }
}
