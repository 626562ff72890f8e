//! Frames: messages as bytes, for links that leave the process.
//!
//! A writer is given the pieces of a frame (a header and a batch's buffers, say) and gathers them
//! into a shared ring or a socket. A reader gets each frame whole, in one piece that starts at a
//! multiple of [`FRAME_ALIGNMENT`] bytes: lent from the ring where that is possible, else copied.
//!
//! The contract is that of all links (the bullets are in the crate's documentation), and besides:
//!
//! - **Taken is not sent.** [`FrameSender::post`] takes a frame whole or hands it back whole. What
//!   it took may still wait for room; [`FrameSender::push`] moves it on and rings the reader. A
//!   writer sleeps only beside frames that push can't move, and is rung when it can.
//! - **Drop after drained.** A sender that is dropped while it is not
//!   [drained](FrameSender::is_drained) loses what it still holds, and the reader gets an error in
//!   the place of the end.
//! - **Nobody's bytes are trusted.** What arrives is checked before it is used; a peer that breaks
//!   the rules, or dies, closes the link with a [`LinkError`], once, after the frames that were
//!   whole.

use std::fmt;
use std::ops::Deref;

use crate::shm;
use crate::spsc::SendError;
use crate::tcp;

/// Frames start at multiples of this: a cache line, and Arrow's recommended alignment.
pub const FRAME_ALIGNMENT: usize = 64;

/// The longest frame. A chunk has at most 2^20 rows, so this allows 256 bytes a row at that
/// size; it also is what a reader is ready to put together for one message.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

/// Frames of at most this many bytes travel inside one cache line, and are never lent.
pub const INLINE_BYTES_MAX: usize = 48;

/// Why a link broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkError {
    /// Who is at the other end, as the user knows it: `process 2`, `10.0.0.7:4711`.
    pub peer: String,
    /// What happened.
    pub reason: String,
    /// What to do about it; empty where nothing can be said.
    pub mend: String,
}

impl LinkError {
    /// An error of the link to `peer`.
    pub fn new(peer: impl Into<String>, reason: impl Into<String>) -> LinkError {
        LinkError {
            peer: peer.into(),
            reason: reason.into(),
            mend: String::new(),
        }
    }

    /// The same error with what to do about it.
    pub fn mend(mut self, mend: impl Into<String>) -> LinkError {
        self.mend = mend.into();
        self
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.peer, self.reason)?;
        if self.mend.is_empty() {
            return Ok(());
        }
        write!(formatter, "; {}", self.mend)
    }
}

impl std::error::Error for LinkError {}

/// The bytes of one frame, at a multiple of [`FRAME_ALIGNMENT`] unless they are few.
///
/// A lent frame keeps its part of the ring until it is dropped, on whichever thread, so whoever
/// keeps rows for long copies them. The reader lends no more than half of a ring and copies what
/// is beyond: a forgetful owner costs copies, never a standstill.
pub struct Frame(Content);

enum Content {
    Inline(u8, [u8; INLINE_BYTES_MAX]),
    Owned(AlignedBytes),
    Lent(shm::Lease),
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

    pub(crate) fn lent(lease: shm::Lease) -> Frame {
        Frame(Content::Lent(lease))
    }

    /// Whether the bytes still lie in the ring that they came by.
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
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Adds `count` zero bytes and returns them, to be filled.
    pub(crate) fn grow(&mut self, count: usize) -> &mut [u8] {
        let start = self.length;
        self.length += count;
        let lines = self.length.div_ceil(FRAME_ALIGNMENT);
        self.lines.resize(lines, Line([0; FRAME_ALIGNMENT]));
        &mut self.all()[start..start + count]
    }

