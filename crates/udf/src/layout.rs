//! Columns in a shared memory: Arrow's buffers, each at a multiple of 64 bytes.
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | in the memory of results: the row that a function of rows is at, -1 before the first one |
//! | 8–63 | 0 |
//! | from 64 | a node of 64 bytes for each column, before those of its items or fields |
//! | after them | the buffers |
//!
//! A node is eight numbers of 8 bytes: the length, the number of NULLs, and the place and size of three
//! buffers: validity, values or offsets, and bytes of strings. What columns there are both sides know.
//! Functions of columns get and return validity and BOOLEAN as bits, like Arrow; for functions of rows they
//! are bytes, 0 or 1, because Python has nothing to read bits with. Offsets have 4 bytes.

mod read;
mod write;

pub use read::columns;
pub use write::Arguments;

/// Bytes before the first node.
pub const HEADER_BYTES: usize = 64;

/// Bytes of a node.
const NODE_BYTES: usize = 64;

/// Where buffers begin.
const ALIGNMENT: usize = 64;

/// How validity and BOOLEAN are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    /// As bits.
    Bits,
    /// As bytes.
    Bytes,
}

#[cfg(test)]
mod tests;
