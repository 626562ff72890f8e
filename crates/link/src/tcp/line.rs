//! One open connection of a writer: records out, credits in, and the heartbeat while something is
//! unacknowledged.
//!
//! Invariants:
//! - A record that interrupts the frames is sent whole, between two of their records.
//! - At most one heartbeat is unanswered: TCP repeats what is lost, so a second adds nothing.
//! - If everything is acknowledged there is no deadline.

use std::io;
use std::ops::Deref;
use std::time::Duration;

use crate::tcp::after;
use crate::tcp::outgoing::{Outgoing, Stop};
use crate::tcp::ready::Ready;
use crate::tcp::record::{HEADER_BYTES, Record};
use crate::tcp::socket::Moved;
use crate::tcp::wire::Wire;

/// Bytes read at once: 16 records. A reader sends four a window, and one a second.
const READ_BYTES: usize = 16 * HEADER_BYTES;

/// What the peer reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEvent {
    /// Nothing that ends the connection.
    None,
    /// The reader has everything, the end included.
    EndTaken,
    /// The reader is gone for good.
    Gone,
}

/// Why a connection can't continue.
#[derive(Debug)]
pub(super) enum Broken {
    /// The connection was cut, or fell silent: the peer may be working correctly.
    Lost(String),
    /// The peer broke the rules.
    Breach(String),
}

impl Broken {
    /// What a failed read or write means. `what` broke, if the peer kept to the rules.
    pub(super) fn by(error: &io::Error, what: &str) -> Broken {
        match error.kind() {
            // The seal's: the text is about the peer.
            io::ErrorKind::InvalidData => Broken::Breach(error.to_string()),
            _ => Broken::Lost(format!("{what}: {error}")),
        }
    }
}

pub(super) struct Line {
    wire: Wire,
    ready: Ready,
    input: [u8; READ_BYTES],
    /// Bytes of `input` that are filled: less than a record between two calls.
    filled: usize,
    /// A record that interrupts the frames, and how much of it is sent.
    interruption: Option<([u8; HEADER_BYTES], usize)>,
    /// Whether the last write filled the socket.
    is_blocked: bool,
    end_sent: bool,
    heartbeat_sent: bool,
    /// Set while something is unacknowledged.
    vigil: Option<Vigil>,
}

/// The times that matter while something is unacknowledged.
#[derive(Clone, Copy)]
struct Vigil {
    /// When to ask for an acknowledgement.
    ask_ns: u64,
    /// When the peer last showed a sign of life, or the vigil began.
    heard_ns: u64,
}

/// The two times of a vigil.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) heartbeat_after: Duration,
    pub(super) peer_timeout: Duration,
}

impl Line {
    pub(super) fn new(wire: Wire, ready: Ready) -> Line {
        Line {
            wire,
            ready,
            input: [0; READ_BYTES],
            filled: 0,
            interruption: None,
            is_blocked: false,
            end_sent: false,
            heartbeat_sent: false,
            vigil: None,
        }
    }

    /// Writes what there is to write and reads what there is to read. `end` says that no frames follow
    /// those in `outgoing`.
    ///
    /// Whatever is left, the kernel will signal an edge for it: either everything is written, or the
    /// socket was full, or the credit was used up and the last read found nothing.
    pub(super) fn exchange<P: Deref<Target = [u8]>>(
        &mut self,
        outgoing: &mut Outgoing<P>,
        end: bool,
        now_ns: u64,
        patience: Patience,
    ) -> Result<LineEvent, Broken> {
        self.ready.look();
        if self.wire.turn() {
            self.ready.ask();
        }
        if self.due_ns(patience).is_some_and(|due_ns| due_ns <= now_ns) {
            // The peer is not given up for silence without asking what it has sent.
            self.ready.ask();
        }
        let mut unread = true;
        // While there is something to write, credits are read only when they are needed. A writer without
        // room for another frame has everything written, or no credit, or a full socket.
        if self.is_blocked || outgoing.is_all_written() {
            let (news, _) = self.read(outgoing, now_ns, patience)?;
            if news != LineEvent::None {
                return Ok(news);
            }
            unread = false;
        }
        // At most one round for each credit that came meanwhile, and a window has four.
        loop {
            let stop = match self.write(outgoing, end, now_ns, patience) {
                Ok(stop) => stop,
                Err(error) => return self.read_the_rest(outgoing, error, now_ns, patience),
            };
            if stop == Stop::Done || (stop == Stop::WouldBlock && !unread) {
                break;
            }
            let (news, count) = self.read(outgoing, now_ns, patience)?;
            if news != LineEvent::None {
                return Ok(news);
            }
            unread = false;
            if stop == Stop::WouldBlock && self.wire.has_room() {
                // Frames were acknowledged by that read, and no edge is left to tell it. The next round sends
                // one at least.
                self.ready.ask();
                continue;
            }
            if stop == Stop::WouldBlock || count == 0 {
                break;
            }
        }
        self.keep_vigil(outgoing, now_ns, patience)?;
        Ok(LineEvent::None)
    }

