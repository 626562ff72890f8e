//! The doorbell: who has to ring, and when (announce, look, sleep).
//!
//! One flag per waiter says "I am about to sleep, wake me for …". A waker looks at it and strikes
//! the bell only if the flag asks for it, so a busy reader costs its writers no system call, and
//! one announcement costs at most one strike, however many writers there are.
//!
//! Invariants:
//! - The waiter raises the flag; the waiter or one waker takes it down. The waker that takes it
//!   down strikes the bell. So: flag down after an announcement means the bell has been, or is
//!   about to be, struck.
//! - Whatever a thread did before `wake()` is either seen by a waiter that looks after
//!   `announce()`, or the flag is seen by `wake()`. See the fences below.
//! - A flag that other processes see may hold any number: whatever is not a known state counts as
//!   "awake" for ordinary wakers and "asleep" for urgent ones, and does no harm but a strike.
//!
//! A strike can come late (between taking the flag down and striking, a waker may be preempted)
//! and then ends a later sleep early. That costs one look and is never wrong.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

use crate::bell::Bell;
use crate::sync::{Arc, AtomicU32, Ordering, fence};

/// What a sleeper is to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Every message, and room in a link that was full.
    Everything,
    /// Only what can't wait for the end of a timed sleep: a link that is nearly full or refused
    /// its writer, room for a writer that was refused, a barrier, the end. Ordinary messages are
    /// found when the time is over: this is how a sleeping reader spares its writers the rings.
    Urgent,
}

/// States of the flag. Zero is awake, so that fresh memory is a doorbell of somebody awake.
const AWAKE: u32 = 0;
const WAITS_FOR_EVERYTHING: u32 = 1;
const WAITS_FOR_URGENT: u32 = 2;

#[derive(Debug)]
pub(crate) struct Doorbell {
    flag: Flag,
    pub(crate) bell: Bell,
}

/// Where the flag lives.
#[derive(Debug)]
enum Flag {
    /// In this process.
    Own(AtomicU32),
    /// In memory that other processes map too.
    #[cfg(not(loom))]
    Shared(crate::shm::SharedWord),
}

impl Doorbell {
    pub(crate) fn new() -> std::io::Result<Doorbell> {
        Ok(Doorbell {
            flag: Flag::Own(AtomicU32::new(AWAKE)),
            bell: Bell::new()?,
        })
    }

    /// A doorbell that another process can ring, or that belongs to another process.
    #[cfg(not(loom))]
    pub(crate) fn shared(word: crate::shm::SharedWord, bell: Bell) -> Doorbell {
        Doorbell {
            flag: Flag::Shared(word),
            bell,
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn shared_word(&self) -> Option<&crate::shm::SharedWord> {
        match &self.flag {
            Flag::Own(_) => None,
            Flag::Shared(word) => Some(word),
        }
    }

    fn flag(&self) -> &AtomicU32 {
        match &self.flag {
            Flag::Own(flag) => flag,
            #[cfg(not(loom))]
            Flag::Shared(word) => word.get(),
        }
    }

    /// Raises the flag. The caller looks once more before it sleeps.
    pub(crate) fn announce(&self, listen: Listen) {
        let state = match listen {
            Listen::Everything => WAITS_FOR_EVERYTHING,
            Listen::Urgent => WAITS_FOR_URGENT,
        };
        self.flag().store(state, Ordering::Relaxed);
        // Pairs with the fence in `wake`. The waiter stores the flag and then loads the link's
        // position; the waker stores the position and then loads the flag. Each store may still
        // sit in its core's store buffer while the load behind it is done, so both sides can miss
        // each other: Release and Acquire don't forbid it, they order a store after what is
        // before it and say nothing of what is behind it. With a SeqCst fence between store and
        // load on *both* sides one of the two loads must see the other's store.
        fence(Ordering::SeqCst);
    }

    /// Takes the flag down again: the waiter is awake. Returns whether a waker took it down
    /// before, and so has struck, or is about to strike, the bell.
    pub(crate) fn retract(&self) -> bool {
        // A waker that still sees the flag up finds it down when it exchanges, because an exchange
        // always reads the newest value. Acquire: pairs with the Release of the exchange in
        // `wake`, so that a waiter that was rung sees at once what its waker did before.
        self.flag().swap(AWAKE, Ordering::Acquire) == AWAKE
    }

    /// Strikes the bell if the waiter has announced that it waits for everything.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `announce`, which says why.
        fence(Ordering::SeqCst);
        // The load first: it leaves the flag's cache line shared as long as nobody sleeps,
        // where an exchange would pull it from core to core with every message. Relaxed: the
        // fence before it orders it.
        if self.flag().load(Ordering::Relaxed) == WAITS_FOR_EVERYTHING {
            self.take_down(WAITS_FOR_EVERYTHING);
        }
    }

    /// Strikes the bell if the waiter has announced at all.
    pub(crate) fn wake_urgent(&self) {
        // As in `wake`.
        fence(Ordering::SeqCst);
        let mut seen = self.flag().load(Ordering::Relaxed);
        // At most two rounds with a sound waiter: it goes from one announcement to another only by
        // way of awake. A third process that writes nonsense can't hold us here.
        for _ in 0..4 {
            if seen == AWAKE || self.take_down(seen) {
                return;
            }
            seen = self.flag().load(Ordering::Relaxed);
        }
    }

    /// Whoever takes the flag down strikes.
    fn take_down(&self, seen: u32) -> bool {
        // Release: pairs with the Acquire in `retract` (the fence of the caller alone would do;
        // this says what is meant).
        let taken = self
            .flag()
            .compare_exchange(seen, AWAKE, Ordering::Release, Ordering::Relaxed);
        if taken.is_ok() {
            self.bell.strike();
        }
        taken.is_ok()
    }
}

/// Wakes one waiter, from any thread, and with a shared doorbell from any process.
///
/// Cheap to clone. Made by [`Waiter::waker`](crate::waiter::Waiter::waker).
#[derive(Clone, Debug)]
pub struct Waker {
    doorbell: Arc<Doorbell>,
}

impl Waker {
    pub(crate) fn new(doorbell: Arc<Doorbell>) -> Waker {
        Waker { doorbell }
    }

    /// Ends the waiter's sleep, or makes its next look before sleeping see what the caller did
    /// before this call. A waiter in a timed sleep that listens for urgent things only sleeps on.
    ///
    /// For a waiter that has not announced this is one fence and one load; only the first waker
    /// after an announcement makes a system call. Calls don't add up, and one that comes while
    /// the waiter is awake is not remembered: first put the message where the waiter looks, then
    /// wake.
    #[inline]
    pub fn wake(&self) {
        self.doorbell.wake();
    }

    /// What another process needs to ring a [shared](crate::Waiter::shared) waiter: the descriptor
    /// of the page with the flag, and the bell. Handed over, they make a waker with
    /// [`Waker::import`].
    #[cfg(not(loom))]
    pub fn export(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let word = self.doorbell.shared_word()?;
        Some((word.descriptor(), self.doorbell.bell.as_fd()))
    }

    /// As [`Waker::wake`], and ends every kind of sleep.
    #[inline]
    pub fn wake_urgent(&self) {
        self.doorbell.wake_urgent();
    }
}
