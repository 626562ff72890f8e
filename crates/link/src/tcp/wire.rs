//! The socket of a connection, with frames in its place and a seal if it has them: what the rest of the link
//! reads and writes.
//!
//! Without a seal every call is the socket's. With one:
//!
//! - **Bytes that the seal took count as written**, although the socket may not have taken their
//!   ciphertext. The seal takes nothing while it owes, so at most one batch is between the two; whoever
//!   stops writing looks at [`Wire::owes`], and waits for the socket if so.
//! - **A read that did not fill its buffer says nothing about the socket**, which has ciphertext.
//!   [`Wire::has_more`] says whether another read may find something without an event.
//! - **The end of the socket is an error** unless the peer has said before that nothing follows: what a
//!   relay cut off doesn't look like an end.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::tcp::ready::Ready;
use crate::tcp::seal::Seal;
use crate::tcp::socket::{self, Moved};
use crate::tcp::user::Stream;
use crate::waiter::{Interest, Registrar};

/// The most reads in a row of one call that bring no plaintext: a record of 16 KiB may come in segments of
/// 88 bytes, the shortest that Linux sends, and a peer that sends only empty ones would keep the reader's
/// worker busy.
const TAKES_MAX: u32 = 256;

/// A socket, the frames in its place, and its seal.
pub(super) struct Wire {
    base: Base,
    sealed: Option<Box<Sealed>>,
}

/// What carries the bytes: a socket, or frames beside one.
struct Base {
    socket: OwnedFd,
    frames: Option<Box<Stream>>,
}

struct Sealed {
    seal: Box<dyn Seal>,
    /// Whether the last read may have left something.
    has_more: bool,
    /// What went wrong after the bytes of the last read.
    broken: Option<io::Error>,
}

impl Wire {
    pub(super) fn new(socket: OwnedFd, seal: Option<Box<dyn Seal>>) -> Wire {
        let sealed = seal.map(|seal| {
            Box::new(Sealed {
                seal,
                has_more: true,
                broken: None,
            })
        });
        let base = Base {
            socket,
            frames: None,
        };
        Wire { base, sealed }
    }

    /// Continues over frames, if there are any. Both ends do so after the greeting, before they send anything
    /// else. `ready` is of the socket, whose end is then all that matters of it.
    pub(super) fn change_over(
        mut self,
        ready: Ready,
        frames: Option<Box<Stream>>,
        registrar: &Registrar,
    ) -> io::Result<(Wire, Ready)> {
        let Some(mut frames) = frames else {
            return Ok((self, ready));
        };
        let watch = registrar.register(frames.descriptor(), Interest::Read)?;
        frames.watch_control(ready.into_watch());
        self.base.frames = Some(frames);
        Ok((self, Ready::new(watch)))
    }

    /// Does what is due over frames; when that is, [`Wire::due_ns`] says. Returns whether a read may find
    /// something that the frames' own event did not tell.
    #[inline]
    pub(super) fn turn(&mut self) -> bool {
        let frames = self.base.frames.as_mut();
        frames.is_some_and(|frames| frames.turn())
    }

    /// Whether frames can be written. Over TCP this is not known, and an edge tells it.
    pub(super) fn has_room(&self) -> bool {
        let frames = &self.base.frames;
        frames.as_ref().is_some_and(|frames| frames.has_room())
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        self.base.frames.as_ref().and_then(|frames| frames.due_ns())
    }

    /// Whether nothing at all has ever come by frames.
    pub(super) fn is_deaf(&self) -> bool {
        let frames = &self.base.frames;
        frames.as_ref().is_some_and(|frames| !frames.has_heard())
    }

    /// What is written from now on still arrives when this end is gone.
    pub(super) fn fall_back(&mut self) {
        if let Some(frames) = &mut self.base.frames {
            frames.fall_back(&self.base.socket);
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Makes the handshake, as far as it goes without waiting. Returns whether it is over.
    pub(super) fn shake(&mut self) -> io::Result<bool> {
        match &mut self.sealed {
            None => Ok(true),
            Some(sealed) => sealed.shake(&mut self.base),
        }
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => self.base.receive(&mut [IoSliceMut::new(buffer)]),
            Some(sealed) => sealed.receive(&mut self.base, &mut [IoSliceMut::new(buffer)]),
        }
    }

    /// Fills the buffers one after the other.
    pub(super) fn receive_into(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => self.base.receive(buffers),
            Some(sealed) => sealed.receive(&mut self.base, buffers),
        }
    }

    /// Whether the last read, though it did not fill its buffer, may have left something.
    pub(super) fn has_more(&self) -> bool {
        let frames = &self.base.frames;
        self.sealed.as_ref().is_some_and(|sealed| sealed.has_more)
            || frames.as_ref().is_some_and(|frames| frames.has_more())
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => self.base.send(&[IoSlice::new(bytes)]),
            Some(sealed) => sealed.send(&mut self.base, &[IoSlice::new(bytes)]),
        }
    }

    /// Gathers the slices into one write.
    pub(super) fn send_gathered(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => self.base.send(slices),
            Some(sealed) => sealed.send(&mut self.base, slices),
        }
    }

    /// Whether bytes that count as written wait for the socket.
    pub(super) fn owes(&self) -> bool {
        self.sealed
            .as_ref()
            .is_some_and(|sealed| sealed.seal.owes())
    }

    /// Writes what is owed. Returns whether the socket took something.
    pub(super) fn pay(&mut self) -> io::Result<bool> {
        match &mut self.sealed {
            Some(sealed) if sealed.seal.owes() => Ok(sealed.pay(&mut self.base)? > 0),
            _ => Ok(false),
        }
    }

    /// Bytes that have arrived and were not read; with a seal, the least that they carry.
    pub(super) fn unread_bytes(&self) -> u64 {
        let unread = self.base.unread_bytes();
        match &self.sealed {
            None => unread,
            Some(sealed) => sealed.seal.waiting(unread),
        }
    }

    /// Tells the peer that the stream ends; what was written still arrives, which closing does not
    /// guarantee.
    pub(super) fn finish(&mut self) {
        self.fall_back();
        if let Some(sealed) = &mut self.sealed {
            // Before the socket's own end: without it, the peer takes the end for a cut.
            sealed.seal.finish();
            // A peer that does not take it sees a cut, which ends the connection as well.
            let _ = sealed.pay(&mut self.base);
        }
        socket::finish(&self.base.socket);
    }

    /// Takes unread bytes from the socket, and drops them.
    pub(super) fn discard(&mut self, room: &mut [u8]) {
        let _ = socket::receive(&self.base.socket, room);
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.base.socket.as_fd()
    }
}

