//! Finds out which of several descriptors are ready.
//!
//! A worker's waiter only says that something is ready, and a source can't register a descriptor with it once
//! it runs. So a source with many connections has its own epoll set and registers that set, whose descriptor
//! becomes readable when one of its members does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

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

    /// Adds a descriptor, edge-triggered: its owner reads until it would block. Closing the
    /// descriptor takes it out.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>, number: u64) -> std::io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(
            &self.set,
            descriptor,
            epoll::EventData::new_u64(number),
            flags,
        )?;
        Ok(())
    }

    /// Calls `ready` with the number of each descriptor that has an event. Never blocks.
    pub(crate) fn look(&self, mut ready: impl FnMut(u64)) -> std::io::Result<()> {
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
                ready(event.data.u64());
            }
            if events.len() < EVENTS_MAX {
                return Ok(());
            }
        }
    }
}
