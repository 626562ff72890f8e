//! Parts: pieces of keyed state as streams of Arrow IPC, one object each.
//!
//! Encoding refuses what decoding would refuse (such as dictionaries and unions), so what was stored can be
//! read. Decoding trusts nothing: [`check`] validates every length, count and offset before `arrow-ipc` reads
//! them, because its reader trusts them, and would panic or allocate.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};
use std::collections::HashMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::location;

mod check;

/// The longest part: it is sent in one request, and its reader holds it in memory. (S3 accepts 5 GiB in a
/// request.) Larger state goes into several parts, by bucket.
pub const PART_BYTES_MAX: u64 = 1 << 30;

/// The folder of parts.
pub const PARTS: &str = "parts";

/// How many characters of a node's key are in a part's name.
const KEY_CHARS_MAX: usize = 40;

/// The name of a part: `parts/<epoch>-<barrier>-<node>-<instance>-<piece>.arrow`. It determines who may
/// remove the part, and no two incarnations share names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartName {
    /// The incarnation that wrote it.
    pub epoch: u64,
    /// The barrier at which it was written.
    pub barrier: u64,
}

impl PartName {
    /// The object's name.
    pub fn object(self, node: &str, instance: u32, piece: u32) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let shown = node.chars().take(KEY_CHARS_MAX).map(plain);
        let shown = shown.collect::<String>();
        let PartName { epoch, barrier } = self;
        // The checksum distinguishes keys that look alike.
        let hash = crc32fast::hash(node.as_bytes());
        format!("{PARTS}/{epoch:020}-{barrier:020}-{shown}-{hash:08x}-{instance}-{piece}.arrow")
    }

    /// Parses an object's name; `None` for other names.
    pub fn parse(object: &str) -> Option<PartName> {
        let name = object.strip_prefix(PARTS)?.strip_prefix('/')?;
        let name = name.strip_suffix(".arrow")?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !name.bytes().all(plain) {
            return None;
        }
        let mut words = name.splitn(3, '-');
        let mut number = || {
            let word = words.next().filter(|word| word.len() == 20)?;
            word.parse().ok()
        };
        let (epoch, barrier) = (number()?, number()?);
        words.next().filter(|rest| !rest.is_empty())?;
        Some(PartName { epoch, barrier })
    }
}

fn invalid(reason: String) -> Error {
    Error::new(Kind::Invalid, "part", reason)
}

fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => Error::new(Kind::Unavailable, "part", error.to_string())
            .hint(location::hint(error.kind())),
        error => invalid(error.to_string()),
    }
}

/// Encodes batches as one stream, one after the other. All have the same columns.
pub struct Encoder<W: Write> {
    schema: SchemaRef,
    writer: StreamWriter<Counted<W>>,
    rows: u64,
}

/// An encoded stream.
pub struct Encoded<W> {
    /// Where it was written to.
    pub to: W,
    /// Its length.
    pub bytes: u64,
    /// The CRC-32 of its bytes.
    pub checksum: u32,
    /// The rows of its batches.
    pub rows: u64,
}

