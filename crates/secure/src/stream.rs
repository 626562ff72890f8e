//! A connection for two threads: one reads, the other writes, and both may block.
//!
//! Invariants:
//!
//! - **Nobody blocks while holding the state of TLS.** A reader waits for the socket first, and locks it to
//!   open what came; a writer seals under the lock, and then waits for the socket. So a peer that takes
//!   nothing stops the writer and not the reader.
//! - **In order.** What is sealed is written before anything else is sealed.
//! - **The socket's end is an error**, unless the peer said before that nothing follows. In clear it is an
//!   end.
//! - **Idle costs nothing.** There is no timer; the kernel's keepalive ([`Stream::keep_alive`]) wakes
//!   nobody.
//!
//! Shutdown: [`Stream::shutdown`], from any thread, also by dropping it.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use slackwater_link::tcp::{Moved, Seal};

use crate::connection::Connection;
use crate::keys::{Keys, Purpose};
use crate::secret::Secret;

/// A connection between two hosts, in clear or sealed. `&Stream` reads and writes.
pub struct Stream {
    socket: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
    sealed: Option<Sealed>,
}

/// Locked in this order: the output, then the connection.
struct Sealed {
    connection: Mutex<Connection>,
    /// What the writer has sealed, of one call.
    output: Mutex<Vec<u8>>,
}

