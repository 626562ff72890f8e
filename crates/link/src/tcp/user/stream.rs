//! A stream of bytes over frames, and the TCP connection beside it.
//!
//! An end that leaves falls back: it tells, over the TCP connection, from which byte on the stream continues
//! there, repeats what is not acknowledged, and adds its last word. The other end skips what it has. So the
//! kernel delivers what is left after the end is gone, as it does for a link over TCP.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};

use super::session::{Session, Taken};
use super::{Offer, Port};
use crate::tcp::now_ns;
use crate::tcp::socket::{self, Moved};
use crate::waiter::Watch;

/// What an end that falls back sends first, before the number of the byte.
const FALL_BACK: [u8; 8] = *b"slackEND";

/// The length of the message.
const NOTE_BYTES: usize = 16;

/// The calls in a row without a look of the waiter, of which the last asks the TCP connection.
const BLIND_CALLS: u32 = 64;

pub(in crate::tcp) struct Stream {
    port: Box<dyn Port>,
    session: Session,
    /// Bytes of a frame that the owner had no room for, from `start` on.
    rest: Vec<u8>,
    start: usize,
    /// The bytes received in frames.
    received: u64,
    /// Whether this end has fallen back.
    has_left: bool,
    control: Control,
}

/// The TCP connection as far as it was read.
struct Control {
    /// `None` for an owner that watches nothing: it is always asked.
    watch: Option<Watch>,
    looks: u32,
    calls: u32,
    note: [u8; NOTE_BYTES],
    filled: usize,
    /// After the peer fell back: how many bytes are still to be skipped.
    skip: Option<u64>,
    has_ended: bool,
    /// Whether it was named since it was found empty.
    is_named: bool,
}

impl Stream {
    /// The stream between this end, which has made the offer `own`, and its peer.
    pub(in crate::tcp) fn new(port: Box<dyn Port>, own: Offer, peer: Offer) -> Stream {
        Stream {
            port,
            session: Session::new(own, peer),
            rest: Vec::new(),
            start: 0,
            received: 0,
            has_left: false,
            control: Control {
                watch: None,
                looks: 0,
                calls: 0,
                note: [0; NOTE_BYTES],
                filled: 0,
                skip: None,
                has_ended: false,
                is_named: true,
            },
        }
    }

