//! Frames: messages as bytes, for links that leave the process.
//!
//! A writer is given the pieces of a frame (a header and a batch's buffers, say) and gathers them
//! into a shared ring or a socket. A reader gets each frame whole, in one piece that starts at a
//! multiple of [`FRAME_ALIGNMENT`] bytes: lent from the ring where that is possible, else copied.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::lane::Lease;

/// Frames start at multiples of this: a cache line, and Arrow's recommended alignment.
pub const FRAME_ALIGNMENT: usize = 64;

/// The longest frame. A chunk has at most 2^20 rows, so this allows 256 bytes a row at that size; a
/// reader also assembles at most this much for one message.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

/// Frames of at most this many bytes travel inside one cache line, and are never lent.
pub const INLINE_BYTES_MAX: usize = 48;

/// The bytes of one frame, starting at a multiple of [`FRAME_ALIGNMENT`] unless the frame is short.
///
/// A lent frame occupies its part of the ring until it is dropped, on whichever thread, so owners that
/// keep rows for long copy them. The reader lends at most half of a ring and copies frames beyond that:
/// an owner that forgets to drop frames costs copies, but never blocks the link.
pub struct Frame(Content);

enum Content {
    Inline(u8, [u8; INLINE_BYTES_MAX]),
    Owned(AlignedBytes),
    /// A part of bytes that several frames share.
    Part {
        bytes: Arc<AlignedBytes>,
        start: usize,
        length: usize,
    },
    Lent(Lease),
}

impl Frame {
    /// A short frame.
    ///
    /// # Panics
    ///
    /// For more than [`INLINE_BYTES_MAX`] bytes.
    pub(crate) fn inline(bytes: &[u8]) -> Frame {
        let mut content = [0; INLINE_BYTES_MAX];
        content[..bytes.len()].copy_from_slice(bytes);
        Frame(Content::Inline(bytes.len() as u8, content))
    }

    pub(crate) fn owned(bytes: AlignedBytes) -> Frame {
        Frame(Content::Owned(bytes))
    }

    /// A frame that keeps all of `bytes` as long as it lives.
    pub(crate) fn part(bytes: Arc<AlignedBytes>, start: usize, length: usize) -> Frame {
        debug_assert!(start.is_multiple_of(FRAME_ALIGNMENT) && start + length <= bytes.len());
        Frame(Content::Part {
            bytes,
            start,
            length,
        })
    }

    pub(crate) fn lent(lease: Lease) -> Frame {
        Frame(Content::Lent(lease))
    }

    /// Whether the bytes are still in the ring that they arrived in.
    pub fn is_lent(&self) -> bool {
        matches!(self.0, Content::Lent(_))
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Content::Owned(bytes) => bytes,
            Content::Part {
                bytes,
                start,
                length,
            } => &bytes[*start..*start + *length],
            Content::Lent(lease) => lease.bytes(),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Frame({} bytes, lent: {})",
            self.len(),
            self.is_lent()
        )
    }
}

/// Bytes that start at a multiple of [`FRAME_ALIGNMENT`], filled from the front.
#[derive(Default)]
pub(crate) struct AlignedBytes {
    lines: Vec<Line>,
    length: usize,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(
    /// Read and written through the pointers of `all` and `deref`.
    #[allow(dead_code)]
    [u8; FRAME_ALIGNMENT],
);

impl AlignedBytes {
    /// Room for `capacity` bytes, none of them filled.
    pub(crate) fn with_capacity(capacity: usize) -> AlignedBytes {
        AlignedBytes {
            lines: Vec::with_capacity(capacity.div_ceil(FRAME_ALIGNMENT)),
            length: 0,
        }
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let start = self.length;
        let lines = (start + bytes.len()).div_ceil(FRAME_ALIGNMENT);
        let before = self.lines.len();
        if lines > before {
            self.lines.reserve(lines - before);
        }
        let pointer = self.lines.as_mut_ptr();
        // SAFETY: there is room for all lines. `bytes` is not part of them, since they are borrowed mutably.
        // The new lines up to the last one are overwritten by `bytes`, whose end lies in the last one, and
        // the last one is initialized before; so all lines are initialized when the length is set.
        unsafe {
            if lines > before {
                pointer.add(lines - 1).write(Line([0; FRAME_ALIGNMENT]));
            }
            let place = pointer.cast::<u8>().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            self.lines.set_len(lines);
        }
        self.length += bytes.len();
    }

    /// Adds zeros up to the next multiple of [`FRAME_ALIGNMENT`].
    pub(crate) fn pad(&mut self) {
        // The rest of the last line is there, and zero: nothing was written beyond the length.
        self.length = self.lines.len() * FRAME_ALIGNMENT;
    }

    /// Adds `count` zero bytes and returns them, to be filled.
    pub(crate) fn grow(&mut self, count: usize) -> &mut [u8] {
        let start = self.length;
        self.length += count;
        let lines = self.length.div_ceil(FRAME_ALIGNMENT);
        self.lines.resize(lines, Line([0; FRAME_ALIGNMENT]));
        &mut self.all()[start..start + count]
    }

    /// Drops all bytes after the first `length`.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.lines.truncate(self.length.div_ceil(FRAME_ALIGNMENT));
    }

    fn all(&mut self) -> &mut [u8] {
        let (pointer, length) = (self.lines.as_mut_ptr(), self.lines.len());
        // SAFETY: lines are arrays of bytes without gaps between them, all initialized.
        unsafe { std::slice::from_raw_parts_mut(pointer.cast(), length * FRAME_ALIGNMENT) }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `all`; `length` is at most the bytes of the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }
}