impl Base {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        if let Some(frames) = &mut self.frames {
            return frames.receive(&self.socket, buffers);
        }
        match buffers {
            [buffer] => socket::receive(&self.socket, buffer),
            buffers => socket::receive_into(&self.socket, buffers),
        }
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        if let Some(frames) = &mut self.frames {
            return frames.send(&self.socket, slices);
        }
        match slices {
            [slice] => socket::send(&self.socket, slice),
            slices => socket::send_gathered(&self.socket, slices),
        }
    }

    fn unread_bytes(&self) -> u64 {
        match &self.frames {
            Some(frames) => frames.unread_bytes(),
            None => socket::unread_bytes(&self.socket),
        }
    }
}

impl Sealed {
    fn shake(&mut self, base: &mut Base) -> io::Result<bool> {
        // A handshake has few messages; each round reads some of the peer's, or returns.
        loop {
            let opened = self.seal.open(&mut []);
            // First what is owed: after an error it tells the peer why.
            let paid = self.pay(base);
            opened?;
            paid?;
            if self.seal.is_ready() {
                return Ok(!self.seal.owes());
            }
            match self.seal.take(&mut Socket::new(base)) {
                Ok(0) => return Err(cut("closed the connection during the handshake")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills the buffers as far as that goes without waiting.
    fn receive(&mut self, base: &mut Base, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        self.has_more = true;
        let (mut filled, mut is_dry, mut takes) = (0, false, 0);
        for buffer in buffers {
            let mut room = &mut buffer[..];
            while !room.is_empty() {
                // With nothing to return, the socket itself must say that it would block: an end that came
                // with a part of a record has no event of its own.
                let may_take = !is_dry || filled == 0;
                let moved = match self.seal.open(room) {
                    Ok(Moved::WouldBlock) if may_take && takes == TAKES_MAX => {
                        Err(breach("sent only empty records"))
                    }
                    Ok(Moved::WouldBlock) if may_take => {
                        takes += 1;
                        match self.take(base, &mut is_dry) {
                            Ok(true) => continue,
                            Ok(false) => Ok(Moved::WouldBlock),
                            Err(error) => Err(error),
                        }
                    }
                    moved => moved,
                };
                match moved {
                    Ok(Moved::Bytes(count)) => {
                        (filled, takes) = (filled + count, 0);
                        room = &mut room[count..];
                        continue;
                    }
                    Ok(Moved::WouldBlock) => self.has_more = false,
                    Ok(Moved::End) if filled == 0 => return Ok(Moved::End),
                    // The bytes first: it says so again.
                    Ok(Moved::End) => {}
                    Err(error) => {
                        // Tells the peer why, if it listens.
                        let _ = self.pay(base);
                        if filled == 0 {
                            return Err(error);
                        }
                        self.broken = Some(error);
                    }
                }
                return Ok(match filled {
                    0 => Moved::WouldBlock,
                    filled => Moved::Bytes(filled),
                });
            }
        }
        Ok(Moved::Bytes(filled))
    }

    /// Takes what the socket has, with one read. Returns false if it has nothing. `is_dry` becomes true if
    /// it had less than it was asked for: what comes later is an event of its own.
    fn take(&mut self, base: &mut Base, is_dry: &mut bool) -> io::Result<bool> {
        let mut socket = Socket::new(base);
        let taken = self.seal.take(&mut socket);
        *is_dry = socket.is_dry;
        match taken {
            Ok(0) => Err(cut("closed the connection without an end")),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, base: &mut Base, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        self.pay(base)?;
        if self.seal.owes() || !self.seal.is_ready() {
            return Ok(Moved::WouldBlock);
        }
        let count = self.seal.seal(slices)?;
        self.pay(base)?;
        Ok(match count {
            0 => Moved::WouldBlock,
            count => Moved::Bytes(count),
        })
    }

    fn pay(&mut self, base: &mut Base) -> io::Result<usize> {
        self.seal.pay(&mut Socket::new(base))
    }
}

/// The socket as the seal sees it.
struct Socket<'a> {
    base: &'a mut Base,
    is_dry: bool,
}

impl Socket<'_> {
    fn new(base: &mut Base) -> Socket<'_> {
        Socket {
            base,
            is_dry: false,
        }
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        let moved = self.base.receive(&mut [IoSliceMut::new(buffer)])?;
        self.is_dry = !matches!(moved, Moved::Bytes(count) if count == room);
        match moved {
            Moved::Bytes(count) => Ok(count),
            Moved::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
            Moved::End => Ok(0),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sent(self.base.send(&[IoSlice::new(bytes)])?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        sent(self.base.send(slices)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn sent(moved: Moved) -> io::Result<usize> {
    match moved {
        Moved::Bytes(count) => Ok(count),
        Moved::WouldBlock | Moved::End => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn cut(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, reason)
}

fn breach(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
pub(super) mod tests;
