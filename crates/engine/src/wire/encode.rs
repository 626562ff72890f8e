//! The writing side of a link.

use arrow_buffer::Buffer;
use arrow_schema::{Schema, SchemaRef};

use super::arrays::Parts;
use super::{
    ALIGNMENT_BYTES, BARRIER_HEADER_BYTES, BASE_BYTES, CHUNK_HEADER_BYTES, FRAME_BYTES_MAX,
    HEADER_BYTES, MOVE_BYTES, VERSION, WATERMARK_BYTES, flags, kind, schema, too_large,
};
use crate::barrier::{Barrier, Purpose};
use crate::chunk::{Chunk, Message, Partitions, Positions};
use crate::error::Result;

/// Buffers of at most this many bytes are copied between their neighbors: that is cheaper than counting a
/// reference and gathering one more piece.
const COPIED_BYTES_MAX: usize = 256;

/// The writing side of one link; it remembers which schema the reader knows.
#[derive(Default)]
pub struct Encoder {
    schema: Option<SchemaRef>,
    /// The number of the last schema frame.
    schema_number: u32,
    parts: Parts,
}

impl Encoder {
    /// An encoder for a link on which nothing has been sent.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Appends the frames of one message to `frames`, in order: at most a schema frame and the message's
    /// own frame. A frame is the bytes of its buffers, one after the other; a control message's frame is
    /// one buffer, of at most 24 bytes except for a barrier.
    ///
    /// Large buffers of a batch are passed on without copying (reference counted), so a frame keeps the
    /// batch's memory until it is dropped.
    ///
    /// # Errors
    ///
    /// For a column of a type that is not supported on links (unions, run-end encodings, list views), and
    /// for a chunk or schema over the limits of [`crate::wire`]. Nothing is appended then, and the
    /// encoder is unchanged.
    pub fn encode(&mut self, message: &Message, frames: &mut Vec<Vec<Buffer>>) -> Result<()> {
        let frame = match message {
            Message::Chunk(chunk) => return self.chunk(chunk, frames),
            Message::Watermark { time, ingest_ns } => {
                let mut bytes = header(kind::WATERMARK, 0, *ingest_ns, WATERMARK_BYTES);
                bytes[HEADER_BYTES..].copy_from_slice(&time.to_le_bytes());
                bytes
            }
            Message::EndOfWork { ingest_ns } => {
                header(kind::END_OF_WORK, 0, *ingest_ns, HEADER_BYTES)
            }
            Message::Idle => header(kind::IDLE, 0, 0, HEADER_BYTES),
            Message::Active => header(kind::ACTIVE, 0, 0, HEADER_BYTES),
            Message::Barrier(barrier) => barrier_frame(barrier),
            Message::EndOfStream { ingest_ns, stopped } => {
                let flags = if *stopped { flags::STOPPED } else { 0 };
                header(kind::END_OF_STREAM, flags, *ingest_ns, HEADER_BYTES)
            }
        };
        frames.push(vec![Buffer::from_vec(frame)]);
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk, frames: &mut Vec<Vec<Buffer>>) -> Result<()> {
        let schema_frame = match &self.schema {
            Some(known) if same_schema(known, chunk.batch.schema_ref()) => None,
            _ => {
                let number = self.schema_number.wrapping_add(1);
                Some((schema::encode(chunk.batch.schema_ref(), number)?, number))
            }
        };
        let number = schema_frame
            .as_ref()
            .map_or(self.schema_number, |(_, number)| *number);
        self.parts.clear();
        let frame = chunk_frame(&mut self.parts, chunk, number);
        // The last references to a batch must belong to the frame, not to an idle encoder.
        self.parts.clear();
        let frame = frame?;
        if let Some((bytes, number)) = schema_frame {
            frames.push(vec![Buffer::from_vec(bytes)]);
            self.schema_number = number;
        }
        // Also for an equal schema at another address: the next chunk's will likely be there too.
        self.schema = Some(chunk.batch.schema());
        frames.push(frame);
        Ok(())
    }
}

fn same_schema(known: &SchemaRef, schema: &SchemaRef) -> bool {
    std::sync::Arc::ptr_eq(known, schema) || Schema::eq(known, schema)
}

/// The header that all frames have, in `length` bytes; the other bytes are zero.
fn header(kind: u8, flags: u8, ingest_ns: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..3].copy_from_slice(&[VERSION, kind, flags]);
    bytes[8..16].copy_from_slice(&ingest_ns.to_le_bytes());
    bytes
}

