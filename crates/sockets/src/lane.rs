//! One direction of a connection: which way its bytes go, and the ring that they go through.
//!
//! A lane starts as TCP. When its reader is *ready*, its writer may *move* it, for good: from then on bytes
//! go through the ring, and every byte that still comes over the socket is a bell, which says "look at the
//! ring". `tcp_sent` says how many bytes went over the socket before: the reader takes exactly these from
//! it first.
//!
//! The writer counts what is on its way into the socket, and moves only when nothing is, so `tcp_sent` is
//! exact. The reader is ready only when no thread of it waits inside a plain `recv`, which would never see
//! the ring.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use libc::c_int;

use crate::lock::Lock;
use crate::real;

/// The ways of a lane, in the upper byte of its state; below it are the sends that are on their way.
const TCP: u64 = 0;
const MOVING: u64 = 1;
const RING: u64 = 2;
const TCP_FOREVER: u64 = 3;
const WAY_SHIFT: u32 = 56;
const COUNT: u64 = (1 << WAY_SHIFT) - 1;

/// In `ready`: set once the reader is ready; below it are its threads inside a plain `recv`.
const READY: u64 = 1 << 63;

/// How a side sleeps that has announced it: in a futex, or in the kernel, on the socket.
pub(crate) const FUTEX: u32 = 1;
pub(crate) const SOCKET: u32 = 2;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The socket, and it may move.
    Tcp,
    /// The socket, for good.
    TcpForever,
    /// The ring.
    Ring,
}

#[repr(C, align(64))]
#[derive(Default)]
struct Line<T>(T);

#[repr(C)]
#[derive(Default)]
pub(crate) struct Lane {
    /// The bytes that were written, ever, and when the first of those was that nobody has read.
    tail: Line<Tail>,
    /// The bytes that were read, ever.
    head: Line<AtomicU64>,
    /// How the reader sleeps.
    pub(crate) reader_sleeps: Line2,
    /// How the writer sleeps, which waits for room.
    pub(crate) writer_sleeps: Line2,
    rare: Line<Rare>,
    pub(crate) writing: Padded,
    pub(crate) reading: Padded,
}

/// A futex word in a line of its own.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Line2(pub(crate) AtomicU32);

/// A lock in a line of its own.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Padded(pub(crate) Lock);

#[repr(C)]
#[derive(Default)]
struct Tail {
    bytes: AtomicU64,
    since_ns: AtomicU64,
}

/// What changes once in a connection, or while it is TCP.
#[repr(C)]
#[derive(Default)]
struct Rare {
    state: AtomicU64,
    tcp_sent: AtomicU64,
    ready: AtomicU64,
    tcp_received: AtomicU64,
    /// The writer has called `shutdown(SHUT_WR)`.
    ended: AtomicU32,
    /// The position of the urgent mark plus one, or zero.
    mark: AtomicU64,
    /// The reader is in an `epoll` set, which reports in the order of arrival: the writer notes the time.
    ordered: AtomicU32,
}

fn way(state: u64) -> Way {
    match state >> WAY_SHIFT {
        TCP | MOVING => Way::Tcp,
        RING => Way::Ring,
        _ => Way::TcpForever,
    }
}

/// A position that the other side can't have written: the segment is damaged.
pub(crate) const DAMAGED: c_int = libc::EIO;

impl Lane {
    pub(crate) fn way(&self) -> Way {
        // Acquire: whoever sees the ring sees the final `tcp_sent` (Release in `move_to_ring`).
        way(self.rare.0.state.load(Ordering::Acquire))
    }

