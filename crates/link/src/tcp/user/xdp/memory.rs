//! The memory of frames, and who has which.

use std::io;
use std::ptr::NonNull;

use super::ring::Ring;

/// Memory that the kernel and this process share.
pub(super) struct Memory {
    start: NonNull<u8>,
    length: usize,
    /// The length of a frame.
    frame_bytes: usize,
}

// SAFETY: the memory is this process's until it is unmapped in `drop`. Who may touch which frame of it, the
// ownership of frames says, not the thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(frames: usize, frame_bytes: usize) -> io::Result<Memory> {
        let length = frames * frame_bytes;
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Memory {
                start,
                length,
                frame_bytes,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn start(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Bytes of a frame that the kernel has handed over, or nothing if they are not of this memory.
    ///
    /// # Safety
    ///
    /// The frame belongs to the caller, and stays with it as long as the bytes are used.
    pub(super) unsafe fn bytes(&self, at: u64, length: u32) -> Option<&[u8]> {
        let (at, length) = (usize::try_from(at).ok()?, length as usize);
        if at.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: inside of the mapping; nobody else writes there, says the caller.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), length) })
    }

    /// The bytes of a frame, to be written.
    ///
    /// # Safety
    ///
    /// The frame is a number of the pool, and belongs to the caller as long as the bytes are used.
    #[allow(clippy::mut_from_ref, reason = "each frame is somebody's own")]
    pub(super) unsafe fn frame(&self, number: u32) -> &mut [u8] {
        let at = number as usize * self.frame_bytes;
        debug_assert!(at + self.frame_bytes <= self.length);
        // SAFETY: inside of the mapping, as the pool has only numbers of frames of it; nobody else uses it,
        // says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), self.frame_bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`. The kernel has pinned its pages, and keeps them as long as it needs.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Frames and slots that nobody uses, and the two rings by which the kernel gets frames to be filled and
/// returns frames that were sent.
pub(super) struct Pool {
    fill: Ring<u64>,
    sent: Ring<u64>,
    /// Frames to be sent with.
    free: Vec<u32>,
    /// How many frames there are, and how long they are.
    frames: u64,
    frame_bytes: u64,
    slots: Vec<bool>,
}

impl Pool {
    /// Gives the kernel the first `received` frames, by the ring `fill`; the rest are to be sent with, and
    /// come back by the ring `sent_ring`.
    pub(super) fn new(
        (mut fill, sent_ring): (Ring<u64>, Ring<u64>),
        frame_bytes: u64,
        received: usize,
        sent: usize,
    ) -> Pool {
        for frame in 0..received {
            fill.push(frame as u64 * frame_bytes);
        }
        fill.publish();
        // At most 2^17 frames.
        let free = (received as u32..(received + sent) as u32).collect();
        Pool {
            fill,
            sent: sent_ring,
            free,
            frames: (received + sent) as u64,
            frame_bytes,
            slots: Vec::new(),
        }
    }

    /// Returns frames that were received.
    pub(super) fn refill(&mut self, addresses: &mut Vec<u64>) {
        for address in addresses.drain(..) {
            // The ring has twice the room for all of them. An address is anywhere in its frame.
            self.fill
                .push(address / self.frame_bytes * self.frame_bytes);
        }
        self.fill.publish();
    }

    /// Takes back frames that were sent, and moves free ones to `spare` until it has `count`.
    pub(super) fn supply(&mut self, spare: &mut Vec<u32>, count: usize) {
        while let Some(address) = self.sent.pop() {
            let frame = address / self.frame_bytes;
            // The kernel's number, and checked all the same.
            if frame < self.frames {
                self.free.push(frame as u32);
            }
        }
        self.sent.release();
        let wanted = count.saturating_sub(spare.len()).min(self.free.len());
        spare.extend(self.free.drain(self.free.len() - wanted..));
    }

    /// Takes spare frames back.
    pub(super) fn give(&mut self, spare: &mut Vec<u32>) {
        self.free.append(spare);
    }

    /// A slot below `count` that nobody has.
    pub(super) fn take_slot(&mut self, count: usize) -> Option<u32> {
        self.slots.resize(count, false);
        let slot = self.slots.iter().position(|taken| !taken)?;
        self.slots[slot] = true;
        Some(slot as u32)
    }

    pub(super) fn give_slot(&mut self, slot: u32) {
        self.slots[slot as usize] = false;
    }
}
