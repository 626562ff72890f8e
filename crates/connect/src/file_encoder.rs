//! Rows as the bytes of a file: lines of text, or columns.

use arrow_schema::SchemaRef;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;

#[cfg(feature = "parquet")]
use crate::columns::ParquetWriter;
use crate::columns::{ArrowWriter, ColumnFormat};
use crate::encode::Encoder;
use crate::file_format::FileFormat;

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

    /// Appends the rows that were kept and the end of the file, also without rows.
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