/// Counts what is written, and computes its checksum.
struct Counted<W> {
    to: W,
    bytes: u64,
    checksum: crc32fast::Hasher,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Encoder<W> {
    /// A stream of batches with these columns.
    ///
    /// # Errors
    ///
    /// If there is a column of a type that is not supported, or `to` can't be written.
    pub fn new(schema: SchemaRef, to: W) -> Result<Encoder<W>> {
        for field in schema.fields() {
            check::field(field).map_err(|reason| {
                invalid(format!("column '{}' {reason}", field.name()))
                    .hint("state must use plain arrays")
            })?;
        }
        let counted = Counted {
            to,
            bytes: 0,
            checksum: crc32fast::Hasher::new(),
        };
        Ok(Encoder {
            writer: StreamWriter::try_new(counted, &schema).map_err(failed)?,
            schema,
            rows: 0,
        })
    }

    /// Adds a batch.
    ///
    /// # Errors
    ///
    /// If it has other columns, if the stream becomes longer than [`PART_BYTES_MAX`], or if it can't be
    /// written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.schema_ref().fields() != self.schema.fields() {
            return Err(invalid("its batches have different columns".to_string()));
        }
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(failed)?;
        self.check_length(self.writer.get_ref().bytes)
    }

    fn check_length(&self, bytes: u64) -> Result<()> {
        if bytes <= PART_BYTES_MAX {
            return Ok(());
        }
        let reason = format!("{bytes} bytes, and a part has {PART_BYTES_MAX}");
        Err(invalid(reason).hint("write it in several pieces"))
    }

    /// Ends the stream.
    ///
    /// # Errors
    ///
    /// If it is longer than [`PART_BYTES_MAX`], or can't be written.
    pub fn finish(mut self) -> Result<Encoded<W>> {
        self.writer.finish().map_err(failed)?;
        self.check_length(self.writer.get_ref().bytes)?;
        let rows = self.rows;
        let counted = self.writer.into_inner().map_err(failed)?;
        Ok(Encoded {
            to: counted.to,
            bytes: counted.bytes,
            checksum: counted.checksum.finalize(),
            rows,
        })
    }
}

/// Encodes the batches as one stream in memory.
///
/// # Errors
///
/// As those of [`Encoder`], or if there is no batch.
pub fn encode(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let schema = match batches.first() {
        Some(batch) => batch.schema(),
        None => return Err(invalid("it has no batch".to_string())),
    };
    let mut encoder = Encoder::new(schema, Vec::new())?;
    batches.iter().try_for_each(|batch| encoder.write(batch))?;
    Ok(encoder.finish()?.to)
}

/// Decodes the batches in `bytes`.
///
/// # Errors
///
/// [`Kind::Corrupt`] if they are not what [`encode`] returned. The caller adds the place.
pub fn decode(bytes: impl Into<Buffer>) -> Result<Vec<RecordBatch>> {
    let bytes = bytes.into();
    // No bytes are known that pass the checks and make arrow-ipc panic; this is for unknown ones.
    catch_unwind(AssertUnwindSafe(|| decode_checked(&bytes)))
        .unwrap_or_else(|_| Err("its reader panicked".to_string()))
        .map_err(|reason| Error::corrupt("", reason))
}

/// [`decode`] without the safety net, for tests and fuzzing.
pub(crate) fn decode_checked(bytes: &Buffer) -> std::result::Result<Vec<RecordBatch>, String> {
    let mut at = 0;
    let mut schema = None;
    let mut batches = Vec::new();
    let none = HashMap::new();
    while let Some((metadata, body_at)) = check::frame(bytes, at)? {
        let message = root_as_message(metadata).map_err(|error| error.to_string())?;
        let body = usize::try_from(message.bodyLength())
            .ok()
            .filter(|&length| length <= bytes.len() - body_at)
            .ok_or("a message is longer than the part")?;
        at = body_at + body;
        let body = bytes.slice_with_length(body_at, body);
        match message.header_type() {
            MessageHeader::Schema if schema.is_none() => {
                let found = message.header_as_schema().ok_or("it has no schema")?;
                check::schema(&found)?;
                schema = Some(Arc::new(fb_to_schema(found)));
            }
            MessageHeader::RecordBatch => {
                let schema = schema.as_ref().ok_or("a batch comes before the schema")?;
                let batch = message.header_as_record_batch().ok_or("a batch is empty")?;
                check::batch(&batch, schema, body.len())?;
                let version = message.version();
                let batch =
                    RecordBatchDecoder::try_new(&body, batch, Arc::clone(schema), &none, &version)
                        .and_then(RecordBatchDecoder::read_record_batch)
                        .map_err(|error| error.to_string())?;
                batches.push(batch);
            }
            other => return Err(format!("a message is a {other:?}")),
        }
    }
    if schema.is_none() {
        return Err("it has no schema".to_string());
    }
    Ok(batches)
}

/// Marks a message; versions of Arrow before 0.15 don't have it.
const CONTINUATION: [u8; 4] = [0xff; 4];

#[cfg(test)]
pub(crate) mod tests;
