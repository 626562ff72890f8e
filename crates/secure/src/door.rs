//! The listening end: one thread that accepts connections, makes their handshakes and hands streams over.
//!
//! Invariants:
//!
//! - A handshake costs a descriptor and some 13 KB, for a limited time, and their number is limited. One
//!   more displaces the oldest: a host that knows the secret answers at once, and a silent stranger
//!   doesn't.
//! - Strangers cost this thread their key exchange, and no other.
//! - Without handshakes in progress the thread sleeps without a time-out.
//! - In clear it listens at loopback addresses only.
//!
//! Shutdown: dropping the door ends the thread, and with it the handshakes in progress. Streams that were
//! handed over stay open.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use slackwater_link::LinkError;
use slackwater_link::tcp::{Refusals, Seal};

use crate::connection::Connection;
use crate::keys::{Keys, Purpose};
use crate::secret::{MAKE, Secret};
use crate::stream::Stream;

/// The most handshakes in progress at once: 64 × some 13 KB are 0.8 MB, and more hosts than a cluster
/// starts in the milliseconds that a handshake takes. One more displaces the oldest.
pub const HANDSHAKES_MAX: usize = 64;

/// How long a handshake may take: 5 s are a lost packet in each of its three flights, and more.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most connections accepted between two looks at the handshakes: a quarter of them, so that a crowd
/// that comes at once doesn't displace a host before its answer was read.
const ACCEPTS_PER_ROUND: usize = HANDSHAKES_MAX / 4;

