//! Formats of lines of text, in both directions.
//!
//! Reading: [`Format`] holds the options; a [`Decoder`] turns a block of bytes into columns, positions and
//! rejected records. A decoder only takes whole records: if a block ends within one, it says so, and the rest
//! is carried into the next block (`lines.rs`). So the rows do not depend on how the bytes were split.

mod cells;
pub(crate) mod combined_log;
mod csv;
mod csv_quoted;
mod csv_scan;
mod json;
mod json_columns;
mod json_nulls;
mod json_quick;
mod json_shape;
mod json_strings;
mod messages;
mod names;
mod number;
mod pattern;
mod progress;
pub(crate) mod types;

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{Schema, SchemaRef};
use slackwater_engine::chunk::Positions;
use slackwater_engine::format::{RecordDecoder, Records};
use slackwater_engine::source::{Rejected, Tuning};

use crate::time;
use combined_log::{LogScanner, Part};
use csv_scan::CsvScanner;
use json::JsonDecoder;
use names::FieldNames;
pub(crate) use pattern::RegexOptions;
use pattern::RegexScanner;
use progress::{Progress, each_line};

pub(crate) use cells::BadRow;
#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
use cells::{Cells, Span};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use cells::{Cells, Span};
pub(crate) use csv::CsvOptions;
pub(crate) use messages::Message;
pub(crate) use progress::{RECORD_BYTES_MAX, Stop, rejected};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use types::is_scalar;
pub(crate) use types::{is_nested, sql_type_name};

/// A format, as a table's options choose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    Csv(CsvOptions),
    Json,
    CombinedLog(Vec<Part>),
    Regex(RegexOptions),
    Raw,
    /// A format that the program brings.
    Own(Own),
}

/// What a format that the program brings does with a table.
#[derive(Debug, Clone)]
pub(crate) struct Own(pub(crate) Arc<dyn Records>);

impl PartialEq for Own {
    fn eq(&self, other: &Own) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Own {}

impl Format {
    /// A decoder for one partition, for the columns `projection` of `schema`.
    pub(crate) fn decoder(&self, schema: &Schema, projection: &[usize]) -> Decoder {
        let fields = projection
            .iter()
            .map(|&index| Arc::clone(&schema.fields()[index]));
        let read = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut parse_time: ParseTime = time::parse_timestamp;
        let (kind, null) = match self {
            Format::Csv(options) => {
                let scanner = CsvScanner::new(options, schema.fields().len(), projection);
                (Kind::Csv(scanner), Some(options.null.clone().into_bytes()))
            }
            Format::Json => (Kind::Json(JsonDecoder::new(&read)), None),
            Format::CombinedLog(parts) => {
                parse_time = time::parse_log_time;
                let read = projection.iter().map(|&index| parts[index]).collect();
                (Kind::Log(LogScanner::new(read)), None)
            }
            Format::Regex(options) => (
                Kind::Regex(Box::new(RegexScanner::new(options, projection))),
                None,
            ),
            Format::Raw => (Kind::Raw, None),
            Format::Own(Own(records)) => (Kind::Own(records.decoder(projection)), None),
        };
        Decoder {
            kind,
            read,
            null,
            parse_time,
            progress: Progress::new(),
            names: None,
        }
    }
}

type ParseTime = fn(&[u8]) -> Option<time::Instant>;

/// Rows of one partition, and the rejected records.
#[derive(Debug)]
pub(crate) struct DecodedRows {
    pub(crate) batch: RecordBatch,
    pub(crate) positions: Positions,
    /// The rejected records, in the order of their positions.
    pub(crate) rejected: Vec<Rejected>,
}

impl DecodedRows {
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.num_rows() == 0 && self.rejected.is_empty()
    }
}

#[derive(Debug)]
enum Kind {
    Csv(CsvScanner),
    Json(JsonDecoder),
    Log(LogScanner),
    Regex(Box<RegexScanner>),
    Raw,
    Own(Box<dyn RecordDecoder>),
}

