//! The kinds of links that leave the process, each behind the same two ends.
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

use std::ops::Deref;

use crate::error::{LinkError, SendError};
use crate::frame::Frame;
use crate::shm;
use crate::tcp;

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
