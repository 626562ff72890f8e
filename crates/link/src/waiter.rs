//! The wait primitive of a worker: for links, descriptors and other threads at once.
//!
//! A waiter is an epoll instance that holds its bell and the descriptors of sources and sinks. A worker
//! that found nothing to do announces, looks once more, and waits (the rule in the crate's
//! documentation). Time-outs count nanoseconds; they end late by the thread's timer slack plus the
//! wake-up, see [`set_timer_slack_ns`].
//!
//! Invariants:
//! - Only the owner announces and waits; wakers work from any thread.
//! - A wait is always announced: without an announcement the worker would sleep although there is a
//!   message.
//! - Descriptors are edge-triggered, and a wait notes for each registration whether the kernel has named
//!   it ([`Watch`]). So the owner makes a system call only for a descriptor that was named, or whose last
//!   look left something. A wait for the bell alone is followed by a look at the descriptors that doesn't
//!   wait; an owner that doesn't wait at all calls [`Waiter::look`].
//! - A waiter with nothing to wait for sleeps without any timer: no wake-ups, no system calls.
//!
//! Shutdown: dropping the waiter closes the epoll instance. The bell lives until the last waker is
//! dropped. Registered descriptors belong to their owners, and closing the last duplicate of one removes
//! it from the epoll instance.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

mod watch;

pub use crate::doorbell::{Listen, Waker};
pub use watch::{Interest, Registrar, Watch};

use crate::bell::Bell;
use crate::doorbell::Doorbell;
use crate::memory::SharedWord;
use crate::sync::{Arc, AtomicU64, Ordering};
use watch::Descriptors;

/// The most events taken from the kernel at once: 64 events × 12 bytes fit a few cache lines of the stack.
const EVENTS_AT_ONCE: usize = 64;

/// How often a look takes as many: 1,024 events. Further ones stay in the kernel's list for the next look;
/// a worker with more ready sockets hardly waits.
const TAKES_PER_LOOK: usize = 16;

/// The longest time-out handed to the kernel, which refuses more than i64::MAX seconds. One year
/// (365 × 86,400 s); a longer one ends early, as any wait may.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 86_400);

/// No time to wait.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What a wait listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Wakers and registered descriptors.
    All,
    /// Wakers only: the timed wait of a source that lingers while its socket fills. Descriptors that are
    /// ready at its end are named then.
    Doorbell,
}

/// Why a wait ended. A wait may end early: for every reason, look at everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A waker woke the thread (a descriptor may be ready as well).
    Waker,
    /// A registered descriptor became ready, and no waker was used.
    Descriptor,
    /// The time-out passed.
    TimedOut,
    /// A signal handler ran on this thread.
    Interrupted,
}

/// The sleeping place of one worker thread.
///
/// It may be made on one thread and moved to another, but not shared: there is one announcement, and it
/// belongs to the owner.
#[derive(Debug)]
pub struct Waiter {
    descriptors: Arc<Descriptors>,
    doorbell: Arc<Doorbell>,
    /// The owner's own record of its announcement. The doorbell's flag can't serve for it, because a
    /// waker clears it. The `Cell` also keeps the waiter from being `Sync`.
    announced: Cell<bool>,
    watched: Watched,
}

/// The time until which a waiter has watched its descriptors: if something had come before, a wait would
/// have ended. The reader of a descriptor that had nothing left learns from it the earliest time at which
/// the data that it finds now can have come.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<AtomicU64>);

impl Watched {
    /// The end of the last wait for descriptors, in nanoseconds on the owner's clock; zero before
    /// the first.
    pub fn until_ns(&self) -> u64 {
        // Relaxed: the time says nothing about other memory.
        self.0.load(Ordering::Relaxed)
    }
}

impl Waiter {
    /// Makes an epoll instance with a bell in it.
    ///
    /// # Errors
    ///
    /// When the process has no descriptors left (two are needed).
    pub fn new() -> io::Result<Waiter> {
        Waiter::with(Doorbell::new().map_err(no_bell)?)
    }

