//! Sockets in the folder of a query's state, by which its runs find each other, and what travels over them.
//!
//! ```text
//! 4 bytes   …
//! length    the message as JSON
//! ```
//!
//! Who may write to the folder may connect: such a process could change the checkpoints as well. What comes
//! is bounded all the same, and a message that can't be read ends its connection.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message: it names the parts of a few hundred instances.
const TEXT_BYTES_MAX: u32 = 1 << 20;

/// The path of a socket in an open folder. A path of any length fits into an address that way.
fn path_in(folder: &File, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())
}

/// Connects to the socket `name` in a folder.
///
/// # Errors
///
/// If nobody listens there.
pub fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let folder = File::open(folder)?;
    UnixStream::connect(path_in(&folder, name))
}

/// A socket in a folder. Dropping it removes it, unless another one has taken its name.
#[derive(Debug)]
pub struct Listening {
    /// Accepts connections.
    pub socket: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Listening {
    /// Listens as `name` in a folder, in the place of one that did so before.
    ///
    /// # Errors
    ///
    /// If the folder's file system has no sockets, or it can't be written.
    pub fn new(folder: &Path, name: &str) -> io::Result<Listening> {
        let own = format!("{name}.{}", std::process::id());
        let (made, path) = (folder.join(&own), folder.join(name));
        let open = File::open(folder)?;
        // Of a process that was killed, and had the same number.
        drop(std::fs::remove_file(&made));
        let socket = UnixListener::bind(path_in(&open, &own))?;
        let named = std::fs::metadata(&made)
            .and_then(|of_socket| std::fs::rename(&made, &path).map(|()| of_socket.ino()));
        match named {
            Ok(inode) => Ok(Listening {
                socket,
                path,
                inode,
            }),
            Err(error) => {
                drop(std::fs::remove_file(&made));
                Err(error)
            }
        }
    }

    /// Ends [`UnixListener::accept`] in another thread, and takes the name away.
    pub fn close(&self) {
        // It fails if it was closed before.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let is_own = std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if is_own {
            // Whoever starts next replaces it.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close();
    }
}

/// Sends a message.
///
/// # Errors
///
/// If the connection has ended, or its reader is late by more than the write time-out.
pub fn send(mut stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
    if bytes > TEXT_BYTES_MAX {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "the message is too long",
        ));
    }
    // At once, so that messages of two threads don't mix.
    stream.write_all(&[&bytes.to_le_bytes(), &text[..]].concat())
}

/// Receives a message; `None` at the end of the connection.
///
/// # Errors
///
/// If it is not a message, or the connection fails.
pub fn receive<M: DeserializeOwned>(mut stream: impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let bytes = u32::from_le_bytes(length);
    if bytes > TEXT_BYTES_MAX {
        let reason = "something else than a run of Slackwater is connected";
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    let text = read(&mut stream, bytes)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Reads so many bytes. Memory is taken as they come, not as they are announced.
fn read(stream: &mut impl Read, bytes: u32) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    stream.take(u64::from(bytes)).read_to_end(&mut read)?;
    match read.len() == bytes as usize {
        true => Ok(read),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::super::shelf::ToShelf as Ask;
    use super::*;

    #[test]
    fn the_last_one_that_listens_has_the_name_and_removes_only_its_own() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than an address can be.
        let long = folder.path().join("a".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let first = Listening::new(&long, "active.sock").unwrap();
        let second = Listening::new(&long, "active.sock").unwrap();
        drop(first);
        let connected = connect(&long, "active.sock").unwrap();
        let (accepted, _) = second.socket.accept().unwrap();
        send(&connected, &Ask::Promote).unwrap();
        assert_eq!(receive::<Ask>(&accepted).unwrap(), Some(Ask::Promote));
        drop(connected);
        assert!(receive::<Ask>(&accepted).unwrap().is_none());
        drop(second);
        assert_eq!(std::fs::read_dir(&long).unwrap().count(), 0);
        assert!(connect(&long, "active.sock").is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = receive::<Ask>(Cursor::new(bytes));
        }
    }
}
