//! The ends of a link between two instances, of any kind.
//!
//! Inside a process a link hands messages over as they are. Between processes they become frames
//! ([`crate::wire`]) in shared memory or on a socket; the cost to each side is counted there.
//!
//! Invariants:
//! - A message is taken whole or handed back. At most one message's frames wait here for room (a schema's
//!   and its own), so that nothing is queued twice.
//! - A sender is dropped only once it is drained, unless its query failed: then the receiver notices the
//!   failure by the missing frames.

pub mod fan;
pub mod relay;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_buffer::Buffer;
use slackwater_link::{Frame, FrameReceiver, FrameSender, LinkError, Receiver, SendError, Sender};

use crate::chunk::{Chunk, Message};
use crate::counters::LinkCounters;
use crate::error::{Error, Result};
use crate::time::now_ns;
use crate::wire::{Decoder, Encoder};
use fan::Fan;
use relay::Relay;

/// Shorter frames say little about the width of rows: up to a kilobyte of a frame is its header and the table
/// of its buffers.
const FRAME_BYTES_TELLING: usize = 8 << 10;

/// The sending end.
pub enum LinkSender {
    /// A link to an instance of this process.
    Local(Sender<Message>),
    /// A link to an instance of another process.
    Remote(Box<RemoteSender>),
    /// Links to several instances at once, all of which get every message.
    Fan(Box<Fan>),
}

/// The sending end of a link to another process.
pub struct RemoteSender {
    frames: FrameSender<Buffer>,
    encoder: Encoder,
    /// Frames of the last message that found no room.
    waiting: VecDeque<Vec<Buffer>>,
    /// Whether to close the link after these frames.
    is_closing: bool,
    encoded: Vec<Vec<Buffer>>,
    /// The bytes of a row, header and table of the frame included, in the last frame that was long enough
    /// to tell; 0 before the first.
    row_bytes: usize,
    counters: Arc<LinkCounters>,
}

impl LinkSender {
    /// The sending end of a link to another process.
    pub fn remote(frames: FrameSender<Buffer>, counters: Arc<LinkCounters>) -> LinkSender {
        LinkSender::Remote(Box::new(RemoteSender {
            frames,
            encoder: Encoder::new(),
            waiting: VecDeque::new(),
            is_closing: false,
            encoded: Vec::new(),
            row_bytes: 0,
            counters,
        }))
    }

    /// The rows of a message at most, for a chunk that is about to be sent: what fits into the planned bytes,
    /// by the width of the rows before it. `None` if the chunk is sent whole, as it always is inside the
    /// process.
    pub fn rows_max(&self, chunk: &Chunk) -> Option<usize> {
        match self {
            LinkSender::Local(_) | LinkSender::Fan(_) => None,
            LinkSender::Remote(sender) => {
                let bytes = sender.counters.message_bytes()?;
                let row_bytes = match sender.row_bytes {
                    0 => fan::batch_bytes(chunk).div_ceil(chunk.rows().max(1)),
                    known => known,
                };
                let rows = (bytes / row_bytes.max(1)).max(1);
                (rows < chunk.rows()).then_some(rows)
            }
        }
    }

    /// Takes a message, or hands it back when the link is full. Messages to a receiver that is gone are
    /// dropped: its failure is reported separately.
    ///
    /// # Errors
    ///
    /// When the message can't be written as bytes, or the link broke.
    pub fn post(&mut self, message: Message) -> Result<Option<Message>> {
        match self {
            LinkSender::Local(sender) => Ok(match sender.post(message) {
                Ok(()) | Err(SendError::Closed(_)) => None,
                Err(SendError::Full(message)) => Some(message),
            }),
            LinkSender::Remote(sender) => sender.post(message),
            LinkSender::Fan(fan) => fan.post(message),
        }
    }

    /// Wakes the receiver for what was sent since the last call.
    pub fn ring(&mut self, urgent: bool) {
        match self {
            LinkSender::Local(sender) if urgent => sender.ring_urgent(),
            LinkSender::Local(sender) => sender.ring(),
            LinkSender::Remote(sender) => {
                let started = now_ns();
                sender.frames.push(urgent);
                LinkCounters::add(&sender.counters.busy_ns, now_ns() - started);
            }
            LinkSender::Fan(fan) => fan.ring(urgent),
        }
    }

    /// The position in the stream after everything posted so far. A fan has none, since chunks are not
    /// dealt to it.
    pub fn position(&self) -> u64 {
        match self {
            LinkSender::Local(sender) => sender.position() as u64,
            LinkSender::Remote(sender) => sender.frames.position(),
            LinkSender::Fan(_) => 0,
        }
    }

