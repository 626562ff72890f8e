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
    Shared(crate::memory::SharedWord),
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
    pub(crate) fn shared(word: crate::memory::SharedWord, bell: Bell) -> Doorbell {
        Doorbell {
            flag: Flag::Shared(word),
            bell,
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn shared_word(&self) -> Option<&crate::memory::SharedWord> {
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
    target: Target,
}

#[derive(Clone, Debug)]
enum Target {
    Fixed(Arc<Doorbell>),
    Moving(Arc<Route>),
}

/// Doorbells, and which of them is meant.
#[derive(Debug)]
struct Route {
    doorbells: Vec<Arc<Doorbell>>,
    current: AtomicU32,
}

/// Says whom the wakers of [`Waker::moving`] wake.
#[derive(Clone, Debug)]
pub struct WakerSwitch(Arc<Route>);

impl WakerSwitch {
    /// Wakers wake the waiter of this number from now on. Its owner then looks once at all that
    /// the wakers may have rung for, because they may have rung the one before.
    pub fn set(&self, waiter: usize) {
        assert!(waiter < self.0.doorbells.len(), "one of the waiters");
        // Relaxed: the caller hands what is waited for to the new owner, which orders this before
        // the announcement behind the owner's look. A waker's fence then lies behind that of the
        // announcement and it reads the new number, or before it and the look sees its message.
        self.0.current.store(waiter as u32, Ordering::Relaxed);
    }
}

impl Waker {
    pub(crate) fn new(doorbell: Arc<Doorbell>) -> Waker {
        Waker {
            target: Target::Fixed(doorbell),
        }
    }

    /// A waker that wakes one of several waiters, for what may move from one to another. It begins
    /// with the first of them.
    ///
    /// # Panics
    ///
    /// Without wakers, or for one that moves itself.
    pub fn moving(wakers: &[Waker]) -> (Waker, WakerSwitch) {
        assert!(!wakers.is_empty(), "somebody has to be woken");
        let doorbells = wakers.iter().map(|waker| match &waker.target {
            Target::Fixed(doorbell) => Arc::clone(doorbell),
            Target::Moving(_) => panic!("a waker of one waiter"),
        });
        let route = Arc::new(Route {
            doorbells: doorbells.collect(),
            current: AtomicU32::new(0),
        });
        let waker = Waker {
            target: Target::Moving(Arc::clone(&route)),
        };
        (waker, WakerSwitch(route))
    }

    #[inline]
    fn doorbell(&self) -> &Doorbell {
        match &self.target {
            Target::Fixed(doorbell) => doorbell,
            Target::Moving(route) => {
                // As in `Doorbell::wake`: what the caller did comes before the look at the number.
                fence(Ordering::SeqCst);
                &route.doorbells[route.current.load(Ordering::Relaxed) as usize]
            }
        }
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
        self.doorbell().wake();
    }

    /// What another process needs to ring a [shared](crate::Waiter::shared) waiter: the descriptor
    /// of the page with the flag, and the bell. Handed over, they make a waker with
    /// [`Waker::import`]. `None` for a waiter that is not shared, and for a waker that moves.
    #[cfg(not(loom))]
    pub fn export(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let Target::Fixed(doorbell) = &self.target else {
            return None;
        };
        let word = doorbell.shared_word()?;
        Some((word.descriptor(), doorbell.bell.as_fd()))
    }

    /// As [`Waker::wake`], and ends every kind of sleep.
    #[inline]
    pub fn wake_urgent(&self) {
        self.doorbell().wake_urgent();
    }
}
