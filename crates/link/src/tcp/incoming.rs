//! One open connection of a reader: frames in, credits out.
//!
//! Records are cut from one bounded buffer, which one read fills with as many as have come. The payload
//! of a frame that is longer than what the buffer holds is read straight into its place.
//!
//! Invariants:
//! - Short frames that came by one read share memory, unless their owner keeps them (and so the others).
//! - Memory is the buffer and one frame, which grows with bytes that came, never by more than a quarter
//!   of the window because of a length that the peer claims.
//! - Credit goes back when a quarter of the window was taken out, when a frame of several records is
//!   whole, when the writer asks, and when the owner settles. So a writer that waits never waits for
//!   credit that is kept here, and a busy link sends four small packets a window.
//! - At most one credit waits for the socket: later credit is added to the next, so a peer that never
//!   reads costs nothing.

mod short;

use std::io::{self, IoSliceMut};

use crate::frame::{AlignedBytes, FRAME_BYTES_MAX, Frame, INLINE_BYTES_MAX};
use crate::tcp::line::Broken;
use crate::tcp::mailbox::Arrival;
use crate::tcp::ready::Ready;
use crate::tcp::record::{Fragment, HEADER_BYTES, Record};
use crate::tcp::socket::Moved;
use crate::tcp::wire::Wire;
use crate::tcp::{RECORD_COST, fragment_bytes_max};
use short::Shared;

/// The read buffer: 64 KiB are some 800 records of 64 bytes in one read, and fit the second-level
/// cache of a core.
const BUFFER_BYTES: usize = 64 << 10;

/// How much of a long frame is read at once, at least and at most. The memory is zeroed first, so the
/// step follows the size of the last read; the kernel seldom has more than 256 KiB for one read.
const STEP_BYTES_MIN: usize = 16 << 10;
const STEP_BYTES_MAX: usize = 256 << 10;

/// The most heartbeats without a frame's record between them. A writer asks once for what it sent last,
/// so two can follow each other; a peer that only ever asks would keep the reader's worker busy.
const HEARTBEATS_MAX: u32 = 4;

/// What a writer may send without credit: a heartbeat and its end.
const UNCHARGED_BYTES: u64 = 2 * HEADER_BYTES as u64;

/// What comes next on the connection.
pub(super) enum Next {
    Frame(Frame),
    /// Nothing now: the kernel signals an edge when there is more.
    Nothing,
    End,
    /// The writer left before its end.
    Gone,
}

pub(super) struct Incoming {
    wire: Wire,
    ready: Ready,
    pub(super) writer: u64,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The record whose payload is being read, and how much of it is missing.
    record: Option<(Fragment, usize)>,
    /// The frame that is being assembled.
    frame: Option<Assembly>,
    /// The number of the next frame on this connection: earlier than the one that the reader waits for,
    /// if frames came by the previous connection while this one was made.
    number: u64,
    /// Heartbeats since the last record of a frame.
    heartbeats: u32,
    step: usize,
    window: usize,
    /// The cost of the records cut so far, on this connection.
    taken: u64,
    /// What the writer may have sent: the window plus the credit returned.
    granted: u64,
    /// Credit taken, and not returned.
    owed: u64,
    /// Whether a credit must be sent as soon as the socket takes one.
    must_answer: bool,
    /// The credit that waits for the socket, and how much of it is sent.
    answer: Option<([u8; HEADER_BYTES], usize)>,
    /// Whether bytes came since [`Incoming::took_bytes`] was called.
    took_bytes: bool,
    /// Whether frames may share memory.
    pub(super) shares: bool,
    /// The memory of the frames that follow in the buffer.
    shared: Option<Shared>,
}

struct Assembly {
    /// Whether the reader had the frame from an earlier connection.
    is_old: bool,
    /// The payload of its records so far, including the one in progress.
    length: usize,
    bytes: AlignedBytes,
}

