//! The writing end: takes frames, and maintains a connection to send them.
//!
//! ```text
//!           ┌──────────────── broken: back off ───────────────┐
//!           ▼                                                 │
//!        Apart ── connect ──► Greeting ── accepted ──► Open ──┤
//!           │                    │ refused              │     └─ end acknowledged ──► Ended
//!           └─ too long ─────────┴──────────────────────┴─ reader gone ──► Closed
//! ```
//!
//! Invariants:
//! - Everything happens in the owner's calls; none of them waits.
//! - In every state, a call leaves an edge to come or a deadline in [`Writer::due_ns`], so an owner that
//!   sleeps for both is never forgotten.
//! - Frames are dropped only when they are acknowledged, or the link is closed.
//!
//! Shutdown: [`Writer::close`], then [`Writer::push`] until it is drained, then drop. A writer that is
//! dropped with nothing unacknowledged sends the end as well; one with frames left sends that it is gone.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::{LinkError, SendError};
use crate::frame::FRAME_BYTES_MAX;
use crate::tcp::greeting::Greeting;
use crate::tcp::hello::{Answer, Hello, Reply, random_number};
use crate::tcp::line::{Broken, Line, LineEvent, Patience};
use crate::tcp::outgoing::Outgoing;
use crate::tcp::ready::Ready;
use crate::tcp::record::Record;
use crate::tcp::refusal::Refusal;
use crate::tcp::socket;
use crate::tcp::wire::Wire;
use crate::tcp::{Carrier, Identity, Settings, after, now_ns, peer_at};
use crate::tcp::{WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};
use crate::waiter::{Interest, Registrar, WaiterHandle};

/// The first pause before another attempt to connect. A connection to a working peer is restored after
/// it; sixteen links that come back together make 1,600 attempts a second.
const BACK_OFF_MIN: Duration = Duration::from_millis(10);

/// The longest pause: seven doublings later.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// The number of protocol breaches in a row, without one valid credit between them, after which the
/// writer gives up: one bit may flip on its way, but three breaches mean another program.
const BREACHES_MAX: u32 = 3;

/// How many of the peer's time-outs a writer waits for the first frame of a reader that greets: a minute.
const DEAF_TIMEOUTS: u32 = 6;

/// The writing end of a link to another host.
///
/// `P` is a piece of a frame: it is kept until the reader has the frame.
pub struct Writer<P> {
    address: SocketAddr,
    peer_name: String,
    identity: Identity,
    link: u64,
    /// The writer's random number: distinguishes it from another writer of the same link.
    number: u64,
    settings: Settings,
    carrier: Carrier,
    registrar: Registrar,
    outgoing: Outgoing<P>,
    phase: Phase,
    is_closing: bool,
    /// The reader that accepted this writer first.
    reader: Option<u64>,
    /// When the search for a connection ends, while there is none.
    give_up_ns: u64,
    back_off: Duration,
    breaches: u32,
    began_ns: u64,
    /// Whether any connection over frames heard one; over TCP, whether there was one.
    has_heard: bool,
    /// What last went wrong.
    trouble: String,
}

enum Phase {
    Apart { retry_ns: u64 },
    Greeting(Box<Greeting>),
    Open(Box<Line>),
    Ended,
    Closed(Option<LinkError>),
}

impl<P: Deref<Target = [u8]>> Writer<P> {
    /// A writer of the link number `link` to the acceptor at `address`. It begins to connect, and
    /// continues in the calls of its owner, whose `waiter` is told about its sockets.
    pub fn connect(
        address: SocketAddr,
        identity: Identity,
        link: u64,
        peer_name: &str,
        waiter: impl Into<WaiterHandle>,
        settings: Settings,
    ) -> Writer<P> {
        Writer::connect_guarded(address, identity, link, peer_name, waiter, settings, None)
    }

