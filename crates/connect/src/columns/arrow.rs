//! Arrow's own format (IPC), as a file and as a stream.
//!
//! A file is a stream between two marks, with a list of its batches at the end, so both are read as
//! streams. The messages are taken apart here, and their contents given to the library: a wrong
//! length must not make it ask for more memory than the file can fill, and batches
//! that were read before the query was restored are skipped without being read.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MessageHeader, root_as_message};
use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};

use super::reader::{Batches, ColumnReader, Counted, Progress};
use super::written::{Shared, Written};
use super::{ArrowCompression, ArrowOptions, HINT_BROKEN, guarded};

/// The mark at the beginning and end of a file. The one at the beginning is padded with zeros.
const MAGIC: &[u8; 6] = b"ARROW1";

/// Messages begin at a multiple of this; some writers at one of 64.
const ALIGNMENT: u64 = 8;
const PADDED_MAX: u64 = 64;

/// The beginning of a message in current versions. Messages of older versions begin with their length.
const CONTINUATION: u32 = u32::MAX;

/// The maximum size of a message's head, which describes its body. A schema's head names its columns.
const MESSAGE_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// The largest decompressed length that a compressed buffer may claim: the limit of Arrow's 32-bit offsets.
const UNPACKED_BYTES_MAX: i64 = 2 * 1024 * 1024 * 1024;

/// Opens a file at row `first` for the columns `read`.
pub(super) fn open(
    path: &Path,
    read: &SchemaRef,
    first: u64,
    progress: Progress,
) -> Result<ColumnReader> {
    let place = path.display().to_string();
    let mut file = Counted::open(path, progress)?;
    begin(&mut file).map_err(|error| unreadable(&place, &error.to_string()))?;
    let mut messages = Messages {
        file,
        schema: None,
        columns: vec![],
        dictionaries: HashMap::new(),
        first,
        known: first - 1,
    };
    let schema = guarded(&place, "arrow", || {
        let schema = messages.schema();
        schema.map_err(|error| unreadable(&place, &error.reason))
    })?;
    let mut columns = super::fit::find(&place, &schema, read)?;
    columns.sort_unstable();
    columns.dedup();
    let projected = Arc::new(schema.project(&columns)?);
    messages.columns = columns;
    let batches = std::iter::from_fn(move || messages.next_batch().transpose());
    let batches: Batches = Box::new(batches.fuse());
    ColumnReader::new(&place, "arrow", &projected, read, batches, first)
}

fn unreadable(place: &str, reason: &str) -> Error {
    Error::new(place, format!("is not a readable arrow file: {reason}"))
        .hint(HINT_BROKEN)
        .final_one()
}

/// Goes to the first message.
fn begin(file: &mut Counted) -> std::io::Result<()> {
    let mut mark = [0; MAGIC.len()];
    let is_file = match file.read_exact(&mut mark) {
        Ok(()) => mark == *MAGIC,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
        Err(error) => return Err(error),
    };
    if !is_file {
        return file.seek(SeekFrom::Start(0)).map(|_| ());
    }
    // A truncated file lacks the mark at its end.
    let end = file.length().saturating_sub(MAGIC.len() as u64);
    file.from(end.max(ALIGNMENT)).read_exact(&mut mark)?;
    if mark != *MAGIC {
        return Err(std::io::Error::other("it is truncated: its end is missing"));
    }
    let mut at = ALIGNMENT;
    let mut next = [0; ALIGNMENT as usize];
    while at < PADDED_MAX {
        file.from(at).read_exact(&mut next)?;
        if next != [0; ALIGNMENT as usize] {
            break;
        }
        at += ALIGNMENT;
    }
    file.seek(SeekFrom::Start(at)).map(|_| ())
}

/// The messages of a stream.
struct Messages {
    file: Counted,
    schema: Option<SchemaRef>,
    /// The columns that are read.
    columns: Vec<usize>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// The first row that is new.
    first: u64,
    /// Rows still to skip: they were read before the query was restored.
    known: u64,
}

