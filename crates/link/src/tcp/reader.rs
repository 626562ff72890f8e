//! The reading end: returns the frames of the latest connection that its writer has made.
//!
//! Invariants:
//! - Only a connection that the acceptor accepted is read, and only one at a time: a newer one replaces
//!   the previous one, and continues after the last whole frame.
//! - A missing writer, and one that stopped in the middle of a frame, is waited for until a deadline; an
//!   idle one for ever.
//! - The end or the error is reported once, after the frames that were whole.
//!
//! Shutdown: a dropped reader tells its writer that it is gone, and the acceptor that the link is no
//! longer expected.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::error::LinkError;
use crate::frame::Frame;
use crate::sync::Arc;
use crate::tcp::incoming::{Incoming, Next};
use crate::tcp::line::Broken;
use crate::tcp::mailbox::{Arrival, Shared, Slot};
use crate::tcp::ready::Ready;
use crate::tcp::{after, now_ns, peer_at};
use crate::waiter::{Interest, Registrar};

/// The reading end of a link from another host. Made by [`Acceptor::reader`](super::Acceptor).
pub struct Reader {
    link: u64,
    peer_name: String,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    registrar: Registrar,
    phase: Phase,
    /// The number of frames returned.
    received: u64,
    /// The writer of these frames.
    bound_to: Option<u64>,
    /// Where the last connection came from.
    address: Option<SocketAddr>,
    /// Whether frames may share memory: their owner doesn't keep them.
    shares: bool,
}

enum Phase {
    /// There is no connection.
    Missing {
        deadline_ns: u64,
        trouble: String,
    },
    Open {
        incoming: Box<Incoming>,
        /// When half a frame was seen, without progress since.
        halfway_ns: Option<u64>,
    },
    Closed,
}

impl Reader {
    pub(super) fn new(
        link: u64,
        peer_name: String,
        slot: Arc<Slot>,
        shared: Arc<Shared>,
        registrar: Registrar,
    ) -> Reader {
        let timeout = shared.settings.connect_timeout;
        Reader {
            link,
            peer_name,
            slot,
            registrar,
            phase: Phase::Missing {
                deadline_ns: after(now_ns(), timeout),
                trouble: "never connected".to_owned(),
            },
            shared,
            received: 0,
            bound_to: None,
            address: None,
            shares: true,
        }
    }

