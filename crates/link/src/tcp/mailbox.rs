//! The state that the acceptor's thread shares with the readers: who is expected, which connections have
//! come, and who was refused.
//!
//! A reader has one slot. The acceptor puts a connection into it and wakes the reader's waiter; a newer
//! connection replaces one that the reader has not fetched. The reader's hot path touches two atomics of
//! its slot and no lock.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::doorbell::Waker;
use crate::error::LinkError;
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::tcp::hello::{Answer, Hello, Reply, is_same};
use crate::tcp::user::Stream;
use crate::tcp::wire::Wire;
use crate::tcp::{Identity, Settings, WINDOW_BYTES_MIN};

/// The number of refusals that are kept with their reasons: enough to see who it was and what they
/// wanted, and at most 16 × some 200 bytes.
const REFUSALS_KEPT: usize = 16;

/// Connections that an acceptor turned away, or a reader dropped because the peer broke the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How many there were.
    pub count: u64,
    /// How many of them were of earlier incarnations of the deployment.
    pub stale: u64,
    /// The last refusals with their reasons; the oldest first, 16 at most.
    pub last: Vec<LinkError>,
}

impl Refusals {
    /// Counts a refusal, and keeps it among the last.
    pub fn note(&mut self, refusal: LinkError) {
        self.count += 1;
        if self.last.len() == REFUSALS_KEPT {
            self.last.remove(0);
        }
        self.last.push(refusal);
    }
}

/// A connection whose greeting was accepted.
pub(super) struct Arrival {
    pub(super) wire: Wire,
    /// What the connection is to change over to.
    pub(super) frames: Option<Box<Stream>>,
    pub(super) address: SocketAddr,
    /// The number of the writer.
    pub(super) writer: u64,
    /// The window that counts on this connection.
    pub(super) window: usize,
    /// The number of the frame that the writer was told to resume with.
    pub(super) position: u64,
}

/// Where a reader's connections arrive.
pub(super) struct Slot {
    /// The reader's random number.
    pub(super) reader: u64,
    settings: Settings,
    waker: Waker,
    /// The number of frames that the reader has received whole.
    received: AtomicU64,
    /// Whether the reader has seen the end.
    ended: AtomicBool,
    /// Whether the mailbox may be full.
    arrived: AtomicBool,
    mailbox: Mutex<Mailbox>,
}

#[derive(Default)]
struct Mailbox {
    arrival: Option<Arrival>,
    /// The writer of the frames received so far.
    writer: Option<u64>,
}

impl Slot {
    pub(super) fn new(reader: u64, settings: Settings, waker: Waker) -> Slot {
        Slot {
            reader,
            settings,
            waker,
            received: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            arrived: AtomicBool::new(false),
            mailbox: Mutex::default(),
        }
    }

    /// The newest connection that came since the last call.
    #[inline]
    pub(super) fn fetch(&self) -> Option<Arrival> {
        // Relaxed: the lock orders the contents of the box, and a flag that is seen late is followed by a
        // wake-up, whose fence makes it visible to a reader that looks before it sleeps.
        if !self.arrived.load(Ordering::Relaxed) {
            return None;
        }
        // Cleared before the look: a connection put in between sets it again.
        self.arrived.store(false, Ordering::Relaxed);
        lock(&self.mailbox).arrival.take()
    }

    pub(super) fn deliver(&self, arrival: Arrival) {
        let replaced = {
            let mut mailbox = lock(&self.mailbox);
            // Under the lock, so that a reader that fetches this one has cleared the flag.
            self.arrived.store(true, Ordering::Relaxed);
            mailbox.arrival.replace(arrival)
        };
        drop(replaced);
        self.waker.wake();
    }

    /// Accepts only the writer of this number from now on. Returns whether it is that one.
    pub(super) fn bind(&self, writer: u64) -> bool {
        *lock(&self.mailbox).writer.get_or_insert(writer) == writer
    }

    /// Whether this writer's frames can follow those received.
    pub(super) fn is_bound_to_another(&self, writer: u64) -> bool {
        lock(&self.mailbox)
            .writer
            .is_some_and(|bound| bound != writer)
    }

    #[inline]
    pub(super) fn set_received(&self, frames: u64) {
        // Release, with the Acquire of the acceptor: a number that the writer learned from this reader's
        // acknowledgement is never newer than the one that the acceptor then reads.
        self.received.store(frames, Ordering::Release);
    }