impl Messages {
    /// The columns, which the first message declares.
    fn schema(&mut self) -> Result<SchemaRef> {
        self.message()?;
        let schema = self.schema.clone();
        schema.ok_or_else(|| broken("it has no schema"))
    }

    /// The next batch with rows that are new.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match self.message()? {
                Message::End if self.known == 0 => return Ok(None),
                Message::End => return Err(self.ends_early()),
                Message::Batch(batch) if self.known == 0 => return Ok(Some(batch)),
                Message::Batch(batch) => {
                    let known = (std::mem::take(&mut self.known) as usize).min(batch.num_rows());
                    return Ok(Some(batch.slice(known, batch.num_rows() - known)));
                }
                Message::Other => {}
            }
        }
    }

    fn ends_early(&self) -> Error {
        let read = self.first - 1;
        let reason = format!(
            "it ends after row {}, but was read up to row {read} before",
            read - self.known
        );
        broken(reason).hint("put the file back as it was, or start over without the checkpoints")
    }

    /// The next message. A batch whose rows were all read before is skipped.
    fn message(&mut self) -> Result<Message> {
        let at = self.file.stream_position().map_err(broken)?;
        self.read_message().map_err(|mut error| {
            error.reason = format!("at byte {at}: {}", error.reason);
            error
        })
    }

    fn read_message(&mut self) -> Result<Message> {
        let Some(head) = self.head()? else {
            return Ok(Message::End);
        };
        let message = root_as_message(&head)
            .map_err(|error| broken(format!("a message can't be read: {error}")))?;
        let at = self.file.stream_position().map_err(broken)?;
        let body = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        if body > self.file.length().saturating_sub(at) {
            return Err(broken("it is truncated within a batch"));
        }
        let rows = message.header_as_record_batch().map(|batch| batch.length());
        let rows = rows.map(|rows| u64::try_from(rows).unwrap_or(0));
        if let Some(rows) = rows.filter(|rows| *rows <= self.known) {
            self.known -= rows;
            self.file.seek(SeekFrom::Start(at + body)).map_err(broken)?;
            return Ok(Message::Other);
        }
        let mut body = MutableBuffer::from_len_zeroed(body as usize);
        self.file.read_exact(&mut body).map_err(broken)?;
        check_packed(&message, &body)?;
        self.decode(&message, &body.into())
    }

    fn decode(&mut self, message: &arrow_ipc::Message<'_>, body: &Buffer) -> Result<Message> {
        if let Some(schema) = message.header_as_schema() {
            if !schema.endianness().equals_to_target_endianness() {
                return Err(broken("its numbers are big-endian"));
            }
            self.schema = Some(Arc::new(fb_to_schema(schema)));
            return Ok(Message::Other);
        }
        let Some(schema) = &self.schema else {
            return Err(broken("it has no schema"));
        };
        let version = message.version();
        if let Some(batch) = message.header_as_dictionary_batch() {
            read_dictionary(body, batch, schema, &mut self.dictionaries, &version)?;
            return Ok(Message::Other);
        }
        let Some(batch) = message.header_as_record_batch() else {
            return Ok(Message::Other);
        };
        let (schema, known) = (Arc::clone(schema), &self.dictionaries);
        let columns = Some(&self.columns[..]);
        let batch = read_record_batch(body, batch, schema, known, columns, &version)?;
        Ok(Message::Batch(batch))
    }

    /// The head of a message, which describes its body.
    fn head(&mut self) -> Result<Option<MutableBuffer>> {
        let mut length = 0;
        for _ in 0..2 {
            let mut bytes = [0; 4];
            match self.file.read(&mut bytes[..1]).map_err(broken)? {
                // A stream may end without a mark.
                0 => return Ok(None),
                _ => self.file.read_exact(&mut bytes[1..]).map_err(broken)?,
            }
            length = u32::from_le_bytes(bytes);
            if length != CONTINUATION {
                break;
            }
        }
        if length == 0 {
            return Ok(None);
        }
        if length > MESSAGE_BYTES_MAX {
            return Err(broken("there is no message of Arrow where one should be"));
        }
        let mut head = MutableBuffer::from_len_zeroed(length as usize);
        self.file.read_exact(&mut head).map_err(broken)?;
        Ok(Some(head))
    }
}