/// Reads one partition.
#[derive(Debug)]
pub(crate) struct Decoder {
    kind: Kind,
    /// The columns that are read.
    read: SchemaRef,
    null: Option<Vec<u8>>,
    parse_time: ParseTime,
    progress: Progress,
    names: Option<FieldNames>,
}

impl Decoder {
    /// The same decoder, which also reports the field names of some records.
    pub(crate) fn naming_fields(mut self, tuning: &Arc<Tuning>) -> Decoder {
        self.names = FieldNames::of(&self.kind, tuning);
        self
    }

    /// Reads records from `block[from..]` until there are `rows_max` rows. `last` means that the
    /// partition ends with the block, so that a record without a line end is complete. Returns the
    /// rows, the place after the last record that was read, and why it stopped.
    pub(crate) fn decode(
        &mut self,
        block: &Buffer,
        from: usize,
        last: bool,
        rows_max: usize,
    ) -> (DecodedRows, usize, Stop) {
        let progress = &mut self.progress;
        progress.begin(rows_max);
        let bytes = block.as_slice();
        let (at, stop) = match &mut self.kind {
            Kind::Csv(scanner) => scanner.scan(bytes, from, last, progress),
            Kind::Json(decoder) => decoder.scan(bytes, from, last, progress),
            Kind::Log(scanner) => scanner.scan(bytes, from, last, progress),
            Kind::Regex(scanner) => scanner.scan(bytes, from, last, progress),
            Kind::Raw => each_line(bytes, from, last, progress, |progress, start, end| {
                if self.read.fields().len() == 1 {
                    progress.records.spans.push(Span::new(start, end));
                }
                progress.accept(start, end);
            }),
            Kind::Own(decoder) => each_line(bytes, from, last, progress, |progress, start, end| {
                progress.decode_own(decoder.as_mut(), bytes, (start, end));
            }),
        };
        (self.rows(block, vec![]), at, stop)
    }

    /// The rows without those that were rejected before or are rejected by a column.
    fn rows(&mut self, block: &Buffer, mut bad_rows: Vec<BadRow>) -> DecodedRows {
        let progress = &mut self.progress;
        if let Some(names) = &mut self.names
            && !names.look(block, progress)
        {
            self.names = None;
        }
        let columns = match &mut self.kind {
            Kind::Json(decoder) => decoder.finish(block),
            Kind::Own(decoder) => {
                let (columns, bad) = decoder.take();
                bad_rows.extend(bad);
                columns
            }
            _ => {
                let aside = Buffer::from(std::mem::take(&mut progress.records.aside));
                let mut cells = Cells {
                    block,
                    aside: &aside,
                    spans: &progress.records.spans,
                    nth: 0,
                    stride: self.read.fields().len(),
                    null: self.null.as_deref(),
                };
                let fields = self.read.fields().iter().enumerate();
                fields
                    .map(|(nth, field)| {
                        cells.nth = nth;
                        cells.column(field, self.parse_time, &mut bad_rows)
                    })
                    .collect()
            }
        };
        let batch = match &self.kind {
            Kind::Own(_) => checked_batch_of(&self.read, columns, progress.rows()),
            _ => batch_of(&self.read, columns, progress.rows()),
        };
        let rows = DecodedRows {
            batch,
            positions: progress.positions(),
            rejected: std::mem::take(&mut progress.rejected),
        };
        if bad_rows.is_empty() {
            rows
        } else {
            rows.without(bad_rows, |row| {
                let (start, end) = progress.records.bounds[row];
                block[start as usize..end as usize].to_vec()
            })
        }
    }

    /// Number of the line that comes next.
    pub(crate) fn line(&self) -> u64 {
        self.progress.line
    }

    /// Resumes in the middle of a partition: at line `line`, with the header still to come or not.
    pub(crate) fn go_on(&mut self, line: u64, header: bool) {
        self.progress.line = line;
        if let Kind::Csv(scanner) = &mut self.kind {
            scanner.header_pending = header;
        }
    }

    /// Whether the header is still to come.
    pub(crate) fn is_header_pending(&self) -> bool {
        matches!(&self.kind, Kind::Csv(scanner) if scanner.header_pending)
    }

