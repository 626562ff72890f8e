//! Memory that processes share, and the word by which one wakes another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::sync::AtomicU32;

/// A piece of memory that starts at a page.
pub(crate) struct Memory {
    base: NonNull<u8>,
    length: usize,
    /// Tests under miri, which has no mappings, and fuzzing, which must be fast, use the heap.
    #[cfg(any(test, fuzzing))]
    heap: bool,
}

// SAFETY: plain bytes, owned by this value; the users of this value state who may touch which.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory of zeros, with the descriptor by which another process maps it too.
    ///
    /// It has no name, so nothing is left of it once the last process that maps it is gone, however it
    /// ended. Its size is sealed, so no process can shrink it under a reader (SIGBUS), and it is
    /// allocated now, for the same reason.
    pub(crate) fn create(name: &str, length: usize) -> io::Result<(OwnedFd, Memory)> {
        let failed = |what: &str, error: rustix::io::Errno| {
            let error = io::Error::from(error);
            io::Error::new(
                error.kind(),
                format!("can't {what} {length} bytes of shared memory ({name}): {error}"),
            )
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create(name, flags).map_err(|error| failed("make", error))?;
        ftruncate(&descriptor, length as u64).map_err(|error| failed("make", error))?;
        fallocate(&descriptor, FallocateFlags::empty(), 0, length as u64)
            .map_err(|error| failed("allocate", error))?;
        fcntl_add_seals(
            &descriptor,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )
        .map_err(|error| failed("seal", error))?;
        let memory = Memory::map(&descriptor, length).map_err(|error| failed("map", error))?;
        Ok((descriptor, memory))
    }

    /// Maps memory that another process has made.
    ///
    /// # Errors
    ///
    /// `InvalidData` when its size isn't sealed or is not the expected one; otherwise the kernel's error.
    pub(crate) fn open(descriptor: BorrowedFd<'_>, length_min: usize) -> io::Result<Memory> {
        let invalid = |reason: &str| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("shared memory of another process {reason}"),
            )
        };
        let seals = fcntl_get_seals(descriptor)
            .map_err(|_| invalid("is not a memory file: it was not handed over by this program"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(invalid(
                "could shrink under its reader: its size is not sealed",
            ));
        }
        let size = fstat(descriptor)?.st_size;
        let length = usize::try_from(size).unwrap_or(0);
        if length < length_min {
            return Err(invalid(&format!(
                "has {length} bytes where at least {length_min} are needed"
            )));
        }
        Ok(Memory::map(descriptor, length)?)
    }

    fn map(descriptor: impl AsFd, length: usize) -> rustix::io::Result<Memory> {
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                descriptor,
                0,
            )?
        };
        Ok(Memory {
            base: NonNull::new(base.cast()).expect("the kernel maps nothing at address zero"),
            length,
            #[cfg(any(test, fuzzing))]
            heap: false,
        })
    }

    /// Memory of this process only.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn on_heap(length: usize) -> Memory {
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(heap_layout(length)) };
        Memory {
            base: NonNull::new(base).expect("memory for a test"),
            length,
            heap: true,
        }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        #[cfg(any(test, fuzzing))]
        if self.heap {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), heap_layout(self.length)) };
            return;
        }
        // SAFETY: it is this value's own mapping, and its users keep this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(any(test, fuzzing))]
fn heap_layout(length: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(length, PAGE).expect("a small length")
}

/// The size of a shared word's memory: the smallest mapping there is.
const PAGE: usize = 4096;

/// A word that processes share.
pub(crate) struct SharedWord {
    descriptor: OwnedFd,
    memory: Memory,
}

impl SharedWord {
    pub(crate) fn create() -> io::Result<SharedWord> {
        let (descriptor, memory) = Memory::create("slackwater-doorbell", PAGE)?;
        Ok(SharedWord { descriptor, memory })
    }

    pub(crate) fn open(descriptor: OwnedFd) -> io::Result<SharedWord> {
        let memory = Memory::open(descriptor.as_fd(), PAGE)?;
        Ok(SharedWord { descriptor, memory })
    }

    pub(crate) fn get(&self) -> &AtomicU32 {
        // SAFETY: the start of a page that stays mapped as long as this value; an atomic takes any
        // bytes.
        unsafe { &*self.memory.base().cast::<AtomicU32>() }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl std::fmt::Debug for SharedWord {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SharedWord(..)")
    }
}
