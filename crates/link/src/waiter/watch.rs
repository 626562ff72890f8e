//! Descriptors of a waiter, and what the kernel has reported of each.
//!
//! A registration has a slot of two counters. The waiter adds to them when the kernel names the
//! descriptor, and the [`Watch`] compares them with what it saw last. So a look at a descriptor that was
//! not named costs two loads and no system call.
//!
//! Invariants:
//! - An event is never lost: it stays in its counter until the watch has seen it. It may be reported
//!   twice, or for another descriptor, because more descriptors than slots share them; a look then finds
//!   nothing.
//! - Nothing here is freed while events for it may still come: a slot belongs to the waiter.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use super::{explain, explain_with_hint};
use crate::sync::{Arc, AtomicU32, Ordering};

/// The slots of a waiter: a worker has a descriptor or two for each source, sink and link to another host,
/// and a source with many connections has a set of its own. 64 slots are 512 bytes.
const SLOTS: usize = 64;

/// The mark of the bell among the events of an epoll instance; slot `n` has `n + 1`.
const BELL_MARK: u64 = 0;

/// What a descriptor is watched for. Its end, or an error, is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read.
    Read,
    /// Room to write, after a write that the kernel did not take as a whole.
    Write,
    /// Both.
    Both,
}

impl Interest {
    /// The flags for the kernel, edge-triggered: an event is reported when something changes. A
    /// descriptor that is registered for nothing but reading ends no wait because it is writable.
    pub fn flags(self) -> epoll::EventFlags {
        let read = epoll::EventFlags::IN | epoll::EventFlags::PRI;
        let interest = match self {
            Interest::Read => read,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::Both => read | epoll::EventFlags::OUT,
        };
        interest | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
    }

    /// Whether an event reports something else than bytes to read or room to write: the peer sends nothing
    /// more, an error, urgent data.
    pub fn has_ended(flags: epoll::EventFlags) -> bool {
        !(epoll::EventFlags::IN | epoll::EventFlags::OUT).contains(flags)
    }
}

/// The counters of a registration.
#[derive(Debug, Default)]
struct Slot {
    /// How often a descriptor of the slot was named.
    named: AtomicU32,
    /// How often it was named because of something else than bytes or room: the peer will send nothing
    /// more, an error, urgent data.
    ended: AtomicU32,
}

/// The descriptors that a waiter waits for.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub(super) epoll: OwnedFd,
    slots: [Slot; SLOTS],
    /// How many descriptors were ever registered.
    registered: AtomicU32,
    /// How often the owner has taken events from the kernel.
    looks: AtomicU32,
}

impl Descriptors {
    /// An epoll instance with the bell in it.
    pub(super) fn with_bell(bell: BorrowedFd<'_>) -> io::Result<Descriptors> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| explain("can't make an epoll instance", error))?;
        // Level-triggered: a strike that one kind of wait didn't see must still end the other.
        let mark = epoll::EventData::new_u64(BELL_MARK);
        epoll::add(&epoll, bell, mark, epoll::EventFlags::IN)
            .map_err(|error| explain("can't add the eventfd to its epoll instance", error))?;
        Ok(Descriptors {
            epoll,
            slots: std::array::from_fn(|_| Slot::default()),
            registered: AtomicU32::new(0),
            looks: AtomicU32::new(0),
        })
    }

