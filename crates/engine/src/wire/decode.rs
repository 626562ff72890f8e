//! The reading side of a link.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int8Array, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array,
    make_array,
};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, SchemaRef};

use super::columns::Columns;
use super::cursor::Cursor;
use super::{
    BARRIER_HEADER_BYTES, BASE_BYTES, CHUNK_HEADER_BYTES, FRAME_BYTES_MAX, HEADER_BYTES,
    MOVE_BYTES, SCHEMA_BYTES_MAX, VERSION, WATERMARK_BYTES, error_at, flags, kind, schema,
};
use crate::barrier::{BASES_MAX, Barrier, BucketMove, MOVES_MAX, Purpose};
use crate::chunk::{Chunk, Message, Origin, Partitions, Positions, RowKind};
use crate::error::{Error, Result};
use crate::hash::BUCKETS;

/// The reading side of one link; it remembers the last schema.
#[derive(Default)]
pub struct Decoder {
    schema: Option<(u32, SchemaRef)>,
    copies: u64,
}

/// The header that all frames have, and the rest of the frame.
struct Header<'a> {
    kind: u8,
    flags: u8,
    /// The number of a chunk's rows, of a schema, of a barrier's moves or of a checkpoint's bases; else
    /// 0.
    count: u32,
    rest: Cursor<'a>,
}

impl Decoder {
    /// A decoder for a link on which nothing has been received.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Decodes one whole frame; `Ok(None)` for a schema frame. Columns are slices of `frame`; if it
    /// starts at a multiple of [`super::ALIGNMENT_BYTES`], nothing is copied.
    ///
    /// # Errors
    ///
    /// For a frame that [`super::Encoder::encode`] does not write, with the offset of the fault. The
    /// decoder is unchanged then, but a link with a lost frame is not worth reading further.
    pub fn decode(&mut self, frame: Buffer) -> Result<Option<Message>> {
        if frame.len() > FRAME_BYTES_MAX {
            let reason = format!(
                "a frame of {} bytes, more than {FRAME_BYTES_MAX}",
                frame.len()
            );
            return Err(error_at(0, reason));
        }
        let mut header = Header::read(&frame)?;
        let message = match header.kind {
            kind::SCHEMA => {
                header.expect_flags(0)?;
                let length = frame_length(&mut header.rest, &frame)?;
                if length > SCHEMA_BYTES_MAX {
                    let reason =
                        format!("a schema of {length} bytes, more than {SCHEMA_BYTES_MAX}");
                    return Err(error_at(8, reason));
                }
                zero(&mut header.rest, 4)?;
                self.schema = Some((header.count, Arc::new(schema::decode(&frame)?)));
                return Ok(None);
            }
            kind::CHUNK => Message::Chunk(self.chunk(header, &frame)?),
            kind::WATERMARK => {
                let ingest_ns = header.control(0, WATERMARK_BYTES, &frame)?;
                let time = header.rest.u64("watermark")? as i64;
                Message::Watermark { time, ingest_ns }
            }
            kind::END_OF_WORK => Message::EndOfWork {
                ingest_ns: header.control(0, HEADER_BYTES, &frame)?,
            },
            kind::IDLE => match header.control(0, HEADER_BYTES, &frame)? {
                0 => Message::Idle,
                _ => return Err(error_at(8, "an idle link has no ingest time")),
            },
            kind::ACTIVE => match header.control(0, HEADER_BYTES, &frame)? {
                0 => Message::Active,
                _ => return Err(error_at(8, "the end of a silence has no ingest time")),
            },
            kind::END_OF_STREAM => Message::EndOfStream {
                ingest_ns: header.control(flags::STOPPED, HEADER_BYTES, &frame)?,
                stopped: header.flags & flags::STOPPED != 0,
            },
            kind::BARRIER => Message::Barrier(barrier(header, &frame)?),
            kind::PUBLISH => Message::Barrier(Barrier {
                number: header.control(0, HEADER_BYTES, &frame)?,
                purpose: Purpose::Publish,
            }),
            kind::CHECKPOINT => Message::Barrier(checkpoint(header, &frame)?),
            other => return Err(error_at(1, format!("{other} is not a kind of frame"))),
        };
        Ok(Some(message))
    }

