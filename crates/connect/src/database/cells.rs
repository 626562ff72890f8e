//! Text to columns, and columns to text.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{Schema, SchemaRef};
use slackwater_engine::error::Result;
use slackwater_engine::source::REJECTED_RECORD_BYTES_MAX;

use crate::encode::Cell;
use crate::format::{BadRow, Cells, RECORD_BYTES_MAX, Span};
use crate::time;

/// The values of a row as text; `None` for NULL.
pub(crate) type Row<'a> = &'a [Option<&'a [u8]>];

/// The values of a row that is written.
pub(crate) type RowText = Vec<Option<String>>;

/// Rows as a database returns them.
pub(super) struct TextRows {
    read: SchemaRef,
    bytes: Vec<u8>,
    spans: Vec<Span>,
    rows: usize,
    bad_rows: Vec<BadRow>,
}

/// Rows as columns.
pub(super) struct Decoded {
    /// The rows that could be read.
    pub(super) batch: RecordBatch,
    /// The numbers of these rows; `None`: all rows.
    pub(super) kept: Option<BooleanArray>,
    /// The rejected rows: number, reason and contents.
    pub(super) refused: Vec<(usize, String, String)>,
}

impl TextRows {
    /// No rows yet, of some columns of a table.
    pub(super) fn new(schema: &Schema, columns: &[usize]) -> TextRows {
        let fields = columns.iter();
        let fields = fields.map(|&column| Arc::clone(&schema.fields()[column]));
        TextRows {
            read: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            bytes: Vec::new(),
            spans: Vec::new(),
            rows: 0,
            bad_rows: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: Row<'_>) {
        for (field, value) in self.read.fields().iter().zip(row) {
            self.spans.push(match value {
                None => Span::NULL,
                Some(text) if text.len() > RECORD_BYTES_MAX => {
                    let mebibytes = RECORD_BYTES_MAX >> 20;
                    let reason = format!("column '{}': longer than {mebibytes} MiB", field.name());
                    self.bad_rows.push((self.rows, reason));
                    Span::NULL
                }
                Some(text) => {
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(text);
                    Span::new(start, self.bytes.len())
                }
            });
        }
        self.rows += 1;
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the rows that were added so far.
    pub(super) fn take(&mut self) -> Result<Decoded> {
        let rows = std::mem::take(&mut self.rows);
        let spans = std::mem::take(&mut self.spans);
        let mut bad_rows = std::mem::take(&mut self.bad_rows);
        let block = Buffer::from(std::mem::take(&mut self.bytes));
        let aside = Buffer::from(Vec::<u8>::new());
        let mut cells = Cells {
            block: &block,
            aside: &aside,
            spans: &spans,
            nth: 0,
            stride: self.read.fields().len(),
            null: None,
        };
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (nth, field) in self.read.fields().iter().enumerate() {
            cells.nth = nth;
            columns.push(cells.column(field, time::parse_timestamp, &mut bad_rows));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.read.clone(), columns, &options)?;
        if bad_rows.is_empty() {
            return Ok(Decoded {
                batch,
                kept: None,
                refused: Vec::new(),
            });
        }
        // The first column that can't be read gives the reason.
        bad_rows.sort_by_key(|(row, _)| *row);
        bad_rows.dedup_by_key(|(row, _)| *row);
        let mut kept = vec![true; rows];
        let mut refused = Vec::new();
        for (row, reason) in bad_rows {
            kept[row] = false;
            let fields = &spans[row * cells.stride..][..cells.stride];
            refused.push((row, reason, self.record(&cells, fields)));
        }
        let kept = BooleanArray::from(kept);
        Ok(Decoded {
            batch: arrow_select::filter::filter_record_batch(&batch, &kept)?,
            kept: Some(kept),
            refused,
        })
    }

    /// A row as `name=value, …`.
    fn record(&self, cells: &Cells<'_>, spans: &[Span]) -> String {
        let values = self.read.fields().iter().zip(spans).map(|(field, &span)| {
            let text = String::from_utf8_lossy(cells.bytes(span));
            let shown = text.chars().take(REJECTED_RECORD_BYTES_MAX / 4);
            format!("{}={}", field.name(), shown.collect::<String>())
        });
        let mut record = values.collect::<Vec<_>>().join(", ");
        let mut end = record.len().min(REJECTED_RECORD_BYTES_MAX);
        while !record.is_char_boundary(end) {
            end -= 1;
        }
        record.truncate(end);
        record
    }
}

/// The text of a value; `None` for NULL.
pub(super) fn text(cell: &Cell<'_>, array: &dyn Array, row: usize) -> Result<Option<String>> {
    if array.is_null(row) {
        return Ok(None);
    }
    if let Some(text) = cell.text(row) {
        return Ok(Some(text.to_string()));
    }
    let mut bytes = Vec::new();
    cell.write(row, &mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