    /// Drops all bytes behind the first `length`.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.lines.truncate(self.length.div_ceil(FRAME_ALIGNMENT));
    }

    fn all(&mut self) -> &mut [u8] {
        let (pointer, length) = (self.lines.as_mut_ptr(), self.lines.len());
        // SAFETY: lines are arrays of bytes without gaps between them, all initialised.
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

/// The writing end of a link that leaves the process. `P` is a piece of a frame, such as a
/// reference-counted buffer: TCP keeps pieces until they are acknowledged.
pub enum FrameSender<P> {
    /// Shared memory, of one reader or of several.
    Shm(shm::Writer<P>),
    /// A connection to another host.
    Tcp(Box<tcp::Writer<P>>),
}

impl<P: Deref<Target = [u8]>> FrameSender<P> {
    /// Takes a frame, given as pieces in order. The reader is not rung: [`FrameSender::push`]
    /// does it, once behind all that there is to send.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] and [`SendError::Closed`] hand the frame back.
    ///
    /// # Panics
    ///
    /// For a frame of more than [`FRAME_BYTES_MAX`] bytes, or an empty one: the caller checks.
    pub fn post(&mut self, frame: Vec<P>) -> Result<(), SendError<Vec<P>>> {
        match self {
            FrameSender::Shm(writer) => writer.post(frame),
            FrameSender::Tcp(writer) => writer.post(frame),
        }
    }

    /// Moves on what was taken, and rings the reader if there is something new for it. An
    /// `urgent` ring also ends a sleep that ordinary messages don't end.
    pub fn push(&mut self, urgent: bool) {
        match self {
            FrameSender::Shm(writer) => writer.push(urgent),
            FrameSender::Tcp(writer) => writer.push(urgent),
        }
    }

    /// Whether nothing that was taken is still held here.
    pub fn is_drained(&self) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.is_drained(),
            FrameSender::Tcp(writer) => writer.is_drained(),
        }
    }

    /// Whether a push may do something though nothing is held: a broken connection is noticed, and
    /// made again, by whoever pushes. To be asked before a sleep.
    pub fn needs_push(&self) -> bool {
        match self {
            FrameSender::Shm(writer) => !writer.is_drained(),
            FrameSender::Tcp(writer) => !writer.is_closed(),
        }
    }

    /// Whether what is pushed can get to the reader at once: a TCP link is greeted first, and what
    /// was taken meanwhile leaves with a later push.
    pub fn is_connected(&self) -> bool {
        match self {
            FrameSender::Shm(_) => true,
            FrameSender::Tcp(writer) => writer.is_connected(),
        }
    }

    /// Whether the link takes a frame now.
    pub fn has_room(&mut self) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.has_room(),
            FrameSender::Tcp(writer) => writer.has_room(),
        }
    }

    /// The place in the stream behind what was posted so far, for [`FrameSender::is_acknowledged`].
    pub fn position(&self) -> u64 {
        match self {
            FrameSender::Shm(writer) => writer.position(),
            FrameSender::Tcp(writer) => writer.position(),
        }
    }

    /// Whether the reader is done with all before a [position](FrameSender::position): has received it
    /// and, where frames are lent, let go of them.
    pub fn is_acknowledged(&mut self, position: u64) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.is_acknowledged(position),
            FrameSender::Tcp(writer) => writer.is_acknowledged(position),
        }
    }

    /// As [`FrameSender::is_acknowledged`]. If it is not, it is woken, and the writer is rung once it
    /// is, at the latest when the reader [settles](FrameReceiver::settle).
    pub fn await_acknowledged(&mut self, position: u64) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.await_acknowledged(position),
            // Its credit comes through a descriptor, which rings.
            FrameSender::Tcp(writer) => writer.is_acknowledged(position),
        }
    }

    /// Whether the reader is gone.
    pub fn is_closed(&self) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.is_closed(),
            FrameSender::Tcp(writer) => writer.is_closed(),
        }
    }

    /// Why it is closed, if the reader did not leave by itself.
    pub fn error(&self) -> Option<LinkError> {
        match self {
            FrameSender::Shm(writer) => writer.error(),
            FrameSender::Tcp(writer) => writer.error(),
        }
    }

    /// The death of one of several readers of a feed, which goes on for the others. Known at the
    /// next `post` or `push`.
    pub fn lost(&self) -> Option<&LinkError> {
        match self {
            FrameSender::Shm(writer) => writer.lost(),
            FrameSender::Tcp(_) => None,
        }
    }

    /// No frame follows. What was taken is still to be pushed until the link is
    /// [drained](FrameSender::is_drained).
    pub fn close(&mut self) {
        match self {
            FrameSender::Shm(_) => {}
            FrameSender::Tcp(writer) => writer.close(),
        }
    }

    /// When something is to be done that nobody rings for, on the clock of
    /// `CLOCK_MONOTONIC` in nanoseconds: `push` then.
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            FrameSender::Shm(_) => None,
            FrameSender::Tcp(writer) => writer.due_ns(),
        }
    }
}

/// The reading end of a link that leaves the process.
pub enum FrameReceiver {
    /// Shared memory.
    Shm(shm::Reader),
    /// Connections from another host.
    Tcp(Box<tcp::Reader>),
}

impl FrameReceiver {
    /// The oldest frame. `None` means nothing now; whether it means the end,
    /// [`is_closed`](FrameReceiver::is_closed) says.
    ///
    /// # Errors
    ///
    /// Once, after the last whole frame, when the link broke instead of ending.
    pub fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        match self {
            FrameReceiver::Shm(reader) => reader.receive(),
            FrameReceiver::Tcp(reader) => reader.receive(),
        }
    }

    /// For a reader that stops before it has received everything, and may sleep before it goes on
    /// (because its own output is full, to align a barrier, or because it has seen the last
    /// message): sees to it that the writer knows of all that was received. Without it some of that
    /// is kept back for a while, to save fences and packets.
    pub fn settle(&mut self) {
        match self {
            FrameReceiver::Shm(reader) => reader.settle(),
            FrameReceiver::Tcp(reader) => reader.settle(),
        }
    }

    /// When `receive` is to be called though nobody rings, as [`FrameSender::due_ns`].
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            FrameReceiver::Shm(_) => None,
            FrameReceiver::Tcp(reader) => reader.due_ns(),
        }
    }

    /// For a reader that keeps the rows of its frames: every frame is copied out of the ring.
    pub fn copy_frames(&mut self) {
        match self {
            FrameReceiver::Shm(reader) => reader.lend(false),
            // They are all its own.
            FrameReceiver::Tcp(_) => {}
        }
    }

    /// Whether the writer is gone and everything has been received, an error included.
    pub fn is_closed(&self) -> bool {
        match self {
            FrameReceiver::Shm(reader) => reader.is_closed(),
            FrameReceiver::Tcp(reader) => reader.is_closed(),
        }
    }
}
