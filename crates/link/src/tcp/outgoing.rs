//! The frames that a writer still holds: those that are not acknowledged, and how far they are written.
//!
//! The bytes on the wire follow from the frames alone: headers are made again whenever a write has to
//! continue in their middle, so a position (frame, offset, bytes of the record) is all the state of a
//! partial write.
//!
//! Invariants:
//! - A frame stays, with its pieces, until the reader has received it whole.
//! - A record is begun only when the credit covers all of it.
//! - `frames[..frame]` are written, `frames[frame]` is being written, the rest are not.
//! - A short frame is copied into a block when it is taken, with its header, so that many of them are one
//!   slice of a write, and its pieces are dropped at once instead of when the reader has it.

mod batch;
mod packed;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Deref;

use batch::{Batch, Part, SLICES_MAX};
use packed::{PACKED_BYTES_MAX, Packed, Place};

use crate::tcp::record::{Fragment, HEADER_BYTES, Record};
use crate::tcp::socket::Moved;
use crate::tcp::wire::Wire;
use crate::tcp::{RECORD_COST, fragment_bytes_max};

/// Why a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Everything is written.
    Done,
    /// The socket takes no more now.
    WouldBlock,
    /// The next record needs more credit.
    NoCredit,
}

struct Held<P> {
    content: Content<P>,
    length: usize,
}

enum Content<P> {
    Pieces(Vec<P>),
    /// The frame's only record, in a block.
    Packed(Place),
}

impl<P> Held<P> {
    fn cost(&self) -> usize {
        self.length + RECORD_COST
    }
}

pub(super) struct Outgoing<P> {
    /// The frames that are not acknowledged, the oldest first.
    frames: VecDeque<Held<P>>,
    /// The number of the first of them.
    first: u64,
    /// The cost of the frames.
    held: usize,
    /// The number after the last frame of which a byte was written, on any connection.
    begun: u64,
    /// The position of the next byte.
    cursor: Cursor,
    /// The cost of the records completely written on this connection.
    sent: u64,
    /// The cost of the records that may be written on this connection.
    limit: u64,
    window: usize,
    fragment_max: usize,
    packed: Packed,
    stage: Vec<u8>,
}

/// A position in the stream of bytes.
#[derive(Clone, Copy, Default)]
struct Cursor {
    /// Index of the frame.
    frame: usize,
    /// Bytes of the frame in records before this one.
    offset: usize,
    /// Bytes of this record, header included.
    within: usize,
}

impl<P> Outgoing<P> {
    pub(super) fn new(window: usize) -> Outgoing<P> {
        Outgoing {
            frames: VecDeque::new(),
            first: 0,
            held: 0,
            begun: 0,
            cursor: Cursor::default(),
            sent: 0,
            limit: 0,
            window,
            fragment_max: fragment_bytes_max(window),
            packed: Packed::default(),
            stage: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The cost of the frames that are held here.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// The number of the oldest frame that is held here.
    pub(super) fn oldest(&self) -> u64 {
        self.first
    }

    /// The number of the frame after the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// The number of the first frame of which no byte was ever written.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn is_all_written(&self) -> bool {
        self.cursor.frame == self.frames.len()
    }

    /// Whether another record may be written now: this one is complete.
    pub(super) fn is_between_records(&self) -> bool {
        self.cursor.within == 0
    }

    /// Whether something was written on this connection that is not acknowledged.
    pub(super) fn awaits(&self) -> bool {
        self.cursor.frame > 0 || self.cursor.offset > 0 || self.cursor.within > 0
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        let end = self.end();
        self.frames.clear();
        self.packed = Packed::default();
        self.first = end;
        self.held = 0;
        self.cursor = Cursor::default();
    }

    /// Starts a connection whose reader resumes at `position` and has the whole window free.
    ///
    /// # Errors
    ///
    /// For a frame that no longer exists, or was never sent: what is wrong, as the end of a sentence
    /// about the peer.
    pub(super) fn resume(&mut self, position: u64, window: usize) -> Result<(), String> {
        if position < self.first || position > self.begun {
            return Err(format!(
                "wants to resume at frame {position}, but this writer has frames {} to {}",
                self.first, self.begun
            ));
        }
        self.let_go((position - self.first) as usize);
        self.cursor = Cursor::default();
        self.sent = 0;
        self.limit = window as u64;
        self.window = window;
        self.fragment_max = fragment_bytes_max(window);
        Ok(())
    }

    /// Takes a credit. Returns whether frames were acknowledged.
    ///
    /// # Errors
    ///
    /// For an impossible credit: what is wrong, as the end of a sentence about the peer.
    pub(super) fn credit(&mut self, frames: u64, cost: u32) -> Result<bool, String> {
        let written = self.first + self.cursor.frame as u64;
        if frames < self.first || frames > written {
            return Err(format!(
                "acknowledged {frames} frames, which is not between {} and {written}",
                self.first
            ));
        }
        let limit = self.limit + u64::from(cost);
        if limit > self.sent + self.window as u64 {
            return Err(format!(
                "returned {cost} bytes of credit that it had not used"
            ));
        }
        self.limit = limit;
        let count = (frames - self.first) as usize;
        self.let_go(count);
        // At most the cursor's frame: `frames` is not beyond what is written.
        self.cursor.frame -= count;
        Ok(count > 0)
    }

    fn let_go(&mut self, count: usize) {
        for frame in self.frames.drain(..count) {
            self.held -= frame.cost();
            if let Content::Packed(place) = frame.content {
                self.packed.let_go(place);
            }
        }
        self.first += count as u64;
    }
}

impl<P: Deref<Target = [u8]>> Outgoing<P> {
    pub(super) fn add(&mut self, pieces: Vec<P>, length: usize) {
        let content = match length <= PACKED_BYTES_MAX {
            true => {
                let header = Record::Data(Fragment {
                    number: self.end(),
                    length: length as u32,
                    first: true,
                    last: true,
                });
                Content::Packed(self.packed.add(&header.encode(), &pieces, length))
            }
            false => Content::Pieces(pieces),
        };
        let frame = Held { content, length };
        self.held += frame.cost();
        self.frames.push_back(frame);
    }

