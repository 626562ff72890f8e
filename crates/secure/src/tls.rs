//! TLS as the seal of a data link.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use slackwater_link::tcp::{Guard, Moved, Seal};

use crate::connection::{Connection, End, RECORD_COST};
use crate::keys::{Keys, Purpose};
use crate::secret::Secret;

/// Records are of 16 KiB, but for the last of a batch, which is at least of that size: half, on average.
const RECORD_BYTES: u64 = 8 << 10;

/// Records that are short without being counted by their link: heartbeats, an end, a notice.
const RECORDS_SHORT: u64 = 8;

impl Connection {
    /// The end that calls. Its greeting is owed.
    pub(crate) fn connecting(keys: &Keys) -> io::Result<Connection> {
        let end = End::Connecting(keys.connecting()?);
        let mut connection = Connection::new(end, keys.protocol());
        connection.shake()?;
        Ok(connection)
    }

    /// The end that is called.
    pub(crate) fn accepting(keys: &Keys) -> io::Result<Connection> {
        let end = End::Accepting(keys.accepting()?);
        Ok(Connection::new(end, keys.protocol()))
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
        Ok(Box::new(Connection::connecting(self)?))
    }

    fn accepting(&self) -> io::Result<Box<dyn Seal>> {
        Ok(Box::new(Connection::accepting(self)?))
    }
}

impl Seal for Connection {
    fn is_ready(&self) -> bool {
        !self.is_handshaking()
    }

    fn take(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        Connection::take(self, from)
    }

    fn open(&mut self, room: &mut [u8]) -> io::Result<Moved> {
        if !self.shake()? || room.is_empty() {
            return Ok(Moved::WouldBlock);
        }
        Connection::open(self, room)
    }

    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Connection::seal(self, slices)
    }

    fn pay(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        Connection::pay(self, to)
    }

    fn owes(&self) -> bool {
        Connection::owes(self)
    }

    fn waiting(&self, unread: u64) -> u64 {
        // The rest of a record that was opened is not counted: this is a lower bound.
        let bytes = unread + self.taken() as u64;
        bytes.saturating_sub(RECORD_COST * (bytes / RECORD_BYTES + RECORDS_SHORT))
    }

    fn finish(&mut self) {
        Connection::finish(self);
    }
}
