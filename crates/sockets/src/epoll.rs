//! `epoll`: each set is known here, too, so that a wait looks at the lanes of its connections.
//!
//! The program's registrations are the kernel's until a connection is in shared memory. Then its registration
//! is *tagged*: the kernel reports it edge-triggered and under a tag, because what it reports are bells, and
//! what the program has asked for (level- or edge-triggered, once) is decided here. A wait looks at all
//! connections of its set, which costs some nanoseconds for each.

mod waiting;

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::epoll_event;

use crate::connection::{self, DESCRIPTORS_MAX};
use crate::lock::Guarded;
use crate::ready::{ALWAYS, IN, OUT, RDHUP};
use crate::real;
use crate::stream::Stream;

pub(crate) use waiting::epoll_wait;

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// The upper half of the data of a tagged registration: no address of a program looks like it.
const TAG: u64 = 0xa5c3_51ac << 32;

static SETS: [AtomicPtr<Set>; DESCRIPTORS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS_MAX];
static END: AtomicU32 = AtomicU32::new(0);

/// A set. It is never freed: its descriptor's next one uses it again.
struct Set(Guarded<Registrations>);

#[derive(Default)]
struct Registrations {
    list: Vec<Registration>,
    /// Counts the waits.
    round: u32,
    /// Those that have something to report, in their order: when it came, and the place in the list.
    turns: Vec<(u64, usize)>,
}

struct Registration {
    fd: c_int,
    /// How often the descriptor had been closed.
    times_closed: u32,
    events: u32,
    data: u64,
    /// The events that the kernel was asked for under the tag.
    tagged: Option<u32>,
    /// EPOLLONESHOT has been reported.
    disabled: bool,
    /// What the kernel has said once and for all.
    gone: u32,
    /// What was there when EPOLLIN, and whether EPOLLOUT, was reported last, for EPOLLET.
    seen_tail: Option<u64>,
    seen_ended: bool,
    seen_refusals: Option<u32>,
    /// The wait that has reported it, and when that was.
    round: u32,
    reported_ns: u64,
}

fn set(set: c_int) -> Option<&'static Set> {
    let found = SETS
        .get(usize::try_from(set).ok()?)?
        .load(Ordering::Acquire);
    // SAFETY: sets are never freed.
    (!found.is_null()).then(|| unsafe { &*found })
}

fn set_or_new(fd: c_int) -> Option<&'static Set> {
    if let Some(set) = set(fd) {
        return Some(set);
    }
    let place = SETS.get(usize::try_from(fd).ok()?)?;
    let new = Box::into_raw(Box::new(Set(Guarded::new(Registrations::default()))));
    END.fetch_max(fd as u32 + 1, Ordering::AcqRel);
    if place
        .compare_exchange(
            std::ptr::null_mut(),
            new,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .is_err()
    {
        // SAFETY: another thread was first, so nobody else has this one.
        drop(unsafe { Box::from_raw(new) });
    }
    set(fd)
}

/// A new descriptor of the same set.
pub(crate) fn duplicated(from: c_int, to: c_int) {
    let (Some(set), Ok(place)) = (set(from), usize::try_from(to)) else {
        return;
    };
    if let Some(place) = SETS.get(place) {
        END.fetch_max(to as u32 + 1, Ordering::AcqRel);
        place.store(std::ptr::from_ref(set).cast_mut(), Ordering::Release);
    }
}

/// The descriptor was closed; the set may have others.
pub(crate) fn closed(fd: c_int) {
    let place = usize::try_from(fd).ok().and_then(|fd| SETS.get(fd));
    if let Some(place) = place.filter(|place| !place.load(Ordering::Relaxed).is_null()) {
        let set = place.load(Ordering::Acquire);
        let shared = (0..END.load(Ordering::Acquire) as usize)
            .any(|other| other != fd as usize && SETS[other].load(Ordering::Relaxed) == set);
        if shared {
            place.store(std::ptr::null_mut(), Ordering::Release);
            return;
        }
        // SAFETY: sets are never freed.
        let set = unsafe { &*set };
        set.0
            .with(|registrations| *registrations = Registrations::default());
    }
}

/// Before a fork: nobody is inside of a set.
pub(crate) fn hold_for_fork() {
    (0..END.load(Ordering::Acquire) as c_int)
        .filter_map(set)
        .for_each(|set| set.0.hold());
}

/// After a fork, in parent and child.
pub(crate) fn release_after_fork() {
    (0..END.load(Ordering::Acquire) as c_int)
        .filter_map(set)
        .for_each(|set| set.0.release());
}

/// `epoll_ctl`.
pub(crate) fn control(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let Some(set) = set_or_new(epoll) else {
        return real::epoll_ctl(epoll, what, fd, event);
    };
    // A kernel that gets a null pointer says EFAULT.
    if what != libc::EPOLL_CTL_DEL && event.is_null() {
        return real::epoll_ctl(epoll, what, fd, event);
    }
    let controlled = set.0.with(|registrations| {
        registrations
            .list
            .retain(|known| known.fd != fd || known.is_open());
        if what == libc::EPOLL_CTL_DEL {
            registrations.list.retain(|known| known.fd != fd);
            return real::epoll_ctl(epoll, what, fd, event);
        }
        // SAFETY: the program gives an event, see above.
        let event = unsafe { event.read_unaligned() };
        let new = Registration::new(fd, event);
        let result = new.tell(epoll, what);
        if let Ok(new) = result {
            registrations.list.retain(|known| known.fd != fd);
            registrations.list.push(new);
            return 0;
        }
        -1
    });
    // In a signal handler that came while this thread was inside: the kernel does its part.
    controlled.unwrap_or_else(|| real::epoll_ctl(epoll, what, fd, event))
}

