//! The call that waits: what the kernel reports is seen through, and what the lanes say is added.

use std::ffi::c_int;

use libc::{epoll_event, sigset_t};

use super::{Registration, Registrations, Set, TAG, announce, is_shared, lanes, set};
use crate::ready::{ALWAYS, IN, RDHUP, Waiting, wait};
use crate::real;

/// A call of `epoll_wait`.
struct Waiter {
    epoll: c_int,
    set: &'static Set,
    events: *mut epoll_event,
    count: c_int,
    mask: *const sigset_t,
    ready: c_int,
}

/// `epoll_wait` with a time-out in nanoseconds. Nothing if the kernel is to do it alone.
pub(crate) fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ns: Option<u64>,
    mask: *const sigset_t,
) -> Option<Result<c_int, c_int>> {
    let set = set(epoll).filter(|_| count > 0 && !events.is_null())?;
    if !is_shared(epoll) && !has_tags(set) {
        return None;
    }
    let mut waiter = Waiter {
        epoll,
        set,
        events,
        count,
        mask,
        ready: 0,
    };
    Some(wait(&mut waiter, timeout_ns).map(|_| waiter.ready))
}

fn has_tags(set: &Set) -> bool {
    let tagged = |registrations: &mut Registrations| {
        registrations
            .list
            .iter()
            .any(|known| known.tagged.is_some())
    };
    set.0.with(tagged).unwrap_or(true)
}

impl Waiting for Waiter {
    fn lanes(&mut self) -> bool {
        lanes(self.epoll)
    }

    fn announce(&mut self) -> bool {
        announce(self.epoll)
    }

    fn kernel(&mut self, ns: Option<u64>) -> Result<bool, c_int> {
        let (epoll, lanes) = (self.epoll, lanes(self.epoll));
        let round = self.set.0.with(|registrations| {
            registrations.round = registrations.round.wrapping_add(1).max(1);
            // Otherwise the kernel would report a bell as data.
            for known in &mut registrations.list {
                known.with_stream(|known, stream| known.follow(epoll, stream));
            }
            registrations.round
        });
        // Lanes get a place, or a turn, even if the kernel could fill all of them.
        let most = match (lanes, self.count) {
            (false, count) => count,
            (true, 1) => c_int::from(round.unwrap_or(0).is_multiple_of(2)),
            (true, count) => count - 1,
        };
        let mut found = 0;
        if most > 0 {
            let time = ns.map(real::timespec_of);
            let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            found = real::epoll_pwait2(self.epoll, self.events, most, time, self.mask);
            if found < 0 {
                return Err(real::errno());
            }
        }
        let (events, count) = (self.events, self.count);
        let ready = self.set.0.with(|registrations| {
            let mut out = Out {
                events,
                count,
                ready: 0,
            };
            for index in 0..found {
                // SAFETY: the kernel has written so many.
                let event = unsafe { events.add(index as usize).read_unaligned() };
                registrations.translate(epoll, event, &mut out);
            }
            registrations.collect(epoll, &mut out);
            out.ready
        });
        self.ready = ready.unwrap_or(found);
        Ok(self.ready > 0)
    }
}

/// The program's array of events.
struct Out {
    events: *mut epoll_event,
    count: c_int,
    ready: c_int,
}

impl Out {
    fn put(&mut self, events: u32, data: u64) {
        if self.ready < self.count {
            let event = epoll_event { events, u64: data };
            // SAFETY: the program's array has `count` places.
            unsafe { self.events.add(self.ready as usize).write_unaligned(event) };
            self.ready += 1;
        }
    }
}

impl Registrations {
    /// Passes on an event of the kernel. What it says of a tagged registration is seen through.
    fn translate(&mut self, epoll: c_int, event: epoll_event, out: &mut Out) {
        let (bits, data, round) = (event.events, event.u64, self.round);
        let tag_of = |known: &Registration| known.tagged.is_some() && data == TAG | known.fd as u64;
        let Some(known) = self.list.iter_mut().find(|known| tag_of(known)) else {
            if data >> 32 != TAG >> 32 {
                out.put(bits, data);
            }
            return;
        };
        if known.disabled {
            return;
        }
        let (data, wanted) = (known.data, known.events);
        let seen = known.with_stream(|known, stream| {
            let combined = stream.combined(bits, wanted);
            if stream.hears_bells_only() && bits & (RDHUP | ALWAYS) != 0 {
                known.gone |= combined & ALWAYS | IN | RDHUP;
            }
            let ready = known.news(stream, combined);
            // What the lanes say is reported in its turn, after all bells were heard.
            if ready & !known.news(stream, stream.lanes_ready()) == 0 {
                return 0;
            }
            known.round = round;
            known.reported(epoll, stream, ready);
            ready
        });
        // The connection has left the table: the kernel's word counts.
        let ready = seen.unwrap_or(bits & (wanted | ALWAYS));
        if ready != 0 {
            out.put(ready, data);
        }
    }

    /// Adds what the lanes have to say, in the order in which it came; of a connection that was reported
    /// before, as if it had come then. So the kernel does it.
    fn collect(&mut self, epoll: c_int, out: &mut Out) {
        let round = self.round;
        self.turns.clear();
        for (place, known) in self.list.iter_mut().enumerate() {
            if known.round == round {
                continue;
            }
            let turn = known.with_stream(|known, stream| {
                let ready = known.news(stream, stream.lanes_ready());
                let came = stream.receives().since_ns().max(known.reported_ns);
                (ready != 0).then_some(came)
            });
            if let Some(came) = turn.flatten() {
                self.turns.push((came, place));
            }
        }
        if self.turns.is_empty() {
            return;
        }
        self.turns.sort_unstable();
        let now = real::now_ns();
        for (&(_, place), ns) in self.turns.iter().zip(0..) {
            let Some(known) = self.list.get_mut(place).filter(|_| out.ready < out.count) else {
                return;
            };
            let ready = known.with_stream(|known, stream| {
                let ready = known.news(stream, stream.lanes_ready());
                if ready != 0 {
                    (known.round, known.reported_ns) = (round, now + ns);
                    known.reported(epoll, stream, ready);
                }
                ready
            });
            if let Some(ready) = ready.filter(|ready| *ready != 0) {
                out.put(ready, known.data);
            }
        }
    }
}
