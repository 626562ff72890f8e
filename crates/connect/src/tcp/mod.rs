//! Code that the tcp source and sink share: the peer's address, connecting and listening, and what happens
//! when a connection ends.

mod dialer;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use slackwater_engine::error::{Error, Result};

use crate::options::{OptionError, Options};

pub(crate) use dialer::{BackOff, Dialer};

/// How long the peer may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that wait in the kernel until they are accepted; it allows no more than `net.core.somaxconn`.
/// In a larger burst, some peers retry after a second.
const BACKLOG_MAX: i32 = 4_096;

/// The kernel probes a silent peer's host after this time, and gives up after this many probes: a host that
/// lost power does not close its connections.
const SILENCE: Duration = Duration::from_secs(60);
const PROBES: u32 = 3;

/// Whether we connect or listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Connect,
    Listen,
}

/// What happens when a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnClose {
    /// Wait for the next one.
    Reconnect,
    /// A source ends; a sink fails.
    End,
}

/// The peer of a tcp table.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// The table, for messages.
    pub(crate) table: String,
    pub(crate) address: String,
    pub(crate) mode: Mode,
}

impl Endpoint {
    pub(crate) fn read(
        table: &str,
        options: &Options<'_>,
    ) -> std::result::Result<Endpoint, OptionError> {
        let address = options.required("address", "127.0.0.1:9000")?;
        let port = address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(_))) if !host.is_empty() => {}
            _ => {
                let reason = format!("'{address}' is not a host and port");
                return Err(OptionError::new(
                    "address",
                    reason,
                    "write '127.0.0.1:9000'",
                ));
            }
        }
        let modes = [("connect", Mode::Connect), ("listen", Mode::Listen)];
        let mode = options.choice("mode", &modes, Mode::Connect)?;
        Ok(Endpoint {
            table: table.to_string(),
            address: address.to_string(),
            mode,
        })
    }

    pub(crate) fn error(&self, what: &str, error: &std::io::Error) -> Error {
        Error::new(self.address.clone(), format!("can't {what}: {error}"))
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let addresses = self.address.to_socket_addrs().map_err(|error| {
            self.error("look up the address", &error)
                .hint("check 'address'")
        })?;
        Ok(addresses.collect())
    }

    /// Connects to the peer. Blocks, for at most [`CONNECT_TIMEOUT`] for each of its addresses.
    pub(crate) fn connect(&self) -> Result<TcpStream> {
        let mut failure = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for address in self.resolve()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    return set_up(&stream)
                        .and_then(|()| stream.set_nodelay(true))
                        .map(|()| stream)
                        .map_err(|error| self.error("set up the connection", &error));
                }
                Err(error) => failure = error,
            }
        }
        Err(self
            .error("connect", &failure)
            .hint("start the peer first, or let it call with 'mode' = 'listen'"))
    }

    pub(crate) fn listen(&self) -> Result<TcpListener> {
        let addresses = self.resolve()?;
        TcpListener::bind(&addresses[..])
            .and_then(|listener| {
                listener.set_nonblocking(true)?;
                // The standard library lets 128 wait.
                rustix::net::listen(&listener, BACKLOG_MAX)?;
                Ok(listener)
            })
            .map_err(|error| {
                self.error("listen", &error)
                    .hint("is the port already in use?")
            })
    }

    /// Prints a warning while the query runs.
    pub(crate) fn warn(&self, what: &str) {
        eprintln!("warning: table '{}': {what}", self.table);
    }

    /// Prints a note that the cause of a warning is gone.
    pub(crate) fn note(&self, what: &str) {
        eprintln!("note: table '{}': {what}", self.table);
    }
}

/// The address of the peer, for messages.
pub(crate) fn peer_of(stream: &TcpStream, endpoint: &Endpoint) -> String {
    stream
        .peer_addr()
        .map_or_else(|_| endpoint.address.clone(), |peer| peer.to_string())
}

/// Makes the socket non-blocking, and has the kernel notice a host that is gone.
pub(crate) fn set_up(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    keep_alive(stream)
}

/// Lets the kernel probe a silent peer's host.
pub(crate) fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / PROBES)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

/// The outcome of accepting a connection, if there is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAccepted {
    /// No peer waits.
    Nobody,
    /// This connection is gone; there may be others. Linux reports network errors of a connection here.
    Gone,
    /// There is no room for another connection now: the process has no descriptors left, or the host no
    /// memory.
    NoRoom,
    /// The socket can't listen any more.
    Failed,
}

impl NotAccepted {
    pub(crate) fn of(error: &std::io::Error) -> NotAccepted {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::AGAIN) => NotAccepted::Nobody,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => NotAccepted::NoRoom,
            Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => NotAccepted::Failed,
            _ => NotAccepted::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_full_process_does_not_end_a_query_that_listens() {
        let kind_of = |errno: rustix::io::Errno| NotAccepted::of(&errno.into());
        use rustix::io::Errno;
        assert_eq!(kind_of(Errno::MFILE), NotAccepted::NoRoom);
        assert_eq!(kind_of(Errno::NFILE), NotAccepted::NoRoom);
        assert_eq!(kind_of(Errno::CONNABORTED), NotAccepted::Gone);
        assert_eq!(kind_of(Errno::PROTO), NotAccepted::Gone);
        assert_eq!(kind_of(Errno::INTR), NotAccepted::Gone);
        assert_eq!(kind_of(Errno::AGAIN), NotAccepted::Nobody);
        assert_eq!(kind_of(Errno::NOTSOCK), NotAccepted::Failed);
    }
}
