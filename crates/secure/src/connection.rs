//! One connection of TLS without I/O.
//!
//! Records are opened where they were received, and sealed into one buffer: of the two interfaces of rustls
//! it is the one without buffers, whose copies and growing buffers cost more than the cipher.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use slackwater_link::tcp::Moved;

use crate::certificates::said;

/// The buffer of ciphertext, at first: a handshake's messages are shorter, and so are most of a writer's
/// credits.
const INPUT_BYTES_MIN: usize = 4 << 10;

/// The buffer of ciphertext after a read that filled it: four records for one call into the kernel. The
/// longest record has 16 KiB and 256 bytes, so there is always room to read more of one that has begun.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// What a record costs besides its plaintext: header (5), kind (1), tag (16).
pub(crate) const RECORD_COST: u64 = 22;

/// The most plaintext that is sealed at once: four records.
const SEALED_BYTES_MAX: usize = 64 << 10;

/// The most ciphertext of that much plaintext: a record more, for what TLS itself has to say.
const OWED_BYTES_MAX: usize = SEALED_BYTES_MAX + 5 * (RECORD_COST as usize) + (1 << 10);

/// Where plaintext begins in a page before it is sealed, and ciphertext after it. rustls copies a record
/// twice on its way, through a block of its own that begins with a page. Some processors (AMD's Zen 3 and 4)
/// take twenty times as long for a copy of more than 2 KB (`rep movsb`) to a place 1 to 63 bytes further in
/// its page than where it came from, as the header of a record makes it (glibc's bug 30994).
const PLAIN_OFFSET: usize = 1 << 10;
const OWED_OFFSET: usize = 2 << 10;
const PAGE_BYTES: usize = 4 << 10;

/// How often a connection may have something of its own to say before it takes anything.
const STEPS_MAX: usize = 8;

/// Ciphertext that came and was not opened.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The first bytes from `start` that the connection has looked at, and keeps until more comes: a
    /// record, or a message of several records, that has begun.
    seen: usize,
}

impl Input {
    /// Reads once. Called when nothing that is left can be opened.
    fn fill(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.bytes.len() {
            if self.end >= INPUT_BYTES_MAX {
                return Err(breach("sent a message that is longer than any of TLS"));
            }
            let grown = (self.end * 4).clamp(INPUT_BYTES_MIN, INPUT_BYTES_MAX);
            self.bytes.resize(grown, 0);
        }
        let count = from.read(&mut self.bytes[self.end..])?;
        self.end += count;
        Ok(count)
    }

    fn all(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// The part that may be shown to the connection again without being opened.
    fn seen(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.seen]
    }

    fn done_with(&mut self, count: usize, step: Result<Step, &Error>) {
        self.start += count;
        self.seen = match step {
            Ok(Step::Waits) | Err(_) => self.end - self.start,
            // What has begun is not interrupted by rows: nothing of the rest was looked at.
            Ok(_) => 0,
        };
    }
}

/// Either end of a connection.
pub(crate) enum End {
    Connecting(UnbufferedClientConnection),
    Accepting(UnbufferedServerConnection),
}

/// What the connection did with its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Opened a record, of which so many bytes are in the caller's room.
    Opened(usize),
    /// Something of its own; there may be more to do.
    Own,
    /// It has nothing to do before more comes.
    Waits,
    /// The peer said that nothing follows.
    Ended,
}

/// A connection of TLS, and what it has for the two sides of it.
pub(crate) struct Connection {
    end: End,
    /// What the peer has to call the protocol, if it has to.
    protocol: Option<&'static [u8]>,
    input: Input,
    /// Plaintext that did not fit into the caller's room, from `opened_start`: the rest of one record.
    opened: Vec<u8>,
    opened_start: usize,
    /// Ciphertext that is to be sent: `owed_start..owed_end`.
    owed: Vec<u8>,
    owed_start: usize,
    owed_end: usize,
    /// What is sealed at once, from where [`lead`] says.
    gathered: Vec<u8>,
    has_ended: bool,
    /// What the peer did wrong: it is said again.
    broken: Option<Error>,
}

