//! Memory that the engine and one worker map. It grows, and does not shrink.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The size of a new memory.
const SIZE: usize = 64 << 10;

/// Sizes are multiples of it: of a page.
const PAGE: usize = 4096;

/// A shared memory of zeros.
///
/// The other process may write at any time. So nothing here is a reference into the memory: bytes are copied
/// in and out, and may be any bytes.
pub struct Memory {
    descriptor: OwnedFd,
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is owned by this value, and reached through it only.
unsafe impl Send for Memory {}

impl Memory {
    /// A new memory. Its file can't shrink, so a page that was there stays: touching one that is gone would
    /// be SIGBUS.
    pub fn new() -> io::Result<Memory> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("slackwater-function", flags)?;
        fallocate(&descriptor, FallocateFlags::empty(), 0, SIZE as u64)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK)?;
        let base = map(&descriptor, SIZE)?;
        Ok(Memory {
            descriptor,
            base,
            size: SIZE,
        })
    }

    /// The mapped bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Makes the memory at least this large; it is allocated now.
    pub fn grow(&mut self, size: usize) -> io::Result<()> {
        if size <= self.size {
            return Ok(());
        }
        // Growing by half as much again makes the number of mappings small.
        let size = size.max(self.size + self.size / 2).next_multiple_of(PAGE);
        fallocate(&self.descriptor, FallocateFlags::empty(), 0, size as u64)?;
        self.remap(size)
    }

    /// Maps at least `size` bytes, which the other process says it has made.
    pub fn follow(&mut self, size: usize) -> io::Result<()> {
        if size <= self.size {
            return Ok(());
        }
        let there = usize::try_from(fstat(&self.descriptor)?.st_size).unwrap_or(0);
        if there < size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.remap(there)
    }

    fn remap(&mut self, size: usize) -> io::Result<()> {
        let base = map(&self.descriptor, size)?;
        unmap(self.base, self.size);
        (self.base, self.size) = (base, size);
        Ok(())
    }

    /// Copies bytes to a place.
    ///
    /// # Panics
    ///
    /// If they don't fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= self.size),
            "the memory was made large enough"
        );
        // SAFETY: the mapping has `size` bytes, and the range is inside of it. `bytes` is memory of this
        // process, which does not overlap with the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len());
        }
    }

    /// Copies bytes from a place; `None` if it is not inside of the memory.
    pub fn read(&self, at: usize, length: usize) -> Option<Vec<u8>> {
        if at.checked_add(length)? > self.size {
            return None;
        }
        let mut bytes = Vec::with_capacity(length);
        // SAFETY: the range is inside of the mapping, and the vector has room for it. All bytes are valid
        // values. If the other process writes meanwhile, which it does not between its reply and the next
        // request, the bytes are any bytes, and the reader checks them.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), bytes.as_mut_ptr(), length);
            bytes.set_len(length);
        }
        Some(bytes)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.base, self.size);
    }
}

fn map(descriptor: &OwnedFd, size: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            size,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            descriptor,
            0,
        )?
    };
    Ok(NonNull::new(base.cast()).expect("the kernel maps nothing at address zero"))
}

fn unmap(base: NonNull<u8>, size: usize) {
    // SAFETY: `map` has returned the mapping, and its owner, who calls this, does not use it any more.
    let unmapped = unsafe { munmap(base.as_ptr().cast(), size) };
    debug_assert!(unmapped.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_after_growing() {
        let mut memory = Memory::new().unwrap();
        memory.write(SIZE - 3, b"abc");
        memory.grow(SIZE + 1).unwrap();
        memory.write(SIZE, b"d");
        assert_eq!(memory.read(SIZE - 3, 4).unwrap(), b"abcd");
        assert!(memory.size() > SIZE && memory.size().is_multiple_of(PAGE));
    }

    #[test]
    fn places_outside_of_the_memory_are_not_read() {
        let memory = Memory::new().unwrap();
        assert_eq!(memory.read(SIZE, 1), None);
        assert_eq!(memory.read(1, usize::MAX), None);
        assert_eq!(memory.read(SIZE, 0).unwrap(), b"");
    }

    #[test]
    fn a_size_that_is_not_there_is_not_mapped() {
        let mut memory = Memory::new().unwrap();
        assert!(memory.follow(SIZE + 1).is_err());
        assert!(rustix::fs::ftruncate(&memory.descriptor, 10).is_err());
        rustix::fs::ftruncate(&memory.descriptor, 2 * SIZE as u64).unwrap();
        memory.follow(SIZE + 1).unwrap();
        assert_eq!(memory.read(2 * SIZE - 1, 1).unwrap(), [0]);
    }
}
