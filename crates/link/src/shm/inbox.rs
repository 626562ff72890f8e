//! The memory in which a reader's lanes lie.
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
use crate::frame::LinkError;
use crate::shm::cells::{CONTROL_BYTES, Cells};
use crate::shm::ends::{Reader, Writer};
use crate::shm::lane::{UNIT, UNITS_MIN};
use crate::shm::memory::Memory;
use crate::shm::peer::Peer;
use crate::sync::Arc;

/// The smallest lane. A power of two, as every lane.
pub const LANE_BYTES_MIN: usize = UNITS_MIN * UNIT;

/// The largest lane: 1 GiB, far beyond any plan.
const LANE_BYTES_MAX: usize = 1 << 30;

/// The most lanes of one inbox: links that one worker reads from other processes. 4,096 lanes are
/// 1,024 instances on each of four other processes.
pub const LANES_MAX: usize = 4096;

const PAGE: usize = 4096;

/// "slackwtr", and the version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"slackwtr");
const VERSION: u64 = 1;

/// Where things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    lanes: usize,
    lane_bytes: usize,
}

impl Layout {
    fn new(lanes: usize, lane_bytes: usize) -> Option<Layout> {
        let possible = (1..=LANES_MAX).contains(&lanes)
            && lane_bytes.is_power_of_two()
            && (LANE_BYTES_MIN..=LANE_BYTES_MAX).contains(&lane_bytes);
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
        let (descriptor, memory) = Memory::create("slackwater-inbox", layout.bytes())?;
        let header = [MAGIC, VERSION, lanes as u64, lane_bytes as u64, epoch];
        // SAFETY: the first page, which nobody else has seen yet.
        unsafe { memory.base().cast::<[u64; 5]>().write(header) };
        Ok(Inbox {
            descriptor,
            memory: Arc::new(memory),
            layout,
        })
    }

    /// Puts all lanes on a NUMA node, that of the worker that reads them. Before the inbox is handed
    /// over, so that nothing has to move later.
    ///
    /// # Errors
    ///
    /// As [`crate::prefer_node`]; the lanes then lie where the kernel put them.
    pub fn put_on_node(&self, node: usize) -> io::Result<()> {
        crate::numa::put_on_node(&self.memory, node)
    }

    /// What is handed over to the processes that write.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The reading end of a lane, to be made once. `writer` rings the worker that writes, `reader`
    /// the one that reads; `peer` is the process that writes.
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
        let refuse = |reason: String| LinkError::new(peer.name(), reason);
        let memory = Memory::open(descriptor, PAGE).map_err(|error| refuse(error.to_string()))?;
        // SAFETY: the first page is there; any bytes are numbers. One read, because the other
        // process could write meanwhile.
        let header = unsafe { memory.base().cast::<[u64; 5]>().read_volatile() };
        let [magic, version, lanes, lane_bytes, of_epoch] = header;
        if magic != MAGIC {
            return Err(refuse("handed over memory that is no inbox".to_string()));
        }
        if version != VERSION {
            return Err(refuse(format!(
                "its inbox has layout {version}, this process knows {VERSION}"
            ))
            .mend("run the same version of slackwater everywhere"));
        }
        if of_epoch != epoch {
            return Err(refuse(format!(
                "its inbox belongs to epoch {of_epoch} and this process to epoch {epoch}"
            ))
            .mend("one of the two is left over from an earlier start: end it"));
        }
        let numbers = usize::try_from(lanes)
            .ok()
            .zip(usize::try_from(lane_bytes).ok());
        let layout = numbers.and_then(|(lanes, bytes)| Layout::new(lanes, bytes));
        let layout = layout.filter(|layout| layout.bytes() <= memory.len());
        let layout = layout.ok_or_else(|| {
            refuse(format!(
                "its inbox claims {lanes} lanes of {lane_bytes} bytes in {} bytes",
                memory.len()
            ))
        })?;
        Ok(Outbox {
            memory: Arc::new(memory),
            layout,
            peer,
        })
    }

    /// Lanes of the inbox.
    pub fn lanes(&self) -> usize {
        self.layout.lanes
    }

    /// The writing end of a lane, to be made once. `reader` rings the worker that reads.
    ///
    /// # Panics
    ///
    /// For a lane that isn't there: the caller checks [`Outbox::lanes`].
    pub fn writer<P: Deref<Target = [u8]>>(&self, lane: usize, reader: Waker) -> Writer<P> {
        let cells = self.layout.cells(&self.memory, lane);
        Writer::new(cells, reader, self.peer.clone())
    }
}
