//! Rows as text: CSV and JSON lines for sinks, and the values of both and of the terminal.

mod cell;
mod csv;
mod json;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;

#[cfg(feature = "parquet")]
use crate::columns::ParquetWriter;
use crate::columns::{ArrowWriter, ColumnFormat};
use crate::file_format::FileFormat;
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
        self.encode_each(&chunk.batch, out, |_| ())
    }

    /// Appends the rows, and says after each how many bytes there are; its line end is the last.
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

    /// Appends what a result without rows has (the CSV header), and what comes at the end.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Encoder::Csv(encoder) = self {
            encoder.header(out);
        }
    }
}

/// Turns chunks into bytes of a file.
pub(crate) enum FileEncoder {
    Lines(Encoder),
    Arrow(Box<ArrowWriter>),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter>),
}

impl FileEncoder {
    pub(crate) fn new(format: &FileFormat, schema: &SchemaRef) -> FileEncoder {
        match format {
            FileFormat::Lines(format) => FileEncoder::Lines(Encoder::new(format, schema)),
            FileFormat::Columns(ColumnFormat::Arrow(options)) => {
                FileEncoder::Arrow(Box::new(ArrowWriter::new(*options, schema)))
            }
            #[cfg(feature = "parquet")]
            FileFormat::Columns(ColumnFormat::Parquet(compression)) => {
                FileEncoder::Parquet(Box::new(ParquetWriter::new(*compression, schema)))
            }
        }
    }

    /// Appends the rows, or keeps them until there are enough.
    pub(crate) fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> Result<()> {
        match self {
            FileEncoder::Lines(encoder) => encoder.encode(chunk, out),
            FileEncoder::Arrow(writer) => writer.encode(&chunk.batch, out),
            #[cfg(feature = "parquet")]
            FileEncoder::Parquet(writer) => writer.encode(&chunk.batch, out),
        }
    }

    /// Appends what is kept, and what makes the file whole, also one without rows.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            FileEncoder::Lines(encoder) => {
                encoder.finish(out);
                Ok(())
            }
            FileEncoder::Arrow(writer) => writer.finish(out),
            #[cfg(feature = "parquet")]
            FileEncoder::Parquet(writer) => writer.finish(out),
        }
    }
}

/// A row as JSON, for whoever looks at a record that was rejected.
pub(crate) fn json_row(batch: &RecordBatch, row: usize) -> Vec<u8> {
    let mut out = vec![];
    let written =
        json::JsonEncoder::new(&batch.schema()).encode(&batch.slice(row, 1), &mut out, |_| ());
    if let Err(error) = written {
        out = error.to_string().into_bytes();
    }
    out.trim_ascii_end().to_vec()
}
