//! Checkpoints that a standby stores: agents send it what has changed, and it answers what is stored.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use slackwater_checkpoint::manifest::Part;

use super::socket::{connect, receive, send};

/// The name of the standby's socket in the folder of the state.
pub const SHELF_SOCKET: &str = "standby.sock";

/// The most bytes of one instance at a time.
const DATA_BYTES_MAX: u32 = 1 << 30;

/// How long a standby may take to store the parts of an instance. Then the agent stores them itself, so that
/// a standby that is stopped costs one late checkpoint.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a standby is asked at its own socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToShelf {
    /// Store these parts: what has changed of one instance since the last checkpoint. Their bytes are in the
    /// memory, in this order, until the answer.
    Store {
        /// Where they are.
        memory: Memory,
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

/// A memory file of another process of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The process.
    pid: u32,
    /// Its descriptor.
    descriptor: i32,
}

impl Memory {
    /// The first so many bytes.
    ///
    /// # Errors
    ///
    /// If the process is gone, belongs to another user, or has fewer.
    pub fn read(self, bytes: u64) -> io::Result<Vec<u8>> {
        let Memory { pid, descriptor } = self;
        if bytes > u64::from(DATA_BYTES_MAX) {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut file = File::open(format!("/proc/{pid}/fd/{descriptor}"))?;
        let mut read = vec![0; bytes as usize];
        file.read_exact(&mut read)?;
        Ok(read)
    }
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
    /// Where the bytes are that it is to store. Sending them would cost more than storing them: a socket's
    /// buffer holds some hundred kilobytes, and both ends would be woken for each of them.
    memory: File,
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
        let memory = memfd_create("checkpoint", MemfdFlags::CLOEXEC)?;
        Ok(Shelf {
            stream,
            memory: memory.into(),
        })
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
        let mut at = 0;
        for (_, bytes) in parts {
            self.memory.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
        }
        let message = ToShelf::Store {
            memory: Memory {
                pid: std::process::id(),
                descriptor: self.memory.as_raw_fd(),
            },
            epoch,
            node: node.to_string(),
            parts: parts.iter().map(|(part, _)| part.clone()).collect(),
        };
        send(&self.stream, &message)?;
        match receive::<FromShelf>(&self.stream)? {
            Some(FromShelf::Stored { parts }) => Ok(parts),
            Some(FromShelf::Refused { reason }) => Err(io::Error::other(reason)),
            Some(FromShelf::Goes) => Err(ErrorKind::InvalidData.into()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
