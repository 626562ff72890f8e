//! The listening end of a process: one thread that accepts connections, reads their greetings and hands
//! those that it accepts to the readers.
//!
//! Invariants:
//! - A greeting in progress costs a descriptor and 80 bytes, or the state of a seal, for a limited time, and
//!   their number is limited. One more displaces the oldest, once that had its time: a writer greets at once,
//!   so a crowd of silent strangers can't keep it out.
//! - Seals make their handshakes here, so key exchanges that strangers begin cost this thread and no worker.
//! - A peer that does not show the token gets no answer.
//! - The thread answers a writer that comes back even while the reader's own worker is busy: the position
//!   to resume from is in the reader's slot.
//! - Without greetings in progress the thread sleeps without a time-out.
//!
//! Shutdown: dropping the acceptor ends the thread and closes the listening socket. Readers continue with
//! the connections that they have.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::bell::Bell;
use crate::error::LinkError;
use crate::sync::Arc;
use crate::tcp::hello::{Answer, HELLO_BYTES, Hello, Reply, Unreadable, random_number};
use crate::tcp::mailbox::{Arrival, Reason, Refusals, Shared, Slot};
use crate::tcp::reader::Reader;
use crate::tcp::socket::{self, Moved};
use crate::tcp::user::{OFFER_BYTES, Offer, Stream};
use crate::tcp::wire::Wire;
use crate::tcp::{Carrier, Identity, SEALED_HANDSHAKES_MAX, Settings, after, now_ns};
use crate::waiter::WaiterHandle;

/// The most connections accepted between two looks at the greetings in progress: a quarter of those that may
/// be sealed, so that a crowd that comes at once doesn't displace a writer before its next message was read.
const ACCEPTS_PER_ROUND: usize = SEALED_HANDSHAKES_MAX / 4;

/// How long a greeting in progress is safe from being displaced: a hundred round trips of 1 ms. A query may
/// have more links than greetings are allowed at once, and they all come in the same moment. A crowd of
/// strangers is let in at 64 in this time, so that a writer behind 128 of them in the kernel's queue waits
/// for 0.2 s.
const GREETING_PATIENCE: Duration = Duration::from_millis(100);

/// The pause after an accept that failed, most likely because no descriptors were left: ten attempts a
/// second are enough until other parts of this process have closed some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket and its thread. One per process.
pub struct Acceptor {
    address: SocketAddr,
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens at `address`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// When the address is not available, or there is no descriptor or thread left.
    pub fn bind(
        address: SocketAddr,
        identity: Identity,
        settings: Settings,
    ) -> io::Result<Acceptor> {
        Acceptor::bind_guarded(address, identity, settings, None)
    }

    /// As [`Acceptor::bind`], for writers with a seal of the guard, over frames of the transport.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn bind_guarded(
        address: SocketAddr,
        identity: Identity,
        settings: Settings,
        carrier: impl Into<Carrier>,
    ) -> io::Result<Acceptor> {
        let listener = TcpListener::bind(address).map_err(|error| {
            let explanation = format!("can't listen at {address}: {error}");
            io::Error::new(error.kind(), explanation)
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(identity, settings));
        let bell = Arc::new(Bell::new()?);
        let mut doorman = Doorman {
            listener,
            shared: Arc::clone(&shared),
            bell: Arc::clone(&bell),
            carrier: carrier.into(),
            greetings: Vec::new(),
            accept_after_ns: None,
        };
        let thread = std::thread::Builder::new()
            .name("link-acceptor".to_owned())
            .spawn(move || while doorman.round() {})?;
        Ok(Acceptor {
            address,
            shared,
            bell,
            thread: Some(thread),
        })
    }

    /// The address that it listens at.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The reading end of the link number `link`, whose writer is expected from now on.
    ///
    /// # Panics
    ///
    /// When the link has a reader already.
    pub fn reader(&self, link: u64, peer_name: &str, waiter: impl Into<WaiterHandle>) -> Reader {
        let waiter = waiter.into();
        let settings = self.shared.settings;
        let slot = Arc::new(Slot::new(random_number(), settings, waiter.waker()));
        self.shared.expect(link, Arc::clone(&slot));
        let shared = Arc::clone(&self.shared);
        Reader::new(link, peer_name.to_owned(), slot, shared, waiter.registrar())
    }

    /// The writers refused so far, and the connections that readers dropped because the peer broke the
    /// rules.
    pub fn refused(&self) -> Refusals {
        self.shared.refused()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.stop();
        self.bell.strike();
        if let Some(thread) = self.thread.take() {
            // The thread has no panic of its own to report.
            let _ = thread.join();
        }
        self.shared.close();
    }
}

