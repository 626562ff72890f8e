//! The kinds of links that leave the process, each with the same two ends.
//!
//! The contract is that of all links (the bullets are in the crate's documentation). In addition:
//!
//! - **Taken is not sent.** [`FrameSender::post`] takes a frame whole or hands it back whole. What it
//!   took may still wait for room; [`FrameSender::push`] sends it and wakes the reader. A writer sleeps
//!   only if push can't send its frames, and is woken when it can.
//! - **Drop after drained.** A sender that is dropped while it is not [drained](FrameSender::is_drained)
//!   loses the frames that it still holds, and the reader gets an error instead of the end.
//! - **No peer is trusted.** What arrives is checked before it is used; a peer that breaks the rules, or
//!   dies, closes the link with a [`LinkError`], once, after the frames that were whole.

use std::ops::Deref;

use crate::error::{LinkError, SendError};
use crate::frame::Frame;
use crate::shm;
use crate::tcp;

/// The writing end of a link that leaves the process. `P` is a piece of a frame, such as a
/// reference-counted buffer: TCP keeps pieces until they are acknowledged.
pub enum FrameSender<P> {
    /// Shared memory, with one reader or several.
    Shm(shm::Writer<P>),
    /// A connection to another host.
    Tcp(Box<tcp::Writer<P>>),
}

impl<P: Deref<Target = [u8]>> FrameSender<P> {
    /// Takes a frame, given as pieces in order. This doesn't wake the reader: [`FrameSender::push`] does
    /// so, once after everything that there is to send.
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

    /// Sends what was taken, and wakes the reader if there is something new for it. With `urgent` it also
    /// ends a sleep that ordinary messages don't end.
    pub fn push(&mut self, urgent: bool) {
        match self {
            FrameSender::Shm(writer) => writer.push(urgent),
            FrameSender::Tcp(writer) => writer.push(urgent),
        }
    }

    /// Whether every frame that was taken has been sent.
    pub fn is_drained(&self) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.is_drained(),
            FrameSender::Tcp(writer) => writer.is_drained(),
        }
    }

    /// Whether a push may do something although no frame waits: a push also notices a broken connection,
    /// and reconnects. Check this before sleeping.
    pub fn needs_push(&self) -> bool {
        match self {
            FrameSender::Shm(writer) => !writer.is_drained(),
            FrameSender::Tcp(writer) => !writer.is_closed(),
        }
    }

    /// Whether pushed frames can reach the reader at once: a TCP link has a greeting first, and frames
    /// taken meanwhile are sent by a later push.
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

    /// The position in the stream after everything posted so far, for [`FrameSender::is_acknowledged`].
    pub fn position(&self) -> u64 {
        match self {
            FrameSender::Shm(writer) => writer.position(),
            FrameSender::Tcp(writer) => writer.position(),
        }
    }

    /// Whether the reader is done with everything before a [position](FrameSender::position): it has
    /// received it and, if frames are lent, dropped them.
    pub fn is_acknowledged(&mut self, position: u64) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.is_acknowledged(position),
            FrameSender::Tcp(writer) => writer.is_acknowledged(position),
        }
    }

    /// Like [`FrameSender::is_acknowledged`]. If the answer is no, the reader is woken, and wakes the
    /// writer once it is done, at the latest when it [settles](FrameReceiver::settle).
    pub fn await_acknowledged(&mut self, position: u64) -> bool {
        match self {
            FrameSender::Shm(writer) => writer.await_acknowledged(position),
            // The credit comes through a descriptor, which wakes the writer.
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

    /// Why the link is closed, unless the reader left normally.
    pub fn error(&self) -> Option<LinkError> {
        match self {
            FrameSender::Shm(writer) => writer.error(),
            FrameSender::Tcp(writer) => writer.error(),
        }
    }

    /// The death of one of several readers of a feed, which continues for the others. Known at the next
    /// `post` or `push`.
    pub fn lost(&self) -> Option<&LinkError> {
        match self {
            FrameSender::Shm(writer) => writer.lost(),
            FrameSender::Tcp(_) => None,
        }
    }

    /// Closes the link: no frame follows. Frames taken before must still be pushed until the link is
    /// [drained](FrameSender::is_drained).
    pub fn close(&mut self) {
        match self {
            FrameSender::Shm(_) => {}
            FrameSender::Tcp(writer) => writer.close(),
        }
    }

    /// When to call `push` even if nothing wakes the worker, on the clock of `CLOCK_MONOTONIC` in
    /// nanoseconds.
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
    /// A TCP connection from another host.
    Tcp(Box<tcp::Reader>),
}

impl FrameReceiver {
    /// The oldest frame. `None` means that there is none now; [`is_closed`](FrameReceiver::is_closed)
    /// says whether it means the end.
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

    /// Tells the writer about everything that was received. Call this if the reader stops before it has
    /// received everything, and may sleep before it continues (because its own output is full, to align a
    /// barrier, or because it has seen the last message). Without it some of that is kept back for a
    /// while, to save fences and packets.
    pub fn settle(&mut self) {
        match self {
            FrameReceiver::Shm(reader) => reader.settle(),
            FrameReceiver::Tcp(reader) => reader.settle(),
        }
    }

    /// When to call `receive` even if nothing wakes the worker, as [`FrameSender::due_ns`].
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            FrameReceiver::Shm(_) => None,
            FrameReceiver::Tcp(reader) => reader.due_ns(),
        }
    }

    /// Copies every frame out of the ring, for a reader that keeps the rows of its frames.
    pub fn copy_frames(&mut self) {
        match self {
            FrameReceiver::Shm(reader) => reader.lend(false),
            FrameReceiver::Tcp(reader) => reader.copy_frames(),
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
