//! Rows as text: CSV and JSON lines for sinks, and the values of both and of the terminal.

mod cell;
mod csv;
mod json;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::format::RecordEncoder;

use crate::format::{Format, Own};
pub(crate) use cell::Cell;

/// Turns chunks into bytes of a format.
#[derive(Debug)]
pub(crate) enum Encoder {
    Csv(csv::CsvEncoder),
    Json(json::JsonEncoder),
    /// One that the program brings.
    Own(Box<dyn RecordEncoder>),
}

impl Encoder {
    /// Makes an encoder for a table's columns.
    pub(crate) fn new(format: &Format, schema: &SchemaRef) -> Encoder {
        match format {
            Format::Csv(options) => Encoder::Csv(csv::CsvEncoder::new(options, schema)),
            Format::Own(Own(records)) => Encoder::Own(records.encoder()),
            _ => Encoder::Json(json::JsonEncoder::new(schema)),
        }
    }

    /// Appends the rows as lines.
    pub(crate) fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> Result<()> {
        let Encoder::Own(encoder) = self else {
            return self.encode_each(&chunk.batch, out, |_| ());
        };
        let mut start = out.len();
        encoder.encode(&chunk.batch, out, &mut |out| {
            let reason = match &out[start..] {
                [] => "a row is an empty line, and readers skip those",
                [.., b'\r'] => "a row ends with a carriage return, which readers leave out",
                record if record.contains(&b'\n') => "a row has a line end in it",
                _ => "",
            };
            if !reason.is_empty() {
                let hint = "leave such rows out with WHERE, or write them as messages";
                return Err(Error::new("", reason).hint(hint).final_one());
            }
            out.push(b'\n');
            start = out.len();
            Ok(())
        })
    }

    /// Appends the rows as messages, and records the length of the output after each of them; a row ends with
    /// a line end, which is not part of the message.
    pub(crate) fn encode_each(
        &mut self,
        batch: &RecordBatch,
        out: &mut Vec<u8>,
        written: impl FnMut(usize),
    ) -> Result<()> {
        match self {
            Encoder::Csv(encoder) => encoder.encode(batch, out, written),
            Encoder::Json(encoder) => encoder.encode(batch, out, written),
            Encoder::Own(encoder) => {
                let mut written = written;
                encoder.encode(batch, out, &mut |out| {
                    out.push(b'\n');
                    written(out.len());
                    Ok(())
                })
            }
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