/// The state of the thread.
struct Doorman {
    listener: TcpListener,
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    carrier: Carrier,
    /// The greetings in progress, the oldest first. At most [`Doorman::greetings_max`].
    greetings: Vec<Greeting>,
    /// No connection is accepted before this time.
    accept_after_ns: Option<u64>,
}

struct Greeting {
    wire: Wire,
    address: SocketAddr,
    hello: [u8; HELLO_BYTES],
    filled: usize,
    /// Where the writer receives frames, and how much of that has come.
    offer: Option<([u8; OFFER_BYTES], usize)>,
    /// Until then it is not displaced by others.
    patience_ns: u64,
    deadline_ns: u64,
}

/// The result of a greeting.
enum Outcome {
    UnderWay,
    Accepted(Arc<Slot>, Hello, Reply),
    Refused(Option<Reply>, LinkError),
}

impl Doorman {
    /// Sleeps, then does what there is to do. Returns false at the end.
    fn round(&mut self) -> bool {
        let Ok(ready) = self.sleep() else {
            // Poll itself fails: out of memory. Sleep, to avoid a busy loop.
            std::thread::sleep(ACCEPT_PAUSE);
            return !self.shared.is_stopping();
        };
        if self.shared.is_stopping() {
            return false;
        }
        let now_ns = now_ns();
        self.go_on(&ready, now_ns);
        if self
            .accept_after_ns
            .is_none_or(|after_ns| after_ns <= now_ns)
        {
            self.accept_after_ns = None;
            self.accept(now_ns);
        }
        true
    }

    /// Returns which greetings have something to read.
    fn sleep(&self) -> Result<Vec<bool>, Errno> {
        let deadlines = self.greetings.iter().map(|greeting| greeting.deadline_ns);
        let room_ns = self.room_after_ns();
        let due_ns = deadlines.chain(self.accept_after_ns).chain(room_ns).min();
        let timeout = due_ns.map(|due_ns| {
            let left = Duration::from_nanos(due_ns.saturating_sub(now_ns()));
            // Saturates after some 585 years, which the kernel accepts.
            Timespec::try_from(left).unwrap_or(Timespec {
                tv_sec: 3_600,
                tv_nsec: 0,
            })
        });
        let listening = match self.accept_after_ns.or(room_ns) {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut descriptors = Vec::with_capacity(2 + self.greetings.len());
        descriptors.push(PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN));
        descriptors.push(PollFd::new(&self.listener, listening));
        for greeting in &self.greetings {
            let awaited = match greeting.wire.owes() {
                false => PollFlags::IN,
                true => PollFlags::IN | PollFlags::OUT,
            };
            descriptors.push(PollFd::new(&greeting.wire, awaited));
        }
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready = descriptors[2..].iter();
        Ok(ready
            .map(|descriptor| !descriptor.revents().is_empty())
            .collect())
    }

    fn go_on(&mut self, ready: &[bool], now_ns: u64) {
        let mut ready = ready.iter();
        let mut kept = Vec::with_capacity(self.greetings.len());
        for mut greeting in std::mem::take(&mut self.greetings) {
            let outcome = match ready.next() {
                Some(true) => greeting.go_on(&self.shared),
                _ => Outcome::UnderWay,
            };
            match outcome {
                Outcome::UnderWay if greeting.deadline_ns <= now_ns => {
                    let timeout_s = self.shared.settings.handshake_timeout.as_secs_f64();
                    let reason = format!("did not finish its greeting within {timeout_s} s");
                    let error = LinkError::new(greeting.name(), reason);
                    self.refuse(greeting, None, error);
                }
                Outcome::UnderWay => kept.push(greeting),
                Outcome::Accepted(slot, hello, reply) => self.admit(greeting, &slot, &hello, reply),
                Outcome::Refused(reply, error) => self.refuse(greeting, reply, error),
            }
        }
        self.greetings = kept;
    }