    /// Whether the end is written, after all frames, and the socket has it.
    pub(super) fn is_end_sent(&self) -> bool {
        self.end_sent && self.interruption.is_none() && !self.wire.owes()
    }

    /// When to call [`Line::exchange`] even if nothing happens.
    pub(super) fn due_ns(&self, patience: Patience) -> Option<u64> {
        let vigil_ns = self.vigil.map(|vigil| {
            let broken_ns = after(vigil.heard_ns, patience.peer_timeout);
            match self.heartbeat_sent {
                true => broken_ns,
                false => broken_ns.min(vigil.ask_ns),
            }
        });
        vigil_ns.into_iter().chain(self.wire.due_ns()).min()
    }

    /// Whether the peer's frames never arrived.
    pub(super) fn is_deaf(&self) -> bool {
        self.wire.is_deaf()
    }

    /// The last record of a writer that is dropped: the end if everything is written, else that it is
    /// gone.
    pub(super) fn leave<P>(&mut self, outgoing: &Outgoing<P>, is_complete: bool) {
        self.wire.fall_back();
        let whole = outgoing.is_between_records() && self.interruption.is_none();
        if whole && !self.end_sent {
            let word = if is_complete && outgoing.is_all_written() {
                Record::End {
                    frames: outgoing.end(),
                }
            } else {
                Record::Gone
            };
            // If the socket is full or broken, the reader finds a connection without an end.
            let _ = self.wire.send(&word.encode());
        }
        self.wire.finish();
        // Closing a socket with unread bytes resets the connection, and destroys bytes on their way. A
        // window has four credits, and this reads sixteen.
        self.wire.discard(&mut self.input);
    }

    fn write<P: Deref<Target = [u8]>>(
        &mut self,
        outgoing: &mut Outgoing<P>,
        end: bool,
        now_ns: u64,
        patience: Patience,
    ) -> io::Result<Stop> {
        if self.is_blocked && !self.ready.is_writable() {
            return Ok(Stop::WouldBlock);
        }
        if self.wire.pay()? && self.is_blocked {
            self.heard(now_ns, patience);
        }
        if !self.is_paid() || !self.interrupt(outgoing)? {
            return Ok(Stop::WouldBlock);
        }
        let (count, stop) = outgoing.write(&mut self.wire)?;
        if count > 0 && self.is_blocked {
            // A full socket takes bytes again only when the peer's kernel has taken some.
            self.heard(now_ns, patience);
        }
        self.is_blocked = stop == Stop::WouldBlock;
        if self.is_blocked {
            self.ready.is_full();
        }
        // What the seal took and the socket did not is not written.
        if self.is_blocked || !self.is_paid() || !self.interrupt(outgoing)? {
            return Ok(Stop::WouldBlock);
        }
        if stop == Stop::Done && end && !self.end_sent {
            self.end_sent = true;
            let frames = outgoing.end();
            self.interruption = Some((Record::End { frames }.encode(), 0));
            if !self.interrupt(outgoing)? {
                return Ok(Stop::WouldBlock);
            }
        }
        Ok(stop)
    }

    /// Whether the socket has taken all that counts as written; if not, its edge is waited for.
    fn is_paid(&mut self) -> bool {
        let is_paid = !self.wire.owes();
        if !is_paid {
            self.is_blocked = true;
            self.ready.is_full();
        }
        is_paid
    }

    /// Sends the record that interrupts the frames. Returns whether none is left to send.
    fn interrupt<P>(&mut self, outgoing: &Outgoing<P>) -> io::Result<bool> {
        while let Some((record, sent)) = &mut self.interruption {
            if *sent == 0 && !outgoing.is_between_records() {
                // The frame's record first.
                return Ok(true);
            }
            match self.wire.send(&record[*sent..])? {
                Moved::Bytes(count) => *sent += count,
                Moved::WouldBlock | Moved::End => {
                    self.is_blocked = true;
                    self.ready.is_full();
                    return Ok(false);
                }
            }
            if *sent == HEADER_BYTES {
                self.interruption = None;
            }
        }
        Ok(self.is_paid())
    }

