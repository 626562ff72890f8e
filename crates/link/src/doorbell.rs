//! The doorbell: who has to ring, and when (announce, look, sleep).
//!
//! One flag per waiter says "I am about to sleep". A waker looks at it and strikes the bell only
//! if it is up, so a busy reader costs its writers no system call, and one announcement costs at
//! most one strike, however many writers there are.
//!
//! Invariants:
//! - The waiter raises the flag; the waiter or one waker takes it down. The waker that takes it
//!   down strikes the bell. So: flag down after an announcement means the bell has been, or is
//!   about to be, struck.
//! - Whatever a thread did before `wake()` is either seen by a waiter that looks after
//!   `announce()`, or the flag is seen by `wake()`. See the fences below.
//!
//! A strike can come late (between taking the flag down and striking, a waker may be preempted)
//! and then ends a later sleep early. That costs one look and is never wrong.

use crate::bell::Bell;
use crate::sync::{Arc, AtomicBool, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Doorbell {
    announced: AtomicBool,
    pub(crate) bell: Bell,
}

impl Doorbell {
    pub(crate) fn new() -> std::io::Result<Doorbell> {
        Ok(Doorbell {
            announced: AtomicBool::new(false),
            bell: Bell::new()?,
        })
    }

    /// Raises the flag. The caller looks once more before it sleeps.
    pub(crate) fn announce(&self) {
        self.announced.store(true, Ordering::Relaxed);
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
        !self.announced.swap(false, Ordering::Acquire)
    }

    /// Strikes the bell if the waiter has announced.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `announce`, which says why.
        fence(Ordering::SeqCst);
        // The load first: it leaves the flag's cache line shared as long as nobody sleeps,
        // where an exchange would pull it from core to core with every message. Relaxed: the
        // fence before it orders it. Release for the exchange: pairs with the Acquire in
        // `retract` (the fence alone would do; this says what is meant).
        if self.announced.load(Ordering::Relaxed)
            && self
                .announced
                .compare_exchange(true, false, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        {
            self.bell.strike();
        }
    }
}

/// Wakes one waiter, from any thread.
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
    /// before this call.
    ///
    /// For a waiter that has not announced this is one fence and one load; only the first waker
    /// after an announcement makes a system call. Calls don't add up, and one that comes while
    /// the waiter is awake is not remembered: first put the message where the waiter looks, then
    /// wake.
    #[inline]
    pub fn wake(&self) {
        self.doorbell.wake();
    }
}