    /// Rejects the record that begins with `beginning` because it is too long.
    pub(crate) fn reject_too_long(&self, beginning: &[u8]) -> Rejected {
        let mebibytes = RECORD_BYTES_MAX / (1024 * 1024);
        rejected(
            self.line(),
            beginning,
            format!("longer than {mebibytes} MiB"),
        )
    }

    /// Rejects the record that begins with `beginning` because its end never arrived.
    pub(crate) fn reject_unfinished(&self, beginning: &[u8], reason: String) -> Rejected {
        rejected(self.line(), beginning, reason)
    }

    /// Continues after a skipped record that contains this many line ends.
    pub(crate) fn skip_lines(&mut self, lines: u64) {
        self.progress.line += lines;
    }
}

/// The columns of a decoder that the program brings, as a batch.
fn checked_batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .expect("a decoder returns a column for each that is read, with a value for each row")
}

/// The columns as a batch.
fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    debug_assert!(
        RecordBatch::try_new_with_options(
            Arc::clone(schema),
            columns.clone(),
            &RecordBatchOptions::new().with_row_count(Some(rows))
        )
        .is_ok()
    );
    // SAFETY: a column was made for each field of the schema, of its type, with a value for each of the rows
    // that the scan has found. Checked again by Arrow, this costs 400 instructions for each chunk.
    unsafe { RecordBatch::new_unchecked(Arc::clone(schema), columns, rows) }
}

impl DecodedRows {
    /// The first `rows_max` rows with the rejected records before the last of them, and the others. The rows
    /// of one record stay together, because a query resumes after a position.
    pub(crate) fn split(mut self, mut rows_max: usize) -> (DecodedRows, Option<DecodedRows>) {
        let rows = self.batch.num_rows();
        if let Positions::List(list) = &self.positions
            && rows_max < rows
        {
            let last = list.value(rows_max - 1);
            let same = list.values()[rows_max..].iter();
            rows_max += same.take_while(|&&position| position == last).count();
        }
        if rows <= rows_max {
            return (self, None);
        }
        let last = self.positions.at(rows_max - 1);
        let is_after = |rejected: &mut Rejected| rejected.position.is_some_and(|at| at > last);
        let rest = DecodedRows {
            batch: self.batch.slice(rows_max, rows - rows_max),
            positions: match &self.positions {
                Positions::Run { first } => Positions::Run {
                    first: first + rows_max as u64,
                },
                Positions::List(list) => Positions::List(list.slice(rows_max, rows - rows_max)),
            },
            rejected: self.rejected.extract_if(.., is_after).collect(),
        };
        self.batch = self.batch.slice(0, rows_max);
        if let Positions::List(list) = &self.positions {
            self.positions = Positions::List(list.slice(0, rows_max));
        }
        (self, Some(rest))
    }

    /// Removes the rejected rows. `record` returns a row as it was read.
    #[cold]
    pub(crate) fn without(
        mut self,
        mut bad_rows: Vec<BadRow>,
        record: impl Fn(usize) -> Vec<u8>,
    ) -> DecodedRows {
        // The first column that can't be read gives the reason.
        bad_rows.sort_by_key(|(row, _)| *row);
        bad_rows.dedup_by_key(|(row, _)| *row);
        let mut keep = vec![true; self.batch.num_rows()];
        for (row, reason) in bad_rows {
            keep[row] = false;
            let position = self.positions.at(row);
            self.rejected.push(rejected(position, &record(row), reason));
        }
        self.rejected.sort_by_key(|rejected| rejected.position);
        let positions = (0..keep.len())
            .filter(|&row| keep[row])
            .map(|row| self.positions.at(row))
            .collect();
        self.positions = Positions::List(positions);
        let keep = BooleanArray::from(keep);
        self.batch = arrow_select::filter::filter_record_batch(&self.batch, &keep)
            .expect("the filter has as many rows as the batch");
        self
    }
}

#[cfg(test)]
mod csv_reference_tests;
#[cfg(test)]
pub(crate) mod own_tests;
#[cfg(test)]
mod tests;