    /// The number of buffers that had to be copied because they were not aligned for their elements.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    fn chunk(&mut self, mut header: Header, frame: &Buffer) -> Result<Chunk> {
        const ORIGINS: u8 = flags::PARTITIONS | flags::POSITIONS | flags::WATERMARKS;
        header.expect_flags(flags::ORIGIN | ORIGINS | flags::KINDS)?;
        let has = |flag: u8| header.flags & flag != 0;
        if has(ORIGINS) && !has(flags::ORIGIN) {
            return Err(error_at(
                2,
                "rows have partitions, positions or watermarks, but no origin",
            ));
        }
        let rows = header.count as usize;
        let rest = &mut header.rest;
        let ingest_ns = rest.u64("ingest time")?;
        frame_length(rest, frame)?;
        let schema_number = rest.u32("number of the schema")?;
        let table = rest.length("length of the table")?;
        let partition = rest.u32("partition")?;
        let first = rest.u64("first position")?;
        let has_one = has(flags::ORIGIN) && !has(flags::PARTITIONS);
        if !has_one && partition != 0 || !has_run(header.flags) && first != 0 {
            return Err(error_at(28, "an origin that the flags don't declare"));
        }
        if first.checked_add(rows as u64).is_none() {
            return Err(error_at(32, format!("positions overflow from {first}")));
        }
        rest.bytes(table, "table")?;

        let schema = match &self.schema {
            Some((number, schema)) if *number == schema_number => Arc::clone(schema),
            Some((number, _)) => {
                let reason = format!("rows of schema {schema_number}, after schema {number}");
                return Err(error_at(20, reason));
            }
            None => return Err(error_at(20, "rows before any schema")),
        };
        let mut columns = Columns::new(frame, CHUNK_HEADER_BYTES, rest.position());
        let chunk = Rows {
            rows,
            flags: header.flags,
            partition,
            first,
        }
        .read(&mut columns, schema, ingest_ns)?;
        columns.finish()?;
        self.copies += columns.copies;
        Ok(chunk)
    }
}

/// What a chunk's header says about its rows.
struct Rows {
    rows: usize,
    flags: u8,
    partition: u32,
    first: u64,
}