    /// As [`Writer::connect`], to an acceptor with the same carrier.
    pub fn connect_guarded(
        address: SocketAddr,
        identity: Identity,
        link: u64,
        peer_name: &str,
        waiter: impl Into<WaiterHandle>,
        settings: Settings,
        carrier: impl Into<Carrier>,
    ) -> Writer<P> {
        let now_ns = now_ns();
        let mut writer = Writer {
            address,
            peer_name: peer_name.to_owned(),
            identity,
            link,
            number: random_number(),
            settings,
            carrier: carrier.into(),
            registrar: waiter.into().registrar(),
            outgoing: Outgoing::new(settings.window()),
            phase: Phase::Apart { retry_ns: now_ns },
            is_closing: false,
            reader: None,
            give_up_ns: after(now_ns, settings.connect_timeout),
            back_off: BACK_OFF_MIN,
            breaches: 0,
            began_ns: now_ns,
            has_heard: false,
            trouble: String::new(),
        };
        writer.drive(now_ns);
        writer
    }

    /// As [`FrameSender::post`](crate::FrameSender::post). A writer takes frames while those that it
    /// holds cost less than a window.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// As there, and after [`Writer::close`].
    pub fn post(&mut self, frame: Vec<P>) -> Result<(), SendError<Vec<P>>> {
        assert!(!self.is_closing, "a frame after the end of its link");
        let length = frame.iter().map(|piece| piece.len()).sum();
        assert!(
            (1..=FRAME_BYTES_MAX).contains(&length),
            "a frame of {length} bytes, not between 1 and {FRAME_BYTES_MAX}"
        );
        let has_room = self.has_room();
        if self.is_closed() {
            return Err(SendError::Closed(frame));
        }
        if !has_room {
            return Err(SendError::Full(frame));
        }
        self.outgoing.add(frame, length);
        Ok(())
    }

    /// Connects, writes and reads, as far as possible without waiting. `urgent` makes no difference: the
    /// kernel wakes the reader's waiter, and a sleep that ignores descriptors ends when its time is over.
    pub fn push(&mut self, _urgent: bool) {
        self.drive(now_ns());
    }

    /// Says that no frames follow. [`Writer::push`] sends the end after the frames that were taken, and
    /// the writer is drained once the reader has acknowledged it.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Whether nothing is left to do: there is a connection, every frame that was taken is acknowledged,
    /// and after [`Writer::close`] the end is written after them; or the link is closed.
    ///
    /// Without a close, the last frames are acknowledged when the writer asks for it, after
    /// [`Settings::heartbeat_after`].
    pub fn is_drained(&self) -> bool {
        match &self.phase {
            Phase::Ended | Phase::Closed(_) => true,
            Phase::Open(line) => {
                self.outgoing.is_empty() && (!self.is_closing || line.is_end_sent())
            }
            Phase::Apart { .. } | Phase::Greeting(_) => false,
        }
    }

    /// Whether the current connection's greeting is complete.
    pub fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Whether it would take a frame now. Looks at the socket if there seems to be no room.
    pub fn has_room(&mut self) -> bool {
        if self.outgoing.held() >= self.settings.window() {
            self.drive(now_ns());
        }
        self.outgoing.held() < self.settings.window()
    }

    /// See [`crate::FrameSender::position`].
    pub fn position(&self) -> u64 {
        self.outgoing.end()
    }

    /// See [`crate::FrameSender::is_acknowledged`]. Looks at the socket if it seems not to be.
    pub fn is_acknowledged(&mut self, position: u64) -> bool {
        if self.outgoing.oldest() < position {
            self.drive(now_ns());
        }
        self.outgoing.oldest() >= position
    }

    /// Whether the reader is gone, or the link is broken for good, as far as the owner's last call
    /// of [`Writer::push`] found out.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    /// Why the link is closed, unless the reader left normally.
    pub fn error(&self) -> Option<LinkError> {
        match &self.phase {
            Phase::Closed(error) => error.clone(),
            _ => None,
        }
    }

