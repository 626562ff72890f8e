//! The protocol of frames: numbers, acknowledgements, a window, and going back to a frame that was lost. It
//! does no I/O and knows no clock.
//!
//! Invariants:
//! - A frame stays until it is acknowledged. Frames are taken by the receiving end in order of their numbers,
//!   each once: everything else is dropped.
//! - The receiving end acknowledges a quarter of a window, and what it is asked for. So it never keeps a
//!   sender without room, and a busy stream has four small packets a window in the other direction.
//! - Frames are sent again only when the receiving end says that one is missing: it says so once for each
//!   gap, and whenever it is asked. A sender that hears nothing asks, with a small packet. So a receiver that
//!   sleeps costs a few packets, and not a window sent again.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

use super::packet::{HEADER_BYTES, Packet};
use super::{Offer, Port, WINDOW_FRAMES};
use crate::tcp::after;

/// How long a frame may be unacknowledged before the sender asks, at first and at most. 100 ms: ten packets
/// a second on a stream with little traffic, and what the loss of a last frame costs.
const ASK_AFTER_MIN: Duration = Duration::from_millis(100);
const ASK_AFTER_MAX: Duration = Duration::from_secs(1);

/// When to try again to send what the port had no room for.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// What a packet brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken<'a> {
    /// The next bytes of the stream.
    Payload(&'a [u8]),
    /// Nothing to be handed on.
    Nothing,
}

pub(super) struct Session {
    own: Offer,
    peer: Offer,
    payload_bytes: usize,
    /// The frames that are not acknowledged, the oldest first.
    frames: VecDeque<Vec<u8>>,
    /// The number of the first of them.
    first: u64,
    /// The bytes before it.
    acknowledged_bytes: u64,
    /// How many of them are sent, since the last time that the sender went back.
    sent: usize,
    /// Buffers of acknowledged frames.
    spare: Vec<Vec<u8>>,
    /// The number of the frame that comes next from the peer.
    expected: u64,
    /// Frames received since the last acknowledgement.
    owed: usize,
    answer: Answer,
    /// The missing frame that the peer was told about.
    told: Option<u64>,
    /// When to ask, while something is unacknowledged; when to try again.
    due_ns: Option<u64>,
    ask_after: Duration,
    /// Whether the next packet asks.
    asks: bool,
    /// Whether the port has packets that its last flush did not send.
    has_left: bool,
    /// Whether a packet of the peer has ever arrived.
    has_heard: bool,
}

/// What has to be told to the peer soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Nothing,
    Received,
    Missing,
}

impl Session {
    pub(super) fn new(own: Offer, peer: Offer) -> Session {
        let packet = own.place.packet_bytes.min(peer.place.packet_bytes);
        Session {
            own,
            peer,
            payload_bytes: usize::from(packet) - HEADER_BYTES,
            frames: VecDeque::new(),
            first: 0,
            acknowledged_bytes: 0,
            sent: 0,
            spare: Vec::new(),
            expected: 0,
            owed: 0,
            answer: Answer::Nothing,
            told: None,
            due_ns: None,
            ask_after: ASK_AFTER_MIN,
            asks: false,
            has_left: false,
            has_heard: false,
        }
    }

    /// The bytes that the peer has acknowledged, in whole frames.
    pub(super) fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// The frames that follow them.
    pub(super) fn unacknowledged(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(Vec::as_slice)
    }

    pub(super) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Whether there is room for a frame.
    pub(super) fn has_room(&self) -> bool {
        self.frames.len() < WINDOW_FRAMES
    }