impl Rows {
    fn read(&self, columns: &mut Columns, schema: SchemaRef, ingest_ns: u64) -> Result<Chunk> {
        if schema.fields().is_empty() {
            columns.count_empty(self.rows)?;
        }
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for field in schema.fields() {
            let array = columns.array(field.data_type(), Some(self.rows));
            let array = array.map_err(|error| error.at(&format!("column '{}'", field.name())))?;
            arrays.push(make_array(array));
        }
        let mut origin = None;
        if self.has(flags::ORIGIN) {
            let partitions = if self.has(flags::PARTITIONS) {
                let list = self.plain(columns, &DataType::UInt32, "partitions")?;
                Partitions::Each(UInt32Array::from(list))
            } else {
                Partitions::One(self.partition)
            };
            let positions = if has_run(self.flags) {
                Positions::Run { first: self.first }
            } else {
                Positions::List(UInt64Array::from(self.plain(
                    columns,
                    &DataType::UInt64,
                    "positions",
                )?))
            };
            let watermarks = if self.has(flags::WATERMARKS) {
                let watermarks = self.plain(columns, &DataType::Int64, "watermarks")?;
                Some(Int64Array::from(watermarks))
            } else {
                None
            };
            origin = Some(Origin {
                partitions,
                positions,
                watermarks,
            });
        }
        let mut kinds = None;
        if self.has(flags::KINDS) {
            let at = columns.position();
            let array = Int8Array::from(self.plain(columns, &DataType::Int8, "kinds")?);
            let known = RowKind::Insert as i8..=RowKind::UpdateBefore as i8;
            if let Some(kind) = array.values().iter().find(|kind| !known.contains(kind)) {
                return Err(error_at(at, format!("{kind} is not a kind of row")).at("kinds"));
            }
            kinds = Some(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| error_at(CHUNK_HEADER_BYTES, error))?;
        Ok(Chunk {
            batch,
            ingest_ns,
            origin,
            kinds,
            key_hashes: None,
        })
    }

    /// One number per row, without NULLs.
    fn plain(&self, columns: &mut Columns, data_type: &DataType, what: &str) -> Result<ArrayData> {
        let wrap = |error: Error| error.at(what);
        let at = columns.position();
        let array = columns.array(data_type, Some(self.rows)).map_err(wrap)?;
        if array.null_count() > 0 {
            let reason = format!("{} of them are NULL", array.null_count());
            return Err(wrap(error_at(at, reason)));
        }
        Ok(array)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Whether the chunk's positions are a run.
fn has_run(flags: u8) -> bool {
    flags & flags::ORIGIN != 0 && flags & flags::POSITIONS == 0
}

impl<'a> Header<'a> {
    /// Reads the first 8 bytes; the meaning of the rest depends on the kind.
    fn read(frame: &'a [u8]) -> Result<Header<'a>> {
        let mut rest = Cursor::new(frame, 0, frame.len());
        let version = rest.u8("version")?;
        if version != VERSION {
            let reason = format!("format {version}, but this build reads format {VERSION}");
            return Err(error_at(0, reason).hint("run the same version at both ends"));
        }
        let kind = rest.u8("kind")?;
        let flags = rest.u8("flags")?;
        zero(&mut rest, 1)?;
        let count = rest.u32("count")?;
        Ok(Header {
            kind,
            flags,
            count,
            rest,
        })
    }

    fn expect_flags(&self, known: u8) -> Result<()> {
        if self.flags & !known != 0 {
            let unknown = self.flags & !known;
            return Err(error_at(
                2,
                format!("flags {unknown:#04x} have no meaning here"),
            ));
        }
        Ok(())
    }

    /// Checks the header of a control message and returns its ingest time.
    fn control(&mut self, known: u8, length: usize, frame: &[u8]) -> Result<u64> {
        self.expect_flags(known)?;
        if self.count != 0 {
            return Err(error_at(4, "a control message has no rows"));
        }
        if frame.len() != length {
            let reason = format!("{} bytes of a frame of {length}", frame.len());
            return Err(error_at(0, reason));
        }
        self.rest.u64("ingest time")
    }
}

fn barrier(mut header: Header, frame: &[u8]) -> Result<Barrier> {
    header.expect_flags(0)?;
    let count = header.count as usize;
    if count > MOVES_MAX {
        let reason = format!("{count} moves of buckets, more than {MOVES_MAX}");
        return Err(error_at(4, reason));
    }
    let length = BARRIER_HEADER_BYTES + count * MOVE_BYTES;
    if frame.len() != length {
        let reason = format!("{} bytes of a frame of {length}", frame.len());
        return Err(error_at(0, reason));
    }
    let rest = &mut header.rest;
    let number = rest.u64("number of the barrier")?;
    let node = rest.length("node")?;
    zero(rest, 4)?;
    let mut moves = Vec::with_capacity(count);
    for _ in 0..count {
        let at = rest.position();
        let step = BucketMove {
            bucket: rest.u16("bucket")?,
            from: rest.u16("instance")?,
            to: rest.u16("instance")?,
        };
        if usize::from(step.bucket) >= BUCKETS {
            let reason = format!("bucket {}, but there are {BUCKETS}", step.bucket);
            return Err(error_at(at, reason));
        }
        moves.push(step);
    }
    let moves = moves.into();
    Ok(Barrier {
        number,
        purpose: Purpose::Move { node, moves },
    })
}

fn checkpoint(mut header: Header, frame: &[u8]) -> Result<Barrier> {
    header.expect_flags(flags::STOPPED)?;
    let count = header.count as usize;
    if count > BASES_MAX {
        let reason = format!("{count} instances of a checkpoint, more than {BASES_MAX}");
        return Err(error_at(4, reason));
    }
    let length = BARRIER_HEADER_BYTES + count * BASE_BYTES;
    if frame.len() != length {
        let reason = format!("{} bytes of a frame of {length}", frame.len());
        return Err(error_at(0, reason));
    }
    let rest = &mut header.rest;
    let number = rest.u64("number of the barrier")?;
    let since = rest.u64("barrier before")?;
    let bases = (0..count).map(|_| rest.u32("instance"));
    let bases = bases.collect::<Result<Arc<[u32]>>>()?;
    Ok(Barrier {
        number,
        purpose: Purpose::Checkpoint {
            since: (since != 0).then_some(since),
            bases,
            stops: header.flags & flags::STOPPED != 0,
        },
    })
}

/// Reads the frame's length, and checks it.
fn frame_length(rest: &mut Cursor, frame: &[u8]) -> Result<usize> {
    let at = rest.position();
    let length = rest.length("length of the frame")?;
    if length != frame.len() {
        let reason = format!("{} bytes of a frame of {length}", frame.len());
        return Err(error_at(at, reason));
    }
    Ok(length)
}

/// Checks that unused bytes are zero, so that a later format can give them a meaning.
fn zero(rest: &mut Cursor, length: usize) -> Result<()> {
    let at = rest.position();
    let bytes = rest.bytes(length, "unused bytes")?;
    if bytes.iter().any(|byte| *byte != 0) {
        return Err(error_at(at, "unused bytes that are not zero"));
    }
    Ok(())
}