    /// Whether the receiver has taken everything before a [position](LinkSender::position). A receiver
    /// that is gone counts as having taken everything.
    pub fn is_acknowledged(&mut self, position: u64) -> bool {
        match self {
            LinkSender::Local(sender) => {
                sender.is_closed() || sender.is_acknowledged(position as usize)
            }
            LinkSender::Remote(sender) => {
                sender.frames.is_closed() || sender.frames.is_acknowledged(position)
            }
            LinkSender::Fan(_) => true,
        }
    }

    /// As [`LinkSender::is_acknowledged`]. If the receiver has not taken everything, it is woken, and
    /// wakes this side once it has.
    pub fn await_acknowledged(&mut self, position: u64) -> bool {
        match self {
            LinkSender::Local(sender) => {
                sender.is_closed() || sender.await_acknowledged(position as usize)
            }
            LinkSender::Remote(sender) => {
                sender.frames.is_closed() || sender.frames.await_acknowledged(position)
            }
            LinkSender::Fan(_) => true,
        }
    }

    /// Sends what waits for room; returns whether something was sent.
    ///
    /// # Errors
    ///
    /// When the link broke.
    pub fn flush(&mut self) -> Result<bool> {
        match self {
            LinkSender::Local(_) => Ok(false),
            LinkSender::Remote(sender) => sender.flush(),
            LinkSender::Fan(fan) => fan.flush(),
        }
    }

    /// Whether every message that was taken has been sent.
    pub fn is_drained(&self) -> bool {
        match self {
            LinkSender::Local(_) => true,
            LinkSender::Remote(sender) => sender.waiting.is_empty() && sender.frames.is_drained(),
            LinkSender::Fan(fan) => fan.is_drained(),
        }
    }

    /// Closes the link; messages taken before are still delivered.
    pub fn close(&mut self) {
        match self {
            LinkSender::Local(_) => {}
            LinkSender::Remote(sender) => sender.close(),
            LinkSender::Fan(fan) => fan.close(),
        }
    }

    /// When to flush even if nothing wakes the worker.
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            LinkSender::Local(_) => None,
            LinkSender::Remote(sender) => sender.frames.due_ns(),
            LinkSender::Fan(fan) => fan.due_ns(),
        }
    }
}

impl RemoteSender {
    /// The link itself, for a fan, which encodes for several links.
    pub(crate) fn into_parts(self) -> (FrameSender<Buffer>, Arc<LinkCounters>) {
        (self.frames, self.counters)
    }

    fn post(&mut self, message: Message) -> Result<Option<Message>> {
        if !self.waiting.is_empty() && !self.flush_waiting()? {
            return Ok(Some(message));
        }
        let started = now_ns();
        self.encoder.encode(&message, &mut self.encoded)?;
        LinkCounters::add(&self.counters.messages, 1);
        if let (Message::Chunk(chunk), Some(frame)) = (&message, self.encoded.last()) {
            let bytes = frame.iter().map(|piece| piece.len()).sum::<usize>();
            if bytes >= FRAME_BYTES_TELLING || self.row_bytes == 0 {
                self.row_bytes = bytes.div_ceil(chunk.rows().max(1));
            }
            LinkCounters::add(&self.counters.rows, chunk.rows() as u64);
        }
        self.waiting.extend(self.encoded.drain(..));
        self.flush_waiting()?;
        LinkCounters::add(&self.counters.busy_ns, now_ns() - started);
        Ok(None)
    }

    fn close(&mut self) {
        self.is_closing = true;
        if self.waiting.is_empty() {
            self.frames.close();
        }
    }

    fn flush(&mut self) -> Result<bool> {
        if self.waiting.is_empty() && !self.frames.needs_push() {
            return Ok(false);
        }
        let started = now_ns();
        let before = (self.waiting.len(), self.frames.is_drained());
        self.flush_waiting()?;
        self.frames.push(false);
        LinkCounters::add(&self.counters.busy_ns, now_ns() - started);
        Ok(before != (self.waiting.len(), self.frames.is_drained()))
    }

    /// Sends the waiting frames; returns whether none is left.
    fn flush_waiting(&mut self) -> Result<bool> {
        while let Some(frame) = self.waiting.pop_front() {
            let bytes = frame.iter().map(|piece| piece.len() as u64).sum();
            match self.frames.post(frame) {
                Ok(()) => LinkCounters::add(&self.counters.bytes, bytes),
                Err(SendError::Full(frame)) => {
                    self.waiting.push_front(frame);
                    // The reader may be asleep while these frames fill the link.
                    self.frames.push(false);
                    return Ok(false);
                }
                Err(SendError::Closed(_)) => {
                    self.waiting.clear();
                    return match self.frames.error() {
                        Some(error) => Err(broken(error)),
                        None => Ok(true),
                    };
                }
            }
        }
        if self.is_closing {
            self.frames.close();
        }
        Ok(true)
    }
}

