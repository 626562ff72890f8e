//! An answer of rows on its way to a client: batches are taken from the backend as the client takes rows, and
//! encoded in pieces of a bounded size, on a thread that may block.

use std::collections::VecDeque;
use std::iter::Fuse;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::{BufMut, BytesMut};
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::{Cancelled, Refusal, Rows};

use super::cells::{OutOfRange, write_binary, write_text};
use super::copy::Format;
use super::message::{self, Report};
use super::types::PgType;

/// About how many bytes of rows are encoded before they are sent. A row that is longer is sent as it is.
const PIECE_BYTES: usize = 64 * 1024;

/// The most rows of a batch that is taken in advance.
const SHORT_ROWS: usize = 64;

/// The names and types of columns.
pub type Columns = Arc<Vec<(String, PgType)>>;

/// The columns of a schema.
pub fn columns(schema: &Schema) -> Columns {
    let fields = schema.fields().iter();
    let columns = fields.map(|field| (field.name().clone(), PgType::of_field(field)));
    Arc::new(columns.collect())
}

/// Rows that a statement returns, those not yet sent.
pub struct Running {
    pub columns: Columns,
    pub are_changes: bool,
    pub cancelled: Cancelled,
    /// What was taken of the batches in advance: `None` is their end.
    fetched: VecDeque<Option<Result<RecordBatch, Refusal>>>,
    batches: Fuse<Box<dyn Iterator<Item = Result<RecordBatch, Refusal>> + Send>>,
    batch: Option<RecordBatch>,
    /// The next row of the batch.
    at: usize,
    /// The rows that were taken until now.
    taken: u64,
    /// For changes: one of the threads that they may occupy.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// How rows are written.
#[derive(Debug, Clone)]
pub enum Form {
    /// `DataRow`, each column in its format.
    Rows(Vec<i16>),
    Copy(Format),
    /// Not at all (`MOVE`).
    Skipped,
}

/// A piece of the answer.
pub struct Piece {
    pub bytes: BytesMut,
    pub rows: usize,
    pub end: End,
}

/// Why a piece ended.
pub enum End {
    /// It is large enough, or shows all changes until now.
    Piece,
    /// It has as many rows as asked for.
    Limit,
    /// There are no more rows.
    Last,
    Failed(Report),
}

impl Running {
    /// The rows of an answer.
    pub fn new(rows: Rows, cancelled: Cancelled) -> Running {
        Running {
            columns: columns(&rows.schema),
            are_changes: rows.are_changes,
            cancelled,
            fetched: VecDeque::new(),
            batches: rows.batches.fuse(),
            batch: None,
            at: 0,
            taken: 0,
            permit: None,
        }
    }

    /// Takes the rows of a short answer now, on a thread that may block anyway: sending them needs none then.
    pub fn fetch_if_short(mut self) -> Running {
        if self.are_changes {
            return self;
        }
        let first = self.batches.next();
        let is_short = match &first {
            Some(Ok(batch)) => {
                batch.num_rows() <= SHORT_ROWS && batch.get_array_memory_size() <= PIECE_BYTES
            }
            Some(Err(_)) | None => true,
        };
        let has_more = matches!(first, Some(Ok(_)));
        self.fetched.push_back(first);
        if is_short && has_more {
            self.fetched.push_back(self.batches.next());
        }
        self
    }

    /// Whether all of its rows are here, so that taking them does not block.
    pub fn is_here(&self) -> bool {
        matches!(self.fetched.back(), Some(None | Some(Err(_))))
    }

    /// Rows that this door has itself.
    pub fn of_batch(batch: RecordBatch) -> Running {
        let rows = Rows {
            schema: batch.schema(),
            batches: Box::new(std::iter::once(Ok(batch))),
            are_changes: false,
        };
        Running::new(rows, Cancelled::default())
    }

    /// The next piece, of so many rows at most. Blocks while the backend does.
    pub fn piece(&mut self, form: &Form, rows_max: Option<usize>) -> Piece {
        let mut piece = Piece {
            bytes: BytesMut::new(),
            rows: 0,
            end: End::Piece,
        };
        let mut scratch = Scratch::default();
        piece.end = loop {
            if rows_max.is_some_and(|max| piece.rows >= max) {
                break End::Limit;
            }
            if piece.bytes.len() >= PIECE_BYTES {
                break End::Piece;
            }
            let Some(batch) = self
                .batch
                .as_ref()
                .filter(|batch| self.at < batch.num_rows())
            else {
                if self.are_changes && piece.rows > 0 {
                    break End::Piece;
                }
                (self.batch, self.at) = (None, 0);
                match self.next_batch() {
                    Some(Ok(batch)) if batch.num_columns() == self.columns.len() => {
                        self.batch = Some(batch);
                    }
                    Some(Ok(_)) => {
                        break End::Failed(Report::error("XX000", "a batch has other columns"));
                    }
                    Some(Err(refusal)) => break End::Failed(Report::of(refusal, 0)),
                    None => break End::Last,
                }
                continue;
            };
            let start = piece.bytes.len();
            if let Err(OutOfRange(value)) = self.row(batch, form, &mut scratch, &mut piece.bytes) {
                piece.bytes.truncate(start);
                let message =
                    format!("{value} is outside of what the type can hold in binary format");
                break End::Failed(Report::error("22003", message));
            }
            self.at += 1;
            self.taken += 1;
            piece.rows += 1;
        };
        piece
    }

    fn next_batch(&mut self) -> Option<Result<RecordBatch, Refusal>> {
        match self.fetched.pop_front() {
            Some(fetched) => fetched,
            None => self.batches.next(),
        }
    }

    fn row(
        &self,
        batch: &RecordBatch,
        form: &Form,
        scratch: &mut Scratch,
        out: &mut BytesMut,
    ) -> Result<(), OutOfRange> {
        match form {
            Form::Rows(formats) => data_row(batch, self.at, &self.columns, formats, scratch, out),
            Form::Copy(format) => {
                let is_first = self.taken == 0;
                format.row(batch, self.at, &self.columns, is_first, out)
            }
            Form::Skipped => Ok(()),
        }
    }
}

/// Memory that is used again for each value.
#[derive(Default)]
struct Scratch {
    text: String,
    bytes: Vec<u8>,
}

fn data_row(
    batch: &RecordBatch,
    row: usize,
    columns: &[(String, PgType)],
    formats: &[i16],
    scratch: &mut Scratch,
    out: &mut BytesMut,
) -> Result<(), OutOfRange> {
    out.put_u8(b'D');
    let start = out.len();
    out.put_i32(0);
    out.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
    for (at, column) in batch.columns().iter().enumerate() {
        scratch.text.clear();
        scratch.bytes.clear();
        let (valid, bytes) = if formats.get(at) == Some(&1) {
            let valid = write_binary(column, row, columns[at].1, &mut scratch.bytes)?;
            (valid, scratch.bytes.as_slice())
        } else {
            let valid = write_text(column, row, &mut scratch.text);
            (valid, scratch.text.as_bytes())
        };
        if valid {
            let length = i32::try_from(bytes.len());
            out.put_i32(length.map_err(|_| OutOfRange("a value of more than 2 GB".to_owned()))?);
            out.put_slice(bytes);
        } else {
            out.put_i32(-1);
        }
    }
    message::end(out, start);
    Ok(())
}
