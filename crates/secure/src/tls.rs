//! One connection of TLS without I/O, and as the seal of a data link.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Connection, Error};
use slackwater_link::tcp::{Guard, Moved, Seal};

use crate::keys::{Keys, Purpose};
use crate::secret::Secret;

/// The buffer of ciphertext, at first: a handshake's messages are shorter, and so are most of a writer's
/// credits.
const INPUT_BYTES_MIN: usize = 4 << 10;

/// The buffer of ciphertext after a read that filled it: four records for one call into the kernel.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// What a record costs besides its plaintext: header (5), kind (1), tag (16).
const RECORD_COST: u64 = 22;

/// Records are of 16 KiB, but for the last of a batch, which is at least of that size: half, on average.
const RECORD_BYTES: u64 = 8 << 10;

/// Records that are short without being counted by their link: heartbeats, an end, a notice.
const RECORDS_SHORT: u64 = 8;

/// Ciphertext that came and was not opened.
#[derive(Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Reads once. Called when nothing is left.
    pub(crate) fn fill(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.bytes.resize(INPUT_BYTES_MIN, 0);
        } else if self.end == self.bytes.len() && self.end < INPUT_BYTES_MAX {
            self.bytes.resize(self.end * 4, 0);
        }
        (self.start, self.end) = (0, 0);
        self.end = from.read(&mut self.bytes)?;
        Ok(self.end)
    }
}

/// Makes the handshake, as far as the input goes. Returns whether it is over.
pub(crate) fn shake(connection: &mut Connection, input: &mut Input) -> io::Result<bool> {
    while connection.is_handshaking() {
        if !digest(connection, input)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Plaintext of the input.
pub(crate) fn open(
    connection: &mut Connection,
    input: &mut Input,
    room: &mut [u8],
) -> io::Result<Moved> {
    // Each round takes a part of the input, or returns.
    loop {
        match connection.reader().read(room) {
            Ok(0) => return Ok(Moved::End),
            Ok(count) => return Ok(Moved::Bytes(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if !digest(connection, input)? {
            return Ok(Moved::WouldBlock);
        }
    }
}

/// Gives a part of the input to the connection. Returns false if nothing is left of it.
fn digest(connection: &mut Connection, input: &mut Input) -> io::Result<bool> {
    if input.start == input.end {
        // An error comes again.
        return match connection.process_new_packets() {
            Ok(_) => Ok(false),
            Err(error) => Err(refusal(&error)),
        };
    }
    let mut rest = &input.bytes[input.start..input.end];
    let count = connection.read_tls(&mut rest)?;
    // Nothing is read after the peer's end.
    input.start = if count == 0 {
        input.end
    } else {
        input.start + count
    };
    connection
        .process_new_packets()
        .map_err(|error| refusal(&error))?;
    Ok(true)
}

/// Writes what the connection has to send, until `to` would block. Returns the number of bytes.
pub(crate) fn pay(connection: &mut Connection, to: &mut dyn Write) -> io::Result<usize> {
    let mut total = 0;
    while connection.wants_write() {
        match connection.write_tls(to) {
            Ok(0) => break,
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// What a peer did wrong, as the end of a sentence about it.
fn refusal(error: &Error) -> io::Error {
    let reason = match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        | Error::AlertReceived(AlertDescription::AccessDenied) => "has another secret".to_owned(),
        Error::AlertReceived(alert) => {
            format!("ended the connection with the alert {alert:?} of TLS")
        }
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerIncompatible(_) => "does not use this protocol".to_owned(),
        Error::NoCertificatesPresented => "did not show a key".to_owned(),
        Error::DecryptError => "sent bytes that were changed on their way".to_owned(),
        other => format!("broke the rules of TLS: {other}"),
    };
    io::Error::new(ErrorKind::InvalidData, reason)
}

/// The seal of a data link, and a handshake in progress.
pub(crate) struct Tls {
    pub(crate) connection: Connection,
    pub(crate) input: Input,
}

impl Tls {
    pub(crate) fn new(connection: Connection) -> Tls {
        Tls {
            connection,
            input: Input::default(),
        }
    }
}

impl Secret {
    /// What seals data links
    /// ([`Acceptor::bind_guarded`](slackwater_link::tcp::Acceptor::bind_guarded)).
    pub fn guard(&self) -> Arc<dyn Guard> {
        Arc::new(Keys::new(self, Purpose::Data))
    }
}

impl Guard for Keys {
    fn connecting(&self) -> io::Result<Box<dyn Seal>> {
        Ok(Box::new(Tls::new(Keys::connecting(self)?)))
    }

    fn accepting(&self) -> io::Result<Box<dyn Seal>> {
        Ok(Box::new(Tls::new(Keys::accepting(self)?)))
    }
}

impl Seal for Tls {
    fn is_ready(&self) -> bool {
        !self.connection.is_handshaking()
    }

    fn take(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        self.input.fill(from)
    }

    fn open(&mut self, room: &mut [u8]) -> io::Result<Moved> {
        if !shake(&mut self.connection, &mut self.input)? || room.is_empty() {
            return Ok(Moved::WouldBlock);
        }
        open(&mut self.connection, &mut self.input, room)
    }

    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(slices)
    }

    fn pay(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        pay(&mut self.connection, to)
    }

    fn owes(&self) -> bool {
        self.connection.wants_write()
    }

    fn waiting(&self, unread: u64) -> u64 {
        // What the connection holds, of up to a record, is not counted: this is a lower bound.
        let bytes = unread + (self.input.end - self.input.start) as u64;
        bytes.saturating_sub(RECORD_COST * (bytes / RECORD_BYTES + RECORDS_SHORT))
    }

    fn finish(&mut self) {
        self.connection.send_close_notify();
    }
}
