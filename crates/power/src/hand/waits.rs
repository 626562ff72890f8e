//! What the hand waits for: the head, signals, ends of processes, connections, and the next beat.
//!
//! All of it is registered once, so that a beat takes one call to wait for. Links are told once for what
//! arrives (edge-triggered): the replica reads it, not the hand.
//!
//! Invariant: a descriptor is let go here before it is closed. A link's file is also the replica's, so
//! closing the duplicate alone would leave it registered.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_control::power::InstanceId;

use crate::message::Channel;
use crate::system;

const CHANNEL: u64 = 0;
const SIGNALS: u64 = 1;
/// Processes and links have even and odd numbers from here on.
const FIRST: u64 = 2;
/// The most events that are taken in one turn; more are taken in the next one.
const EVENTS_MAX: usize = 64;

/// What is ready.
#[derive(Debug, Default)]
pub struct Ready {
    /// The head asks.
    pub channel: bool,
    /// A signal came.
    pub signal: bool,
    /// Instances whose process has ended.
    pub ended: Vec<InstanceId>,
    /// Instances whose connection is ready, and whether it is closed.
    pub connections: Vec<(InstanceId, bool)>,
}

/// What is waited for.
#[derive(Debug)]
pub struct Waits {
    epoll: OwnedFd,
}

impl Waits {
    /// Waits for the head and for signals.
    pub fn new(channel: &Channel, signals: &OwnedFd) -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let number = EventData::new_u64;
        epoll::add(&epoll, channel, number(CHANNEL), EventFlags::IN)?;
        epoll::add(&epoll, signals, number(SIGNALS), EventFlags::IN)?;
        Ok(Self { epoll })
    }

    /// Waits for the end of a process.
    pub fn process(&self, instance: InstanceId, handle: BorrowedFd<'_>) -> std::io::Result<()> {
        let number = EventData::new_u64(FIRST + 2 * instance);
        Ok(epoll::add(&self.epoll, handle, number, EventFlags::IN)?)
    }

    /// No longer waits for the end of a process.
    pub fn forget_process(&self, handle: BorrowedFd<'_>) {
        // It is registered, so this can't fail.
        let _ = epoll::delete(&self.epoll, handle);
    }

    /// Waits for the end of a connection, and for bytes as well if that is wanted.
    pub fn link(
        &self,
        instance: InstanceId,
        link: BorrowedFd<'_>,
        bytes: bool,
    ) -> std::io::Result<()> {
        let number = EventData::new_u64(FIRST + 2 * instance + 1);
        let mut flags = EventFlags::RDHUP | EventFlags::ET;
        flags.set(EventFlags::IN, bytes);
        match epoll::modify(&self.epoll, link, number, flags) {
            Err(rustix::io::Errno::NOENT) => Ok(epoll::add(&self.epoll, link, number, flags)?),
            set => Ok(set?),
        }
    }

    /// No longer waits for a connection.
    pub fn forget_link(&self, link: BorrowedFd<'_>) {
        // It is registered, so this can't fail.
        let _ = epoll::delete(&self.epoll, link);
    }

    /// Waits until something is ready or due.
    pub fn wait(&self, due: Option<u64>) -> Ready {
        let mut ready = Ready::default();
        let left = due.map(|due| Duration::from_nanos(due.saturating_sub(system::now_ns())));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // By poll, whose time is exact; epoll's is in milliseconds on older kernels.
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(1..) => {}
            // A signal that is not read here, or no memory: whatever is ready is found at the next call.
            Ok(0) | Err(_) => return ready,
        }
        let mut events = Vec::<Event>::with_capacity(EVENTS_MAX);
        let none = Timespec::default();
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&none)).is_err() {
            return ready;
        }
        for event in events {
            let (number, flags) = (event.data.u64(), event.flags);
            match number {
                CHANNEL => ready.channel = true,
                SIGNALS => ready.signal = true,
                number if number.is_multiple_of(2) => ready.ended.push((number - FIRST) / 2),
                number => {
                    let closed = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                    let is_closed = flags.intersects(closed);
                    ready.connections.push(((number - FIRST) / 2, is_closed));
                }
            }
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_link_tells_its_bytes_once_and_its_end_and_nothing_when_let_go() {
        let (ours, _theirs) = Channel::pair().unwrap();
        let signals = system::signals(&[]).unwrap();
        let waits = Waits::new(&ours, &signals).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut master = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (replica, _) = listener.accept().unwrap();
        let copy = replica.try_clone().unwrap();
        waits.link(7, copy.as_fd(), false).unwrap();
        master.write_all(b"bytes").unwrap();
        replica.peek(&mut [0; 5]).unwrap();
        let now = || Some(system::now_ns());
        assert!(waits.wait(now()).connections.is_empty());
        waits.link(7, copy.as_fd(), true).unwrap();
        assert_eq!(waits.wait(None).connections, [(7, false)]);
        // Unread as it is.
        assert!(waits.wait(now()).connections.is_empty());
        drop(master);
        assert_eq!(waits.wait(None).connections, [(7, true)]);
        waits.forget_link(copy.as_fd());
        drop(copy);
        assert!(waits.wait(now()).connections.is_empty());
    }
}
