//! A connection between an active and its standby: a socket in the folder of the state, or TCP to another
//! host.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slackwater_secure::{Secret, Stream};

use crate::checkpoints::socket::connect;

/// The name of the active's socket in the folder of the state.
pub const SOCKET: &str = "active.sock";

/// How long connecting to another host may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// The kernel asks a silent peer so often before the connection breaks.
const QUESTIONS: u32 = 2;

/// Where the active is reached.
#[derive(Clone)]
pub enum Place {
    /// In the folder of the state.
    Folder(PathBuf),
    /// On another host.
    Address(Remote),
}

/// An address, and what is needed there.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The address.
    pub address: SocketAddr,
    /// What both hosts know.
    pub secret: Option<Secret>,
    /// How long the other host may be silent.
    pub timeout: Duration,
}

/// A connection. Clones are the same connection.
#[derive(Clone)]
pub enum Wire {
    /// On this host.
    Local(Arc<UnixStream>),
    /// To another host, or as if.
    Remote(Arc<Stream>),
}

impl Place {
    /// Connects to the active; `None` if nobody is there.
    ///
    /// # Errors
    ///
    /// If something else is there.
    pub fn connect(&self) -> io::Result<Option<Wire>> {
        let remote = match self {
            Place::Folder(folder) => {
                let connected = connect(folder, SOCKET).ok();
                return Ok(connected.map(|stream| Wire::Local(Arc::new(stream))));
            }
            Place::Address(remote) => remote,
        };
        match Stream::connect(remote.address, remote.secret.as_ref(), CONNECT_PATIENCE) {
            Ok(stream) => Wire::remote(stream, remote.timeout).map(Some),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                ) =>
            {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Folder(folder) => write!(f, "{}", folder.display()),
            Place::Address(remote) => write!(f, "{}", remote.address),
        }
    }
}

impl Wire {
    /// A connection to another host, which breaks when that is silent for `timeout`. Nothing wakes up for it
    /// here: the kernel asks.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn remote(stream: Stream, timeout: Duration) -> io::Result<Wire> {
        let step = timeout / (QUESTIONS + 1);
        stream.keep_alive(step, step, QUESTIONS)?;
        Ok(Wire::Remote(Arc::new(stream)))
    }

    /// Whether the other end is on this host, and sees the same folder.
    pub fn is_local(&self) -> bool {
        matches!(self, Wire::Local(_))
    }

    /// Waits until the other end has said something, or has ended.
    ///
    /// # Errors
    ///
    /// If it is silent for so long.
    pub fn await_answer(&self, patience: Duration) -> io::Result<()> {
        match self {
            Wire::Local(stream) => {
                stream.set_read_timeout(Some(patience))?;
                let peeked = rustix::net::recv(stream, &mut [0; 1], rustix::net::RecvFlags::PEEK);
                stream.set_read_timeout(None)?;
                match peeked {
                    Ok(_) => Ok(()),
                    Err(rustix::io::Errno::AGAIN) => Err(ErrorKind::TimedOut.into()),
                    Err(error) => Err(error.into()),
                }
            }
            Wire::Remote(stream) => stream.await_answer(patience),
        }
    }

    /// The address of the other end, if that is on another host, or as if.
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Wire::Local(_) => None,
            Wire::Remote(stream) => Some(stream.peer_address().ip()),
        }
    }

    /// Ends both directions.
    pub fn shutdown(&self) {
        match self {
            // It fails if the other end has done so.
            Wire::Local(stream) => drop(stream.shutdown(Shutdown::Both)),
            Wire::Remote(stream) => stream.shutdown(),
        }
    }
}

impl Read for &Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Local(stream) => (&**stream).read(room),
            Wire::Remote(stream) => (&**stream).read(room),
        }
    }
}

impl Write for &Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Local(stream) => (&**stream).write(bytes),
            Wire::Remote(stream) => (&**stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