    fn accept(&mut self, now_ns: u64) {
        for _ in 0..ACCEPTS_PER_ROUND {
            if self.room_after_ns().is_some_and(|room_ns| room_ns > now_ns) {
                return;
            }
            let (socket, address) = match self.listener.accept() {
                Ok((stream, address)) => match stream.set_nonblocking(true) {
                    Ok(()) => (OwnedFd::from(stream), address),
                    Err(_) => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    // Out of descriptors or memory: the connection stays in the kernel's queue.
                    self.accept_after_ns = Some(after(now_ns, ACCEPT_PAUSE));
                    return;
                }
            };
            let seal = self.carrier.guard.as_ref().map(|guard| guard.accepting());
            let seal = match seal.transpose() {
                Ok(seal) => seal,
                Err(error) => {
                    let reason = format!("could not be served: {error}");
                    self.shared
                        .note(LinkError::new(address.to_string(), reason));
                    continue;
                }
            };
            if self.greetings.len() >= self.greetings_max() {
                let oldest = self.greetings.remove(0);
                let reason = "did not greet before too many others connected";
                let error = LinkError::new(oldest.name(), reason);
                self.refuse(oldest, None, error);
            }
            let wire = Wire::new(socket, seal);
            let timeout = self.shared.settings.handshake_timeout;
            let mut greeting = Greeting::new(wire, address, now_ns, timeout);
            let transport = &self.carrier.transport;
            greeting.offer = transport.as_ref().map(|_| ([0; OFFER_BYTES], 0));
            self.greetings.push(greeting);
        }
    }

    /// When there are as many greetings as may be: the time from which one more displaces the oldest. Until
    /// then it waits in the kernel's queue: it may be one of a hundred links of one query.
    fn room_after_ns(&self) -> Option<u64> {
        let oldest = self.greetings.first()?;
        (self.greetings.len() >= self.greetings_max()).then_some(oldest.patience_ns)
    }

    fn greetings_max(&self) -> usize {
        let most = self.shared.settings.handshakes_max.max(1);
        match &self.carrier.guard {
            None => most,
            Some(_) => most.min(SEALED_HANDSHAKES_MAX),
        }
    }

    fn admit(&self, greeting: Greeting, slot: &Slot, hello: &Hello, reply: Reply) {
        let mut bytes = reply.encode().to_vec();
        let frames = match self.frames(&greeting) {
            Ok(frames) => frames,
            Err(reason) => {
                // The writer comes again, until it gives up.
                let error = LinkError::new(greeting.name(), reason);
                return self.refuse(greeting, None, error);
            }
        };
        let frames = frames.map(|(own, frames)| {
            bytes.extend(own.encode());
            frames
        });
        let mut wire = greeting.wire;
        let prepared = socket::prepare(&wire, self.shared.settings.peer_timeout);
        // The socket is new, so the answer fits. One that can't be sent whole is dead, and its writer
        // comes again.
        let sent = wire.send(&bytes);
        let is_sent = matches!(sent, Ok(Moved::Bytes(count)) if count == bytes.len());
        if prepared.is_ok() && is_sent && !wire.owes() {
            let arrival = Arrival {
                wire,
                frames,
                address: greeting.address,
                writer: hello.writer,
                window: reply.window as usize,
                position: reply.position,
            };
            slot.deliver(arrival);
        }
    }

    /// What the connection is to change over to, and the offer for the writer.
    fn frames(&self, greeting: &Greeting) -> Result<Option<(Offer, Box<Stream>)>, String> {
        let (Some(transport), Some((offer, _))) = (&self.carrier.transport, &greeting.offer) else {
            return Ok(None);
        };
        let peer = Offer::decode(offer)?;
        let port = transport.open();
        let port = port.map_err(|error| format!("could not be served: {error}"))?;
        let own = Offer::of(&*port);
        Ok(Some((own, Box::new(Stream::new(port, own, peer)))))
    }

    fn refuse(&self, mut greeting: Greeting, reply: Option<Reply>, error: LinkError) {
        // Noted first: a writer that has the answer finds the reason here.
        self.shared.note(error);
        if let Some(reply) = reply {
            if reply.answer == Answer::StaleEpoch {
                self.shared.note_stale();
            }
            // A peer that does not take it learns of it from the closed connection.
            let _ = greeting.wire.send(&reply.encode());
            greeting.wire.finish();
        }
    }
}