impl Connection {
    pub(crate) fn new(end: End, protocol: Option<&'static [u8]>) -> Connection {
        Connection {
            end,
            protocol,
            input: Input::default(),
            opened: Vec::new(),
            opened_start: 0,
            owed: Vec::new(),
            owed_start: 0,
            owed_end: 0,
            gathered: Vec::new(),
            has_ended: false,
            broken: None,
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.end {
            End::Connecting(end) => end.is_handshaking(),
            End::Accepting(end) => end.is_handshaking(),
        }
    }

    /// Whether TLS itself has something to send that is not owed yet.
    fn has_to_say(&self) -> bool {
        match &self.end {
            End::Connecting(end) => end.wants_write(),
            End::Accepting(end) => end.wants_write(),
        }
    }

    /// Makes the handshake, as far as the input goes. Returns whether it is over.
    pub(crate) fn shake(&mut self) -> io::Result<bool> {
        if self.is_handshaking() {
            // Each round takes a part of the input, or adds to what is owed.
            while self.step(&mut [])? == Step::Own {}
            if !self.is_handshaking() && self.called() != self.protocol {
                self.broken = Some(Error::NoApplicationProtocol);
                return Err(refusal(&Error::NoApplicationProtocol));
            }
        }
        Ok(!self.is_handshaking())
    }

    /// What both ends have called the protocol.
    fn called(&self) -> Option<&[u8]> {
        match &self.end {
            End::Connecting(end) => end.alpn_protocol(),
            End::Accepting(end) => end.alpn_protocol(),
        }
    }

    /// Reads ciphertext once; called after [`Connection::open`] or [`Connection::shake`] found nothing.
    pub(crate) fn take(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        self.input.fill(from)
    }

    /// The bytes of ciphertext that were taken and not opened.
    pub(crate) fn taken(&self) -> usize {
        self.input.end - self.input.start
    }

    /// Plaintext of what was taken. `room` is not empty, and the handshake is over.
    pub(crate) fn open(&mut self, room: &mut [u8]) -> io::Result<Moved> {
        if self.opened_start < self.opened.len() {
            let rest = &self.opened[self.opened_start..];
            let count = rest.len().min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            self.opened_start += count;
            return Ok(Moved::Bytes(count));
        }
        // Each round takes a part of the input, or returns.
        loop {
            match self.step(room)? {
                Step::Opened(count) => return Ok(Moved::Bytes(count)),
                Step::Own => {}
                Step::Waits => return Ok(Moved::WouldBlock),
                Step::Ended => return Ok(Moved::End),
            }
        }
    }

    /// One step over the input. After an error, what tells the peer so is owed.
    fn step(&mut self, room: &mut [u8]) -> io::Result<Step> {
        if let Some(error) = &self.broken {
            return Err(refusal(error));
        }
        if self.has_ended {
            return Ok(Step::Ended);
        }
        self.process(room).map_err(|error| {
            let refused = refusal(&error);
            // The alert, if there is one. Nothing else of the input may be looked at again.
            while self.has_to_say() && self.process(&mut []) == Ok(Step::Own) {}
            self.broken = Some(error);
            refused
        })
    }

    fn process(&mut self, room: &mut [u8]) -> Result<Step, Error> {
        let mut ends = Ends {
            opened: &mut self.opened,
            opened_start: &mut self.opened_start,
            owed: &mut self.owed,
            owed_end: &mut self.owed_end,
            room,
        };
        let bytes = self.input.all();
        let (discard, step) = match &mut self.end {
            End::Connecting(end) => ends.take(end.process_tls_records(bytes)),
            End::Accepting(end) => ends.take(end.process_tls_records(bytes)),
        };
        self.input.done_with(discard, step.as_ref().copied());
        self.has_ended |= step == Ok(Step::Ended);
        step
    }

    /// Seals as much as is sealed at once; called when nothing is owed and the handshake is over. Returns
    /// how much it took.
    pub(crate) fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let length = length.min(SEALED_BYTES_MAX);
        if gathered.len() < length + PAGE_BYTES {
            gathered.resize(length + PAGE_BYTES, 0);
        }
        let start = lead(&gathered, PLAIN_OFFSET);
        let plain = &mut gathered[start..start + length];
        let mut filled = 0;
        for slice in slices {
            let count = slice.len().min(length - filled);
            plain[filled..filled + count].copy_from_slice(&slice[..count]);
            filled += count;
        }
        if !self.owes() && self.owed.len() >= PAGE_BYTES {
            let start = lead(&self.owed, OWED_OFFSET);
            (self.owed_start, self.owed_end) = (start, start);
        }
        let sealed = self.write(&mut |state, owed| state.encrypt(plain, owed));
        self.gathered = gathered;
        sealed.map(|()| length)
    }

    /// Says to the peer that nothing follows, if the handshake is over.
    pub(crate) fn finish(&mut self) {
        // A connection that has failed has said so.
        let _ = self.write(&mut |state, owed| state.queue_close_notify(owed));
    }

