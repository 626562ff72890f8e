//! Finds out which of several descriptors are ready.
//!
//! A worker's waiter is for a few descriptors, and looks at all of them at once. A source with many
//! connections has its own epoll set and registers that set, whose descriptor becomes readable when one of
//! its members does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use slackwater_engine::link::Interest;

/// Events taken in one poll; the next one finds the rest.
const EVENTS_MAX: usize = 64;

/// A set of descriptors, each with a number.
#[derive(Debug)]
pub(crate) struct Readiness {
    set: OwnedFd,
}

impl Readiness {
    pub(crate) fn new() -> std::io::Result<Readiness> {
        Ok(Readiness {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// The set itself, to be registered with the waiter.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Adds a descriptor, edge-triggered. Closing the descriptor takes it out.
    pub(crate) fn add(
        &self,
        descriptor: BorrowedFd<'_>,
        interest: Interest,
        number: u64,
    ) -> std::io::Result<()> {
        let flags = interest.flags();
        epoll::add(
            &self.set,
            descriptor,
            epoll::EventData::new_u64(number),
            flags,
        )?;
        Ok(())
    }

    /// Calls `ready` with the number of each descriptor that has an event, and whether the event is something
    /// else than bytes or room, as [`Watch::has_ended`] has it. Never blocks.
    ///
    /// [`Watch::has_ended`]: slackwater_engine::link::Watch::has_ended
    pub(crate) fn look(&self, mut ready: impl FnMut(u64, bool)) -> std::io::Result<()> {
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.set, spare, Some(&now)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let flags = event.flags;
                ready(event.data.u64(), Interest::has_ended(flags));
            }
            if events.len() < EVENTS_MAX {
                return Ok(());
            }
        }
    }
}
