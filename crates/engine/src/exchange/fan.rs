//! A fan: the sending ends of several links that all get the same messages.
//!
//! ```text
//! message ──┬── as it is ──► links of this process       (Arrow arrays are shared, not copied)
//!           └── encoded once ──► frames ──► links to other processes
//! frame ────────────────────────► frames ──► links to other processes      (of a relay)
//! ```
//!
//! A broadcasting balancer has one fan instead of links, and a [relay](super::relay) forwards through
//! one. One of its links may be a feed of shared memory that several processes read.
//!
//! Invariants:
//! - A message is taken whole, by all links, or handed back. A full link keeps what it was given, at most
//!   one message (a schema's frame and its own), and the fan takes no other message until all links have
//!   sent theirs: the slowest holds all back (I3).
//! - Every link sees the messages in the order in which they were given (I5).
//! - The links to other processes see either what this fan has encoded or what a relay has received,
//!   never both: the numbers of schemas in the frames would disagree.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::Buffer;
use slackwater_link::{FrameSender, SendError, Sender};

use super::{LinkSender, broken};
use crate::chunk::{Chunk, Message};
use crate::counters::LinkCounters;
use crate::error::Result;
use crate::time::now_ns;
use crate::wire::Encoder;

/// The sending ends of several links; see the module documentation.
pub struct Fan {
    /// Links to other processes; they come first because their messages have the longer way to go.
    remote: Vec<Remote>,
    local: Vec<Local>,
    encoder: Encoder,
    encoded: Vec<Vec<Buffer>>,
}

/// A link to another process, or a feed to several.
struct Remote {
    frames: FrameSender<Buffer>,
    /// Frames of the last message that found no room.
    waiting: VecDeque<Vec<Buffer>>,
    /// Whether to close the link after these frames.
    is_closing: bool,
    counters: Arc<LinkCounters>,
}

/// A link inside the process.
struct Local {
    sender: Sender<Message>,
    /// The last message, if the link was full.
    waiting: Option<Message>,
}

impl Fan {
    /// A fan over these links, on none of which anything has been sent.
    pub fn new(senders: Vec<LinkSender>) -> Fan {
        let mut fan = Fan {
            remote: Vec::new(),
            local: Vec::new(),
            encoder: Encoder::new(),
            encoded: Vec::new(),
        };
        for sender in senders {
            match sender {
                LinkSender::Local(sender) => fan.local.push(Local {
                    sender,
                    waiting: None,
                }),
                LinkSender::Remote(sender) => {
                    let (frames, counters) = sender.into_parts();
                    fan.remote.push(Remote {
                        frames,
                        waiting: VecDeque::new(),
                        is_closing: false,
                        counters,
                    });
                }
                LinkSender::Fan(inner) => {
                    fan.remote.extend(inner.remote);
                    fan.local.extend(inner.local);
                }
            }
        }
        fan
    }

    /// Whether some of the links are inside the process.
    pub fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Whether the fan takes a message now; sends what waits first.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn is_ready(&mut self) -> Result<bool> {
        if self.is_blocked() {
            self.move_on()?;
        }
        Ok(!self.is_blocked())
    }

    /// Whether some link still holds a part of the last message.
    pub fn is_blocked(&self) -> bool {
        self.remote.iter().any(|link| !link.waiting.is_empty())
            || self.local.iter().any(|link| link.waiting.is_some())
    }

    /// Takes a message for all links, or hands it back while one of them still has the last one.
    ///
    /// # Errors
    ///
    /// When the message can't be written as bytes, or a link broke.
    pub fn post(&mut self, message: Message) -> Result<Option<Message>> {
        if !self.is_ready()? {
            return Ok(Some(message));
        }
        if !self.remote.is_empty() {
            let mut frames = std::mem::take(&mut self.encoded);
            let started = now_ns();
            self.encoder.encode(&message, &mut frames)?;
            // The time counts for the first link, as if the others had no part in it.
            let counters = &self.remote[0].counters;
            LinkCounters::add(&counters.busy_ns, now_ns() - started);
            let passed = self.pass_frames(frames.drain(..));
            self.encoded = frames;
            passed?;
            self.count_message();
        }
        self.hand_local(message);
        Ok(None)
    }