    /// When to call [`Session::go_on`] even if nothing arrives.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Cuts bytes into frames, as many as there is room for. Returns how many it took.
    pub(super) fn add(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let mut taken = 0;
        let mut frame: Option<Vec<u8>> = None;
        for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let filling = match &mut frame {
                    Some(filling) => filling,
                    None if self.frames.len() == WINDOW_FRAMES => return taken,
                    None => frame.insert(self.spare.pop().unwrap_or_default()),
                };
                let count = rest.len().min(self.payload_bytes - filling.len());
                filling.extend_from_slice(&rest[..count]);
                (rest, taken) = (&rest[count..], taken + count);
                if filling.len() == self.payload_bytes {
                    self.frames.extend(frame.take());
                }
            }
        }
        self.frames.extend(frame);
        taken
    }

    /// Sends what there is to send.
    pub(super) fn go_on(&mut self, port: &mut dyn Port, now_ns: u64) {
        if self.due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            if self.sent == self.frames.len() {
                self.asks = true;
                self.ask_after = (self.ask_after * 2).min(ASK_AFTER_MAX);
            }
            self.due_ns = None;
        }
        let mut has_sent = false;
        let mut is_stuck = false;
        while self.sent < self.frames.len() && !is_stuck {
            is_stuck = !self.send(port, Some(self.sent));
            if !is_stuck {
                (self.sent, has_sent) = (self.sent + 1, true);
            }
        }
        // A frame says all that a packet without one says, except that it asks or that one is missing.
        let must_speak = self.asks || self.answer > Answer::Nothing;
        if must_speak && !is_stuck {
            is_stuck = !self.send(port, None);
            has_sent = true;
        }
        // Also what an earlier one left, without which the port may have no room.
        if has_sent || is_stuck || self.has_left {
            self.has_left = !port.flush();
            is_stuck |= self.has_left;
        }
        self.due_ns = match (is_stuck, self.frames.is_empty()) {
            (true, _) => Some(after(now_ns, RETRY_AFTER)),
            (false, true) => None,
            (false, false) => self.due_ns.or(Some(after(now_ns, self.ask_after))),
        };
    }

    /// Sends a frame, or a packet without one. Returns whether the port took it.
    fn send(&mut self, port: &mut dyn Port, index: Option<usize>) -> bool {
        let payload: &[u8] = index.map_or(&[], |index| &self.frames[index]);
        let packet = Packet {
            number: self.first + index.unwrap_or(self.sent) as u64,
            received: self.expected,
            asks: self.asks && index.is_none(),
            repeat: self.answer == Answer::Missing,
        };
        let header = packet.encode(&self.peer, payload);
        if !port.send(self.peer.place.address, [&header, payload]) {
            return false;
        }
        self.asks &= index.is_some();
        self.answer = Answer::Nothing;
        self.owed = 0;
        true
    }

    /// Takes in a packet that has arrived, whatever it is.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8], now_ns: u64) -> Taken<'a> {
        let Some((packet, payload)) = Packet::decode(bytes, &self.own) else {
            return Taken::Nothing;
        };
        self.has_heard = true;
        self.acknowledge(&packet, now_ns);
        if packet.asks {
            self.answer = self.answer.max(Answer::Received);
        }
        if packet.number > self.expected {
            // A frame is missing, or comes late: then the peer goes back in vain.
            if packet.asks || self.told != Some(self.expected) {
                self.told = Some(self.expected);
                self.answer = Answer::Missing;
            }
            return Taken::Nothing;
        }
        if payload.is_empty() || packet.number < self.expected {
            return Taken::Nothing;
        }
        self.expected += 1;
        self.owed += 1;
        if self.owed >= WINDOW_FRAMES / 4 {
            self.answer = self.answer.max(Answer::Received);
        }
        Taken::Payload(payload)
    }

    fn acknowledge(&mut self, packet: &Packet, now_ns: u64) {
        // More than was sent, or less than was acknowledged: an old packet.
        let Some(count) = packet.received.checked_sub(self.first) else {
            return;
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > self.frames.len() {
            return;
        }
        for mut frame in self.frames.drain(..count) {
            self.acknowledged_bytes += frame.len() as u64;
            if self.spare.len() < WINDOW_FRAMES {
                frame.clear();
                self.spare.push(frame);
            }
        }
        self.first = packet.received;
        self.sent = self.sent.saturating_sub(count);
        if count > 0 || packet.repeat {
            self.ask_after = ASK_AFTER_MIN;
            self.due_ns = match self.frames.is_empty() {
                true => None,
                false => Some(after(now_ns, ASK_AFTER_MIN)),
            };
        }
        if packet.repeat {
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests;