    pub(super) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    fn answer(&self, hello: &Hello) -> Result<Reply, (Answer, String)> {
        if self.is_bound_to_another(hello.writer) {
            let reason = "is not the writer whose frames were received before".to_owned();
            return Err((Answer::OtherWriter, reason));
        }
        if self.ended.load(Ordering::Acquire) {
            return Err((Answer::Ended, "reconnected after its end".to_owned()));
        }
        let position = self.received.load(Ordering::Acquire);
        if position < hello.oldest || position > hello.unsent {
            let reason = format!(
                "has frames {} to {}, but frame {position} comes next",
                hello.oldest, hello.unsent
            );
            return Err((Answer::Position, reason));
        }
        let window = (hello.window as usize).min(self.settings.window());
        if window < WINDOW_BYTES_MIN {
            return Err((
                Answer::Window,
                format!("asked for a window of {window} bytes"),
            ));
        }
        Ok(Reply {
            answer: Answer::Accepted,
            epoch: 0,
            reader: self.reader,
            position,
            // At most 2^30.
            window: window as u32,
        })
    }
}

/// The readers of one acceptor.
#[derive(Default)]
struct Slots {
    expected: HashMap<u64, Arc<Slot>>,
    /// Links whose readers have left: one number for each reader that ever was.
    left: HashSet<u64>,
}

/// The state of one acceptor.
pub(super) struct Shared {
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    /// Whether the acceptor's thread must end.
    stopping: AtomicBool,
    /// Whether the thread has ended: no connection will come any more.
    closed: AtomicBool,
    slots: Mutex<Slots>,
    refusals: Mutex<Refusals>,
}

impl Shared {
    pub(super) fn new(identity: Identity, settings: Settings) -> Shared {
        Shared {
            identity,
            settings,
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            slots: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    /// # Panics
    ///
    /// When the link has a reader already: a bug in the caller.
    pub(super) fn expect(&self, link: u64, slot: Arc<Slot>) {
        let mut slots = lock(&self.slots);
        slots.left.remove(&link);
        let before = slots.expected.insert(link, slot);
        drop(slots);
        assert!(before.is_none(), "two readers of link {link}");
    }

    pub(super) fn forget(&self, link: u64) {
        let mut slots = lock(&self.slots);
        slots.expected.remove(&link);
        slots.left.insert(link);
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Called at the end of the thread: readers without a connection need not wait for one.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for slot in lock(&self.slots).expected.values() {
            slot.waker.wake();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Judges a greeting: the reader's slot and the answer.
    ///
    /// # Errors
    ///
    /// The answer that refuses, unless the peer is a stranger, and the reason with its hint.
    pub(super) fn judge(
        &self,
        hello: &Hello,
    ) -> Result<(Arc<Slot>, Reply), (Option<Reply>, Reason)> {
        let ours = self.identity.epoch;
        let refuse = |answer, reason: String, hint| {
            let reply = Some(Reply::refusal(answer, ours));
            Err((reply, Reason { reason, hint }))
        };
        if !is_same(&hello.token, &self.identity.token) {
            return Err((None, Reason::token()));
        }
        let (theirs, link) = (hello.epoch, hello.link);
        if theirs < ours {
            return refuse(
                Answer::StaleEpoch,
                format!("belongs to the stale epoch {theirs}, this process to epoch {ours}"),
                "stop the process: it was replaced",
            );
        }
        if theirs > ours {
            return refuse(
                Answer::NewerEpoch,
                format!("belongs to the newer epoch {theirs}, this process to epoch {ours}"),
                "stop this process: it was replaced",
            );
        }
        let (slot, has_left) = {
            let slots = lock(&self.slots);
            (
                slots.expected.get(&link).cloned(),
                slots.left.contains(&link),
            )
        };
        let Some(slot) = slot else {
            if has_left {
                let reason = format!("asks for link {link}, whose reader has left");
                return refuse(
                    Answer::Left,
                    reason,
                    "nothing to do: the writer is told, and ends",
                );
            }
            return refuse(
                Answer::UnknownLink,
                format!("asks for link {link}, which has no reader"),
                "the writer tries again; nothing to do if the reader starts soon",
            );
        };
        match slot.answer(hello) {
            Ok(reply) => Ok((
                slot,
                Reply {
                    epoch: ours,
                    ..reply
                },
            )),
            Err((answer, reason)) => refuse(answer, format!("link {link}: {reason}"), ""),
        }
    }

    pub(super) fn note(&self, refusal: LinkError) {
        lock(&self.refusals).note(refusal);
    }

    /// Counts a writer of an earlier incarnation, which is noted as well.
    pub(super) fn note_stale(&self) {
        lock(&self.refusals).stale += 1;
    }

    pub(super) fn refused(&self) -> Refusals {
        lock(&self.refusals).clone()
    }
}

/// Why a greeting was refused.
pub(super) struct Reason {
    pub(super) reason: String,
    pub(super) hint: &'static str,
}

impl Reason {
    /// The peer does not know the token.
    pub(super) fn token() -> Reason {
        Reason {
            reason: "has the token of another deployment".to_owned(),
            hint: "start all processes of a deployment with the same token",
        }
    }
}

/// Nothing panics under these locks; even then the data would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