    /// A send over the socket begins, unless the lane moves at this moment or has moved.
    pub(crate) fn enter_tcp(&self) -> bool {
        let state = &self.rare.0.state;
        let mut now = state.load(Ordering::Acquire);
        loop {
            match now >> WAY_SHIFT {
                TCP => {}
                TCP_FOREVER => return true,
                _ => return false,
            }
            match state.compare_exchange_weak(now, now + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    /// A send over the socket has ended.
    pub(crate) fn leave_tcp(&self, sent: usize) {
        self.rare
            .0
            .tcp_sent
            .fetch_add(sent as u64, Ordering::Relaxed);
        let state = &self.rare.0.state;
        let leave = |now: u64| (now & COUNT != 0).then(|| now - 1);
        let _ = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
    }

    /// Moves to the ring, if nothing is on its way into the socket and `check` of the bytes sent agrees; if
    /// it doesn't, the lane is TCP for good.
    pub(crate) fn move_to_ring(&self, check: impl Fn(u64) -> bool) -> bool {
        let state = &self.rare.0.state;
        let (tcp, moving) = (TCP << WAY_SHIFT, MOVING << WAY_SHIFT);
        if state
            .compare_exchange(tcp, moving, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        let agrees = check(self.rare.0.tcp_sent.load(Ordering::Relaxed));
        let way = if agrees { RING } else { TCP_FOREVER };
        state.store(way << WAY_SHIFT, Ordering::Release);
        agrees
    }

    /// Stays TCP for good; false if it has moved already.
    pub(crate) fn stay_tcp(&self) -> bool {
        let stay = |now: u64| match now >> WAY_SHIFT {
            TCP => Some(now & COUNT | TCP_FOREVER << WAY_SHIFT),
            _ => None,
        };
        let state = &self.rare.0.state;
        let before = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, stay);
        match before {
            Ok(_) => true,
            Err(now) => now >> WAY_SHIFT == TCP_FOREVER,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.rare.0.ready.load(Ordering::Acquire) & READY != 0
    }

    /// The reader has looked for the ring from now on; false while a thread is inside a plain `recv`.
    pub(crate) fn make_ready(&self) -> bool {
        let ready = &self.rare.0.ready;
        ready
            .compare_exchange(0, READY, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            || self.is_ready()
    }

    /// A plain `recv` begins; false if the reader is ready.
    pub(crate) fn enter_plain(&self) -> bool {
        let enter = |now: u64| (now & READY == 0).then_some(now + 1);
        self.rare
            .0
            .ready
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .is_ok()
    }

    pub(crate) fn leave_plain(&self) {
        self.rare.0.ready.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn add_tcp_received(&self, bytes: usize) -> u64 {
        self.rare
            .0
            .tcp_received
            .fetch_add(bytes as u64, Ordering::AcqRel)
            + bytes as u64
    }

    pub(crate) fn tcp_received(&self) -> u64 {
        self.rare.0.tcp_received.load(Ordering::Acquire)
    }

    /// The bytes that are still to be read from the socket, before those in the ring.
    pub(crate) fn tcp_left(&self) -> u64 {
        self.rare
            .0
            .tcp_sent
            .load(Ordering::Acquire)
            .saturating_sub(self.tcp_received())
    }

    /// Removes the last `bytes` from the count again: they were bells.
    pub(crate) fn were_bells(&self, bytes: u64) {
        self.rare.0.tcp_received.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// What of `received` bytes in all was not data, if the lane has moved meanwhile.
    pub(crate) fn bells_of(&self, received: u64) -> u64 {
        match self.way() {
            Way::Ring => received.saturating_sub(self.rare.0.tcp_sent.load(Ordering::Acquire)),
            _ => 0,
        }
    }

    pub(crate) fn end(&self) {
        self.rare.0.ended.store(1, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.rare.0.ended.load(Ordering::Acquire) != 0
    }

    /// The urgent mark is here: after all bytes that were written.
    pub(crate) fn mark(&self) {
        let here = self.tail.0.bytes.load(Ordering::Relaxed);
        self.rare.0.mark.store(here + 1, Ordering::Release);
    }

    /// The bytes between the reader and the mark in front of it.
    pub(crate) fn before_mark(&self) -> Option<u64> {
        let mark = self.rare.0.mark.load(Ordering::Acquire).checked_sub(1)?;
        mark.checked_sub(self.head.0.load(Ordering::Relaxed))
    }

    /// The bytes that can be read.
    pub(crate) fn filled(&self, lane_bytes: u64) -> Result<u64, c_int> {
        let head = self.head.0.load(Ordering::Acquire);
        // Acquire: the bytes before `tail` are there (Release in `fill`).
        let tail = self.tail();
        let filled = tail.wrapping_sub(head);
        // A reader of another thread may have moved `head` between the loads of somebody who holds no lock.
        if filled > lane_bytes {
            let again = self
                .tail()
                .wrapping_sub(self.head.0.load(Ordering::Acquire));
            return if again > lane_bytes {
                Err(DAMAGED)
            } else {
                Ok(again)
            };
        }
        Ok(filled)
    }

    pub(crate) fn room(&self, lane_bytes: u64) -> Result<u64, c_int> {
        Ok(lane_bytes - self.filled(lane_bytes)?)
    }

    /// Whether there is so much room that a writer that waits for it is woken, and `poll` reports it.
    pub(crate) fn has_room(&self, lane_bytes: u64) -> bool {
        self.room(lane_bytes)
            .is_ok_and(|room| room >= lane_bytes / 4)
    }

    pub(crate) fn tail(&self) -> u64 {
        self.tail.0.bytes.load(Ordering::Acquire)
    }

    /// The writer is to note when bytes come.
    pub(crate) fn note_times(&self) {
        if self.rare.0.ordered.load(Ordering::Relaxed) == 0 {
            self.rare.0.ordered.store(1, Ordering::Relaxed);
        }
    }

    /// When the first of the bytes came that can be read, if the writer has noted it.
    pub(crate) fn since_ns(&self) -> u64 {
        self.tail.0.since_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Writes up to `bytes` bytes into the ring, which the holder of `writing` alone may do. `copy` copies
    /// into an address a number of bytes, and says how many it did.
    pub(crate) fn fill(
        &self,
        ring: *mut u8,
        lane_bytes: u64,
        bytes: usize,
        mut copy: impl FnMut(*mut u8, usize) -> Result<usize, c_int>,
    ) -> Result<usize, c_int> {
        let room = self.room(lane_bytes)?;
        let bytes = (bytes as u64).min(room);
        let tail = self.tail.0.bytes.load(Ordering::Relaxed);
        if room == lane_bytes && self.rare.0.ordered.load(Ordering::Relaxed) != 0 {
            (self.tail.0.since_ns).store(real::now_ns(), Ordering::Relaxed);
        }
        let done = pieces(tail, lane_bytes, bytes, |start, bytes| {
            copy(ring.wrapping_add(start), bytes)
        })?;
        let tail = tail.wrapping_add(done as u64);
        self.tail.0.bytes.store(tail, Ordering::Release);
        Ok(done)
    }

    /// Reads up to `bytes` bytes, which the holder of `reading` alone may do; they stay if `peeks`.
    pub(crate) fn drain(
        &self,
        ring: *mut u8,
        lane_bytes: u64,
        bytes: usize,
        peeks: bool,
        mut copy: impl FnMut(*const u8, usize),
    ) -> Result<usize, c_int> {
        let filled = self.filled(lane_bytes)?;
        let bytes = (bytes as u64).min(filled);
        let head = self.head.0.load(Ordering::Relaxed);
        let done = pieces(head, lane_bytes, bytes, |start, bytes| {
            copy(ring.wrapping_add(start), bytes);
            Ok(bytes)
        })?;
        if !peeks {
            // Release: the bytes have been copied before the writer overwrites them.
            self.head
                .0
                .store(head.wrapping_add(done as u64), Ordering::Release);
        }
        Ok(done)
    }
}

/// Calls `each` with the start and the length of the one or two parts of a ring; stops at a short one.
fn pieces(
    position: u64,
    lane_bytes: u64,
    bytes: u64,
    mut each: impl FnMut(usize, usize) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let start = position & (lane_bytes - 1);
    let first = bytes.min(lane_bytes - start);
    if first == 0 {
        return Ok(0);
    }
    let done = each(start as usize, first as usize)?;
    if done < first as usize || first == bytes {
        return Ok(done);
    }
    // What is done is done: an error of the second part comes again at the next call.
    Ok(done + each(0, (bytes - first) as usize).unwrap_or(0))
}

/// Announces a sleep; the caller looks once more before it sleeps.
pub(crate) fn announce(word: &AtomicU32, how: u32) {
    if word.load(Ordering::Relaxed) & how == 0 {
        word.fetch_or(how, Ordering::Relaxed);
    }
    // Either the other side sees the announcement, or this side sees what it has written: `sleepers`.
    fence(Ordering::SeqCst);
}

/// After a position was stored: how the other side sleeps, if it has announced it; its announcement is taken.
pub(crate) fn sleepers(word: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    match word.load(Ordering::Relaxed) {
        0 => 0,
        _ => word.swap(0, Ordering::AcqRel),
    }
}

#[cfg(test)]
mod tests;