/// The kind of a message.
enum Message {
    Batch(RecordBatch),
    /// A schema, a dictionary, or a batch that was skipped.
    Other,
    End,
}

fn broken(error: impl ToString) -> Error {
    Error::new("", error.to_string())
}

/// Rejects compressed buffers that claim to be longer than any buffer can be.
fn check_packed(message: &arrow_ipc::Message<'_>, body: &[u8]) -> Result<()> {
    let batch = match message.header_type() {
        MessageHeader::DictionaryBatch => {
            let dictionary = message.header_as_dictionary_batch();
            dictionary.and_then(|dictionary| dictionary.data())
        }
        _ => message.header_as_record_batch(),
    };
    let Some(batch) = batch.filter(|batch| batch.compression().is_some()) else {
        return Ok(());
    };
    let codec = batch.compression().map(|compression| compression.codec());
    if codec == Some(CompressionType::LZ4_FRAME) && cfg!(not(feature = "parquet")) {
        return Err(
            broken("it is compressed with LZ4, which this program was built without")
                .hint("build it with: cargo build --release --features parquet"),
        );
    }
    for buffer in batch.buffers().iter().flatten() {
        let start = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
        let prefix = body.get(start..).and_then(|bytes| bytes.first_chunk::<8>());
        let unpacked = prefix.map_or(0, |bytes| i64::from_le_bytes(*bytes));
        if buffer.length() > 0 && unpacked > UNPACKED_BYTES_MAX {
            return Err(broken(format!(
                "a buffer of {unpacked} bytes is compressed in it"
            )));
        }
    }
    Ok(())
}

/// Writes a file or a stream.
pub(crate) struct ArrowWriter {
    written: Written,
    shared: Shared,
    options: ArrowOptions,
    writer: Option<Layout>,
}

enum Layout {
    File(FileWriter<Shared>),
    Stream(StreamWriter<Shared>),
}

impl ArrowWriter {
    pub(crate) fn new(options: ArrowOptions, schema: &SchemaRef) -> ArrowWriter {
        ArrowWriter {
            written: Written::for_arrow(schema),
            shared: Shared::default(),
            options,
            writer: None,
        }
    }

    fn writer(&mut self) -> Result<&mut Layout> {
        if self.writer.is_none() {
            let compression = match self.options.compression {
                ArrowCompression::None => None,
                #[cfg(feature = "parquet")]
                ArrowCompression::Lz4 => Some(CompressionType::LZ4_FRAME),
                ArrowCompression::Zstd => Some(CompressionType::ZSTD),
            };
            let options = IpcWriteOptions::default().try_with_compression(compression)?;
            let (shared, schema) = (self.shared.clone(), &self.written.schema);
            self.writer = Some(match self.options.is_stream {
                true => {
                    Layout::Stream(StreamWriter::try_new_with_options(shared, schema, options)?)
                }
                false => Layout::File(FileWriter::try_new_with_options(shared, schema, options)?),
            });
        }
        Ok(self.writer.as_mut().expect("it was just made"))
    }

    /// Appends the rows.
    pub(crate) fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let batch = self.written.batch(batch)?;
        match self.writer()? {
            Layout::File(writer) => writer.write(&batch)?,
            Layout::Stream(writer) => writer.write(&batch)?,
        }
        self.shared.drain(out);
        Ok(())
    }

    /// Appends the end of a file.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self.writer()? {
            Layout::File(writer) => {
                writer.finish()?;
                writer.flush()?;
            }
            Layout::Stream(writer) => {
                writer.finish()?;
                writer.flush()?;
            }
        }
        self.shared.drain(out);
        self.writer = None;
        Ok(())
    }
}
