//! Parquet, with the library of Apache Arrow.
//!
//! Only the pages of columns that are read are fetched, a batch at a time. A restored query begins at
//! the row group that its row is in, and skips the pages before it.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::Compression;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use slackwater_engine::error::{Error, Result};

use super::reader::{BATCH_ROWS_MAX, Batches, ColumnReader, Counted, Progress};
use super::written::{Shared, Written};
use super::{HINT_BROKEN, ParquetCompression, guarded};

/// Rows of a row group, as most writers have it.
const GROUP_ROWS_MAX: usize = 1024 * 1024;

/// Bytes of a row group, which the writer holds until it is complete: 128 MiB for each instance.
const GROUP_BYTES_MAX: usize = 128 * 1024 * 1024;

impl Length for Counted {
    fn len(&self) -> u64 {
        self.length()
    }
}

impl ChunkReader for Counted {
    type T = BufReader<Counted>;

    fn get_read(&self, start: u64) -> ParquetResult<BufReader<Counted>> {
        Ok(BufReader::new(self.from(start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        // Checked before memory is allocated: the length in the file may be wrong.
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.length()) {
            let message = format!("{length} bytes from {start} on are not in the file");
            return Err(ParquetError::EOF(message));
        }
        let mut bytes = vec![0; length];
        std::io::Read::read_exact(&mut self.from(start), &mut bytes)?;
        Ok(bytes.into())
    }
}

fn unreadable(place: &str, error: &ParquetError) -> Error {
    let reason = format!("is not a readable parquet file: {error}");
    Error::new(place, reason).hint(HINT_BROKEN).final_one()
}

/// Opens a file at row `first` for the columns `read`.
pub(super) fn open(
    path: &Path,
    read: &SchemaRef,
    first: u64,
    progress: Progress,
) -> Result<ColumnReader> {
    let place = path.display().to_string();
    let file = Counted::open(path, progress)?;
    let (schema, batches) = guarded(&place, "parquet", || {
        let failed = |error| unreadable(&place, &error);
        let metadata =
            ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(failed)?;
        super::fit::find(&place, metadata.schema(), read)?;
        let options = ArrowReaderOptions::new().with_schema(with_views(metadata.schema()));
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)
            .map_err(failed)?;
        batches(&place, file, metadata, read, first - 1)
    })?;
    ColumnReader::new(&place, "parquet", &schema, read, batches, first)
}

/// The batches of the columns that are read, after this many rows.
fn batches(
    place: &str,
    file: Counted,
    metadata: ArrowReaderMetadata,
    read: &SchemaRef,
    known: u64,
) -> Result<(SchemaRef, Batches)> {
    let groups = metadata.metadata().row_groups().iter();
    let mut behind = known;
    let mut wanted = vec![];
    let mut ends = vec![];
    for (number, group) in groups.enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        ends.push(rows.saturating_add(ends.last().copied().unwrap_or(0)));
        if wanted.is_empty() && rows <= behind {
            behind -= rows;
        } else {
            wanted.push(number);
        }
    }
    if wanted.is_empty() && behind > 0 {
        let rows = known - behind;
        let reason = format!("has {rows} rows, but {known} of it were read before");
        return Err(Error::new(place, reason)
            .hint("put the file back as it was, or start over without the checkpoints")
            .final_one());
    }
    let fields = metadata.schema().fields().iter().enumerate();
    let roots = fields.filter(|(_, field)| read.field_with_name(field.name()).is_ok());
    let roots = roots.map(|(root, _)| root).collect::<Vec<usize>>();
    let schema = Arc::new(metadata.schema().project(&roots)?);
    let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_projection(mask)
        .with_row_groups(wanted)
        .with_offset(behind as usize)
        .with_batch_size(BATCH_ROWS_MAX)
        .build()
        .map_err(|error| unreadable(place, &error))?;
    let mut read = known;
    let batches = reader.map(move |batch| match batch {
        Ok(batch) => {
            read += batch.num_rows() as u64;
            Ok(batch)
        }
        Err(error) => Err(Error::new(
            "",
            format!("{}: {error}", groups_at(&ends, read)),
        )),
    });
    Ok((schema, Box::new(batches)))
}