    /// Notes that the owner takes in what the kernel has to report.
    #[inline]
    pub(super) fn note_look(&self) {
        // Relaxed, load and store: as the slots' counters.
        let looks = self.looks.load(Ordering::Relaxed);
        self.looks.store(looks.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether any descriptor was ever registered.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        // Relaxed: the owner of a descriptor that is registered on another thread is woken for its first
        // look, and the next wait reports the first edge.
        self.registered.load(Ordering::Relaxed) > 0
    }

    /// Notes an event for its watch; returns whether it was the bell's.
    #[inline]
    pub(super) fn note(&self, event: &epoll::Event) -> bool {
        // Copies: the fields of a packed struct can't be borrowed.
        let (data, flags) = (event.data, event.flags);
        let Some(slot) = data.u64().checked_sub(1) else {
            return true;
        };
        let slot = &self.slots[slot as usize % SLOTS];
        // Relaxed, here and in `Watch`: the counters say nothing about other memory. Load and store,
        // because only the waiter's owner writes.
        let add = |counter: &AtomicU32| {
            let count = counter.load(Ordering::Relaxed);
            counter.store(count.wrapping_add(1), Ordering::Relaxed);
        };
        if Interest::has_ended(flags) {
            add(&slot.ended);
        }
        add(&slot.named);
        false
    }
}

/// What the kernel has reported of a descriptor, for its owner. Made by [`Registrar::register`].
///
/// It belongs to the owner's thread, which is the waiter's. After a first look of its own, the owner looks
/// at the descriptor again only if it was named, or if the last look left something: bytes that it did not
/// read, or a read that filled its buffer. A read that did not fill its buffer has emptied a socket, unless
/// [`Watch::has_ended`].
#[derive(Debug)]
pub struct Watch {
    descriptors: Arc<Descriptors>,
    slot: usize,
    /// The counters as they were seen last; `None` before the first look.
    seen: Option<u32>,
    ended: u32,
    has_ended: bool,
}

impl Watch {
    /// Whether the descriptor was named since the last call. The first call says yes.
    #[inline]
    pub fn is_named(&mut self) -> bool {
        let slot = &self.descriptors.slots[self.slot];
        let named = Some(slot.named.load(Ordering::Relaxed));
        if named == self.seen {
            return false;
        }
        self.seen = named;
        let ended = slot.ended.load(Ordering::Relaxed);
        self.has_ended |= std::mem::replace(&mut self.ended, ended) != ended;
        true
    }

    /// How often the owner has taken in what the kernel had to report, in waits and in looks.
    #[inline]
    pub fn looks(&self) -> u32 {
        self.descriptors.looks.load(Ordering::Relaxed)
    }

    /// Whether [`Interest::has_ended`] was ever so. Then only the descriptor itself says whether it is empty.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// Registers descriptors with a waiter. Made by [`Waiter::registrar`](super::Waiter::registrar).
#[derive(Clone, Debug)]
pub struct Registrar {
    pub(super) descriptors: Arc<Descriptors>,
}

impl Registrar {
    /// Waits for this descriptor too, from now on.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` for a regular file or folder, which is always ready and must be read without
    /// waiting; `AlreadyExists` for one that is registered here; `StorageFull` when the user's limit of
    /// watches is reached.
    pub fn register(&self, descriptor: BorrowedFd<'_>, interest: Interest) -> io::Result<Watch> {
        let descriptors = &self.descriptors;
        let number = descriptors.registered.fetch_add(1, Ordering::Relaxed);
        let slot = number as usize % SLOTS;
        // Before the descriptor can be named.
        let ended = descriptors.slots[slot].ended.load(Ordering::Relaxed);
        let mark = epoll::EventData::new_u64(slot as u64 + 1);
        let added = epoll::add(&descriptors.epoll, descriptor, mark, interest.flags());
        added.map_err(|error| {
            let hint = match error {
                Errno::PERM => "; it is a file, which is always ready: read it without waiting",
                Errno::EXIST => "; it is registered already: deregister it first",
                Errno::NOSPC => "; raise /proc/sys/fs/epoll/max_user_watches",
                _ => "",
            };
            let number = descriptor.as_raw_fd();
            explain_with_hint(&format!("can't wait for descriptor {number}"), error, hint)
        })?;
        Ok(Watch {
            descriptors: Arc::clone(descriptors),
            slot,
            seen: None,
            ended,
            has_ended: false,
        })
    }

    /// Stops waiting for a descriptor that was registered.
    ///
    /// # Errors
    ///
    /// `NotFound` for one that is not registered here.
    pub fn deregister(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        epoll::delete(&self.descriptors.epoll, descriptor).map_err(|error| {
            let number = descriptor.as_raw_fd();
            explain(
                &format!("can't stop waiting for descriptor {number}"),
                error,
            )
        })
    }
}
