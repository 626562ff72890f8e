//! Sockets in the folder of a query's state, by which its runs find each other, and what travels over them.
//!
//! ```text
//! 4 bytes      4 bytes      …                      …
//! text length  data length  the message as JSON    the bytes of parts
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

/// The most bytes that come with a message.
pub const DATA_BYTES_MAX: u32 = 256 << 20;

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

/// Sends a message, with bytes.
///
/// # Errors
///
/// If the connection has ended, or its reader is late by more than the write time-out.
pub fn send(mut stream: impl Write, message: &impl Serialize, data: &[&[u8]]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let too_long = || io::Error::new(ErrorKind::InvalidInput, "the message is too long");
    let lengths = [text.len(), data.iter().map(|data| data.len()).sum()];
    let [text_bytes, data_bytes] = lengths.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
    if text_bytes > TEXT_BYTES_MAX || data_bytes > DATA_BYTES_MAX {
        return Err(too_long());
    }
    let mut head = Vec::with_capacity(8 + text.len());
    head.extend_from_slice(&text_bytes.to_le_bytes());
    head.extend_from_slice(&data_bytes.to_le_bytes());
    head.extend_from_slice(&text);
    stream.write_all(&head)?;
    data.iter().try_for_each(|data| stream.write_all(data))
}

/// Receives a message, with its bytes; `None` at the end of the connection.
///
/// # Errors
///
/// If it is not a message, or the connection fails.
pub fn receive<M: DeserializeOwned>(mut stream: impl Read) -> io::Result<Option<(M, Vec<u8>)>> {
    let mut lengths = [0; 8];
    match stream.read_exact(&mut lengths) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [a, b, c, d, e, f, g, h] = lengths;
    let text_bytes = u32::from_le_bytes([a, b, c, d]);
    let data_bytes = u32::from_le_bytes([e, f, g, h]);
    if text_bytes > TEXT_BYTES_MAX || data_bytes > DATA_BYTES_MAX {
        let reason = "something else than a run of Slackwater is connected";
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    let text = read(&mut stream, text_bytes)?;
    let data = read(&mut stream, data_bytes)?;
    let message = serde_json::from_slice(&text)?;
    Ok(Some((message, data)))
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
        send(&connected, &Ask::Promote, &[b"ab", b"c"]).unwrap();
        let received = receive::<Ask>(&accepted).unwrap();
        assert!(matches!(received, Some((Ask::Promote, data)) if data == b"abc"));
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
