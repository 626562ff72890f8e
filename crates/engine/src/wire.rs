//! The wire codec: a [`Message`] as frames, for links that leave the process, and back.
//!
//! ```text
//! Encoder: message → arrays, walked depth first → header, table, buffers → frame
//! Decoder: frame → header → table, checked entry by entry → arrays, validated → message
//! ```
//!
//! `docs/internals/message-format.md` has the bytes. What holds:
//! - **A schema travels once.** A chunk's frame carries the number of the schema frame before it,
//!   so a schema that got lost is an error and not another query's columns.
//! - **Buffers pass by reference.** A frame is a list of buffers whose bytes follow each other. The
//!   large ones are the arrays' own; short ones and paddings are gathered into one allocation.
//! - **Rows that aren't sent cost nothing.** Slices are trimmed, views and dictionaries of which
//!   little is used are compacted.
//! - **No byte is trusted.** Lengths are checked before use, recursion, number of fields and
//!   elements that take no bytes are bounded below, memory is taken only in proportion to bytes
//!   that are there, and arrays are validated in full. A frame is decoded whole or is an error.
//! - **Columns are slices of the frame.** A frame that starts at a multiple of [`ALIGNMENT_BYTES`]
//!   is not copied, and lives as long as any column of it.
//!
//! Control messages are one buffer, of at most 24 bytes but for barriers, so that a link can carry them
//! in one cache line. Everything is little-endian.

mod arrays;
mod check;
mod columns;
mod cursor;
mod decode;
mod encode;
mod schema;
mod views;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use check::fuzz_decode;
pub use decode::Decoder;
pub use encode::Encoder;

use crate::error::Error;

// Arrays' buffers are passed on as they lie in memory.
#[cfg(target_endian = "big")]
compile_error!("frames are little-endian, and so must be the memory that they are cut from");

/// Each buffer starts at a multiple of this from the frame's start: a cache line, and what Arrow
/// recommends.
pub const ALIGNMENT_BYTES: usize = 64;

/// The longest frame, as the links have it. Lengths of 32 bits are enough for all that is in it.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

/// How deep types may be nested: a list's items are one deeper than the list. Encoding, decoding
/// and dropping recurse as deep; a level takes well under a kilobyte of stack.
pub const NESTING_MAX: usize = 32;

/// Fields of a schema, nested ones included. A field takes some 200 bytes of memory beside its name
/// and metadata, so 3 MiB in all.
pub const FIELDS_MAX: usize = 1 << 14;

/// The longest schema frame. An entry of metadata may take 20 times its bytes in memory, so at most
/// 80 MiB.
pub const SCHEMA_BYTES_MAX: usize = 4 << 20;

/// Elements of one frame that take no bytes: rows of a batch without columns, NULLs of the type
/// NULL, binaries of width 0. Nothing else in the frame stands for their number, so it is bounded
/// here; 16 times a chunk of a million rows.
pub const EMPTY_ELEMENTS_MAX: usize = 1 << 24;

/// Bytes that the views of one column may refer to, counted once per view. Views may share bytes, so
/// a frame could otherwise ask for the validation of far more bytes than it has.
pub const VIEWED_BYTES_MAX: u64 = 16 * FRAME_BYTES_MAX as u64;

/// The format that this build writes and reads.
const VERSION: u8 = 1;

/// What a frame is: its second byte.
mod kind {
    pub const SCHEMA: u8 = 1;
    pub const CHUNK: u8 = 2;
    pub const WATERMARK: u8 = 3;
    pub const END_OF_WORK: u8 = 4;
    pub const IDLE: u8 = 5;
    pub const END_OF_STREAM: u8 = 6;
    pub const BARRIER: u8 = 7;
    pub const CHECKPOINT: u8 = 8;
    pub const ACTIVE: u8 = 9;
}

/// A frame's third byte.
mod flags {
    /// Chunk: it has an origin.
    pub const ORIGIN: u8 = 1;
    /// Chunk: the origin's positions are a list.
    pub const POSITIONS: u8 = 2;
    /// Chunk: the origin has watermarks.
    pub const WATERMARKS: u8 = 4;
    /// Chunk: rows have kinds.
    pub const KINDS: u8 = 8;
    /// Chunk: the origin's partitions are a list.
    pub const PARTITIONS: u8 = 16;
    /// End of stream, and the barrier of a checkpoint: the query is stopped.
    pub const STOPPED: u8 = 1;
}

/// Bytes of the header that all frames have; the whole frame for most control messages.
const HEADER_BYTES: usize = 16;

/// A watermark's frame.
const WATERMARK_BYTES: usize = 24;

/// A barrier's header; the moves follow.
const BARRIER_HEADER_BYTES: usize = 24;

/// A move of a bucket in a barrier.
const MOVE_BYTES: usize = 6;

/// An instance that the barrier of a checkpoint names.
const BASE_BYTES: usize = 4;

/// A chunk's header; the table follows.
const CHUNK_HEADER_BYTES: usize = 40;

// A control message fits a cache line beside the link's own header.
const _: () = assert!(WATERMARK_BYTES <= 48);

/// The error about byte `at` of a frame.
fn error_at(at: usize, reason: impl std::fmt::Display) -> Error {
    Error::new(format!("frame byte {at}"), reason.to_string())
}

/// The error of a chunk that no frame can hold.
fn too_large(reason: impl Into<String>) -> Error {
    Error::new("chunk", reason).hint("send fewer rows per chunk")
}