    pub(in crate::tcp) fn descriptor(&self) -> BorrowedFd<'_> {
        self.port.descriptor()
    }

    /// Asks the TCP connection from now on only when this watch was named.
    pub(in crate::tcp) fn watch_control(&mut self, watch: Option<Watch>) {
        self.control.looks = watch.as_ref().map_or(0, Watch::looks);
        self.control.watch = watch;
    }

    pub(in crate::tcp) fn due_ns(&self) -> Option<u64> {
        match self.has_left {
            false => self.session.due_ns(),
            true => None,
        }
    }

    /// Does what is due. Returns whether there may be something on the TCP connection.
    #[inline]
    pub(in crate::tcp) fn turn(&mut self) -> bool {
        if let Some(due_ns) = self.due_ns() {
            let now_ns = now_ns();
            if due_ns <= now_ns {
                self.session.go_on(&mut *self.port, now_ns);
            }
        }
        self.control.look()
    }

    /// Whether the window has room for a frame.
    pub(in crate::tcp) fn has_room(&self) -> bool {
        !self.has_left && self.session.has_room()
    }

    /// Whether any packet of the peer has arrived.
    pub(in crate::tcp) fn has_heard(&self) -> bool {
        self.session.has_heard()
    }

    /// Bytes that have arrived in order and were not read.
    pub(in crate::tcp) fn unread_bytes(&self) -> u64 {
        (self.rest.len() - self.start) as u64
    }

    /// Whether a read that did not fill its buffer may have left something: what comes over the TCP
    /// connection after the last frame.
    pub(in crate::tcp) fn has_more(&self) -> bool {
        self.control.may_have_more()
    }

    pub(in crate::tcp) fn send(
        &mut self,
        socket: &OwnedFd,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Moved> {
        if self.has_left {
            return socket::send_gathered(socket, slices);
        }
        let taken = self.session.add(slices);
        if taken > 0 {
            self.session.go_on(&mut *self.port, now_ns());
        }
        Ok(match taken {
            0 => Moved::WouldBlock,
            taken => Moved::Bytes(taken),
        })
    }

    /// Fills the buffers one after the other.
    pub(in crate::tcp) fn receive(
        &mut self,
        socket: &OwnedFd,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<Moved> {
        let mut room = Room::new(buffers);
        let count = room.fill(&self.rest[self.start..]);
        self.start += count;
        if self.start == self.rest.len() {
            self.rest.clear();
            self.start = 0;
        }
        if self.control.skip.is_none() && !room.is_full() {
            self.take_packets(&mut room);
        }
        if room.filled > 0 {
            return Ok(Moved::Bytes(room.filled));
        }
        if !self.control.may_have_more() {
            return Ok(Moved::WouldBlock);
        }
        match self.control.skip {
            None => self.read_note(socket, buffers),
            Some(_) => self.read_rest(socket, buffers),
        }
    }

    fn take_packets(&mut self, room: &mut Room<'_, '_>) {
        let Stream {
            port,
            session,
            rest,
            received,
            ..
        } = self;
        let now_ns = now_ns();
        port.receive(&mut |packet| {
            if let Taken::Payload(payload) = session.take(packet, now_ns) {
                *received += payload.len() as u64;
                let count = room.fill(payload);
                rest.extend_from_slice(&payload[count..]);
            }
            !room.is_full()
        });
        if !self.has_left {
            session.go_on(&mut **port, now_ns);
        }
    }

    /// Reads whether the peer has fallen back, or is gone.
    fn read_note(&mut self, socket: &OwnedFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        let control = &mut self.control;
        while control.filled < NOTE_BYTES {
            match socket::receive(socket, &mut control.note[control.filled..])? {
                Moved::Bytes(count) => control.filled += count,
                Moved::WouldBlock => {
                    control.is_named = false;
                    return Ok(Moved::WouldBlock);
                }
                Moved::End => return self.ended(buffers),
            }
        }
        let (magic, number) = control.note.split_at(8);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(number);
        let skip = self.received.checked_sub(u64::from_le_bytes(bytes));
        let (true, Some(skip)) = (magic == FALL_BACK, skip) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "sent something else than its end over the TCP connection",
            ));
        };
        control.skip = Some(skip);
        self.read_rest(socket, buffers)
    }

    /// The peer is gone without a word. What arrived before counts.
    fn ended(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        self.control.has_ended = true;
        let mut room = Room::new(buffers);
        self.take_packets(&mut room);
        Ok(match room.filled {
            0 => Moved::End,
            filled => Moved::Bytes(filled),
        })
    }

    /// Reads what the peer sent after it fell back.
    fn read_rest(&mut self, socket: &OwnedFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        let mut scratch = [0; 4096];
        while let Some(skip) = self.control.skip.filter(|skip| *skip > 0) {
            let count = skip.min(scratch.len() as u64) as usize;
            match socket::receive(socket, &mut scratch[..count])? {
                Moved::Bytes(count) => self.control.skip = Some(skip - count as u64),
                moved => return Ok(moved),
            }
        }
        socket::receive_into(socket, buffers)
    }

    /// Continues over the TCP connection: this end leaves. What is written afterwards, the kernel delivers.
    pub(in crate::tcp) fn fall_back(&mut self, socket: &OwnedFd) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        let mut note = FALL_BACK.to_vec();
        note.extend(self.session.acknowledged_bytes().to_le_bytes());
        // A window, which an empty socket takes. If it does not, the peer finds a stream that is cut off.
        let slices = self.session.unacknowledged();
        let mut bytes = note;
        slices.for_each(|frame| bytes.extend_from_slice(frame));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match socket::send(socket, rest) {
                Ok(Moved::Bytes(count)) => rest = &rest[count..],
                Ok(Moved::WouldBlock | Moved::End) | Err(_) => {
                    // Nothing may follow what is cut off.
                    socket::finish(socket);
                    return;
                }
            }
        }
    }
}

impl Control {
    /// Takes in what the waiter has reported. Returns whether there may be something.
    #[inline]
    fn look(&mut self) -> bool {
        let Some(watch) = &mut self.watch else {
            return true;
        };
        let looks = watch.looks();
        self.calls = match std::mem::replace(&mut self.looks, looks) == looks {
            true => self.calls + 1,
            false => 0,
        };
        if watch.is_named() || self.calls >= BLIND_CALLS {
            (self.is_named, self.calls) = (true, 0);
        }
        self.may_have_more()
    }

    fn may_have_more(&self) -> bool {
        self.watch.is_none() || self.is_named || self.skip.is_some() || self.has_ended
    }
}

/// Buffers that are filled one after the other.
struct Room<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    /// The buffer that is being filled, and how much of it is.
    current: usize,
    within: usize,
    filled: usize,
}

impl<'a, 'b> Room<'a, 'b> {
    fn new(buffers: &'a mut [IoSliceMut<'b>]) -> Room<'a, 'b> {
        Room {
            buffers,
            current: 0,
            within: 0,
            filled: 0,
        }
    }

    /// Copies as many bytes as fit.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_full() {
            let place = &mut self.buffers[self.current][self.within..];
            let count = rest.len().min(place.len());
            place[..count].copy_from_slice(&rest[..count]);
            (rest, self.within) = (&rest[count..], self.within + count);
            self.filled += count;
        }
        bytes.len() - rest.len()
    }

    fn is_full(&mut self) -> bool {
        while self.current < self.buffers.len() {
            if self.within < self.buffers[self.current].len() {
                return false;
            }
            (self.current, self.within) = (self.current + 1, 0);
        }
        true
    }
}