/// The pause after an accept that failed, most likely because no descriptors were left: ten attempts a
/// second are enough until other parts of this process have closed some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens, and lets in those that know the secret.
pub struct Door {
    address: SocketAddr,
    refusals: Arc<Mutex<Refusals>>,
    /// Readable when the thread has to end.
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Listens at `address`, where port 0 lets the kernel choose one, and calls `admitted` with each stream,
    /// on the door's thread: it must not block. Without a secret, streams are in clear. For each connection
    /// that is refused, `turned_away` is called on the same thread.
    ///
    /// # Errors
    ///
    /// When the address is not available, when there is no descriptor or thread left, and for an address
    /// beyond loopback without a secret.
    pub fn bind(
        address: SocketAddr,
        secret: Option<Secret>,
        admitted: impl Fn(Stream, SocketAddr) + Send + 'static,
        turned_away: impl Fn(&LinkError) + Send + 'static,
    ) -> io::Result<Door> {
        if secret.is_none() && !address.ip().to_canonical().is_loopback() {
            let what = format!(
                "{address}: without a secret anybody there could give orders; make one, and give it to every \
                 host: {MAKE}"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, what));
        }
        let listener = TcpListener::bind(address).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::AddrInUse => {
                    "another program listens there; use another port".to_owned()
                }
                ErrorKind::AddrNotAvailable => "it is not an address of this host".to_owned(),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("can't listen at {address}: {why}"))
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let refusals = Arc::new(Mutex::default());
        let mut doorman = Doorman {
            listener,
            keys: secret.map(|secret| Keys::new(&secret, Purpose::Control)),
            bell: Arc::clone(&bell),
            refusals: Arc::clone(&refusals),
            admitted,
            turned_away,
            handshakes: Vec::new(),
            accept_after: None,
        };
        let thread = std::thread::Builder::new()
            .name("door".to_owned())
            .spawn(move || while doorman.round() {})?;
        Ok(Door {
            address,
            refusals,
            bell,
            thread: Some(thread),
        })
    }

    /// The address that it listens at.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The connections refused so far.
    pub fn refused(&self) -> Refusals {
        lock(&self.refusals).clone()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The counter of an eventfd takes one more; a thread that is gone already needs no bell.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of `admitted` was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Doorman<F, G> {
    listener: TcpListener,
    /// None in clear.
    keys: Option<Keys>,
    bell: Arc<OwnedFd>,
    refusals: Arc<Mutex<Refusals>>,
    admitted: F,
    turned_away: G,
    /// The handshakes in progress, the oldest first.
    handshakes: Vec<Handshake>,
    /// No connection is accepted before this time.
    accept_after: Option<Instant>,
}

struct Handshake {
    socket: TcpStream,
    peer: SocketAddr,
    tls: Connection,
    deadline: Instant,
}

/// What the thread was woken for.
struct Ready {
    /// The door was dropped.
    is_over: bool,
    /// Which handshakes can go on.
    handshakes: Vec<bool>,
}

impl<F: Fn(Stream, SocketAddr), G: Fn(&LinkError)> Doorman<F, G> {
    /// Sleeps, then does what there is to do. Returns false at the end.
    fn round(&mut self) -> bool {
        let Ok(ready) = self.sleep() else {
            // Poll itself fails: out of memory. Sleep, to avoid a busy loop.
            std::thread::sleep(ACCEPT_PAUSE);
            return true;
        };
        if ready.is_over {
            return false;
        }
        let now = Instant::now();
        self.go_on(&ready.handshakes, now);
        if self.accept_after.is_none_or(|after| after <= now) {
            self.accept_after = None;
            self.accept(now);
        }
        true
    }

    fn sleep(&self) -> Result<Ready, Errno> {
        let deadlines = self.handshakes.iter().map(|handshake| handshake.deadline);
        let due = deadlines.chain(self.accept_after).min();
        let timeout = due.map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            // At most a handshake's time.
            Timespec::try_from(left).unwrap_or_default()
        });
        let listening = match self.accept_after {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut descriptors = Vec::with_capacity(2 + self.handshakes.len());
        descriptors.push(PollFd::new(&*self.bell, PollFlags::IN));
        descriptors.push(PollFd::new(&self.listener, listening));
        for handshake in &self.handshakes {
            let awaited = match handshake.tls.owes() {
                false => PollFlags::IN,
                true => PollFlags::IN | PollFlags::OUT,
            };
            descriptors.push(PollFd::new(&handshake.socket, awaited));
        }
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
        Ok(Ready {
            is_over: is_ready(&descriptors[0]),
            handshakes: descriptors[2..].iter().map(is_ready).collect(),
        })
    }

    fn go_on(&mut self, ready: &[bool], now: Instant) {
        let mut ready = ready.iter();
        let mut kept = Vec::with_capacity(self.handshakes.len());
        for mut handshake in std::mem::take(&mut self.handshakes) {
            let is_over = match ready.next() {
                Some(true) => handshake.go_on(),
                _ => Ok(false),
            };
            match is_over {
                Ok(true) => self.admit(handshake.socket, handshake.peer, Some(handshake.tls)),
                Ok(false) if handshake.deadline <= now => {
                    let timeout_s = HANDSHAKE_TIMEOUT.as_secs();
                    let reason = format!("did not finish its handshake within {timeout_s} s");
                    self.refuse(handshake.peer, reason);
                }
                Ok(false) => kept.push(handshake),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.refuse(handshake.peer, error.to_string());
                }
                Err(error) => {
                    let reason = format!("stopped during its handshake: {error}");
                    self.refuse(handshake.peer, reason);
                }
            }
        }
        self.handshakes = kept;
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    // Out of descriptors or memory: the connection stays in the kernel's queue.
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            let Some(keys) = &self.keys else {
                self.admit(socket, peer, None);
                continue;
            };
            // A socket that can't be set, or no randomness: no connection.
            let (Ok(()), Ok(tls)) = (socket.set_nonblocking(true), Connection::accepting(keys))
            else {
                self.refuse(
                    peer,
                    "could not be served: this host is out of memory".to_owned(),
                );
                continue;
            };
            if self.handshakes.len() == HANDSHAKES_MAX {
                let oldest = self.handshakes.remove(0);
                let reason = "did not finish its handshake before too many others connected";
                self.refuse(oldest.peer, reason.to_owned());
            }
            self.handshakes.push(Handshake {
                socket,
                peer,
                tls,
                deadline: now + HANDSHAKE_TIMEOUT,
            });
        }
    }

    fn admit(&self, socket: TcpStream, peer: SocketAddr, tls: Option<Connection>) {
        let stream = socket
            .set_nonblocking(false)
            .and_then(|()| Stream::new(socket, tls));
        match stream {
            Ok(stream) => (self.admitted)(stream, peer),
            Err(error) => self.refuse(peer, format!("broke its connection: {error}")),
        }
    }

    fn refuse(&self, peer: SocketAddr, reason: String) {
        let hint =
            "allow only hosts of the cluster to connect to this port, and give all the same secret";
        let refusal = LinkError::new(peer.to_string(), reason).hint(hint);
        (self.turned_away)(&refusal);
        lock(&self.refusals).note(refusal);
    }
}

impl Handshake {
    /// As far as it goes without waiting. Returns whether the peer has proven that it knows the secret.
    fn go_on(&mut self) -> io::Result<bool> {
        // Each round reads some of the peer's few messages.
        loop {
            let opened = self.tls.open(&mut []);
            // First what is owed: after an error it tells the peer why.
            let paid = self.tls.pay(&mut &self.socket);
            opened?;
            paid?;
            if self.tls.is_ready() {
                return Ok(!self.tls.owes());
            }
            match self.tls.take(&mut &self.socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Nothing panics under this lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