    /// When to call [`Writer::push`] even if nothing happens: to connect again, to ask for an
    /// acknowledgement, to give up. On `CLOCK_MONOTONIC` in nanoseconds.
    pub fn due_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Apart { retry_ns } => Some(self.give_up_ns.min(*retry_ns)),
            Phase::Greeting(greeting) => Some(self.give_up_ns.min(greeting.deadline_ns)),
            Phase::Open(line) => line.due_ns(self.patience()),
            Phase::Ended | Phase::Closed(_) => None,
        }
    }

    /// The cost of the frames that the reader has not acknowledged: less than a window and a frame.
    pub fn held_bytes(&self) -> usize {
        self.outgoing.held()
    }

    fn patience(&self) -> Patience {
        Patience {
            heartbeat_after: self.settings.heartbeat_after,
            peer_timeout: self.settings.peer_timeout,
        }
    }

    fn drive(&mut self, now_ns: u64) {
        // Each round changes the phase, and a round that goes back to `Apart` ends it: at most
        // Apart, Greeting, Open.
        loop {
            let changed = match &mut self.phase {
                Phase::Apart { retry_ns } => {
                    let retry_ns = *retry_ns;
                    self.leave_apart(retry_ns, now_ns)
                }
                Phase::Greeting(_) => self.greet(now_ns),
                Phase::Open(_) => self.exchange(now_ns),
                Phase::Ended | Phase::Closed(_) => false,
            };
            if !changed {
                return;
            }
        }
    }

    /// Returns whether there is a new phase to continue with at once; so do the next two.
    fn leave_apart(&mut self, retry_ns: u64, now_ns: u64) -> bool {
        if now_ns >= self.give_up_ns {
            let reason = format!("can't be reached: {}", self.trouble);
            self.fail(
                reason,
                "check that its process runs and that its port is open",
            );
            return false;
        }
        if now_ns < retry_ns {
            return false;
        }
        match self.begin(now_ns) {
            Ok(greeting) => {
                self.phase = Phase::Greeting(Box::new(greeting));
                true
            }
            Err(error) => self.retry(format!("can't connect: {error}"), now_ns),
        }
    }

    fn begin(&self, now_ns: u64) -> io::Result<Greeting> {
        let socket = socket::connect(self.address, self.settings.peer_timeout)?;
        // After the call that connects: a socket that was never connected counts as hung up.
        let watch = self.registrar.register(socket.as_fd(), Interest::Both)?;
        let hello = Hello {
            epoch: self.identity.epoch,
            token: self.identity.token,
            link: self.link,
            writer: self.number,
            oldest: self.outgoing.oldest(),
            unsent: self.outgoing.begun(),
            // At most 2^30.
            window: self.settings.window() as u32,
        };
        let deadline_ns = after(now_ns, self.settings.handshake_timeout);
        let seal = self.carrier.guard.as_ref().map(|guard| guard.connecting());
        let port = self.carrier.transport.as_ref().map(|frames| frames.open());
        Ok(Greeting::new(
            Wire::new(socket, seal.transpose()?),
            Ready::new(watch),
            &hello,
            deadline_ns,
            port.transpose()?,
        ))
    }

    fn greet(&mut self, now_ns: u64) -> bool {
        let Phase::Greeting(greeting) = &mut self.phase else {
            return false;
        };
        match greeting.go_on() {
            Ok(None) if now_ns >= greeting.deadline_ns.min(self.give_up_ns) => {
                let trouble = greeting.delay().to_owned();
                self.retry(trouble, now_ns)
            }
            Ok(None) => false,
            Ok(Some(reply)) => self.answered(reply, now_ns),
            Err(Broken::Lost(trouble)) => self.retry(trouble, now_ns),
            Err(Broken::Breach(trouble)) => self.breach(trouble, now_ns),
        }
    }

    fn answered(&mut self, reply: Reply, now_ns: u64) -> bool {
        match reply.answer {
            Answer::Accepted => return self.accepted(reply, now_ns),
            Answer::Ended if self.is_closing => {
                self.outgoing.clear();
                self.phase = Phase::Ended;
                return false;
            }
            Answer::Left => {
                self.close_down(None);
                return false;
            }
            _ => {}
        }
        let window = self.settings.window();
        match reply.meaning(self.identity.epoch, self.link, window) {
            Refusal::ForNow(trouble) => self.retry(trouble, now_ns),
            Refusal::ForGood(reason, hint) => {
                self.fail(reason, hint);
                false
            }
        }
    }

    fn accepted(&mut self, reply: Reply, now_ns: u64) -> bool {
        if self.reader.is_some_and(|reader| reader != reply.reader) {
            self.fail(
                "is not the reader that received the earlier frames".to_owned(),
                "restore the deployment from its last checkpoint",
            );
            return false;
        }
        let window = reply.window as usize;
        let ours = self.settings.window();
        if !(WINDOW_BYTES_MIN..=ours.min(WINDOW_BYTES_MAX)).contains(&window) {
            return self.breach(format!("answered with a window of {window} bytes"), now_ns);
        }
        let before = self.outgoing.oldest();
        if let Err(reason) = self.outgoing.resume(reply.position, window) {
            return self.breach(reason, now_ns);
        }
        self.reader = Some(reply.reader);
        if self.outgoing.oldest() > before {
            self.back_off = BACK_OFF_MIN;
        }
        let Phase::Greeting(greeting) =
            std::mem::replace(&mut self.phase, Phase::Apart { retry_ns: now_ns })
        else {
            return false;
        };
        let changed = greeting.into_wire().and_then(|(wire, ready, frames)| {
            let lost = |error: io::Error| Broken::Lost(format!("can't be waited for: {error}"));
            wire.change_over(ready, frames, &self.registrar)
                .map_err(lost)
        });
        match changed {
            Ok((wire, ready)) => {
                self.phase = Phase::Open(Box::new(Line::new(wire, ready)));
                true
            }
            Err(Broken::Lost(trouble)) => self.retry(trouble, now_ns),
            Err(Broken::Breach(trouble)) => self.breach(trouble, now_ns),
        }
    }

    fn exchange(&mut self, now_ns: u64) -> bool {
        let patience = self.patience();
        let Phase::Open(line) = &mut self.phase else {
            return false;
        };
        let before = self.outgoing.oldest();
        let outcome = line.exchange(&mut self.outgoing, self.is_closing, now_ns, patience);
        self.has_heard |= !line.is_deaf();
        if self.outgoing.oldest() > before {
            self.back_off = BACK_OFF_MIN;
            self.breaches = 0;
        }
        match outcome {
            Ok(LineEvent::None) => false,
            Ok(LineEvent::EndTaken) => {
                self.outgoing.clear();
                self.phase = Phase::Ended;
                false
            }
            Ok(LineEvent::Gone) => {
                self.close_down(None);
                false
            }
            Err(Broken::Lost(trouble)) if self.has_heard => {
                self.search_anew(now_ns);
                self.retry(trouble, now_ns)
            }
            // Greetings don't count while no frame ever arrives, though the reader's worker may be busy.
            Err(Broken::Lost(trouble)) => {
                let end_ns = after(self.began_ns, self.settings.peer_timeout * DEAF_TIMEOUTS);
                self.give_up_ns = self.give_up_ns.max(end_ns);
                self.retry(trouble, now_ns)
            }
            Err(Broken::Breach(trouble)) => {
                self.search_anew(now_ns);
                self.breach(trouble, now_ns)
            }
        }
    }

    /// Starts the search for a new connection, after one broke.
    fn search_anew(&mut self, now_ns: u64) {
        self.give_up_ns = after(now_ns, self.settings.peer_timeout);
    }

    fn retry(&mut self, trouble: String, now_ns: u64) -> bool {
        self.trouble = trouble;
        self.phase = Phase::Apart {
            retry_ns: after(now_ns, self.back_off),
        };
        self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
        // Only to see whether the search has ended.
        now_ns >= self.give_up_ns
    }

    fn breach(&mut self, trouble: String, now_ns: u64) -> bool {
        self.breaches += 1;
        if self.breaches < BREACHES_MAX {
            return self.retry(trouble, now_ns);
        }
        self.fail(trouble, "check which program listens at this address");
        false
    }

    fn fail(&mut self, reason: String, hint: &str) {
        let peer = peer_at(&self.peer_name, self.address);
        self.close_down(Some(LinkError::new(peer, reason).hint(hint)));
    }

    fn close_down(&mut self, error: Option<LinkError>) {
        self.phase = Phase::Closed(error);
        self.outgoing.clear();
    }
}

impl<P> Drop for Writer<P> {
    fn drop(&mut self) {
        let is_complete = self.is_closing || self.outgoing.is_empty();
        match &mut self.phase {
            Phase::Open(line) => line.leave(&self.outgoing, is_complete),
            Phase::Greeting(greeting) => {
                // The reader finds it after the greeting, if that is accepted.
                let is_complete = is_complete && self.outgoing.is_empty();
                let frames = self.outgoing.end();
                greeting.leave(if is_complete {
                    Record::End { frames }
                } else {
                    Record::Gone
                });
            }
            Phase::Apart { .. } | Phase::Ended | Phase::Closed(_) => {}
        }
    }
}
