//! Batches of a file into rows of its partition. A row's position is its number in the file, from 1.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use slackwater_engine::chunk::Positions;
use slackwater_engine::error::{Error, Result};

use super::{HINT_BROKEN, convert, fit, guarded};
use crate::encode::json_row;
use crate::format::DecodedRows;

/// Rows that are decoded at a time: more than a chunk usually has.
pub(super) const BATCH_ROWS_MAX: usize = 8_192;

/// Bytes read so far of a source, for progress reports.
pub(crate) type Progress = Arc<AtomicU64>;

/// The result of a format's library: a batch of the columns that are read.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Reads the rows of one file.
pub(crate) struct ColumnReader {
    place: String,
    name: &'static str,
    batches: Batches,
    /// The indices in a batch of the columns that are read.
    columns: Vec<usize>,
    read: SchemaRef,
    /// The rest of the current batch.
    left: Option<RecordBatch>,
    /// Number of the next row.
    next: u64,
}

impl ColumnReader {
    /// `file` are the columns of the batches, which begin at row `first`.
    pub(super) fn new(
        place: &str,
        name: &'static str,
        file: &Schema,
        read: &SchemaRef,
        batches: Batches,
        first: u64,
    ) -> Result<ColumnReader> {
        Ok(ColumnReader {
            columns: fit::find(place, file, read)?,
            place: place.to_string(),
            name,
            batches,
            read: Arc::clone(read),
            left: None,
            next: first,
        })
    }

    /// Number of the next row.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// At most `rows_max` rows; `None` at the end.
    pub(crate) fn rows(&mut self, rows_max: usize) -> Result<Option<DecodedRows>> {
        let batch = loop {
            match self.left.take() {
                Some(batch) if batch.num_rows() > 0 => break batch,
                _ => match self.next_batch()? {
                    Some(batch) => self.left = Some(batch),
                    None => return Ok(None),
                },
            }
        };
        let rows = batch.num_rows().min(rows_max).min(BATCH_ROWS_MAX);
        let piece = batch.slice(0, rows);
        self.left = Some(batch.slice(rows, batch.num_rows() - rows));
        let first = self.next;
        self.next += rows as u64;
        self.table_rows(&piece, first).map(Some)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batches = &mut self.batches;
        let next = guarded(&self.place, self.name, || batches.next().transpose());
        next.map_err(|error| {
            let after = self.next - 1;
            let reason = format!("can't be read on after row {after}: {}", error.reason);
            let hint = match error.hint.as_str() {
                "" => HINT_BROKEN,
                hint => hint,
            };
            Error::new(self.place.clone(), reason)
                .hint(hint)
                .final_one()
        })
    }

    /// A slice of a batch, in the table's types.
    fn table_rows(&self, piece: &RecordBatch, first: u64) -> Result<DecodedRows> {
        let mut bad_rows = vec![];
        let fields = self.columns.iter().zip(self.read.fields());
        let columns = fields
            .map(|(&index, field)| convert::column(piece.column(index), field, &mut bad_rows));
        let columns = columns
            .collect::<std::result::Result<Vec<_>, ArrowError>>()
            .map_err(|error| self.broken(first, &error))?;
        let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.read), columns, &options)
            .map_err(|error| self.broken(first, &error))?;
        let rows = DecodedRows {
            batch,
            positions: Positions::Run { first },
            rejected: vec![],
        };
        if bad_rows.is_empty() {
            return Ok(rows);
        }
        Ok(rows.without(bad_rows, |row| json_row(piece, row)))
    }

    fn broken(&self, first: u64, error: &ArrowError) -> Error {
        let reason = format!("rows from {first} on can't be read: {error}");
        Error::new(self.place.clone(), reason)
            .hint(HINT_BROKEN)
            .final_one()
    }
}

/// A file that is read at any offset, and counts the bytes that were read.
pub(super) struct Counted {
    file: Arc<File>,
    at: u64,
    bytes: u64,
    progress: Progress,
}

impl Counted {
    pub(super) fn open(path: &Path, progress: Progress) -> Result<Counted> {
        let failed = |error: std::io::Error| {
            let place = path.display().to_string();
            Error::new(place, format!("can't open the file: {error}"))
                .hint("check the path and its permissions")
        };
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Counted {
            file: Arc::new(file),
            at: 0,
            bytes,
            progress,
        })
    }

    pub(super) fn length(&self) -> u64 {
        self.bytes
    }

    /// Another reader of the file, at that offset.
    pub(super) fn from(&self, at: u64) -> Counted {
        Counted {
            file: Arc::clone(&self.file),
            at,
            bytes: self.bytes,
            progress: Arc::clone(&self.progress),
        }
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read_at(buffer, self.at)?;
        self.at += bytes as u64;
        // Relaxed: a figure to look at, which orders nothing.
        self.progress.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.bytes.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