impl Stream {
    /// Connects to the [`Door`](crate::Door) at `address`, with the same secret, within `timeout`.
    ///
    /// # Errors
    ///
    /// When nobody answers in time, or the peer does not know the secret (`InvalidData`). The message names
    /// the address.
    pub fn connect(
        address: SocketAddr,
        secret: Option<&Secret>,
        timeout: Duration,
    ) -> io::Result<Stream> {
        let connected = Stream::connect_until(address, secret, timeout, Instant::now() + timeout);
        connected.map_err(|error| {
            let text = match error.kind() {
                // The reason is about the peer.
                ErrorKind::InvalidData => format!("{address} {error}"),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("{address}: no answer within {} s", timeout.as_secs_f64())
                }
                _ => format!("{address}: can't connect: {error}"),
            };
            io::Error::new(error.kind(), text)
        })
    }

    fn connect_until(
        address: SocketAddr,
        secret: Option<&Secret>,
        timeout: Duration,
        deadline: Instant,
    ) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(&address, timeout)?;
        let Some(secret) = secret else {
            return Stream::new(socket, None);
        };
        let mut tls = Connection::connecting(&Keys::new(secret, Purpose::Control))?;
        let mut heard = 0;
        // A handshake has few messages; each round reads some of the peer's.
        loop {
            let shaken = tls.open(&mut []);
            // First what is owed: after an error it tells the peer why.
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Some(left).filter(|left| !left.is_zero());
            let left = left.ok_or(ErrorKind::TimedOut)?;
            socket.set_write_timeout(Some(left))?;
            let paid = tls.pay(&mut &socket);
            shaken?;
            paid?;
            if tls.owes() {
                return Err(ErrorKind::TimedOut.into());
            }
            if tls.is_ready() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            let count = match tls.take(&mut &socket) {
                // A peer in clear, which has read no message of its own.
                Err(error) if error.kind() == ErrorKind::ConnectionReset && heard == 0 => 0,
                taken => taken?,
            };
            if count == 0 {
                return Err(if heard == 0 { unheard() } else { cut() });
            }
            heard += count;
        }
        socket.set_write_timeout(None)?;
        socket.set_read_timeout(None)?;
        Stream::new(socket, Some(tls))
    }

    /// A stream over a socket that blocks, whose handshake is over.
    pub(crate) fn new(socket: TcpStream, tls: Option<Connection>) -> io::Result<Stream> {
        // What is written is sent: batching is the writer's business.
        socket.set_nodelay(true)?;
        Ok(Stream {
            local: socket.local_addr()?,
            peer: socket.peer_addr()?,
            socket,
            sealed: tls.map(|connection| Sealed {
                connection: Mutex::new(connection),
                output: Mutex::default(),
            }),
        })
    }

    /// The address of this end.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The address of the other end.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the stream is encrypted.
    pub fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Lets the kernel find out that the peer's host is gone: after `idle` without a packet it asks every
    /// `interval`, and breaks the connection after `count` questions without an answer. What was written
    /// breaks it if it is not acknowledged for as long as all that together. In whole seconds, at least one
    /// each.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a value.
    pub fn keep_alive(&self, idle: Duration, interval: Duration, count: u32) -> io::Result<()> {
        let seconds = |time: Duration| Duration::from_secs(time.as_secs().max(1));
        let (idle, interval, count) = (seconds(idle), seconds(interval), count.max(1));
        sockopt::set_tcp_keepidle(&self.socket, idle)?;
        sockopt::set_tcp_keepintvl(&self.socket, interval)?;
        sockopt::set_tcp_keepcnt(&self.socket, count)?;
        sockopt::set_socket_keepalive(&self.socket, true)?;
        let all = idle + interval.saturating_mul(count);
        let all_ms = u32::try_from(all.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.socket, all_ms)?;
        Ok(())
    }

    /// Waits until the peer has sent something, or has ended.
    ///
    /// # Errors
    ///
    /// `TimedOut` if it is silent for so long. The message names its address.
    pub fn await_answer(&self, timeout: Duration) -> io::Result<()> {
        let is_taken = |sealed: &Sealed| lock(&sealed.connection).taken() > 0;
        if self.sealed.as_ref().is_some_and(is_taken) {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        // A signal may end a wait early.
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
            match rustix::event::poll(&mut wanted, Some(&left)) {
                Ok(0) => {
                    let text = format!(
                        "{}: no answer within {} s",
                        self.peer,
                        timeout.as_secs_f64()
                    );
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends both directions: a blocked reader and a blocked writer return. The peer sees an end, or, if a
    /// write is blocked meanwhile, a connection that was cut off.
    pub fn shutdown(&self) {
        if let Some(sealed) = &self.sealed {
            sealed.say_goodbye(&self.socket);
        }
        // A connection that is broken already has nobody to tell.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &self.sealed {
            None => (&self.socket).read(room),
            Some(_) if room.is_empty() => Ok(0),
            Some(sealed) => sealed.read(&self.socket, room),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.sealed {
            None => (&self.socket).write(bytes),
            Some(sealed) => sealed.write(&self.socket, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sealed {
    fn read(&self, socket: &TcpStream, room: &mut [u8]) -> io::Result<usize> {
        // Each round waits for more from the socket.
        loop {
            {
                let mut connection = lock(&self.connection);
                match connection.open(room)? {
                    Moved::Bytes(count) => return Ok(count),
                    Moved::End => return Ok(0),
                    Moved::WouldBlock => {}
                }
                match connection.take(&mut AtOnce(socket)) {
                    Ok(0) => return Err(cut()),
                    Ok(_) => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let mut wanted = [PollFd::new(socket, PollFlags::IN)];
            match rustix::event::poll(&mut wanted, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Seals up to 64 KiB, which is what the connection takes at once, and writes all of it.
    fn write(&self, mut socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut output = lock(&self.output);
        output.clear();
        let count = {
            let mut connection = lock(&self.connection);
            let count = connection.seal(&[IoSlice::new(bytes)])?;
            connection.pay(&mut *output)?;
            count
        };
        socket.write_all(&output)?;
        Ok(count)
    }

    /// Says that nothing follows, unless that would block.
    fn say_goodbye(&self, socket: &TcpStream) {
        let mut output = match self.output.try_lock() {
            Ok(output) => output,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A write is in progress, and half a record may be sent.
            Err(TryLockError::WouldBlock) => return,
        };
        output.clear();
        let mut connection = lock(&self.connection);
        connection.finish();
        if connection.pay(&mut *output).is_ok() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = rustix::net::send(socket, &output, flags);
        }
    }
}

/// A socket that blocks, read without waiting.
struct AtOnce<'a>(&'a TcpStream);

impl Read for AtOnce<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (count, _) = rustix::net::recv(self.0, room, RecvFlags::DONTWAIT)?;
        Ok(count)
    }
}

fn unheard() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "the connection was closed before a greeting: is --secret used there, too?",
    )
}

fn cut() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the connection was cut off")
}

/// Nothing panics under these locks; even then the connection would report its own error.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
