//! The frames of a session: messages, and what comes with them in pieces.
//!
//! ```text
//! frame   = kind (1 byte), length (4 bytes, little-endian), payload
//! message = MESSAGE | WITH_BYTES pieces | WITH_FILE pieces      pieces = PIECE* LAST
//! ```
//!
//! What a message says is not this crate's business. A message without pieces may come between two pieces of
//! another one.
//!
//! Invariants:
//! - Memory follows what comes, not what is announced. A message, and the bytes beside it, have 64 MiB at
//!   most. A file, which holds state that moves, is as long as the other end, which knows the secret, makes
//!   it.
//! - Anything unexpected is an error, after which nothing is received.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};

/// The longest frame that is accepted: the longest message. Also the most bytes beside a message.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Bytes before a payload: kind and length.
const HEADER_BYTES: usize = 5;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message with nothing beside it.
    Message,
    /// A message, whose bytes follow.
    WithBytes,
    /// A message, whose file follows.
    WithFile,
    /// A piece of what comes with a message.
    Piece,
    /// The last piece.
    Last,
}

/// The kinds, in the order of their numbers.
const KINDS: [Kind; 5] = [
    Kind::Message,
    Kind::WithBytes,
    Kind::WithFile,
    Kind::Piece,
    Kind::Last,
];

/// What comes with a message.
#[derive(Debug, Default)]
pub enum Beside {
    /// Nothing.
    #[default]
    Nothing,
    /// Bytes.
    Bytes(Vec<u8>),
    /// A memory file.
    File(OwnedFd),
}

/// What records of TLS begin with: an alert, and the beginning of a handshake.
const TLS_KINDS: [u8; 2] = [21, 22];

/// A frame as it is sent; the payload has less than 4 GiB.
pub fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("payloads are shorter than 4 GiB");
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.push(kind as u8);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Receives the messages of the other end.
pub struct Frames<R> {
    from: R,
    /// The message whose pieces are coming.
    open: Option<(Vec<u8>, Open)>,
}

enum Open {
    Bytes(Vec<u8>),
    File(File),
}

impl<R: Read> Frames<R> {
    /// Receives from a connection.
    pub fn new(from: R) -> Frames<R> {
        Frames { from, open: None }
    }

    /// The next message and what came with it; `None` if the other end has gone between two messages.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or something else comes.
    pub fn receive(&mut self) -> io::Result<Option<(Vec<u8>, Beside)>> {
        loop {
            let Some((kind, payload)) = self.frame()? else {
                return match self.open {
                    None => Ok(None),
                    Some(_) => Err(invalid("the connection ended within a message")),
                };
            };
            match (kind, &mut self.open) {
                (Kind::Message, _) => return Ok(Some((payload, Beside::Nothing))),
                (Kind::WithBytes, None) => self.open = Some((payload, Open::Bytes(Vec::new()))),
                (Kind::WithFile, None) => {
                    let file = memfd_create("slackwater-state", MemfdFlags::CLOEXEC)?;
                    self.open = Some((payload, Open::File(file.into())));
                }
                (Kind::Piece | Kind::Last, Some((_, open))) => {
                    open.take(&payload)?;
                    match self.open.take_if(|_| kind == Kind::Last) {
                        Some((message, Open::Bytes(bytes))) => {
                            return Ok(Some((message, Beside::Bytes(bytes))));
                        }
                        Some((message, Open::File(file))) => {
                            return Ok(Some((message, Beside::File(file.into()))));
                        }
                        None => {}
                    }
                }
                (Kind::WithBytes | Kind::WithFile, Some(_)) => {
                    return Err(invalid("a message with pieces between those of another"));
                }
                (Kind::Piece | Kind::Last, None) => {
                    return Err(invalid("a piece of no message"));
                }
            }
        }
    }

    fn frame(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let mut header = [0; HEADER_BYTES];
        let first = loop {
            match self.from.read(&mut header) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut header[first..])?;
        let [kind, length @ ..] = header;
        let length = u32::from_le_bytes(length) as usize;
        let known = KINDS.get(usize::from(kind));
        let kind = *known.ok_or_else(|| match TLS_KINDS.contains(&kind) {
            true => invalid("needs --secret, the file that is used there"),
            false => invalid("does not use this protocol"),
        })?;
        if length > FRAME_BYTES_MAX {
            return Err(invalid(&format!("a message of {length} bytes")));
        }
        let mut payload = Vec::new();
        (&mut self.from)
            .take(length as u64)
            .read_to_end(&mut payload)?;
        match payload.len() == length {
            true => Ok(Some((kind, payload))),
            false => Err(invalid("the connection ended within a message")),
        }
    }
}

impl Open {
    fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Open::Bytes(bytes) if bytes.len() + piece.len() > FRAME_BYTES_MAX => {
                Err(invalid("more than 64 MiB beside a message"))
            }
            Open::Bytes(bytes) => {
                bytes.extend_from_slice(piece);
                Ok(())
            }
            Open::File(file) => file.write_all(piece),
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
