//! What encrypts a connection and proves who is at its other end: a seal, made by a guard.
//!
//! This crate has no cryptography of its own; `slackwater-secure` implements both. A seal does no I/O: it is
//! given what came from the socket, and says what to send there.

use std::io::{self, IoSlice, Read, Write};

use crate::tcp::socket::Moved;

/// Makes the seals of a process's links.
pub trait Guard: Send + Sync {
    /// A seal for the end that connects.
    ///
    /// # Errors
    ///
    /// When the operating system has no randomness.
    fn connecting(&self) -> io::Result<Box<dyn Seal>>;

    /// A seal for the end that accepts.
    ///
    /// # Errors
    ///
    /// When the operating system has no randomness.
    fn accepting(&self) -> io::Result<Box<dyn Seal>>;
}

/// The encryption of one connection, both directions.
///
/// An error of the kind [`io::ErrorKind::InvalidData`] says what the peer did wrong, as the end of a
/// sentence about it. A message that tells the peer so is owed then.
pub trait Seal: Send {
    /// Whether the handshake is over: the peer has proven who it is.
    fn is_ready(&self) -> bool;

    /// Reads ciphertext with one call of `from`; called after [`Seal::open`] found nothing. Returns the
    /// number of bytes, 0 for the end of the socket.
    ///
    /// # Errors
    ///
    /// Those of `from`.
    fn take(&mut self, from: &mut dyn Read) -> io::Result<usize>;

    /// Gives plaintext of what was taken. `WouldBlock` means that more must be taken first, `End` that the
    /// peer has said that nothing follows. During the handshake it does the handshake, and an empty `room`
    /// asks for no more than that.
    ///
    /// # Errors
    ///
    /// When the peer broke the rules, has another secret, or the ciphertext was changed.
    fn open(&mut self, room: &mut [u8]) -> io::Result<Moved>;

    /// Takes plaintext to be sent, as much as it has room for, in records that are at least half full.
    /// Called when nothing is owed. Returns how much it took.
    ///
    /// # Errors
    ///
    /// When the connection has failed before.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Writes the ciphertext that is owed, until nothing is left or `to` would block. Returns the number of
    /// bytes written.
    ///
    /// # Errors
    ///
    /// Those of `to`, except that it would block.
    fn pay(&mut self, to: &mut dyn Write) -> io::Result<usize>;

    /// Whether ciphertext waits to be written.
    fn owes(&self) -> bool;

    /// The least plaintext that is waiting in what was taken and in `unread` bytes that wait in the socket,
    /// if the peer fills its records as [`Seal::seal`] does. A record of its own for each record of a link is
    /// not counted: of the 128 bytes that this costs, 112 are left for what a seal adds, and must be enough.
    fn waiting(&self, unread: u64) -> u64;

    /// Says to the peer that nothing follows.
    fn finish(&mut self);
}