    /// Gives the frames of a message to the links to other processes.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub(crate) fn pass_frames(&mut self, frames: impl Iterator<Item = Vec<Buffer>>) -> Result<()> {
        let Some((last, others)) = self.remote.split_last_mut() else {
            return Ok(());
        };
        for frame in frames {
            for link in &mut *others {
                link.waiting.push_back(frame.clone());
            }
            last.waiting.push_back(frame);
        }
        self.remote.iter_mut().try_for_each(Remote::move_on)
    }

    /// Counts a message on the links to other processes.
    pub(crate) fn count_message(&self) {
        for link in &self.remote {
            LinkCounters::add(&link.counters.messages, 1);
        }
    }

    /// Gives a message to the links inside the process.
    pub(crate) fn hand_local(&mut self, message: Message) {
        let Some((last, others)) = self.local.split_last_mut() else {
            return;
        };
        for link in others {
            link.post(message.clone());
        }
        last.post(message);
    }

    /// Sends what waits for room; returns whether something was sent.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn flush(&mut self) -> Result<bool> {
        let mut moved = self.is_blocked() && self.move_on()?;
        for link in &mut self.remote {
            if !link.waiting.is_empty() || link.frames.needs_push() {
                let started = now_ns();
                let before = link.frames.is_drained();
                link.frames.push(false);
                moved |= before != link.frames.is_drained();
                LinkCounters::add(&link.counters.busy_ns, now_ns() - started);
            }
        }
        Ok(moved)
    }

    /// Wakes the receivers of what was given since the last call.
    pub fn ring(&mut self, urgent: bool) {
        for link in &mut self.remote {
            let started = now_ns();
            link.frames.push(urgent);
            LinkCounters::add(&link.counters.busy_ns, now_ns() - started);
        }
        for link in &mut self.local {
            link.ring(urgent);
        }
    }

    /// Whether every message that was taken has been sent.
    pub fn is_drained(&self) -> bool {
        !self.is_blocked() && self.remote.iter().all(|link| link.frames.is_drained())
    }

    /// Closes the links; messages taken before are still delivered.
    pub fn close(&mut self) {
        for link in &mut self.remote {
            link.is_closing = true;
            if link.waiting.is_empty() {
                link.frames.close();
            }
        }
    }

    /// When to flush even if nothing wakes the worker.
    pub fn due_ns(&self) -> Option<u64> {
        let due = self.remote.iter().filter_map(|link| link.frames.due_ns());
        due.min()
    }

    /// Sends what waits for room; returns whether something was sent.
    fn move_on(&mut self) -> Result<bool> {
        let waiting = |fan: &Fan| {
            let frames = fan.remote.iter().map(|link| link.waiting.len());
            let messages = fan.local.iter().filter(|link| link.waiting.is_some());
            frames.sum::<usize>() + messages.count()
        };
        let before = waiting(self);
        for link in &mut self.remote {
            if !link.waiting.is_empty() {
                link.move_on()?;
                link.frames.push(false);
            }
        }
        for link in &mut self.local {
            if let Some(message) = link.waiting.take() {
                let urgent = message.is_urgent();
                link.post(message);
                // The fan's owner woke the receiver before the message had reached it.
                link.ring(urgent);
            }
        }
        Ok(waiting(self) < before)
    }
}

impl Remote {
    /// Sends the frames that wait for this link.
    fn move_on(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let started = now_ns();
        while let Some(frame) = self.waiting.pop_front() {
            let bytes = frame.iter().map(|piece| piece.len() as u64).sum();
            match self.frames.post(frame) {
                Ok(()) => LinkCounters::add(&self.counters.bytes, bytes),
                Err(SendError::Full(frame)) => {
                    self.waiting.push_front(frame);
                    // The reader may be asleep while these frames fill the link.
                    self.frames.push(false);
                    break;
                }
                Err(SendError::Closed(_)) => {
                    self.waiting.clear();
                    if let Some(error) = self.frames.error() {
                        return Err(broken(error));
                    }
                }
            }
        }
        if self.is_closing && self.waiting.is_empty() {
            self.frames.close();
        }
        LinkCounters::add(&self.counters.busy_ns, now_ns() - started);
        match self.frames.lost() {
            Some(error) => Err(broken(error.clone())),
            None => Ok(()),
        }
    }
}

impl Local {
    /// Posts a message. Messages to a receiver that is gone are dropped: its failure is reported
    /// separately.
    fn post(&mut self, message: Message) {
        debug_assert!(self.waiting.is_none(), "one message at a time");
        self.waiting = match self.sender.post(message) {
            Ok(()) | Err(SendError::Closed(_)) => None,
            Err(SendError::Full(message)) => Some(message),
        };
    }

    fn ring(&mut self, urgent: bool) {
        if urgent {
            self.sender.ring_urgent();
        } else {
            self.sender.ring();
        }
    }
}

/// Cuts a chunk into parts of about `bytes` bytes, at least a row each; no row is copied.
pub(crate) fn segments(chunk: Chunk, bytes: usize) -> impl Iterator<Item = Chunk> {
    let parts = batch_bytes(&chunk).div_ceil(bytes.max(1)).max(1);
    let rows = chunk.rows().div_ceil(parts);
    chunk.parts(rows)
}

/// The bytes of a chunk's columns in memory; columns whose size is unknown count as empty.
pub(crate) fn batch_bytes(chunk: &Chunk) -> usize {
    let columns = chunk.batch.columns().iter();
    let sizes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    sizes.sum()
}

#[cfg(test)]
mod tests;