impl Registration {
    fn new(fd: c_int, event: epoll_event) -> Self {
        Self {
            fd,
            times_closed: connection::times_closed(fd),
            events: event.events,
            data: event.u64,
            tagged: None,
            disabled: false,
            gone: 0,
            seen_tail: None,
            seen_ended: false,
            seen_refusals: None,
            round: 0,
            reported_ns: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.times_closed == connection::times_closed(self.fd)
    }

    /// Tells the kernel of this registration, under the tag if its connection is in shared memory.
    fn tell(mut self, epoll: c_int, what: c_int) -> Result<Self, c_int> {
        let user = connection::get(self.fd);
        let stream = user.as_ref().and_then(|user| Stream::known(self.fd, user));
        let mut event = epoll_event {
            events: self.events,
            u64: self.data,
        };
        if let Some(stream) = &stream {
            // An exclusive registration can't be changed later.
            if self.events & EXCLUSIVE != 0 && !stream.stay_tcp() {
                event.events &= !EXCLUSIVE;
            }
            if stream.is_shared() {
                let events = self.under_tag(stream);
                self.tagged = Some(events);
                event = epoll_event {
                    events,
                    u64: TAG | self.fd as u64,
                };
            }
        }
        match real::epoll_ctl(epoll, what, self.fd, &mut event) {
            0 => Ok(self),
            _ => Err(real::errno()),
        }
    }

    fn under_tag(&self, stream: &Stream) -> u32 {
        let events = stream.kernel_events(self.events & !(ONCE | EXCLUSIVE));
        if stream.hears_bells_only() {
            events | EDGE
        } else {
            events
        }
    }

    /// Runs an action on the connection, if it is in shared memory.
    fn with_stream<R>(&mut self, action: impl FnOnce(&mut Self, &Stream) -> R) -> Option<R> {
        if self.disabled || !connection::is_known(self.fd) || !self.is_open() {
            return None;
        }
        let user = connection::get(self.fd)?;
        let stream = Stream::known(self.fd, &user).filter(Stream::is_shared)?;
        Some(action(self, &stream))
    }

    /// Changes the kernel's registration after the connection has moved.
    fn follow(&mut self, epoll: c_int, stream: &Stream) {
        stream.receives().note_times();
        let events = self.under_tag(stream);
        if self.tagged != Some(events) {
            let mut event = epoll_event {
                events,
                u64: TAG | self.fd as u64,
            };
            if real::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, self.fd, &mut event) == 0 {
                self.tagged = Some(events);
            }
        }
    }

    /// What is to be reported of `ready`, of which an edge-triggered registration hears once.
    fn news(&self, stream: &Stream, ready: u32) -> u32 {
        let mut ready = (ready | self.gone) & (self.events | ALWAYS);
        if self.events & EDGE == 0 {
            return ready;
        }
        let lane = stream.receives();
        if stream.hears_bells_only()
            && self.seen_tail == Some(lane.tail())
            && self.seen_ended == (lane.has_ended() || self.gone != 0)
        {
            ready &= !(IN | RDHUP | ALWAYS);
        }
        let refusals = stream.connection.refusals.load(Ordering::Acquire);
        if self.seen_refusals == Some(refusals) {
            ready &= !OUT;
        }
        ready
    }

    fn reported(&mut self, epoll: c_int, stream: &Stream, ready: u32) {
        if ready & (IN | RDHUP | ALWAYS) != 0 {
            self.seen_tail = Some(stream.receives().tail());
            self.seen_ended = stream.receives().has_ended() || self.gone != 0;
        }
        if ready & OUT != 0 {
            self.seen_refusals = Some(stream.connection.refusals.load(Ordering::Acquire));
        }
        if self.events & ONCE != 0 {
            self.disabled = true;
            let mut nothing = epoll_event {
                events: 0,
                u64: TAG | self.fd as u64,
            };
            real::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, self.fd, &mut nothing);
        }
    }
}

/// Whether a set has connections in shared memory.
pub(crate) fn is_shared(epoll: c_int) -> bool {
    let Some(set) = set(epoll) else {
        return false;
    };
    let shared = |registrations: &mut Registrations| {
        registrations
            .list
            .iter_mut()
            .any(|known| known.with_stream(|_, _| ()).is_some())
    };
    set.0.with(shared).unwrap_or(false)
}

/// Whether a lane of a set has something to report.
pub(crate) fn lanes(epoll: c_int) -> bool {
    let Some(set) = set(epoll) else {
        return false;
    };
    let ready = |known: &mut Registration| {
        known.with_stream(|known, stream| known.news(stream, stream.lanes_ready()) != 0)
            == Some(true)
    };
    set.0
        .with(|registrations| registrations.list.iter_mut().any(ready))
        .unwrap_or(false)
}

/// Whether the kernel has something to report of a set, besides bells, which are taken.
pub(crate) fn has_more_than_bells(epoll: c_int) -> bool {
    if let Some(set) = set(epoll) {
        set.0.with(|registrations| {
            for known in &mut registrations.list {
                known.with_stream(|_, stream| stream.take_bells());
            }
        });
    }
    let mut fd = libc::pollfd {
        fd: epoll,
        events: libc::POLLIN,
        revents: 0,
    };
    real::poll(&mut fd, 1, 0) > 0
}

/// Announces a sleep to the lanes of a set; true if one of them can't end it.
pub(crate) fn announce(epoll: c_int) -> bool {
    let Some(set) = set(epoll) else {
        return false;
    };
    let announced = set.0.with(|registrations| {
        let mut unheard = false;
        for known in &mut registrations.list {
            let one = known.with_stream(|known, stream| stream.announce(known.events));
            unheard |= one == Some(true);
        }
        unheard
    });
    announced.unwrap_or(true)
}