    /// Reads until the socket has nothing more, if it may have something. Returns the number of records as
    /// well.
    fn read<P>(
        &mut self,
        outgoing: &mut Outgoing<P>,
        now_ns: u64,
        patience: Patience,
    ) -> Result<(LineEvent, usize), Broken> {
        let mut records = 0;
        while self.ready.is_readable() {
            let room = &mut self.input[self.filled..];
            let moved = self.wire.receive(room);
            let has_more = self.wire.has_more();
            self.ready.has_read(&moved, room.len(), has_more);
            match moved {
                Ok(Moved::Bytes(count)) => self.filled += count,
                Ok(Moved::WouldBlock) => return Ok((LineEvent::None, records)),
                Ok(Moved::End) => return Err(Broken::Lost("closed the connection".to_owned())),
                Err(error) => return Err(lost(&error)),
            }
            self.heard(now_ns, patience);
            let mut start = 0;
            while self.filled - start >= HEADER_BYTES {
                let mut header = [0; HEADER_BYTES];
                header.copy_from_slice(&self.input[start..start + HEADER_BYTES]);
                start += HEADER_BYTES;
                let record = Record::decode(header).map_err(Broken::Breach)?;
                records += 1;
                let news = self.take(record, outgoing).map_err(Broken::Breach)?;
                if news != LineEvent::None {
                    return Ok((news, records));
                }
            }
            self.input.copy_within(start..self.filled, 0);
            self.filled -= start;
        }
        Ok((LineEvent::None, records))
    }

    fn take<P>(&mut self, record: Record, outgoing: &mut Outgoing<P>) -> Result<LineEvent, String> {
        match record {
            Record::Credit { frames, cost } => {
                outgoing.credit(frames, cost)?;
                self.heartbeat_sent = false;
                Ok(LineEvent::None)
            }
            Record::EndTaken { frames } => {
                if !self.end_sent || frames != outgoing.end() {
                    return Err("acknowledged an end that was not sent".to_owned());
                }
                Ok(LineEvent::EndTaken)
            }
            Record::Gone => Ok(LineEvent::Gone),
            Record::Data(_) | Record::Heartbeat | Record::End { .. } => {
                Err("sent a record that only writers send".to_owned())
            }
        }
    }

    /// After a write failed: what the reader sent before may tell why.
    fn read_the_rest<P>(
        &mut self,
        outgoing: &mut Outgoing<P>,
        error: io::Error,
        now_ns: u64,
        patience: Patience,
    ) -> Result<LineEvent, Broken> {
        self.ready.ask();
        match self.read(outgoing, now_ns, patience) {
            Ok((LineEvent::None, _)) => Err(lost(&error)),
            Ok((news, _)) => Ok(news),
            Err(broken) => Err(broken),
        }
    }

    fn heard(&mut self, now_ns: u64, patience: Patience) {
        if let Some(vigil) = &mut self.vigil {
            vigil.heard_ns = now_ns;
            vigil.ask_ns = after(now_ns, patience.heartbeat_after);
        }
    }

    /// Begins, continues or ends the vigil, and asks when it is time.
    fn keep_vigil<P>(
        &mut self,
        outgoing: &Outgoing<P>,
        now_ns: u64,
        patience: Patience,
    ) -> Result<(), Broken> {
        if !outgoing.awaits() && !self.end_sent && self.interruption.is_none() {
            self.vigil = None;
            return Ok(());
        }
        let vigil = *self.vigil.get_or_insert(Vigil {
            ask_ns: after(now_ns, patience.heartbeat_after),
            heard_ns: now_ns,
        });
        if now_ns >= after(vigil.heard_ns, patience.peer_timeout) {
            let silence_s = patience.peer_timeout.as_secs_f64();
            if self.wire.is_deaf() {
                return Err(Broken::Lost(format!(
                    "answered over TCP, but no frame of it arrived for {silence_s} s: connect the hosts' \
                     interfaces to one Ethernet network, or SET 'link' = 'auto'"
                )));
            }
            return Err(Broken::Lost(format!("did not respond for {silence_s} s")));
        }
        if now_ns >= vigil.ask_ns && !self.heartbeat_sent && self.interruption.is_none() {
            self.heartbeat_sent = true;
            self.interruption = Some((Record::Heartbeat.encode(), 0));
            self.interrupt(outgoing).map_err(|error| lost(&error))?;
        }
        Ok(())
    }
}

fn lost(error: &io::Error) -> Broken {
    Broken::by(error, "the connection broke")
}

#[cfg(test)]
mod tests;