/// The row groups that the next batch comes from, where this many rows were read; `ends` says how many rows
/// the file has up to the end of each. They are counted from 0, as other tools do.
fn groups_at(ends: &[u64], read: u64) -> String {
    let last = ends.len().saturating_sub(1);
    let of_row = |row: u64| ends.partition_point(|&end| end < row).min(last);
    let (from, to) = (of_row(read + 1), of_row(read + BATCH_ROWS_MAX as u64));
    match from == to {
        true => format!("in row group {from} (the last is {last})"),
        false => format!("in one of the row groups {from} to {to} (the last is {last})"),
    }
}

/// The file's columns with text as views, which point into its pages instead of copying out of them.
fn with_views(schema: &Schema) -> SchemaRef {
    fn field(original: &Field) -> Field {
        let data_type = match original.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
            DataType::Struct(fields) => DataType::Struct(
                fields
                    .iter()
                    .map(|original| field(original))
                    .collect::<Fields>(),
            ),
            DataType::List(item) => DataType::List(Arc::new(field(item))),
            DataType::LargeList(item) => DataType::LargeList(Arc::new(field(item))),
            other => other.clone(),
        };
        original.clone().with_data_type(data_type)
    }
    let fields = schema.fields().iter().map(|original| field(original));
    Arc::new(Schema::new_with_metadata(
        fields.collect::<Fields>(),
        schema.metadata().clone(),
    ))
}

/// Writes a file.
pub(crate) struct ParquetWriter {
    written: Written,
    shared: Shared,
    compression: ParquetCompression,
    writer: Option<ArrowWriter<Shared>>,
}

impl ParquetWriter {
    pub(crate) fn new(compression: ParquetCompression, schema: &SchemaRef) -> ParquetWriter {
        ParquetWriter {
            written: Written::for_parquet(schema),
            shared: Shared::default(),
            compression,
            writer: None,
        }
    }

    fn writer(&mut self) -> Result<&mut ArrowWriter<Shared>> {
        if self.writer.is_none() {
            let compression = match self.compression {
                ParquetCompression::None => Compression::UNCOMPRESSED,
                ParquetCompression::Snappy => Compression::SNAPPY,
                ParquetCompression::Gzip => Compression::GZIP(Default::default()),
                ParquetCompression::Lz4 => Compression::LZ4_RAW,
                ParquetCompression::Zstd => Compression::ZSTD(Default::default()),
            };
            let properties = WriterProperties::builder()
                .set_compression(compression)
                .set_max_row_group_row_count(Some(GROUP_ROWS_MAX))
                .set_max_row_group_bytes(Some(GROUP_BYTES_MAX))
                .build();
            // Without the Arrow schema: readers find Parquet's own types, as every writer writes them.
            let options = ArrowWriterOptions::new()
                .with_properties(properties)
                .with_skip_arrow_metadata(true);
            let schema = Arc::clone(&self.written.schema);
            let writer = ArrowWriter::try_new_with_options(self.shared.clone(), schema, options);
            self.writer = Some(writer.map_err(failed)?);
        }
        Ok(self.writer.as_mut().expect("it was just made"))
    }

    /// Takes the rows, and appends the row groups that are complete.
    pub(crate) fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let batch = self.written.batch(batch)?;
        self.writer()?.write(&batch).map_err(failed)?;
        self.shared.drain(out);
        Ok(())
    }

    /// Appends the last row group and the end of the file.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.writer()?;
        if let Some(writer) = self.writer.take() {
            writer.close().map_err(failed)?;
        }
        self.shared.drain(out);
        Ok(())
    }
}

fn failed(error: ParquetError) -> Error {
    Error::new("", format!("rows can't be written: {error}"))
}