    /// A waiter that other processes can wake, through [`Waker::export`].
    ///
    /// # Errors
    ///
    /// As [`Waiter::new`] (three descriptors are needed), and when there is no memory left for a shared
    /// page.
    pub fn shared() -> io::Result<Waiter> {
        let word = SharedWord::create()?;
        Waiter::with(Doorbell::shared(word, Bell::new().map_err(no_bell)?))
    }

    fn with(doorbell: Doorbell) -> io::Result<Waiter> {
        let descriptors = Descriptors::with_bell(doorbell.bell.as_fd())?;
        Ok(Waiter {
            descriptors: Arc::new(descriptors),
            doorbell: Arc::new(doorbell),
            announced: Cell::new(false),
            watched: Watched(Arc::new(AtomicU64::new(0))),
        })
    }

    /// A handle that ends this waiter's sleep from any thread.
    pub fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.doorbell))
    }

    /// A handle that registers descriptors here, from any thread and at any time: for links that
    /// connect while their worker runs.
    pub fn registrar(&self) -> Registrar {
        Registrar {
            descriptors: Arc::clone(&self.descriptors),
        }
    }

    /// The waker and the registrar together.
    pub fn handle(&self) -> WaiterHandle {
        WaiterHandle {
            waker: self.waker(),
            registrar: self.registrar(),
        }
    }

    /// The time until which it has watched its descriptors, as the owner [notes](Waiter::note_watched)
    /// it.
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }

    /// Notes that a wait for descriptors ([`Sources::All`]) has ended at this time of the owner's clock.
    pub fn note_watched(&self, now_ns: u64) {
        self.watched.0.store(now_ns, Ordering::Relaxed);
    }

    /// As [`Registrar::register`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn register(
        &mut self,
        descriptor: BorrowedFd<'_>,
        interest: Interest,
    ) -> io::Result<Watch> {
        self.registrar().register(descriptor, interest)
    }

    /// As [`Registrar::deregister`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn deregister(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.registrar().deregister(descriptor)
    }

    /// Announces that the owner is about to sleep until it is woken for what it listens to. The owner
    /// then looks once more at everything that may wake it, and calls [`wait`](Waiter::wait) or
    /// [`retract`](Waiter::retract).
    #[inline]
    pub fn announce(&self, listen: Listen) {
        self.announced.set(true);
        self.doorbell.announce(listen);
    }

    /// Takes the announcement back: the look found something to do.
    ///
    /// A waker that saw the announcement may still strike; the next wait then ends early.
    #[inline]
    pub fn retract(&self) {
        self.announced.set(false);
        self.doorbell.retract();
    }

    /// Sleeps until a waker is used, a registered descriptor becomes ready (with [`Sources::All`]) or the
    /// time is over, and takes the announcement back. Without a time-out there is no timer, hence no
    /// wake-up. What a waker's thread did before is visible afterwards.
    ///
    /// Afterwards the descriptors that are ready are named to their watches. It may return early: after a
    /// signal, for a waker that saw an announcement since retracted, for an edge whose data the owner has
    /// already read.
    ///
    /// # Errors
    ///
    /// Only the kernel's error for a wait that can't work at all (out of memory).
    ///
    /// # Panics
    ///
    /// Without an announcement, which is a bug in the caller: nothing would wake it.
    pub fn wait(&self, timeout: Option<Duration>, sources: Sources) -> io::Result<Woken> {
        assert!(
            self.announced.replace(false),
            "a wait without an announcement: nothing would wake it"
        );
        let timeout = timeout.map(|timeout| {
            Timespec::try_from(timeout.min(TIMEOUT_MAX)).expect("a year fits the kernel's seconds")
        });
        let ready = match sources {
            Sources::All => self.wait_for_all(timeout.as_ref()),
            Sources::Doorbell => self.wait_for_bell(timeout.as_ref()),
        };
        // Awake from here on. First the flag, then the strikes: no waker can strike for this announcement
        // after the flag is clear, except one that cleared it itself, and a strike that comes after the
        // silence only ends the next wait early.
        let by_waker = self.doorbell.retract();
        let woken = match ready {
            // The waker came as the time ran out.
            Ok(Woken::TimedOut) if by_waker => Woken::Waker,
            Ok(woken) => woken,
            Err(Errno::INTR) => Woken::Interrupted,
            Err(error) => return Err(explain("can't wait", error)),
        };
        if woken == Woken::Waker {
            self.doorbell.bell.silence();
        }
        Ok(woken)
    }

    /// Names the descriptors that are ready to their watches, without waiting; returns whether there are
    /// any. For an owner that doesn't wait: one that polls, or has been busy for long.
    pub fn look(&self) -> bool {
        if !self.descriptors.has_any() {
            return false;
        }
        // Nothing interrupts a call that doesn't wait, and a set that exists has no other errors.
        let taken = self.take_events(Some(&NOW));
        taken.is_ok_and(|taken| taken.by_descriptor)
    }

    fn wait_for_all(&self, timeout: Option<&Timespec>) -> Result<Woken, Errno> {
        let taken = self.take_events(timeout)?;
        Ok(match taken.by_waker {
            true => Woken::Waker,
            false if taken.by_descriptor => Woken::Descriptor,
            false => Woken::TimedOut,
        })
    }

    /// Takes events from the kernel, the first of them within a time.
    fn take_events(&self, timeout: Option<&Timespec>) -> Result<Taken, Errno> {
        let mut taken = Taken::default();
        let mut timeout = timeout;
        self.descriptors.note_look();
        for _ in 0..TAKES_PER_LOOK {
            let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); EVENTS_AT_ONCE];
            let (events, _) = epoll::wait(&self.descriptors.epoll, &mut space, timeout)?;
            for event in events.iter() {
                match self.descriptors.note(event) {
                    true => taken.by_waker = true,
                    false => taken.by_descriptor = true,
                }
            }
            if events.len() < EVENTS_AT_ONCE {
                break;
            }
            timeout = Some(&NOW);
        }
        Ok(taken)
    }

    /// Waits with `ppoll` on the bell alone: a descriptor that becomes ready doesn't end the wait.
    fn wait_for_bell(&self, timeout: Option<&Timespec>) -> Result<Woken, Errno> {
        let mut descriptors = [PollFd::new(&self.doorbell.bell, PollFlags::IN)];
        let ready = poll(&mut descriptors, timeout);
        self.look();
        Ok(match ready? {
            0 => Woken::TimedOut,
            _ => Woken::Waker,
        })
    }
}

