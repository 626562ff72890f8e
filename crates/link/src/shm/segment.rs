//! The first page of memory that processes hand to each other: it says what the memory is and to whom it
//! belongs.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::error::LinkError;
use crate::lane::{UNIT, UNITS_MIN};
use crate::memory::Memory;
use crate::shm::peer::Peer;

/// The smallest lane. A power of two, as every lane.
pub const LANE_BYTES_MIN: usize = UNITS_MIN * UNIT;

/// The largest lane: 1 GiB, far beyond any plan.
const LANE_BYTES_MAX: usize = 1 << 30;

pub(crate) const PAGE: usize = 4096;

/// The version of the layouts of all kinds.
const VERSION: u64 = 1;

/// A kind of memory.
pub(crate) struct Kind {
    /// The first bytes.
    pub(crate) magic: [u8; 8],
    /// The kind's name in messages.
    pub(crate) name: &'static str,
    /// The name of the things that it holds.
    pub(crate) holds: &'static str,
}

/// Whether a lane may have this many bytes.
pub(crate) fn is_lane(bytes: usize) -> bool {
    bytes.is_power_of_two() && (LANE_BYTES_MIN..=LANE_BYTES_MAX).contains(&bytes)
}

/// Makes memory with a header and `length` bytes in total, otherwise zeros.
pub(crate) fn create(
    kind: &Kind,
    length: usize,
    count: usize,
    lane_bytes: usize,
    epoch: u64,
) -> io::Result<(OwnedFd, Memory)> {
    let (descriptor, memory) = Memory::create(&format!("slackwater-{}", kind.name), length)?;
    let magic = u64::from_le_bytes(kind.magic);
    let header = [magic, VERSION, count as u64, lane_bytes as u64, epoch];
    // SAFETY: the first page, which nobody else has seen yet.
    unsafe { memory.base().cast::<[u64; 5]>().write(header) };
    Ok((descriptor, memory))
}

/// Maps what `peer` has handed over. `layout_of` computes, from the number of things and the bytes of a
/// lane, the required length of the memory, and the layout; `None` for impossible numbers.
///
/// # Errors
///
/// When the memory is not of this kind, version and `epoch`.
pub(crate) fn open<L>(
    kind: &Kind,
    descriptor: BorrowedFd<'_>,
    epoch: u64,
    peer: &Peer,
    layout_of: impl FnOnce(usize, usize) -> Option<(usize, L)>,
) -> Result<(Memory, L), LinkError> {
    let refuse = |reason: String| LinkError::new(peer.name(), reason);
    let memory = Memory::open(descriptor, PAGE).map_err(|error| refuse(error.to_string()))?;
    // SAFETY: the first page is there; any bytes are numbers. One read, because the other
    // process could write meanwhile.
    let header = unsafe { memory.base().cast::<[u64; 5]>().read_volatile() };
    let [magic, version, count, lane_bytes, of_epoch] = header;
    let name = kind.name;
    if magic != u64::from_le_bytes(kind.magic) {
        return Err(refuse(format!("handed over memory without a valid {name}")));
    }
    if version != VERSION {
        return Err(refuse(format!(
            "its {name} has layout {version}, but this process uses {VERSION}"
        ))
        .hint("run the same version of slackwater everywhere"));
    }
    if of_epoch != epoch {
        return Err(refuse(format!(
            "its {name} belongs to epoch {of_epoch}, but this process to epoch {epoch}"
        ))
        .hint("one of the two is left over from an earlier start: end it"));
    }
    let numbers = usize::try_from(count)
        .ok()
        .zip(usize::try_from(lane_bytes).ok());
    let layout = numbers.and_then(|(count, bytes)| layout_of(count, bytes));
    let layout = layout.filter(|(length, _)| *length <= memory.len());
    let (_, layout) = layout.ok_or_else(|| {
        refuse(format!(
            "its {name} claims {count} {} of {lane_bytes} bytes, but has {} bytes",
            kind.holds,
            memory.len()
        ))
    })?;
    Ok((memory, layout))
}
