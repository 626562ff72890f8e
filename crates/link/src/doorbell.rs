//! The doorbell: decides who must be woken, and when (announce, look, sleep).
//!
//! One flag per waiter says "I am about to sleep, wake me for …". A waker reads it and strikes the bell
//! only if the flag asks for it, so a busy reader costs its writers no system call, and one announcement
//! costs at most one strike, however many writers there are.
//!
//! Invariants:
//! - The waiter sets the flag; the waiter or one waker clears it. The waker that clears it strikes the
//!   bell. So if the flag is clear after an announcement, the bell has been, or is about to be, struck.
//! - Whatever a thread did before `wake()` is seen by a waiter that looks after `announce()`, or `wake()`
//!   sees the flag. See the fences below.
//! - A flag that other processes can write may hold any number: anything but a known state counts as
//!   "awake" for ordinary wakers and "asleep" for urgent ones, and does no harm but a strike.
//!
//! A strike can come late (a waker may be preempted between clearing the flag and striking) and then ends
//! a later sleep early. That costs one look and is never wrong.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

use crate::bell::Bell;
use crate::sync::{Arc, AtomicU32, Ordering, fence};

/// What a sleeper is to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Wake for every message, and for room in a link that was full.
    Everything,
    /// Wake only for what can't wait for the end of a timed sleep: a link that is nearly full or refused
    /// its writer, room for a writer that was refused, a barrier, the end. Ordinary messages are found
    /// when the time is over: this is how a sleeping reader saves its writers the cost of waking it.
    Urgent,
}

/// States of the flag. Zero means awake, so that fresh memory is the doorbell of a waiter that is awake.
const AWAKE: u32 = 0;
const WAITS_FOR_EVERYTHING: u32 = 1;
const WAITS_FOR_URGENT: u32 = 2;

#[derive(Debug)]
pub(crate) struct Doorbell {
    flag: Flag,
    pub(crate) bell: Bell,
}

/// The memory of the flag.
#[derive(Debug)]
enum Flag {
    /// Memory of this process.
    Own(AtomicU32),
    /// Memory that other processes map too.
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

    /// Sets the flag. The caller looks once more before it sleeps.
    pub(crate) fn announce(&self, listen: Listen) {
        let state = match listen {
            Listen::Everything => WAITS_FOR_EVERYTHING,
            Listen::Urgent => WAITS_FOR_URGENT,
        };
        self.flag().store(state, Ordering::Relaxed);
        // Pairs with the fence in `wake`. The waiter stores the flag and then loads the link's position;
        // the waker stores the position and then loads the flag. Each store may still be in its core's
        // store buffer while the load after it is done, so both sides can miss each other: Release and
        // Acquire don't prevent that, because they order a store after what comes before it, and not
        // before what comes after it. With a SeqCst fence between store and load on *both* sides, one of
        // the two loads must see the other's store.
        fence(Ordering::SeqCst);
    }

    /// Clears the flag: the waiter is awake. Returns whether a waker has cleared it before, and so has
    /// struck, or is about to strike, the bell.
    pub(crate) fn retract(&self) -> bool {
        // A waker that still sees the flag set finds it clear when it exchanges, because an exchange
        // always reads the newest value. Acquire: pairs with the Release of the exchange in `wake`, so
        // that a waiter that was woken sees at once what its waker did before.
        self.flag().swap(AWAKE, Ordering::Acquire) == AWAKE
    }

    /// Strikes the bell if the waiter has announced that it waits for everything.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `announce`, which says why.
        fence(Ordering::SeqCst);
        // The load first: it leaves the flag's cache line shared as long as nobody sleeps, where an
        // exchange would pull it from core to core with every message. Relaxed: the fence before it
        // orders it.
        if self.flag().load(Ordering::Relaxed) == WAITS_FOR_EVERYTHING {
            self.take_down(WAITS_FOR_EVERYTHING);
        }
    }

    /// Strikes the bell if the waiter has announced any sleep.
    pub(crate) fn wake_urgent(&self) {
        // As in `wake`.
        fence(Ordering::SeqCst);
        let mut seen = self.flag().load(Ordering::Relaxed);
        // At most two rounds with a correct waiter: between two announcements it is awake. A third
        // process that writes garbage can't keep us here.
        for _ in 0..4 {
            if seen == AWAKE || self.take_down(seen) {
                return;
            }
            seen = self.flag().load(Ordering::Relaxed);
        }
    }

    /// Clears the flag; whoever clears it strikes the bell.
    fn take_down(&self, seen: u32) -> bool {
        // Release: pairs with the Acquire in `retract` (the caller's fence alone would be enough; this
        // states the intention).
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

/// Several doorbells, and which of them is in use.
#[derive(Debug)]
struct Route {
    doorbells: Vec<Arc<Doorbell>>,
    current: AtomicU32,
}

/// Chooses the waiter that the wakers of [`Waker::moving`] wake.
#[derive(Clone, Debug)]
pub struct WakerSwitch(Arc<Route>);

impl WakerSwitch {
    /// Makes the wakers wake the waiter of this number from now on. Its owner then looks once at
    /// everything that the wakers stand for, because they may have woken the previous waiter.
    pub fn set(&self, waiter: usize) {
        assert!(waiter < self.0.doorbells.len(), "one of the waiters");
        // Relaxed: the caller hands what is waited for to the new owner, which orders this before the
        // announcement that follows the owner's look. A waker's fence then comes after that of the
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

    /// A waker for one of several waiters, for work that may move between them. It starts with the first.
    ///
    /// # Panics
    ///
    /// Without wakers, or if one of them is itself a moving waker.
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
                // As in `Doorbell::wake`: what the caller did comes before reading the number.
                fence(Ordering::SeqCst);
                &route.doorbells[route.current.load(Ordering::Relaxed) as usize]
            }
        }
    }

    /// Ends the waiter's sleep, or makes its next look before sleeping see what the caller did before
    /// this call. A waiter in a timed sleep that listens only for urgent things continues to sleep.
    ///
    /// If the waiter has not announced, this is one fence and one load; only the first waker after an
    /// announcement makes a system call. Calls don't add up, and a call while the waiter is awake is not
    /// remembered: first put the message where the waiter looks, then wake.
    #[inline]
    pub fn wake(&self) {
        self.doorbell().wake();
    }

    /// What another process needs to wake a [shared](crate::Waiter::shared) waiter: the descriptor of the
    /// page with the flag, and the bell. [`Waker::import`] makes a waker of them there. `None` for a
    /// waiter that is not shared, and for a moving waker.
    #[cfg(not(loom))]
    pub fn export(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let Target::Fixed(doorbell) = &self.target else {
            return None;
        };
        let word = doorbell.shared_word()?;
        Some((word.descriptor(), doorbell.bell.as_fd()))
    }

    /// Like [`Waker::wake`], but ends every kind of sleep.
    #[inline]
    pub fn wake_urgent(&self) {
        self.doorbell().wake_urgent();
    }
}