fn barrier_frame(barrier: &Barrier) -> Vec<u8> {
    match &barrier.purpose {
        Purpose::Publish => header(kind::PUBLISH, 0, barrier.number, HEADER_BYTES),
        Purpose::Move { node, moves } => {
            let length = BARRIER_HEADER_BYTES + MOVE_BYTES * moves.len();
            let mut bytes = Vec::with_capacity(length);
            bytes.extend_from_slice(&[VERSION, kind::BARRIER, 0, 0]);
            bytes.extend_from_slice(&(moves.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&barrier.number.to_le_bytes());
            bytes.extend_from_slice(&(*node as u32).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            debug_assert_eq!(bytes.len(), BARRIER_HEADER_BYTES);
            for step in moves.iter() {
                for number in [step.bucket, step.from, step.to] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
            }
            bytes
        }
        Purpose::Checkpoint {
            since,
            bases,
            stops,
        } => {
            let length = BARRIER_HEADER_BYTES + BASE_BYTES * bases.len();
            let mut bytes = Vec::with_capacity(length);
            let flags = if *stops { flags::STOPPED } else { 0 };
            bytes.extend_from_slice(&[VERSION, kind::CHECKPOINT, flags, 0]);
            bytes.extend_from_slice(&(bases.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&barrier.number.to_le_bytes());
            // Barriers are numbered from 1.
            bytes.extend_from_slice(&since.unwrap_or(0).to_le_bytes());
            debug_assert_eq!(bytes.len(), BARRIER_HEADER_BYTES);
            for base in bases.iter() {
                bytes.extend_from_slice(&base.to_le_bytes());
            }
            bytes
        }
    }
}

fn chunk_frame(parts: &mut Parts, chunk: &Chunk, schema_number: u32) -> Result<Vec<Buffer>> {
    let rows = chunk.rows();
    if chunk.batch.num_columns() == 0 {
        parts.count_empty(rows)?;
    }
    for (field, column) in chunk
        .batch
        .schema_ref()
        .fields()
        .iter()
        .zip(chunk.batch.columns())
    {
        let wrap = |error: crate::error::Error| error.at(&format!("column '{}'", field.name()));
        parts.array(column).map_err(wrap)?;
    }
    let mut flags = 0;
    let (mut partition, mut first) = (0, 0);
    if let Some(origin) = &chunk.origin {
        flags |= flags::ORIGIN;
        match &origin.partitions {
            Partitions::One(of_all) => partition = *of_all,
            Partitions::Each(list) => {
                flags |= flags::PARTITIONS;
                parts.array(list)?;
            }
        }
        match &origin.positions {
            Positions::Run { first: position } => first = *position,
            Positions::List(list) => {
                flags |= flags::POSITIONS;
                parts.array(list)?;
            }
        }
        if let Some(watermarks) = &origin.watermarks {
            flags |= flags::WATERMARKS;
            parts.array(watermarks)?;
        }
    }
    if let Some(kinds) = &chunk.kinds {
        flags |= flags::KINDS;
        parts.array(kinds)?;
    }

    let length = frame_length(parts);
    if length > FRAME_BYTES_MAX as u64 {
        return Err(too_large(format!(
            "of {rows} rows takes {length} bytes, more than {FRAME_BYTES_MAX}"
        )));
    }
    // Rows have a table entry of 32 bits each, or are limited as elements without bytes; and the table is
    // shorter than the frame.
    let mut gathered = Vec::with_capacity(gathered_length(parts));
    gathered.extend_from_slice(&[VERSION, kind::CHUNK, flags, 0]);
    gathered.extend_from_slice(&(rows as u32).to_le_bytes());
    gathered.extend_from_slice(&chunk.ingest_ns.to_le_bytes());
    gathered.extend_from_slice(&(length as u32).to_le_bytes());
    gathered.extend_from_slice(&schema_number.to_le_bytes());
    gathered.extend_from_slice(&(parts.table.len() as u32).to_le_bytes());
    gathered.extend_from_slice(&partition.to_le_bytes());
    gathered.extend_from_slice(&first.to_le_bytes());
    debug_assert_eq!(gathered.len(), CHUNK_HEADER_BYTES);
    gathered.extend_from_slice(&parts.table);
    Ok(gather(gathered, &mut parts.buffers))
}

/// The number of bytes up to the end of the last buffer that has any.
fn frame_length(parts: &Parts) -> u64 {
    let head = (CHUNK_HEADER_BYTES + parts.table.len()) as u64;
    let buffers = parts.buffers.iter().filter(|buffer| !buffer.is_empty());
    buffers.fold(head, |end, buffer| {
        end.next_multiple_of(ALIGNMENT_BYTES as u64) + buffer.len() as u64
    })
}

/// An upper bound of the bytes that [`gather`] copies.
fn gathered_length(parts: &Parts) -> usize {
    let copied = |buffer: &Buffer| match buffer.len() {
        0 => 0,
        length if length <= COPIED_BYTES_MAX => ALIGNMENT_BYTES + length,
        _ => ALIGNMENT_BYTES,
    };
    let copied: usize = parts.buffers.iter().map(copied).sum();
    CHUNK_HEADER_BYTES + parts.table.len() + copied
}

/// Makes the frame: `gathered`, then the buffers, each at a multiple of [`ALIGNMENT_BYTES`].
fn gather(mut gathered: Vec<u8>, buffers: &mut Vec<Buffer>) -> Vec<Buffer> {
    // Large buffers, and where in the gathered bytes each of them goes.
    let mut large = Vec::new();
    let mut large_bytes = 0;
    for buffer in buffers.drain(..).filter(|buffer| !buffer.is_empty()) {
        let end = gathered.len() + large_bytes;
        let padding = end.next_multiple_of(ALIGNMENT_BYTES) - end;
        gathered.resize(gathered.len() + padding, 0);
        if buffer.len() <= COPIED_BYTES_MAX {
            gathered.extend_from_slice(&buffer);
        } else {
            large_bytes += buffer.len();
            large.push((gathered.len(), buffer));
        }
    }
    let gathered = Buffer::from_vec(gathered);
    let mut frame = Vec::with_capacity(2 * large.len() + 1);
    let mut from = 0;
    for (to, buffer) in large {
        if to > from {
            frame.push(gathered.slice_with_length(from, to - from));
            from = to;
        }
        frame.push(buffer);
    }
    if gathered.len() > from {
        frame.push(gathered.slice_with_length(from, gathered.len() - from));
    }
    frame
}