/// What the kernel has reported.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    by_waker: bool,
    by_descriptor: bool,
}

/// What a link needs to know of its owner's waiter: its waker, and where descriptors are registered. Made
/// by [`Waiter::handle`], for links that are made on another thread than they are used on.
#[derive(Clone, Debug)]
pub struct WaiterHandle {
    waker: Waker,
    registrar: Registrar,
}

impl WaiterHandle {
    /// As [`Waiter::waker`].
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// As [`Waiter::registrar`].
    pub fn registrar(&self) -> Registrar {
        self.registrar.clone()
    }
}

impl From<&Waiter> for WaiterHandle {
    fn from(waiter: &Waiter) -> WaiterHandle {
        waiter.handle()
    }
}

/// Sets how much later than asked the kernel may end this thread's timed waits, so as to end
/// several at once. Zero restores the thread's default (50 µs unless inherited otherwise).
///
/// One nanosecond makes a 10 µs sleep end about 14 µs late instead of about 66 µs; it needs no
/// privilege. The kernel also allows itself 0.1 % of each wait. Where the call is forbidden the
/// old slack stays: waits end later and nothing else changes.
pub fn set_timer_slack_ns(slack_ns: u64) {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(slack_ns));
}

fn no_bell(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't make an eventfd: {error}"))
}

fn explain(what: &str, error: Errno) -> io::Error {
    explain_with_hint(what, error, "")
}

/// Keeps the error's kind, which callers match on, and adds what was tried and how to fix it.
fn explain_with_hint(what: &str, error: Errno, hint: &str) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}{hint}"))
}

#[cfg(all(test, not(miri)))]
mod tests;