    /// Writes until nothing is left, the socket is full or the credit is used up. Also returns how many
    /// bytes were written.
    pub(super) fn write(&mut self, wire: &mut Wire) -> io::Result<(usize, Stop)> {
        let mut total = 0;
        // Bounded: every round writes at least one byte, and the credit is at most a window.
        loop {
            let (batch, stop) = self.gather();
            if batch.count == 0 {
                return Ok((total, stop));
            }
            match self.send(wire, &batch)? {
                Moved::Bytes(count) => {
                    self.advance(count);
                    total += count;
                    // If everything was written, the rest is known without another look; a short write
                    // makes another round, so that the kernel will signal an edge.
                    if count == batch.bytes && stop == Stop::Done && self.is_all_written() {
                        return Ok((total, Stop::Done));
                    }
                }
                Moved::WouldBlock | Moved::End => return Ok((total, Stop::WouldBlock)),
            }
        }
    }

    fn send(&self, wire: &mut Wire, batch: &Batch) -> io::Result<Moved> {
        let parts = &batch.parts[..batch.count];
        if let [part] = parts {
            return wire.send(self.bytes(part));
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(self.bytes(part));
        }
        wire.send_gathered(&slices[..parts.len()])
    }

    fn bytes(&self, part: &Part) -> &[u8] {
        match *part {
            Part::Stage { start, end } => &self.stage[start..end],
            Part::Block { block, start, end } => &self.packed.block(block)[start..end],
            Part::Piece {
                frame,
                piece,
                start,
                end,
            } => match &self.frames[frame].content {
                Content::Pieces(pieces) => &pieces[piece][start..end],
                Content::Packed(_) => unreachable!("a packed frame has no pieces"),
            },
        }
    }

    /// Collects what one write can take, from the cursor on, and says why it ended there: `Done` when the
    /// end or the batch's own limits were reached.
    fn gather(&mut self) -> (Batch, Stop) {
        let mut batch = Batch::new();
        self.stage.clear();
        let Cursor {
            mut frame,
            mut offset,
            mut within,
        } = self.cursor;
        let mut sent = self.sent;
        while let Some(held) = self.frames.get(frame) {
            let length = (held.length - offset).min(self.fragment_max);
            let cost = (length + RECORD_COST) as u64;
            if within == 0 && sent + cost > self.limit {
                return (batch, Stop::NoCredit);
            }
            if let Content::Packed(place) = &held.content {
                if !batch.add_packed(place, within, length) {
                    return (batch, Stop::Done);
                }
                sent += cost;
                within = 0;
                frame += 1;
                continue;
            }
            let last = offset + length == held.length;
            if within < HEADER_BYTES {
                let header = Record::Data(Fragment {
                    number: self.first + frame as u64,
                    // A fragment is at most a quarter of a window, which fits 30 bits.
                    length: length as u32,
                    first: offset == 0,
                    last,
                })
                .encode();
                if !batch.copy(&mut self.stage, &header[within..]) {
                    return (batch, Stop::Done);
                }
                within = HEADER_BYTES;
            }
            let start = offset + within - HEADER_BYTES;
            let whole = batch.add_payload(&mut self.stage, frame, held, start, offset + length);
            if !whole {
                return (batch, Stop::Done);
            }
            sent += cost;
            within = 0;
            offset += length;
            if last {
                frame += 1;
                offset = 0;
            }
        }
        (batch, Stop::Done)
    }

    /// Moves the cursor over `count` written bytes.
    fn advance(&mut self, mut count: usize) {
        let cursor = &mut self.cursor;
        while count > 0 {
            let frame = &self.frames[cursor.frame];
            let length = (frame.length - cursor.offset).min(self.fragment_max);
            let left = HEADER_BYTES + length - cursor.within;
            self.begun = self.begun.max(self.first + cursor.frame as u64 + 1);
            if count < left {
                cursor.within += count;
                return;
            }
            count -= left;
            self.sent += (length + RECORD_COST) as u64;
            cursor.within = 0;
            cursor.offset += length;
            if cursor.offset == frame.length {
                cursor.frame += 1;
                cursor.offset = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
