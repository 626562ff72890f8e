//! The wire codec: a [`Message`] as frames, for links that leave the process, and back.
//!
//! ```text
//! Encoder: message → arrays, walked depth first → header, table, buffers → frame
//! Decoder: frame → header → table, checked entry by entry → arrays, validated → message
//! ```
//!
//! `docs/internals/message-format.md` has the bytes. Invariants:
//! - **A schema travels once.** A chunk's frame carries the number of the schema frame before it, so that
//!   a lost schema is an error and not another query's columns.
//! - **Buffers pass by reference.** A frame is a list of buffers whose bytes follow each other. The large
//!   ones are the arrays' own; short ones and paddings are gathered into one allocation.
//! - **Rows that aren't sent cost nothing.** Slices are trimmed; views and dictionaries of which little
//!   is used are compacted.
//! - **No byte is trusted.** Lengths are checked before use. Recursion, the number of fields and elements
//!   that take no bytes have limits, memory is allocated only in proportion to bytes that are there, and
//!   arrays are validated in full. A frame is decoded whole or is an error.
//! - **Columns are slices of the frame.** A frame that starts at a multiple of [`ALIGNMENT_BYTES`] is not
//!   copied, and lives as long as any column of it.
//!
//! Control messages are one buffer, of at most 24 bytes except for barriers, so that a link can carry
//! them in one cache line. Everything is little-endian.

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

// Arrays' buffers are sent as they are in memory.
#[cfg(target_endian = "big")]
compile_error!("frames are little-endian, and so must be the memory that they are cut from");

/// Each buffer starts at a multiple of this from the frame's start: a cache line, and what Arrow
/// recommends.
pub const ALIGNMENT_BYTES: usize = 64;

/// The longest frame, as in the links. Lengths of 32 bits are enough for everything in it.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

/// The deepest nesting of types: a list's items are one deeper than the list. Encoding, decoding and
/// dropping recurse as deep; a level takes well under a kilobyte of stack.
pub const NESTING_MAX: usize = 32;

/// The most fields of a schema, nested ones included. A field takes some 200 bytes of memory besides its
/// name and metadata, so 3 MiB in all.
pub const FIELDS_MAX: usize = 1 << 14;

/// The longest schema frame. An entry of metadata may take 20 times its bytes in memory, so at most
/// 80 MiB.
pub const SCHEMA_BYTES_MAX: usize = 4 << 20;

/// The most elements of one frame that take no bytes: rows of a batch without columns, NULLs of the type
/// NULL, binaries of width 0. Nothing else in the frame limits their number, so it is limited here, to 16
/// times a chunk of a million rows.
pub const EMPTY_ELEMENTS_MAX: usize = 1 << 24;

/// The most bytes that the views of one column may refer to, counted once per view. Views may share
/// bytes, so a frame could otherwise require validating far more bytes than it has.
pub const VIEWED_BYTES_MAX: u64 = 16 * FRAME_BYTES_MAX as u64;

/// The version of the format that this build writes and reads.
const VERSION: u8 = 1;

/// The kinds of frames, in the second byte.
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
    pub const PUBLISH: u8 = 10;
}

/// The flags of a frame, in the third byte.
mod flags {
    /// A chunk has an origin.
    pub const ORIGIN: u8 = 1;
    /// A chunk's origin has its positions as a list.
    pub const POSITIONS: u8 = 2;
    /// A chunk's origin has watermarks.
    pub const WATERMARKS: u8 = 4;
    /// A chunk's rows have kinds.
    pub const KINDS: u8 = 8;
    /// A chunk's origin has its partitions as a list.
    pub const PARTITIONS: u8 = 16;
    /// At the end of the stream and in the barrier of a checkpoint: the query is stopped.
    pub const STOPPED: u8 = 1;
}

/// The length of the header that all frames have; the whole frame for most control messages.
const HEADER_BYTES: usize = 16;

/// The length of a watermark's frame.
const WATERMARK_BYTES: usize = 24;

/// The length of a barrier's header; the moves follow.
const BARRIER_HEADER_BYTES: usize = 24;

/// The length of a bucket's move in a barrier.
const MOVE_BYTES: usize = 6;

/// The length of an instance in the barrier of a checkpoint.
const BASE_BYTES: usize = 4;

/// The length of a chunk's header; the table follows.
const CHUNK_HEADER_BYTES: usize = 40;

// A control message fits in a cache line with the link's own header.
const _: () = assert!(WATERMARK_BYTES <= 48);

/// The error about byte `at` of a frame.
fn error_at(at: usize, reason: impl std::fmt::Display) -> Error {
    Error::new(format!("frame byte {at}"), reason.to_string())
}

/// The error for a chunk that no frame can hold.
fn too_large(reason: impl Into<String>) -> Error {
    Error::new("chunk", reason).hint("send fewer rows per chunk")
}
