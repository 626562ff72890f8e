//! The memory of a reader's lanes.
//!
//! ```text
//! page 0:            magic, version, lanes, bytes per lane, epoch
//! then:              512 bytes of control words for each lane
//! from a page on:    the lanes' rings, one after the other
//! ```

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

/// The most lanes of one inbox: links that one worker reads from other processes. 4,096 lanes are
/// 1,024 instances on each of four other processes.
pub const LANES_MAX: usize = 4096;

const KIND: Kind = Kind {
    magic: *b"slackwtr",
    name: "inbox",
    holds: "lanes",
};

/// The offsets of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    lanes: usize,
    lane_bytes: usize,
}

impl Layout {
    fn new(lanes: usize, lane_bytes: usize) -> Option<Layout> {
        let possible = (1..=LANES_MAX).contains(&lanes) && is_lane(lane_bytes);
        possible.then_some(Layout { lanes, lane_bytes })
    }

    fn control(&self, lane: usize) -> usize {
        PAGE + lane * CONTROL_BYTES
    }

    fn data(&self, lane: usize) -> usize {
        let controls = (self.lanes * CONTROL_BYTES).next_multiple_of(PAGE);
        PAGE + controls + lane * self.lane_bytes
    }

    fn bytes(&self) -> usize {
        self.data(self.lanes)
    }

    fn cells(&self, memory: &Arc<Memory>, lane: usize) -> Cells {
        assert!(lane < self.lanes, "lane {lane} of {}", self.lanes);
        let units = self.lane_bytes / UNIT;
        Cells::new(
            Arc::clone(memory),
            self.control(lane),
            self.data(lane),
            units,
        )
    }
}

/// A reader's lanes, made by the process that reads.
pub struct Inbox {
    descriptor: OwnedFd,
    memory: Arc<Memory>,
    layout: Layout,
}

impl Inbox {
    /// An inbox of empty lanes, each of `lane_bytes` (a power of two, at least
    /// [`LANE_BYTES_MIN`]). The memory is allocated now. `epoch` is that of the deployment.
    ///
    /// # Errors
    ///
    /// When there is no memory or no descriptor left.
    ///
    /// # Panics
    ///
    /// For no lanes, more than [`LANES_MAX`], or an impossible size: bugs in the planner.
    pub fn create(epoch: u64, lanes: usize, lane_bytes: usize) -> io::Result<Inbox> {
        let layout = Layout::new(lanes, lane_bytes)
            .unwrap_or_else(|| panic!("an inbox of {lanes} lanes of {lane_bytes} bytes"));
        let (descriptor, memory) =
            segment::create(&KIND, layout.bytes(), lanes, lane_bytes, epoch)?;
        Ok(Inbox {
            descriptor,
            memory: Arc::new(memory),
            layout,
        })
    }

    /// Places all lanes on a NUMA node, that of the worker that reads them. Call this before the inbox is
    /// handed over, so that nothing has to move later.
    ///
    /// # Errors
    ///
    /// As [`crate::prefer_node`]; the lanes then stay where the kernel placed them.
    pub fn put_on_node(&self, node: usize) -> io::Result<()> {
        crate::numa::put_on_node(&self.memory, node)
    }

    /// The descriptor to hand over to the processes that write.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The reading end of a lane, to be made once. `writer` wakes the worker that writes, `reader` the
    /// one that reads; `peer` is the process that writes.
    pub fn reader(&self, lane: usize, writer: Waker, reader: Waker, peer: Peer) -> Reader {
        Reader::new(self.layout.cells(&self.memory, lane), writer, reader, peer)
    }
}

/// The inbox of another process.
#[derive(Clone)]
pub struct Outbox {
    memory: Arc<Memory>,
    layout: Layout,
    peer: Peer,
}

impl Outbox {
    /// Maps the inbox that `peer` has handed over.
    ///
    /// # Errors
    ///
    /// When the memory is not an inbox of this version and `epoch`.
    pub fn open(descriptor: BorrowedFd<'_>, epoch: u64, peer: Peer) -> Result<Outbox, LinkError> {
        let (memory, layout) = segment::open(&KIND, descriptor, epoch, &peer, |lanes, bytes| {
            let layout = Layout::new(lanes, bytes)?;
            Some((layout.bytes(), layout))
        })?;
        Ok(Outbox {
            memory: Arc::new(memory),
            layout,
            peer,
        })
    }

    /// The number of lanes in the inbox.
    pub fn lanes(&self) -> usize {
        self.layout.lanes
    }

    /// The writing end of a lane, to be made once. `reader` wakes the worker that reads.
    ///
    /// # Panics
    ///
    /// For a number without a lane: the caller checks [`Outbox::lanes`].
    pub fn writer<P: Deref<Target = [u8]>>(&self, lane: usize, reader: Waker) -> Writer<P> {
        Writer::new(vec![Opposite {
            cells: self.layout.cells(&self.memory, lane),
            waker: reader,
            peer: self.peer.clone(),
        }])
    }
}