impl Incoming {
    pub(super) fn new(arrival: Arrival, ready: Ready, shares: bool) -> Incoming {
        Incoming {
            wire: arrival.wire,
            ready,
            writer: arrival.writer,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            record: None,
            frame: None,
            number: arrival.position,
            heartbeats: 0,
            step: STEP_BYTES_MIN,
            window: arrival.window,
            taken: 0,
            granted: arrival.window as u64,
            owed: 0,
            must_answer: false,
            answer: None,
            took_bytes: false,
            shares,
            shared: None,
        }
    }

    /// Whether a record or a frame is half received.
    pub(super) fn is_halfway(&self) -> bool {
        self.frame.is_some() || self.record.is_some() || self.start < self.end
    }

    /// When to call [`Incoming::next`] even if nothing happens.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.wire.due_ns()
    }

    /// Whether bytes came since the last call.
    pub(super) fn took_bytes(&mut self) -> bool {
        std::mem::take(&mut self.took_bytes)
    }

    /// The next frame, if it is the one after the first `received`. Reads until there is one, or the
    /// socket has nothing more.
    ///
    /// # Errors
    ///
    /// When the connection is broken. Frames that were whole have been returned before.
    pub(super) fn next(&mut self, received: u64) -> Result<Next, Broken> {
        self.ready.look();
        if self.wire.turn() {
            self.ready.ask();
        }
        if self.answer.is_some() || self.must_answer {
            self.return_credit(received)?;
        }
        // Each round takes bytes from the buffer or the socket, or returns; and what may come without a
        // frame in it is limited by the credit, except for heartbeats, which a correct writer sends once
        // until they are answered.
        loop {
            if let Some((fragment, missing)) = self.record {
                if !self.read_payload(fragment, missing)? {
                    return Ok(self.nothing());
                }
                if let Some(frame) = self.finish_record(fragment, received)? {
                    return Ok(Next::Frame(frame));
                }
                continue;
            }
            if self.end - self.start < HEADER_BYTES {
                if !self.fill()? {
                    return Ok(self.nothing());
                }
                continue;
            }
            let mut header = [0; HEADER_BYTES];
            header.copy_from_slice(&self.buffer[self.start..self.start + HEADER_BYTES]);
            self.start += HEADER_BYTES;
            match Record::decode(header).map_err(Broken::Breach)? {
                Record::Data(fragment) => {
                    if let Some(frame) = self.begin_record(fragment, received)? {
                        return Ok(Next::Frame(frame));
                    }
                }
                Record::Heartbeat => {
                    self.heartbeats += 1;
                    if self.heartbeats > HEARTBEATS_MAX {
                        return Err(Broken::Breach("sent only heartbeats".to_owned()));
                    }
                    self.must_answer = true;
                    self.return_credit(received)?;
                }
                Record::End { frames } if frames == received && self.frame.is_none() => {
                    self.acknowledge_end(received);
                    return Ok(Next::End);
                }
                Record::End { frames } => {
                    return Err(Broken::Breach(format!(
                        "ended after {frames} frames, but only {received} have arrived"
                    )));
                }
                Record::Gone => return Ok(Next::Gone),
                Record::Credit { .. } | Record::EndTaken { .. } => {
                    let reason = "sent a record that only readers send".to_owned();
                    return Err(Broken::Breach(reason));
                }
            }
        }
    }

    /// Nothing has come. Acknowledgements of frames may have: they make room without an edge of their own.
    fn nothing(&mut self) -> Next {
        if self.answer.is_some() && self.wire.has_room() {
            self.flush();
        }
        Next::Nothing
    }

    /// Returns all credit that is kept here.
    pub(super) fn settle(&mut self, received: u64) -> Result<(), Broken> {
        if self.owed > 0 {
            self.must_answer = true;
            self.return_credit(received)?;
        }
        Ok(())
    }

    /// Tells the writer that its reader leaves.
    pub(super) fn leave(&mut self) {
        self.wire.fall_back();
        if self.answer.is_none() {
            // If the socket is full or broken, the writer comes back and finds no reader.
            let _ = self.wire.send(&Record::Gone.encode());
        }
        self.wire.finish();
    }

    /// Checks a record's header. A frame that is whole in the buffer is returned at once.
    fn begin_record(&mut self, fragment: Fragment, received: u64) -> Result<Option<Frame>, Broken> {
        let length = fragment.length as usize;
        let fragment_max = fragment_bytes_max(self.window);
        if length > fragment_max {
            return Err(Broken::Breach(format!(
                "sent a record of {length} bytes, but at most {fragment_max} are allowed"
            )));
        }
        if fragment.number != self.number || fragment.first != self.frame.is_none() {
            let place = if fragment.first {
                "the beginning"
            } else {
                "a part"
            };
            let reason = format!(
                "sent {place} of frame {}, but frame {} comes next",
                fragment.number, self.number
            );
            return Err(Broken::Breach(reason));
        }
        let before = self.frame.as_ref().map_or(0, |frame| frame.length);
        if before + length > FRAME_BYTES_MAX {
            return Err(Broken::Breach(format!(
                "sent a frame of more than {FRAME_BYTES_MAX} bytes"
            )));
        }
        self.heartbeats = 0;
        let is_old = fragment.number < received;
        let is_here = self.end - self.start >= length;
        if is_here && self.frame.is_none() && fragment.last && !is_old {
            let frame = self.whole_frame(length);
            self.start += length;
            self.number += 1;
            self.charge(length, false, received + 1)?;
            return Ok(Some(frame));
        }
        let capacity = if is_old { 0 } else { length };
        let frame = self.frame.get_or_insert_with(|| Assembly {
            is_old,
            length: 0,
            bytes: AlignedBytes::with_capacity(capacity),
        });
        frame.length += length;
        self.record = Some((fragment, length));
        Ok(None)
    }

    /// Reads the rest of a record's payload. Returns whether it is whole.
    fn read_payload(&mut self, fragment: Fragment, mut missing: usize) -> Result<bool, Broken> {
        while missing > 0 {
            let here = missing.min(self.end - self.start);
            let whole = &self.buffer[self.start..self.start + here];
            // There is an assembly while there is a record.
            let Some(frame) = &mut self.frame else {
                return Ok(true);
            };
            if !frame.is_old {
                frame.bytes.extend(whole);
            }
            self.start += here;
            missing -= here;
            self.record = Some((fragment, missing));
            if missing == 0 {
                break;
            }
            if frame.is_old {
                if !self.fill()? {
                    return Ok(false);
                }
                continue;
            }
            if !self.ready.is_readable() {
                return Ok(false);
            }
            // The buffer is empty: the rest is read into its place, and what follows it into the buffer.
            let step = missing.min(self.step);
            let length = frame.bytes.len();
            let moved = self.wire.receive_into(&mut [
                IoSliceMut::new(frame.bytes.grow(step)),
                IoSliceMut::new(&mut self.buffer),
            ]);
            let has_more = self.wire.has_more();
            self.ready
                .has_read(&moved, step + self.buffer.len(), has_more);
            let count = match moved {
                Ok(Moved::Bytes(count)) => count,
                _ => 0,
            };
            let placed = count.min(step);
            frame.bytes.truncate(length + placed);
            if !self.took(moved)? {
                return Ok(false);
            }
            self.step = (count * 2).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
            (self.start, self.end) = (0, count - placed);
            missing -= placed;
            self.record = Some((fragment, missing));
        }
        Ok(true)
    }

    /// Counts a record whose payload is whole. Returns the frame that it completes.
    fn finish_record(&mut self, part: Fragment, received: u64) -> Result<Option<Frame>, Broken> {
        self.record = None;
        let length = part.length as usize;
        let Some(frame) = self.frame.take_if(|_| part.last) else {
            self.charge(length, false, received)?;
            return Ok(None);
        };
        self.number += 1;
        if frame.is_old {
            self.charge(length, false, received)?;
            return Ok(None);
        }
        let is_long = frame.bytes.len() > length;
        self.charge(length, is_long, received + 1)?;
        Ok(Some(if frame.bytes.len() <= INLINE_BYTES_MAX {
            Frame::inline(&frame.bytes)
        } else {
            Frame::owned(frame.bytes)
        }))
    }

    /// Counts a record, and returns credit when it is time.
    fn charge(&mut self, length: usize, must_answer: bool, received: u64) -> Result<(), Broken> {
        let cost = (length + RECORD_COST) as u64;
        self.taken += cost;
        self.owed += cost;
        self.must_answer |= must_answer || self.owed >= self.window as u64 / 4;
        self.check_window(0)?;
        if self.must_answer {
            self.return_credit(received)?;
        }
        Ok(())
    }

    /// Whether the peer kept to its window, with `here` bytes beyond the records that were taken.
    fn check_window(&self, here: u64) -> Result<(), Broken> {
        let allowed = self.granted + UNCHARGED_BYTES;
        if self.taken + here <= allowed {
            return Ok(());
        }
        let (excess, window) = (self.taken + here - allowed, self.window);
        Err(Broken::Breach(format!(
            "exceeded its window of {window} bytes by {excess}"
        )))
    }

    fn return_credit(&mut self, received: u64) -> Result<(), Broken> {
        self.flush();
        if !self.must_answer || self.answer.is_some() {
            return Ok(());
        }
        // Everything that has come, cut or not, costs at least its bytes.
        let here = (self.end - self.start) as u64 + self.wire.unread_bytes();
        self.check_window(here)?;
        let cost = u32::try_from(self.owed).unwrap_or(u32::MAX);
        let frames = received;
        self.answer = Some((Record::Credit { frames, cost }.encode(), 0));
        self.granted += u64::from(cost);
        self.owed -= u64::from(cost);
        self.must_answer = false;
        self.flush();
        Ok(())
    }

    fn acknowledge_end(&mut self, received: u64) {
        self.wire.fall_back();
        self.flush();
        if self.answer.is_none() {
            let record = Record::EndTaken { frames: received };
            self.answer = Some((record.encode(), 0));
            // If this can't be sent, the writer comes back and the acceptor tells it.
            self.flush();
        }
        self.wire.finish();
    }

    /// Sends what it can. A broken socket is found by the next read, after the frames that came before.
    fn flush(&mut self) {
        while let Some((record, sent)) = &mut self.answer {
            if *sent < HEADER_BYTES {
                match self.wire.send(&record[*sent..]) {
                    Ok(Moved::Bytes(count)) => *sent += count,
                    Ok(_) | Err(_) => return,
                }
                continue;
            }
            // What the seal took and the socket did not is not sent.
            if self.wire.owes() && (self.wire.pay().is_err() || self.wire.owes()) {
                return;
            }
            self.answer = None;
        }
    }

    /// Reads after what is in the buffer. Returns whether something came.
    fn fill(&mut self) -> Result<bool, Broken> {
        if !self.ready.is_readable() {
            return Ok(false);
        }
        // Moves less than a header, or nothing.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = &mut self.buffer[self.end..];
        let moved = self.wire.receive(room);
        let has_more = self.wire.has_more();
        self.ready.has_read(&moved, room.len(), has_more);
        if let Ok(Moved::Bytes(count)) = moved {
            self.end += count;
        }
        self.took(moved)
    }

    fn took(&mut self, moved: io::Result<Moved>) -> Result<bool, Broken> {
        match moved {
            Ok(Moved::Bytes(_)) => {
                self.took_bytes = true;
                Ok(true)
            }
            Ok(Moved::WouldBlock) => Ok(false),
            Ok(Moved::End) => Err(Broken::Lost("closed the connection without an end".into())),
            Err(error) => Err(Broken::by(&error, "the connection broke")),
        }
    }
}

#[cfg(test)]
mod tests;