    /// Adds to what is owed.
    fn write(&mut self, with: &mut With<'_>) -> io::Result<()> {
        // Before this, what TLS itself has to say: new keys, or that there are some. That is little.
        for _ in 0..STEPS_MAX {
            if let Some(error) = &self.broken {
                return Err(refusal(error));
            }
            let mut ends = Ends {
                opened: &mut self.opened,
                opened_start: &mut self.opened_start,
                owed: &mut self.owed,
                owed_end: &mut self.owed_end,
                room: &mut [],
            };
            let seen = self.input.seen();
            let (discard, step) = match &mut self.end {
                End::Connecting(end) => ends.write(end.process_tls_records(seen), with),
                End::Accepting(end) => ends.write(end.process_tls_records(seen), with),
            };
            self.input.start += discard;
            self.input.seen -= discard;
            match step {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(
            "the connection does not take anything now",
        ))
    }

    /// Writes what is owed, until `to` would block. Returns the number of bytes.
    pub(crate) fn pay(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        let before = self.owed_start;
        while self.owes() {
            match to.write(&self.owed[self.owed_start..self.owed_end]) {
                Ok(0) => break,
                Ok(count) => self.owed_start += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let paid = self.owed_start - before;
        if !self.owes() {
            (self.owed_start, self.owed_end) = (0, 0);
        }
        Ok(paid)
    }

    pub(crate) fn owes(&self) -> bool {
        self.owed_start < self.owed_end
    }
}

/// Where a step puts what it has.
struct Ends<'a> {
    opened: &'a mut Vec<u8>,
    opened_start: &'a mut usize,
    owed: &'a mut Vec<u8>,
    owed_end: &'a mut usize,
    room: &'a mut [u8],
}

impl Ends<'_> {
    fn take<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<Step, Error>) {
        let UnbufferedStatus { mut discard, state } = status;
        let step = match state {
            Ok(ConnectionState::ReadTraffic(mut state)) => match state.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    let count = record.payload.len().min(self.room.len());
                    let (now, later) = record.payload.split_at(count);
                    self.room[..count].copy_from_slice(now);
                    self.opened.clear();
                    self.opened.extend_from_slice(later);
                    *self.opened_start = 0;
                    Ok(Step::Opened(count))
                }
                Some(Err(error)) => Err(error),
                None => Ok(Step::Own),
            },
            Ok(ConnectionState::EncodeTlsData(mut state)) => {
                let length = match state.encode(&mut self.owed[*self.owed_end..]) {
                    Err(EncodeError::InsufficientSize(error)) => {
                        self.owed.resize(*self.owed_end + error.required_size, 0);
                        state.encode(&mut self.owed[*self.owed_end..])
                    }
                    encoded => encoded,
                };
                // It is encoded once, into what is long enough.
                *self.owed_end += length.unwrap_or(0);
                Ok(Step::Own)
            }
            Ok(ConnectionState::TransmitTlsData(state)) => {
                state.done();
                Ok(Step::Own)
            }
            Ok(ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake) => {
                Ok(Step::Waits)
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Ended),
            // Early data is not accepted, and other states are not known.
            Ok(_) => Err(Error::General("early data".to_owned())),
            Err(error) => Err(error),
        };
        (discard, step)
    }
}

impl Ends<'_> {
    /// Writes `with` a connection that may; otherwise does what it has to do first, and returns false.
    fn write<D>(
        &mut self,
        status: UnbufferedStatus<'_, '_, D>,
        with: &mut With<'_>,
    ) -> (usize, io::Result<bool>) {
        let UnbufferedStatus { discard, state } = status;
        match state {
            Ok(ConnectionState::WriteTraffic(mut state)) => {
                let room = *self.owed_end + OWED_BYTES_MAX;
                if self.owed.len() < room {
                    self.owed.resize(room, 0);
                }
                let written = with(&mut state, &mut self.owed[*self.owed_end..]);
                let written = written.map(|count| *self.owed_end += count);
                let written = written.map_err(|error| io::Error::other(error.to_string()));
                (discard, written.map(|()| true))
            }
            state => {
                let (discard, step) = self.take(UnbufferedStatus { discard, state });
                let step = step.map_err(|error| refusal(&error));
                (discard, step.map(|_| false))
            }
        }
    }
}

/// A connection that may write, of either end.
trait Writes {
    fn encrypt(&mut self, plain: &[u8], owed: &mut [u8]) -> Result<usize, EncryptError>;
    fn queue_close_notify(&mut self, owed: &mut [u8]) -> Result<usize, EncryptError>;
}

/// What is written with it.
type With<'a> = dyn FnMut(&mut dyn Writes, &mut [u8]) -> Result<usize, EncryptError> + 'a;

impl<D> Writes for WriteTraffic<'_, D> {
    fn encrypt(&mut self, plain: &[u8], owed: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::encrypt(self, plain, owed)
    }

    fn queue_close_notify(&mut self, owed: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::queue_close_notify(self, owed)
    }
}

/// The index of the first byte that lies `offset` bytes after the beginning of a page, if it were that long.
fn lead(buffer: &[u8], offset: usize) -> usize {
    (offset + PAGE_BYTES - buffer.as_ptr().addr() % PAGE_BYTES) % PAGE_BYTES
}

fn breach(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

/// What a peer did wrong, as the end of a sentence about it.
fn refusal(error: &Error) -> io::Error {
    let reason = match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        | Error::AlertReceived(AlertDescription::AccessDenied) => "has another secret".to_owned(),
        Error::InvalidCertificate(_) => {
            format!("has a certificate that {}", said(error))
        }
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "does not accept this host's certificate: it was signed by another authority".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "does not accept this host's certificate: it has expired".to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | Error::NoApplicationProtocol => "has another purpose".to_owned(),
        Error::AlertReceived(
            AlertDescription::UnsupportedCertificate | AlertDescription::HandshakeFailure,
        )
        | Error::PeerIncompatible(PeerIncompatible::IncorrectCertificateTypeExtension) => {
            "has certificates where this host has a key, or the other way round".to_owned()
        }
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

#[cfg(test)]
mod tests;