    /// As [`FrameReceiver::receive`](crate::FrameReceiver::receive).
    ///
    /// # Errors
    ///
    /// Once, when the writer is gone before its end, or was missing for too long.
    pub fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        // At most one round for each connection that came meanwhile, and one for each that broke.
        loop {
            // Before the look into the mailbox: everything that came before the end of the acceptor is
            // there then.
            let is_hopeless = self.shared.is_closed();
            if let Some(arrival) = self.slot.fetch() {
                self.adopt(arrival);
            }
            let Phase::Open {
                incoming,
                halfway_ns,
            } = &mut self.phase
            else {
                return self.miss(is_hopeless);
            };
            match incoming.next(self.received) {
                Ok(Next::Frame(frame)) => {
                    *halfway_ns = None;
                    let writer = incoming.writer;
                    if self.bound_to.is_none() && !self.bind(writer) {
                        continue;
                    }
                    self.received += 1;
                    self.slot.set_received(self.received);
                    return Ok(Some(frame));
                }
                Ok(Next::Nothing) => {
                    let Some(broken) = self.watch_half_frame() else {
                        return Ok(None);
                    };
                    self.lose(broken);
                }
                Ok(Next::End) => {
                    self.slot.set_ended();
                    self.phase = Phase::Closed;
                    return Ok(None);
                }
                Ok(Next::Gone) => {
                    let reason = "closed before the end of its stream";
                    return Err(self.fail(reason.to_owned()));
                }
                Err(broken) => self.lose(broken),
            }
        }
    }

    /// Returns all credit to the writer. A reader that stops receiving although there may be more (to
    /// align a barrier, for example) calls it; otherwise the writer would wait for room that exists,
    /// since up to a quarter of the window is kept back to save packets.
    pub fn settle(&mut self) {
        let Phase::Open { incoming, .. } = &mut self.phase else {
            return;
        };
        if let Err(broken) = incoming.settle(self.received) {
            self.lose(broken);
        }
    }

    /// Gives each frame memory of its own, for an owner that keeps frames.
    pub fn copy_frames(&mut self) {
        self.shares = false;
        if let Phase::Open { incoming, .. } = &mut self.phase {
            incoming.shares = false;
        }
    }

    /// Whether the end or the error has been reported.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// When to call [`Reader::receive`] even if nothing happens: to give the writer up if it has not come
    /// back by then. On `CLOCK_MONOTONIC` in nanoseconds.
    pub fn due_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Missing { deadline_ns, .. } => Some(*deadline_ns),
            Phase::Open {
                incoming,
                halfway_ns,
            } => {
                let timeout = self.shared.settings.peer_timeout;
                let patience_ns = halfway_ns.map(|since_ns| after(since_ns, timeout));
                patience_ns.into_iter().chain(incoming.due_ns()).min()
            }
            Phase::Closed => None,
        }
    }

    fn adopt(&mut self, mut arrival: Arrival) {
        if self.is_closed() || self.slot.is_bound_to_another(arrival.writer) {
            // It was accepted just before the first frame of another one, and learns of that next time.
            return;
        }
        self.address = Some(arrival.address);
        let socket = arrival.wire.as_fd();
        let watch = match self.registrar.register(socket, Interest::Both) {
            Ok(watch) => watch,
            Err(error) => {
                // Without its edges the reader would sleep although there are frames. The writer comes again.
                self.lose(Broken::Lost(format!("can't be waited for: {error}")));
                return;
            }
        };
        let frames = arrival.frames.take();
        let changed = (arrival.wire).change_over(Ready::new(watch), frames, &self.registrar);
        let (wire, ready) = match changed {
            Ok(changed) => changed,
            Err(error) => {
                self.lose(Broken::Lost(format!("can't be waited for: {error}")));
                return;
            }
        };
        arrival.wire = wire;
        self.phase = Phase::Open {
            incoming: Box::new(Incoming::new(arrival, ready, self.shares)),
            halfway_ns: None,
        };
    }

    /// The first frame decides which writer the link belongs to. Returns false, and drops the connection,
    /// if it belongs to another.
    fn bind(&mut self, writer: u64) -> bool {
        if self.slot.bind(writer) {
            self.bound_to = Some(writer);
            return true;
        }
        self.lose(Broken::Breach("is a second writer".to_owned()));
        false
    }

    /// Handles a missing connection: nothing now, or the error.
    fn miss(&mut self, is_hopeless: bool) -> Result<Option<Frame>, LinkError> {
        let Phase::Missing {
            deadline_ns,
            trouble,
        } = &self.phase
        else {
            return Ok(None);
        };
        if !is_hopeless && now_ns() < *deadline_ns {
            return Ok(None);
        }
        let reason = if is_hopeless {
            format!("{trouble}, and can't reconnect: this process no longer accepts connections")
        } else {
            let settings = self.shared.settings;
            let timeout = match self.address {
                None => settings.connect_timeout,
                Some(_) => settings.peer_timeout,
            };
            format!("{trouble}; gave up after {} s", timeout.as_secs_f64())
        };
        Err(self.fail(reason))
    }

    /// Nothing came. Returns why to give the connection up, if half a frame has waited for too long.
    fn watch_half_frame(&mut self) -> Option<Broken> {
        let Phase::Open {
            incoming,
            halfway_ns,
        } = &mut self.phase
        else {
            return None;
        };
        if !incoming.is_halfway() {
            *halfway_ns = None;
            return None;
        }
        let now_ns = now_ns();
        if incoming.took_bytes() || halfway_ns.is_none() {
            *halfway_ns = Some(now_ns);
            return None;
        }
        let timeout = self.shared.settings.peer_timeout;
        if now_ns < after((*halfway_ns)?, timeout) {
            return None;
        }
        let timeout_s = timeout.as_secs_f64();
        Some(Broken::Breach(format!(
            "stopped in the middle of a frame for {timeout_s} s"
        )))
    }

    /// Drops the connection and waits for the next one.
    fn lose(&mut self, broken: Broken) {
        let trouble = match broken {
            Broken::Lost(trouble) => trouble,
            Broken::Breach(trouble) => {
                let link = self.link;
                let error = LinkError::new(self.peer(), format!("link {link}: {trouble}"));
                self.shared
                    .note(error.hint("check which program writes to this port"));
                trouble
            }
        };
        self.phase = Phase::Missing {
            deadline_ns: after(now_ns(), self.shared.settings.peer_timeout),
            trouble,
        };
    }

    fn fail(&mut self, reason: String) -> LinkError {
        self.phase = Phase::Closed;
        LinkError::new(self.peer(), reason)
            .hint("check whether its process stopped or its host lost its network")
    }

    fn peer(&self) -> String {
        match self.address {
            Some(address) => peer_at(&self.peer_name, address),
            None => self.peer_name.clone(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // First, so that no connection comes any more.
        self.shared.forget(self.link);
        if let Phase::Open { incoming, .. } = &mut self.phase {
            incoming.leave();
        }
        if let Some(arrival) = self.slot.fetch() {
            Incoming::new(arrival, Ready::unwatched(), false).leave();
        }
    }
}
