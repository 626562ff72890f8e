//! A ring of entries between the kernel and this process: one of them adds, the other takes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// One ring, mapped.
pub(super) struct Ring<T> {
    map: NonNull<u8>,
    map_bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    count: u32,
    /// This end's position, which the kernel sees after `publish` or `release`.
    own: u32,
    /// The kernel's position as it was seen last.
    theirs: u32,
}

// SAFETY: the mapping is this process's, and used by one owner at a time: every method that touches it takes
// `&mut self`.
unsafe impl<T: Send> Send for Ring<T> {}

/// Where a ring's parts lie.
pub(super) struct Layout {
    pub(super) offsets: libc::xdp_ring_offset,
    /// The place of the ring among those of its socket.
    pub(super) page: u64,
    /// The number of entries, a power of two.
    pub(super) count: usize,
}

impl<T: Copy> Ring<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: &Layout) -> io::Result<Ring<T>> {
        let offsets = &layout.offsets;
        let map_bytes = offsets.desc as usize + layout.count * size_of::<T>();
        // SAFETY: a new mapping of the socket's ring.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                layout.page as libc::off_t,
            )
        };
        let map = match NonNull::new(map.cast::<u8>()) {
            Some(map) if map.as_ptr().cast() != libc::MAP_FAILED => map,
            _ => return Err(io::Error::last_os_error()),
        };
        // SAFETY: the kernel has told where they lie in the mapping, aligned for their types.
        unsafe {
            let producer = map.add(offsets.producer as usize).cast::<AtomicU32>();
            let consumer = map.add(offsets.consumer as usize).cast::<AtomicU32>();
            // Relaxed: nothing has happened yet.
            let start = producer.as_ref().load(Ordering::Relaxed);
            Ok(Ring {
                map,
                map_bytes,
                producer,
                consumer,
                entries: map.add(offsets.desc as usize).cast(),
                // At most 2^17.
                count: layout.count as u32,
                own: start,
                theirs: start,
            })
        }
    }

    fn entry(&self, position: u32) -> *mut T {
        // SAFETY: the mapping has `count` entries, a power of two.
        unsafe {
            self.entries
                .as_ptr()
                .add((position & (self.count - 1)) as usize)
        }
    }

    /// Adds an entry; returns false if there is no room. The kernel sees it after [`Ring::publish`].
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.own.wrapping_sub(self.theirs) == self.count {
            // SAFETY: inside of the mapping. Acquire, with the kernel's Release: it has read the entry.
            self.theirs = unsafe { self.consumer.as_ref() }.load(Ordering::Acquire);
            if self.own.wrapping_sub(self.theirs) == self.count {
                return false;
            }
        }
        // SAFETY: the kernel reads no entry that is not published, and has read the one that was here.
        unsafe { self.entry(self.own).write_volatile(entry) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Shows the kernel the entries that were added.
    pub(super) fn publish(&mut self) {
        // SAFETY: inside of the mapping. Release, with the kernel's Acquire: the entries are written before.
        unsafe { self.producer.as_ref() }.store(self.own, Ordering::Release);
    }

    /// Whether the kernel has taken everything.
    pub(super) fn is_taken(&self) -> bool {
        // SAFETY: inside of the mapping. Relaxed: nothing is read because of it.
        unsafe { self.consumer.as_ref() }.load(Ordering::Relaxed) == self.own
    }

    /// The next entry that the kernel has added. Its place is the kernel's after [`Ring::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.own == self.theirs {
            // SAFETY: inside of the mapping. Acquire, with the kernel's Release: the entry is written before.
            self.theirs = unsafe { self.producer.as_ref() }.load(Ordering::Acquire);
            if self.own == self.theirs {
                return None;
            }
        }
        // SAFETY: the kernel has published the entry, and writes it again only after `release`.
        let entry = unsafe { self.entry(self.own).read_volatile() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Gives the kernel the places of the entries that were taken.
    pub(super) fn release(&mut self) {
        // SAFETY: inside of the mapping. Release, with the kernel's Acquire: the entries are read before.
        unsafe { self.consumer.as_ref() }.store(self.own, Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}
