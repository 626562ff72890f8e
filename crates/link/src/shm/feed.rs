//! A feed: one ring that a process writes and several others read, each at its own pace.
//!
//! Messages to several processes of a host are copied into shared memory once, however many they are. An
//! inbox belongs to the process that reads; a feed belongs to the one that writes, and all its readers
//! map it.
//!
//! ```text
//! page 0:            magic, version, readers, bytes of the ring, epoch
//! then:              512 bytes of control words for each reader: its head, its note, whether it is gone
//! from a page on:    the ring
//! ```
//!
//! Every reader sees a lane of its own whose units are shared with the others ([`crate::lane`]). So a
//! slow reader holds the writer back, and one that leaves or dies no longer does ([`super::ends`]).
//! Readers must not write into the ring: the processes of one deployment run the same program and keep
//! that rule, as they do for their inboxes.
//!
//! A copy in shared memory with a cursor for each reader is what Open MPI's `xhc` does within a host
//! (`docs/internals/broadcast.md`).

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::doorbell::Waker;
use crate::error::LinkError;
use crate::lane::UNIT;
use crate::lane::cells::{CONTROL_BYTES, Cells};
use crate::memory::Memory;
use crate::shm::ends::{Opposite, Reader, Writer};
use crate::shm::peer::Peer;
use crate::shm::segment::{self, Kind, PAGE, is_lane};
use crate::sync::Arc;

/// The most readers of a feed. A writer looks at all of them when its ring is full, and wakes them one
/// after the other: with more readers, a tree of relays does better.
pub const FEED_READERS_MAX: usize = 1024;

const KIND: Kind = Kind {
    magic: *b"slackfed",
    name: "feed",
    holds: "readers",
};

/// The offsets of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    readers: usize,
    lane_bytes: usize,
}

impl Layout {
    fn new(readers: usize, lane_bytes: usize) -> Option<Layout> {
        let possible = (1..=FEED_READERS_MAX).contains(&readers) && is_lane(lane_bytes);
        possible.then_some(Layout {
            readers,
            lane_bytes,
        })
    }

    fn data(&self) -> usize {
        PAGE + (self.readers * CONTROL_BYTES).next_multiple_of(PAGE)
    }

    fn bytes(&self) -> usize {
        self.data() + self.lane_bytes
    }

    fn cells(&self, memory: &Arc<Memory>, reader: usize) -> Cells {
        assert!(reader < self.readers, "reader {reader} of {}", self.readers);
        let control = PAGE + reader * CONTROL_BYTES;
        let units = self.lane_bytes / UNIT;
        Cells::new(Arc::clone(memory), control, self.data(), units)
    }
}

/// A feed, made by the process that writes.
pub struct Feed {
    descriptor: OwnedFd,
    memory: Arc<Memory>,
    layout: Layout,
}

impl Feed {
    /// A feed of an empty ring of `lane_bytes` (a power of two, at least
    /// [`super::LANE_BYTES_MIN`]). The memory is allocated now. `epoch` is that of the deployment.
    ///
    /// # Errors
    ///
    /// When there is no memory or no descriptor left.
    ///
    /// # Panics
    ///
    /// For no readers, more than [`FEED_READERS_MAX`], or an impossible size: bugs in the planner.
    pub fn create(epoch: u64, readers: usize, lane_bytes: usize) -> io::Result<Feed> {
        let layout = Layout::new(readers, lane_bytes)
            .unwrap_or_else(|| panic!("a feed of {lane_bytes} bytes for {readers} readers"));
        let (descriptor, memory) =
            segment::create(&KIND, layout.bytes(), readers, lane_bytes, epoch)?;
        Ok(Feed {
            descriptor,
            memory: Arc::new(memory),
            layout,
        })
    }

    /// The descriptor to hand over to the processes that read.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The writing end, to be made once. `readers` are, in order, each reader's waker and process.
    ///
    /// # Panics
    ///
    /// For another number of readers than the feed was made for.
    pub fn writer<P: Deref<Target = [u8]>>(&self, readers: Vec<(Waker, Peer)>) -> Writer<P> {
        assert_eq!(readers.len(), self.layout.readers, "a feed has its readers");
        let opposites = readers.into_iter().enumerate();
        let opposites = opposites.map(|(reader, (waker, peer))| Opposite {
            cells: self.layout.cells(&self.memory, reader),
            waker,
            peer,
        });
        Writer::new(opposites.collect())
    }
}

/// The feed of another process.
#[derive(Clone)]
pub struct Subscription {
    memory: Arc<Memory>,
    layout: Layout,
    peer: Peer,
}

impl Subscription {
    /// Maps the feed that `peer` has handed over.
    ///
    /// # Errors
    ///
    /// When the memory is not a feed of this version and `epoch`.
    pub fn open(
        descriptor: BorrowedFd<'_>,
        epoch: u64,
        peer: Peer,
    ) -> Result<Subscription, LinkError> {
        let (memory, layout) = segment::open(&KIND, descriptor, epoch, &peer, |readers, bytes| {
            let layout = Layout::new(readers, bytes)?;
            Some((layout.bytes(), layout))
        })?;
        Ok(Subscription {
            memory: Arc::new(memory),
            layout,
            peer,
        })
    }

    /// The number of readers that the feed was made for.
    pub fn readers(&self) -> usize {
        self.layout.readers
    }

    /// The end of reader `number`, to be made once. `writer` wakes the worker that writes, `reader` the
    /// one that reads.
    ///
    /// # Panics
    ///
    /// For a number without a reader: the caller checks [`Subscription::readers`].
    pub fn reader(&self, number: usize, writer: Waker, reader: Waker) -> Reader {
        let cells = self.layout.cells(&self.memory, number);
        Reader::new(cells, writer, reader, self.peer.clone()).shared()
    }
}

#[cfg(test)]
mod tests;
