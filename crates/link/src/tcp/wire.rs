//! The socket of a connection with its seal, if it has one: what the rest of the link reads and writes.
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

use crate::tcp::seal::Seal;
use crate::tcp::socket::{self, Moved};

/// The most reads in a row of one call that bring no plaintext: a record of 16 KiB may come in segments of
/// 88 bytes, the shortest that Linux sends, and a peer that sends only empty ones would keep the reader's
/// worker busy.
const TAKES_MAX: u32 = 256;

/// A socket, and its seal.
pub(super) struct Wire {
    socket: OwnedFd,
    sealed: Option<Box<Sealed>>,
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
        Wire { socket, sealed }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Makes the handshake, as far as it goes without waiting. Returns whether it is over.
    pub(super) fn shake(&mut self) -> io::Result<bool> {
        match &mut self.sealed {
            None => Ok(true),
            Some(sealed) => sealed.shake(&self.socket),
        }
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => socket::receive(&self.socket, buffer),
            Some(sealed) => sealed.receive(&self.socket, &mut [IoSliceMut::new(buffer)]),
        }
    }

    /// Fills the buffers one after the other.
    pub(super) fn receive_into(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => socket::receive_into(&self.socket, buffers),
            Some(sealed) => sealed.receive(&self.socket, buffers),
        }
    }

    /// Whether the last read, though it did not fill its buffer, may have left something.
    pub(super) fn has_more(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.has_more)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => socket::send(&self.socket, bytes),
            Some(sealed) => sealed.send(&self.socket, &[IoSlice::new(bytes)]),
        }
    }

    /// Gathers the slices into one write.
    pub(super) fn send_gathered(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        match &mut self.sealed {
            None => socket::send_gathered(&self.socket, slices),
            Some(sealed) => sealed.send(&self.socket, slices),
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
            Some(sealed) if sealed.seal.owes() => Ok(sealed.pay(&self.socket)? > 0),
            _ => Ok(false),
        }
    }

    /// Bytes that have arrived and were not read; with a seal, the least that they carry.
    pub(super) fn unread_bytes(&self) -> u64 {
        let unread = socket::unread_bytes(&self.socket);
        match &self.sealed {
            None => unread,
            Some(sealed) => sealed.seal.waiting(unread),
        }
    }

    /// Tells the peer that the stream ends; what was written still arrives, which closing does not
    /// guarantee.
    pub(super) fn finish(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            // Before the socket's own end: without it, the peer takes the end for a cut.
            sealed.seal.finish();
            // A peer that does not take it sees a cut, which ends the connection as well.
            let _ = sealed.pay(&self.socket);
        }
        socket::finish(&self.socket);
    }

    /// Takes unread bytes from the socket, and drops them.
    pub(super) fn discard(&mut self, room: &mut [u8]) {
        let _ = socket::receive(&self.socket, room);
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Sealed {
    fn shake(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        // A handshake has few messages; each round reads some of the peer's, or returns.
        loop {
            let opened = self.seal.open(&mut []);
            // First what is owed: after an error it tells the peer why.
            let paid = self.pay(socket);
            opened?;
            paid?;
            if self.seal.is_ready() {
                return Ok(!self.seal.owes());
            }
            match self.seal.take(&mut Socket::new(socket)) {
                Ok(0) => return Err(cut("closed the connection during the handshake")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills the buffers as far as that goes without waiting.
    fn receive(&mut self, socket: &OwnedFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
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
                        match self.take(socket, &mut is_dry) {
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
                        let _ = self.pay(socket);
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
    fn take(&mut self, socket: &OwnedFd, is_dry: &mut bool) -> io::Result<bool> {
        let mut socket = Socket::new(socket);
        let taken = self.seal.take(&mut socket);
        *is_dry = socket.is_dry;
        match taken {
            Ok(0) => Err(cut("closed the connection without an end")),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, socket: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        self.pay(socket)?;
        if self.seal.owes() || !self.seal.is_ready() {
            return Ok(Moved::WouldBlock);
        }
        let count = self.seal.seal(slices)?;
        self.pay(socket)?;
        Ok(match count {
            0 => Moved::WouldBlock,
            count => Moved::Bytes(count),
        })
    }

    fn pay(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        self.seal.pay(&mut Socket::new(socket))
    }
}

/// The socket as the seal sees it.
struct Socket<'a> {
    socket: &'a OwnedFd,
    is_dry: bool,
}

impl Socket<'_> {
    fn new(socket: &OwnedFd) -> Socket<'_> {
        Socket {
            socket,
            is_dry: false,
        }
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let moved = socket::receive(self.socket, buffer)?;
        self.is_dry = !matches!(moved, Moved::Bytes(count) if count == buffer.len());
        match moved {
            Moved::Bytes(count) => Ok(count),
            Moved::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
            Moved::End => Ok(0),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sent(socket::send(self.socket, bytes)?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        sent(socket::send_gathered(self.socket, slices)?)
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
