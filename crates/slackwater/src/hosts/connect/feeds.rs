//! Feeds between worker processes: the writer creates the memory and hands it to all readers.
//!
//! The readers of a feed are its links, in order; a process reads by as many of them as end in it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use slackwater_engine::deploy::RemoteEnds;
use slackwater_link::shm::{Feed, Peer, Subscription, handover};
use slackwater_link::{FrameReceiver, FrameSender, Waker};

use super::{Part, TEXT_BYTES, lane_bytes, out_of_step};

/// The feeds that this process writes, with their links.
pub struct Feeds(Vec<(Vec<usize>, Feed)>);

/// The feed of another process that this one reads, with its links.
pub type Subscribed = (Vec<usize>, Subscription);

/// The name that is sent with a feed's descriptor.
fn text(links: &[usize]) -> String {
    format!("feed {}", links[0])
}

impl Part<'_> {
    /// The process that writes a feed.
    fn writer_of(&self, links: &[usize]) -> usize {
        let first = &self.deployment.links[links[0]];
        self.deployment.process(first.from)
    }

    /// The process that a link ends in.
    fn reader_of(&self, link: usize) -> usize {
        self.deployment.process(self.deployment.links[link].to)
    }
}

impl Feeds {
    /// Creates those of `feeds` that this process writes.
    pub fn create(part: &Part<'_>, feeds: &[Vec<usize>]) -> io::Result<Feeds> {
        let own = feeds
            .iter()
            .filter(|links| part.writer_of(links) == part.process);
        let own = own.collect::<Vec<_>>();
        let bytes = lane_bytes(own.len().max(1));
        let made = own.into_iter().map(|links| {
            let feed = Feed::create(part.epoch, links.len(), bytes)?;
            Ok((links.clone(), feed))
        });
        Ok(Feeds(made.collect::<io::Result<_>>()?))
    }

    /// Hands a process the feeds that it reads.
    pub fn hand_over(&self, part: &Part<'_>, process: usize, socket: &OwnedFd) -> io::Result<()> {
        for (links, feed) in &self.0 {
            if links.iter().any(|&link| part.reader_of(link) == process) {
                handover::send(socket, text(links).as_bytes(), &[feed.descriptor()])?;
            }
        }
        Ok(())
    }

    /// Adds the writing ends.
    pub fn writers(
        &self,
        part: &Part<'_>,
        wakers: &HashMap<usize, Waker>,
        peers: &[Peer],
        ends: &mut RemoteEnds,
    ) {
        for (links, feed) in &self.0 {
            let readers = links.iter().map(|&link| {
                let to = part.deployment.links[link].to;
                let waker = wakers[&part.worker_of(to)].clone();
                (waker, peers[part.reader_of(link)].clone())
            });
            let writer = feed.writer(readers.collect());
            ends.senders.insert(links[0], FrameSender::Shm(writer));
        }
    }
}

/// Receives the feeds that `process` writes and this process reads, as [`Feeds::hand_over`] sends them.
pub fn take_over(
    part: &Part<'_>,
    feeds: &[Vec<usize>],
    process: usize,
    socket: &OwnedFd,
    peer: &Peer,
) -> io::Result<Vec<Subscribed>> {
    let mut subscribed = Vec::new();
    for links in feeds {
        let read_here = links
            .iter()
            .any(|&link| part.reader_of(link) == part.process);
        if part.writer_of(links) != process || !read_here {
            continue;
        }
        let mut bytes = [0; TEXT_BYTES];
        let (length, descriptors) = handover::receive(socket, &mut bytes)?;
        let descriptor = descriptors.first();
        let descriptor = descriptor.filter(|_| bytes[..length] == *text(links).as_bytes());
        let descriptor = descriptor.ok_or_else(|| out_of_step(peer.name()))?;
        let feed = Subscription::open(descriptor.as_fd(), part.epoch, peer.clone());
        let feed = feed.map_err(io::Error::other)?;
        if feed.readers() != links.len() {
            return Err(out_of_step(peer.name()));
        }
        subscribed.push((links.clone(), feed));
    }
    Ok(subscribed)
}

/// Adds the reading ends.
pub fn readers(
    part: &Part<'_>,
    subscribed: &[Subscribed],
    wakers: &HashMap<usize, Waker>,
    ends: &mut RemoteEnds,
) {
    for (links, feed) in subscribed {
        for (number, &link) in links.iter().enumerate() {
            if part.reader_of(link) != part.process {
                continue;
            }
            let plan = &part.deployment.links[link];
            let writer = wakers[&part.worker_of(plan.from)].clone();
            let reader = part.own_waiter(part.worker_of(plan.to)).waker();
            let end = feed.reader(number, writer, reader);
            ends.receivers.insert(link, FrameReceiver::Shm(end));
        }
    }
}
