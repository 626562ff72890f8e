//! The memory that both ends of a connection share: a header, and two lanes of bytes.
//!
//! The connector creates it as a file of one page, the *offer*. The acceptor that finds the offer reserves
//! the pages of the lanes, so that a full file system refuses here and doesn't kill a program later.
//!
//! All numbers are from another process of the same user. They are checked before they are used, so a damaged
//! segment ends a connection with an error and does nothing else.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::lane::Lane;
use crate::real::errno;

/// "slwsock" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"slwsock\x01");
/// The bytes before the lanes.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// The least and most bytes of a lane that an offer may ask for.
const LANE_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 * 1024 * 1024;

/// How far an offer has come.
pub(crate) const OFFERED: u32 = 0;
pub(crate) const ATTACHING: u32 = 1;
pub(crate) const ATTACHED: u32 = 2;
pub(crate) const REFUSED: u32 = 3;

/// How an end was closed: everything was read, or TCP would have reset the connection.
pub(crate) const CLOSED: u32 = 1;
pub(crate) const RESET: u32 = 2;

/// What one end of the connection tells the other, and its own processes.
#[repr(C, align(64))]
pub(crate) struct Side {
    /// A process that has this end: its number.
    pub(crate) process: AtomicU32,
    /// Grows when a process has closed this end: the other looks at the socket, which knows whether it was
    /// the last one.
    pub(crate) departures: AtomicU32,
    /// O_NONBLOCK, which processes and descriptors of this end share.
    pub(crate) nonblocking: AtomicU32,
    /// Other processes may have this end, too.
    pub(crate) forked: AtomicU32,
    /// SHUT_RD was asked for.
    pub(crate) ends_reading: AtomicU32,
    /// An error that the kernel has told, and the program has not heard yet.
    pub(crate) error: AtomicI32,
    /// How this end was closed, if a process said so: see the constants.
    pub(crate) closed: AtomicU32,
    /// This end has been told that the other one has reset the connection.
    pub(crate) told: AtomicU32,
    /// A send after the other end was closed was taken, and lost: TCP's next one fails.
    pub(crate) lost: AtomicU32,
    /// SO_LINGER is set to zero seconds: closing resets the connection.
    pub(crate) aborts: AtomicU32,
    /// TCP_NODELAY and TCP_CORK as the program has set them. The socket's are those that bells need.
    pub(crate) nodelay: AtomicU32,
    pub(crate) cork: AtomicU32,
    /// SO_OOBINLINE is set.
    pub(crate) urgent_inline: AtomicU32,
}

#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    lane_bytes: AtomicU64,
    pub(crate) state: AtomicU32,
    /// The connector, the acceptor.
    pub(crate) sides: [Side; 2],
    /// From the connector, from the acceptor.
    pub(crate) lanes: [Lane; 2],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES as usize);

/// A mapped segment.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    header: *const Header,
    lane_bytes: u64,
}

// SAFETY: everything in the segment is atomic, or bytes of a ring that positions protect.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

fn total(lane_bytes: u64) -> u64 {
    HEADER_BYTES + 2 * lane_bytes
}

fn map(file: c_int, lane_bytes: u64) -> Result<Segment, c_int> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let bytes = total(lane_bytes) as usize;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            access,
            libc::MAP_SHARED,
            file,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(errno());
    }
    Ok(Segment {
        header: address.cast_const().cast(),
        lane_bytes,
    })
}

/// An open file, closed at the end by the kernel's own call: it is in nobody's table.
pub(crate) struct File(pub(crate) c_int);

impl Drop for File {
    fn drop(&mut self) {
        crate::real::close(self.0);
    }
}

impl File {
    pub(crate) fn open(path: &CStr, flags: c_int) -> Result<Self, c_int> {
        let flags = flags | libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
        if file < 0 {
            Err(errno())
        } else {
            Ok(Self(file))
        }
    }

    fn reserve(&self, bytes: u64) -> Result<(), c_int> {
        // SAFETY: the descriptor is open.
        match unsafe { libc::fallocate(self.0, 0, 0, bytes as libc::off_t) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    fn bytes(&self) -> u64 {
        // SAFETY: all zero bytes are a valid stat, which the kernel then writes.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the address is valid.
        match unsafe { libc::fstat(self.0, &mut stat) } {
            0 => u64::try_from(stat.st_size).unwrap_or(0),
            _ => 0,
        }
    }
}

impl Segment {
    /// Creates an offer; its file is new and empty.
    pub(crate) fn offer(file: &File, lane_bytes: u64) -> Result<Self, c_int> {
        file.reserve(HEADER_BYTES)?;
        let segment = map(file.0, lane_bytes)?;
        let header = segment.header();
        header.lane_bytes.store(lane_bytes, Ordering::Relaxed);
        header.sides[0]
            .process
            .store(std::process::id(), Ordering::Relaxed);
        // Whoever sees the magic number (Acquire) sees the rest.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Maps a segment that somebody else has created.
    pub(crate) fn open(file: &File) -> Result<Self, c_int> {
        if file.bytes() < HEADER_BYTES {
            return Err(libc::ENOENT);
        }
        let first = map(file.0, 0)?;
        let ready = first.header().magic.load(Ordering::Acquire) == MAGIC;
        let lane_bytes = first.header().lane_bytes.load(Ordering::Relaxed);
        first.unmap();
        if !ready || !LANE_BYTES.contains(&lane_bytes) || !lane_bytes.is_power_of_two() {
            return Err(libc::ENOENT);
        }
        map(file.0, lane_bytes)
    }

    /// Takes the offer as the acceptor; fails if somebody has it already, or if there is no memory.
    pub(crate) fn attach(&self, file: &File) -> Result<(), c_int> {
        let state = &self.header().state;
        state
            .compare_exchange(OFFERED, ATTACHING, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| libc::EEXIST)?;
        if let Err(error) = file.reserve(total(self.lane_bytes)) {
            state.store(REFUSED, Ordering::Release);
            return Err(error);
        }
        self.header().sides[1]
            .process
            .store(std::process::id(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the pages of the lanes are there: a shorter file would kill who touches them.
    pub(crate) fn is_whole(&self, file: &File) -> bool {
        file.bytes() >= total(self.lane_bytes)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping is at least as large as the header, which is plain atomics, and it is there
        // until the last user of its connection unmaps it.
        unsafe { &*self.header }
    }

    /// The address of the ring of a lane.
    pub(crate) fn ring(&self, lane: usize) -> *mut u8 {
        let start = HEADER_BYTES as usize + lane * self.lane_bytes as usize;
        self.header.cast_mut().cast::<u8>().wrapping_add(start)
    }

    pub(crate) fn lane_bytes(&self) -> u64 {
        self.lane_bytes
    }

    pub(crate) fn unmap(self) {
        let address: *mut c_void = self.header.cast_mut().cast();
        // SAFETY: nobody uses the mapping any more: this is the last step of its connection.
        unsafe { libc::munmap(address, total(self.lane_bytes) as usize) };
    }

    pub(crate) fn from_parts(header: *mut Header, lane_bytes: u64) -> Self {
        Self { header, lane_bytes }
    }

    pub(crate) fn address(&self) -> *mut Header {
        self.header.cast_mut()
    }
}
