//! What the hand waits for: the head, signals, ends of processes, connections, and the next beat.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_control::power::InstanceId;

use super::Hand;
use crate::system;

#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) channel: bool,
    pub(super) signal: bool,
    pub(super) ended: Vec<InstanceId>,
    /// Instances whose connection is ready, and whether it is closed.
    pub(super) connections: Vec<(InstanceId, bool)>,
}

impl Hand {
    /// Waits until something is ready or due.
    pub(super) fn wait(&self, due: Option<u64>) -> Ready {
        let mut fds = vec![
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        for adopted in self.instances.values() {
            fds.push(PollFd::new(&adopted.handle, PollFlags::IN));
            if let Some(link) = &adopted.link {
                let flags = match link.waits_for_bytes() {
                    true => PollFlags::IN | PollFlags::RDHUP,
                    false => PollFlags::RDHUP,
                };
                fds.push(PollFd::from_borrowed_fd(link.as_fd(), flags));
            }
        }
        let left = due.map(|due| Duration::from_nanos(due.saturating_sub(system::now_ns())));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // A signal that is not read here, or no memory: whatever is ready is found at the next call.
        let _ = poll(&mut fds, left.as_ref());
        let mut flags = fds.iter().map(PollFd::revents);
        let mut next = || flags.next().unwrap_or(PollFlags::empty());
        let mut ready = Ready {
            channel: !next().is_empty(),
            signal: !next().is_empty(),
            ..Ready::default()
        };
        for (instance, adopted) in &self.instances {
            if !next().is_empty() {
                ready.ended.push(*instance);
            }
            if adopted.link.is_some() {
                let flags = next();
                if !flags.is_empty() {
                    let closed =
                        PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
                    ready
                        .connections
                        .push((*instance, flags.intersects(closed)));
                }
            }
        }
        ready
    }
}
