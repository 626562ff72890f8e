//! Checkpoints that a standby stores: agents send it what has changed, and it answers what is stored.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slackwater_checkpoint::manifest::Part;

use super::socket::{DATA_BYTES_MAX, connect, receive, send};

/// The name of the standby's socket in the folder of the state.
pub const SHELF_SOCKET: &str = "standby.sock";

/// How long a standby may take to store the parts of an instance. Then the agent stores them itself, so that
/// a standby that is stopped costs one late checkpoint.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a standby is asked at its own socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToShelf {
    /// Store these parts, whose bytes follow in this order: what has changed of one instance since the last
    /// checkpoint.
    Store {
        /// The incarnation.
        epoch: u64,
        /// The node's key.
        node: String,
        /// The parts.
        parts: Vec<Part>,
    },
    /// Go on now: nobody runs the query.
    Promote,
}

/// What a standby answers there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromShelf {
    /// The parts are stored.
    Stored {
        /// All parts that the checkpoint gets: those that were sent, perhaps behind a base that replaces
        /// what it had before.
        parts: Vec<Part>,
    },
    /// It goes on.
    Goes,
    /// It can't: why.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// A connection to the standby that stores.
#[derive(Debug)]
pub struct Shelf {
    stream: UnixStream,
}

impl Shelf {
    /// Connects to the standby of the state in a folder.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn connect(folder: &Path) -> io::Result<Shelf> {
        let stream = connect(folder, SHELF_SOCKET)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Shelf { stream })
    }

    /// Has the parts of one instance stored; returns all that the checkpoint gets.
    ///
    /// # Errors
    ///
    /// If the standby has not stored them. Then the connection can't be used any more.
    pub fn store(
        &self,
        epoch: u64,
        node: &str,
        parts: &[(Part, Vec<u8>)],
    ) -> io::Result<Vec<Part>> {
        let bytes = parts.iter().map(|(_, bytes)| bytes.len() as u64);
        if bytes.sum::<u64>() > u64::from(DATA_BYTES_MAX) {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "it is too much at once",
            ));
        }
        let message = ToShelf::Store {
            epoch,
            node: node.to_string(),
            parts: parts.iter().map(|(part, _)| part.clone()).collect(),
        };
        let data = parts.iter().map(|(_, bytes)| &bytes[..]);
        send(&self.stream, &message, &data.collect::<Vec<&[u8]>>())?;
        match receive::<FromShelf>(&self.stream)? {
            Some((FromShelf::Stored { parts }, _)) => Ok(parts),
            Some((FromShelf::Refused { reason }, _)) => Err(io::Error::other(reason)),
            Some((FromShelf::Goes, _)) => Err(ErrorKind::InvalidData.into()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