/// The receiving end.
pub enum LinkReceiver {
    /// A link from an instance of this process.
    Local(Receiver<Message>),
    /// A link from an instance of another process.
    Remote(Box<RemoteReceiver>),
}

/// The receiving end of a link from another process.
pub struct RemoteReceiver {
    frames: FrameReceiver,
    decoder: Decoder,
    counters: Arc<LinkCounters>,
}

impl LinkReceiver {
    /// The receiving end of a link from another process.
    pub fn remote(frames: FrameReceiver, counters: Arc<LinkCounters>) -> LinkReceiver {
        LinkReceiver::Remote(Box::new(RemoteReceiver {
            frames,
            decoder: Decoder::new(),
            counters,
        }))
    }

    /// The oldest message, or `None` when there is none now.
    ///
    /// # Errors
    ///
    /// When the link broke, or the bytes received are not a valid message.
    pub fn receive(&mut self) -> Result<Option<Message>> {
        match self {
            LinkReceiver::Local(receiver) => Ok(receiver.receive()),
            LinkReceiver::Remote(receiver) => receiver.receive(None),
        }
    }

    /// The oldest message, after `relay` has forwarded it. Call this only when the relay is ready.
    ///
    /// # Errors
    ///
    /// When the link or one of the relay's links broke, or the bytes received are not a valid message.
    pub fn receive_and_relay(&mut self, relay: &mut Relay) -> Result<Option<Message>> {
        match self {
            LinkReceiver::Local(receiver) => {
                let message = receiver.receive();
                if let Some(message) = &message {
                    relay.message(message)?;
                }
                Ok(message)
            }
            LinkReceiver::Remote(receiver) => receiver.receive(Some(relay)),
        }
    }

    /// Settles a receiver that stops before it has received everything: see [`FrameReceiver::settle`].
    pub fn settle(&mut self) {
        match self {
            LinkReceiver::Local(receiver) => receiver.settle(),
            LinkReceiver::Remote(receiver) => receiver.frames.settle(),
        }
    }

    /// Whether the sender is gone and all of its messages have been received.
    pub fn is_closed(&self) -> bool {
        match self {
            LinkReceiver::Local(receiver) => receiver.is_closed(),
            LinkReceiver::Remote(receiver) => receiver.frames.is_closed(),
        }
    }

    /// Makes the receiver copy frames, for instances that keep the rows they get: see
    /// [`FrameReceiver::copy_frames`].
    pub fn copy_frames(&mut self) {
        if let LinkReceiver::Remote(receiver) = self {
            receiver.frames.copy_frames();
        }
    }

    /// When to look at the link even if nothing wakes the worker.
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            LinkReceiver::Local(_) => None,
            LinkReceiver::Remote(receiver) => receiver.frames.due_ns(),
        }
    }
}

impl RemoteReceiver {
    fn receive(&mut self, mut relay: Option<&mut Relay>) -> Result<Option<Message>> {
        let started = now_ns();
        while let Some(frame) = self.frames.receive().map_err(broken)? {
            LinkCounters::add(&self.counters.bytes, frame.len() as u64);
            let frame = as_buffer(frame);
            if let Some(relay) = &mut relay {
                relay.frame(&frame)?;
            }
            if let Some(message) = self.decoder.decode(frame)? {
                if let Some(relay) = relay {
                    relay.decoded(&message);
                }
                LinkCounters::add(&self.counters.messages, 1);
                if let Message::Chunk(chunk) = &message {
                    LinkCounters::add(&self.counters.rows, chunk.rows() as u64);
                }
                LinkCounters::add(&self.counters.busy_ns, now_ns() - started);
                return Ok(Some(message));
            }
            // That was a schema; its chunk may still be on its way.
        }
        Ok(None)
    }
}

/// A buffer over the bytes of a frame, without copying; the last array over them hands the frame back.
fn as_buffer(frame: Frame) -> Buffer {
    let length = frame.len();
    let owner = Arc::new(frame);
    let start = NonNull::from(&owner[..]).cast::<u8>();
    // SAFETY: the bytes stay where they are, and unchanged, as long as the frame, which the buffer
    // now owns (in an `Arc`, so also a short frame that carries its bytes in itself stays put).
    unsafe { Buffer::from_custom_allocation(start, length, owner) }
}

pub(crate) fn broken(error: LinkError) -> Error {
    Error::new(error.peer, error.reason)
        .hint(error.hint)
        .consequence()
}

#[cfg(test)]
mod tests;