impl Greeting {
    fn new(wire: Wire, address: SocketAddr, now_ns: u64, timeout: Duration) -> Greeting {
        Greeting {
            wire,
            address,
            hello: [0; HELLO_BYTES],
            filled: 0,
            offer: None,
            patience_ns: after(now_ns, GREETING_PATIENCE),
            deadline_ns: after(now_ns, timeout),
        }
    }

    fn name(&self) -> String {
        self.address.to_string()
    }

    fn go_on(&mut self, shared: &Shared) -> Outcome {
        match self.wire.shake() {
            Ok(true) => {}
            Ok(false) => return Outcome::UnderWay,
            Err(error) => return self.unsealed(&error),
        }
        while self.filled < HELLO_BYTES {
            let reason = match self.wire.receive(&mut self.hello[self.filled..]) {
                Ok(Moved::Bytes(count)) => {
                    self.filled += count;
                    match Hello::could_be(&self.hello[..self.filled]) {
                        Ok(()) => continue,
                        Err(unreadable) => return self.unreadable(&unreadable, shared),
                    }
                }
                Ok(Moved::WouldBlock) => return Outcome::UnderWay,
                Ok(Moved::End) => "closed the connection before its greeting was whole".to_owned(),
                Err(error) => format!("stopped during its greeting: {error}"),
            };
            return Outcome::Refused(None, LinkError::new(self.name(), reason));
        }
        if let Some((offer, filled)) = &mut self.offer {
            while *filled < OFFER_BYTES {
                let reason = match self.wire.receive(&mut offer[*filled..]) {
                    Ok(Moved::Bytes(count)) => {
                        *filled += count;
                        continue;
                    }
                    Ok(Moved::WouldBlock) => return Outcome::UnderWay,
                    Ok(Moved::End) => "did not say where it receives frames".to_owned(),
                    Err(error) => format!("stopped during its greeting: {error}"),
                };
                return Outcome::Refused(None, LinkError::new(self.name(), reason));
            }
        }
        let hello = match Hello::decode(&self.hello) {
            Ok(hello) => hello,
            Err(unreadable) => return self.unreadable(&unreadable, shared),
        };
        match shared.judge(&hello) {
            Ok((slot, reply)) => Outcome::Accepted(slot, hello, reply),
            Err((reply, reason)) => Outcome::Refused(reply, self.error(reason)),
        }
    }

    /// The handshake failed.
    fn unsealed(&self, error: &io::Error) -> Outcome {
        let (reason, hint) = match error.kind() {
            // The seal's: the text is about the peer.
            io::ErrorKind::InvalidData => (
                error.to_string(),
                "allow only workers of the deployment to connect to this port, and give all the same secret",
            ),
            _ => (format!("stopped during its handshake: {error}"), ""),
        };
        Outcome::Refused(None, LinkError::new(self.name(), reason).hint(hint))
    }

    fn error(&self, reason: Reason) -> LinkError {
        LinkError::new(self.name(), reason.reason).hint(reason.hint)
    }

    fn unreadable(&self, unreadable: &Unreadable, shared: &Shared) -> Outcome {
        // Strangers get no answer: whoever doesn't show the token learns nothing.
        let identity = &shared.identity;
        let reply = match unreadable {
            Unreadable::Version(_) if Hello::has_token(&self.hello, &identity.token) => {
                Some(Reply::refusal(Answer::Version, identity.epoch))
            }
            Unreadable::Version(_) | Unreadable::Stranger | Unreadable::Damaged => None,
        };
        Outcome::Refused(reply, unreadable.error(self.name()))
    }
}

/// Runs the greeting of a peer that sent what is in `socket`. Returns whether it was accepted, or `None` if
/// it was refused; and whether it gets an answer.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz_greeting(socket: OwnedFd, shared: &Shared) -> (Option<bool>, bool) {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut greeting = Greeting::new(Wire::new(socket, None), address, 0, Duration::ZERO);
    match greeting.go_on(shared) {
        Outcome::UnderWay => (Some(false), false),
        Outcome::Accepted(..) => (Some(true), true),
        Outcome::Refused(reply, error) => {
            assert!(!error.reason.is_empty());
            (None, reply.is_some())
        }
    }
}
