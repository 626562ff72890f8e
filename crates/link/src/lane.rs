//! A lane: the bounded byte ring between one writer and its readers, wherever its memory is.
//!
//! There is one reader, except in a feed, where several read the same bytes, each with a `head` of its
//! own; what is said about `head` below then holds for each of them, and for the writer that of the
//! slowest counts.
//!
//! The memory is a power of two of **units** of 64 bytes, a cache line each. A **piece** (a frame, or a
//! part of a frame that is larger than the ring) is a header unit, and units of payload after it; a
//! payload of at most 48 bytes is in the header unit itself. The header's first word is zero until the
//! piece is whole and is then set by one release-store, so a reader finds piece and header in one line,
//! and a writer that dies in the middle leaves nothing half-done visible.
//!
//! ```text
//!        head (the reader's)                 next header: zero
//!        v                                   v
//! ...free|header payload payload|header+data |0|free.......|padding
//!                                              ^ tail (the writer's own memory)
//! ```
//!
//! Invariants:
//! - `head <= tail <= head + units`, in units; both only grow (2^64 units never wrap).
//! - Units `head..tail` belong to the reader, all others to the writer. The unit at `tail` belongs to the
//!   writer and its first word is zero: it is zeroed before the piece in front of it is committed. That
//!   is why a lane is full while one unit is still free.
//! - A piece is contiguous. If it would run over the end, a padding piece fills the rest, and is
//!   committed after the piece that follows it, so that both appear at once.
//! - Pieces are at most a quarter of the ring: with its padding a piece then needs at most half, so it
//!   always finds room even if the reader has lent out half.
//! - Neither side trusts the other's words: an impossible header or position is an error.
//! - Back-pressure: a refused writer notes the `head` that it needs in `wanted`, looks once more, and
//!   wakes the reader (which may be asleep while pieces fill the ring). The reader that moves `head` that
//!   far clears the note and wakes the writer: announce, look, sleep, as in `spsc.rs`.
//! - Lent pieces are returned in any order and by any thread; only the reader moves `head`. So a thread
//!   that returns one looks at `wanted` and, if the writer waits, wakes the reader.
//!
//! The single store that commits is Agrona's record length; one lane per writer, so that a dead writer
//! harms nobody else, is Open MPI's `btl/sm` (`docs/internals/shared-memory.md`).

use std::collections::VecDeque;

use crate::doorbell::Waker;
use crate::sync::{Arc, AtomicBool, Ordering, fence};
use cells::{Cells, INLINE_OFFSET};

#[cfg(not(loom))]
pub use lease::Lease;
#[cfg(not(loom))]
pub(crate) use lease::{Departure, GONE};

pub(crate) mod cells;
#[cfg(not(loom))]
mod lease;

#[cfg(all(test, loom))]
mod loom_models;

/// The bytes of a unit.
pub(crate) const UNIT: usize = 64;

/// The smallest ring: a quarter of it holds a header and one unit of payload, with a unit to spare.
pub(crate) const UNITS_MIN: usize = 16;

/// The payload that fits into the header's unit.
pub(crate) const INLINE_MAX: usize = UNIT - INLINE_OFFSET;

/// The first piece of a frame.
pub(crate) const FIRST: u8 = 1;
/// The last piece of a frame.
pub(crate) const LAST: u8 = 2;
/// Not a frame: padding up to the ring's end.
const PADDING: u8 = 4;

/// Makes a committed header differ from zero, and from most other numbers.
const MARK: u64 = 0xa7;

/// The first word of a header: length in 32 bits, flags in 8, the mark in 8, and the low 16 bits
/// of the piece's position, by which a reader and a writer that disagree find out.
pub(crate) fn commit_word(length: usize, flags: u8, position: u64) -> u64 {
    length as u64 | u64::from(flags) << 32 | MARK << 40 | (position & 0xffff) << 48
}

/// Units of a piece with `length` bytes of payload, its header included.
fn units_of(length: usize) -> u64 {
    if length <= INLINE_MAX {
        1
    } else {
        1 + length.div_ceil(UNIT) as u64
    }
}

/// The result of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The piece is committed.
    Done,
    /// There is no room; the writer is woken once there is.
    Full,
    /// The reader's position is impossible: its process is broken.
    Broken,
}

/// A reader, as the writer sees it.
struct Cursor {
    /// The reader's control words; the units are shared by all readers.
    cells: Cells,
    reader: Waker,
    /// The reader's `head` when last read.
    head_seen: u64,
}

/// The writing end of a lane.
pub(crate) struct LaneWriter {
    cells: Cells,
    cursors: Vec<Cursor>,
    /// Units committed; only this end knows.
    tail: u64,
    /// The slowest reader's `head` when last read: the real one is this or further.
    head_seen: u64,
}

impl LaneWriter {
    /// The writing end of an empty lane: for each reader its view of the cells, and its waker.
    pub(crate) fn new(readers: Vec<(Cells, Waker)>) -> LaneWriter {
        let cells = readers.first().expect("a lane has a reader").0.clone();
        let cursors = readers.into_iter().map(|(cells, reader)| Cursor {
            cells,
            reader,
            head_seen: 0,
        });
        LaneWriter {
            cells,
            cursors: cursors.collect(),
            tail: 0,
            head_seen: 0,
        }
    }

    /// Stops waiting for a reader; none of its pieces may be lent out.
    pub(crate) fn leave_behind(&mut self, reader: usize) {
        self.cursors.remove(reader);
    }

    /// Payload that a piece may have.
    pub(crate) fn piece_max(&self) -> usize {
        (self.cells.units() / 4 - 1) * UNIT
    }

    /// Units that are free.
    pub(crate) fn free_now(&mut self) -> u64 {
        // The next `put` reports an impossible position.
        let _ = self.look();
        self.free()
    }

    /// Units that were free when last looked.
    fn free(&self) -> u64 {
        self.units() - 1 - self.tail.wrapping_sub(self.head_seen)
    }

    /// Whether the lane is so full that a reader should not continue to sleep: three quarters.
    pub(crate) fn is_nearly_full(&mut self) -> bool {
        self.free() < self.units() / 4 && self.free_now() < self.units() / 4
    }

    /// Writes and commits a piece; `fill` writes its payload, from the given place on.
    pub(crate) fn put(
        &mut self,
        flags: u8,
        total: usize,
        length: usize,
        fill: impl FnOnce(&Cells, usize),
    ) -> Put {
        debug_assert!(length <= self.piece_max());
        let at = self.tail & (self.units() - 1);
        let to_end = self.units() - at;
        let need = units_of(length);
        let padding = if need > to_end { to_end } else { 0 };
        match self.make_room(padding + need) {
            Ok(true) => {}
            Ok(false) => return Put::Full,
            Err(()) => return Put::Broken,
        }
        let start = if padding > 0 { 0 } else { at as usize };
        let position = self.tail + padding;
        let end = position + need;
        // The next header first, so that whoever sees this piece sees a zero after it. Relaxed: the
        // release-store of a commit word below publishes it.
        let next = (end & (self.units() - 1)) as usize;
        self.cells.commit(next).store(0, Ordering::Relaxed);
        self.cells.write_total(start, total as u64);
        let payload = if length <= INLINE_MAX {
            start * UNIT + INLINE_OFFSET
        } else {
            (start + 1) * UNIT
        };
        fill(&self.cells, payload);
        // Commits the piece. Release: pairs with the Acquire in `LaneReader::peek`.
        self.cells
            .commit(start)
            .store(commit_word(length, flags, position), Ordering::Release);
        if padding > 0 {
            // Release, as above: whoever sees the padding also sees the piece after it.
            let word = commit_word(0, PADDING, self.tail);
            self.cells
                .commit(at as usize)
                .store(word, Ordering::Release);
        }
        self.tail = end;
        Put::Done
    }

    /// Whether a piece of `length` bytes fits now; if not, the writer will be woken.
    pub(crate) fn has_room(&mut self, length: usize) -> bool {
        let to_end = self.units() - (self.tail & (self.units() - 1));
        let need = units_of(length);
        let padding = if need > to_end { to_end } else { 0 };
        // The next `put` reports a broken reader.
        self.make_room(padding + need) != Ok(false)
    }

    /// The position after everything that is committed.
    pub(crate) fn position(&self) -> u64 {
        self.tail
    }

    /// Whether the reader has returned everything before `position`, one of [`LaneWriter::position`].
    pub(crate) fn is_taken(&mut self, position: u64) -> bool {
        if self.head_seen < position {
            // The next `put` reports an impossible position.
            let _ = self.look();
        }
        self.head_seen >= position
    }

    /// Like [`LaneWriter::is_taken`]; if not, the writer will be woken.
    pub(crate) fn await_taken(&mut self, position: u64) -> bool {
        let behind = self.tail.saturating_sub(position);
        // The next `put` reports a broken reader.
        self.make_room(self.units() - 1 - behind) != Ok(false)
    }

    fn units(&self) -> u64 {
        self.cells.units() as u64
    }

    /// Whether `need` units are free; if not, notes the wanted head and looks once more.
    fn make_room(&mut self, need: u64) -> Result<bool, ()> {
        if self.free() >= need {
            return Ok(true);
        }
        self.look()?;
        if self.free() >= need {
            return Ok(true);
        }
        // `free >= need` once the head is here. Never zero, which means that nothing is wanted: a ring
        // whose reader is at the start has used more than nothing.
        let wanted = self.tail + need + 1 - self.units();
        for cursor in &self.cursors {
            if cursor.head_seen < wanted {
                // An exchange instead of a store, because loom orders the stores of two threads only by
                // what each has read. Relaxed: it carries no data, the fences order the looks.
                cursor.cells.wanted().swap(wanted, Ordering::Relaxed);
            }
        }
        // Pairs with the fences in `LaneReader::settle` and in the drop of `Hold`: here a write of
        // `wanted` and a load of `head`, there a store of `head` (or of the hold's mark) and a load of
        // `wanted`. One of the two loads must see the other's write.
        fence(Ordering::SeqCst);
        self.look()?;
        if self.free() >= need {
            // There is room after all. A reader that saw the note wakes the writer once too often.
            for cursor in &self.cursors {
                cursor.cells.wanted().swap(0, Ordering::Relaxed);
            }
            return Ok(true);
        }
        // A reader may be asleep although pieces fill the ring, or although lent pieces have been
        // returned since it last looked: it must look now.
        for cursor in &self.cursors {
            if cursor.head_seen < wanted {
                cursor.reader.wake_urgent();
            }
        }
        Ok(false)
    }

    fn look(&mut self) -> Result<(), ()> {
        // Without readers nothing is in the way.
        let mut slowest = self.tail;
        for cursor in &mut self.cursors {
            // Acquire: pairs with the Release in `LaneReader::advance`, so that the reader is done
            // with the units before this position.
            let head = cursor.cells.head().load(Ordering::Acquire);
            if head < cursor.head_seen || head > self.tail {
                return Err(());
            }
            cursor.head_seen = head;
            slowest = slowest.min(head);
        }
        self.head_seen = slowest;
        Ok(())
    }
}

/// A piece that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// [`FIRST`], [`LAST`], both or none.
    pub(crate) flags: u8,
    /// Bytes of payload.
    pub(crate) length: usize,
    /// Bytes of the whole frame, as its writer claims.
    pub(crate) total: usize,
    /// Where the payload begins, in bytes from the start of the ring.
    pub(crate) start: usize,
    /// The position after the piece.
    end: u64,
}

/// A lent piece; dropping it returns the piece.
pub(crate) struct Hold {
    mark: Arc<AtomicBool>,
    cells: Cells,
    /// Wakes the reader, which alone moves `head`.
    reader: Waker,
}

impl Hold {
    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `LaneReader::reclaim`; the piece was read before its units
        // are the writer's again.
        self.mark.store(true, Ordering::Release);
        // Pairs with the fence in `LaneWriter::make_room`.
        fence(Ordering::SeqCst);
        if self.cells.wanted().load(Ordering::Relaxed) != 0 {
            self.reader.wake_urgent();
        }
    }
}

/// A piece that was taken, but whose units the writer doesn't have back yet.
struct Taken {
    end: u64,
    /// `None` if the reader is done with it.
    lent: Option<Arc<AtomicBool>>,
}

/// The reading end of a lane.
pub(crate) struct LaneReader {
    cells: Cells,
    writer: Waker,
    reader: Waker,
    /// The position of the next header.
    next: u64,
    /// The ring's `head`, which only this end moves.
    head: u64,
    /// What is between `head` and `next`, in order. At most one entry for each unit.
    taken: VecDeque<Taken>,
}

impl LaneReader {
    /// The reading end of an empty lane. `writer` is woken when there is room again; `reader` is this
    /// end's own waiter.
    pub(crate) fn new(cells: Cells, writer: Waker, reader: Waker) -> LaneReader {
        LaneReader {
            cells,
            writer,
            reader,
            next: 0,
            head: 0,
            taken: VecDeque::new(),
        }
    }

    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The oldest piece that was not taken yet.
    ///
    /// # Errors
    ///
    /// For a header that no correct writer writes.
    pub(crate) fn peek(&mut self) -> Result<Option<Piece>, &'static str> {
        if !self.taken.is_empty() {
            self.reclaim();
        }
        // At most one padding comes before a piece, and a second one is rejected below.
        for after_padding in [false, true] {
            let unit = (self.next & (self.units() - 1)) as usize;
            // Acquire: pairs with the Release in `LaneWriter::put`, so that the piece is whole.
            let word = self.cells.commit(unit).load(Ordering::Acquire);
            if word == 0 {
                return Ok(None);
            }
            let length = (word & 0xffff_ffff) as usize;
            let flags = (word >> 32) as u8;
            if word != commit_word(length, flags, self.next) {
                return Err("a header that it never wrote");
            }
            let to_end = self.units() - unit as u64;
            if flags == PADDING && length == 0 && unit != 0 && !after_padding {
                self.next += to_end;
                self.done(self.next);
                continue;
            }
            let need = units_of(length);
            if flags & !(FIRST | LAST) != 0 || need > to_end {
                return Err("a frame that runs over the end of its ring");
            }
            // What was taken is before the writer's tail, so this can't overtake a correct writer.
            if self.next + need - self.head >= self.units() {
                return Err("more than its ring holds");
            }
            return Ok(Some(Piece {
                flags,
                length,
                total: usize::try_from(self.cells.read_total(unit)).unwrap_or(usize::MAX),
                start: if length <= INLINE_MAX {
                    unit * UNIT + INLINE_OFFSET
                } else {
                    (unit + 1) * UNIT
                },
                end: self.next + need,
            }));
        }
        Err("two paddings in a row")
    }

    /// Whether no piece has arrived. (A padding counts as a piece until it is passed.)
    pub(crate) fn is_empty(&self) -> bool {
        let unit = (self.next & (self.units() - 1)) as usize;
        self.cells.commit(unit).load(Ordering::Acquire) == 0
    }

    /// Returns a piece that the reader is done with.
    pub(crate) fn release(&mut self, piece: Piece) {
        self.next = piece.end;
        self.done(piece.end);
    }

    /// Whether a piece may be lent: never so many that more than half of the ring is held.
    pub(crate) fn may_lend(&self, piece: &Piece) -> bool {
        piece.end - self.head <= self.units() / 2
    }

    /// Lends a piece; dropping the hold returns it.
    pub(crate) fn lend(&mut self, piece: Piece) -> Hold {
        let mark = Arc::new(AtomicBool::new(false));
        self.next = piece.end;
        self.taken.push_back(Taken {
            end: piece.end,
            lent: Some(Arc::clone(&mark)),
        });
        Hold {
            mark,
            cells: self.cells.clone(),
            reader: self.reader.clone(),
        }
    }

    fn units(&self) -> u64 {
        self.cells.units() as u64
    }

    /// Returns everything up to `end`, at once, or after pieces that are still lent.
    fn done(&mut self, end: u64) {
        match self.taken.back_mut() {
            None => self.advance(end),
            // Neighbors that are done become one entry.
            Some(last) if last.lent.is_none() => last.end = end,
            Some(_) => self.taken.push_back(Taken { end, lent: None }),
        }
    }

    /// Moves `head` over everything that is done and has nothing lent before it.
    fn reclaim(&mut self) {
        let mut end = self.head;
        while let Some(first) = self.taken.front() {
            // Acquire: pairs with the Release in the drop of `Hold`.
            let held = first.lent.as_ref();
            if held.is_some_and(|mark| !mark.load(Ordering::Acquire)) {
                break;
            }
            end = first.end;
            self.taken.pop_front();
        }
        if end != self.head {
            self.advance(end);
        }
    }

    fn advance(&mut self, head: u64) {
        self.head = head;
        // Release: returns the units; pairs with the Acquire in `LaneWriter::look`.
        self.cells.head().store(head, Ordering::Release);
        // Without a fence, which would cost more than everything else here: this may miss the note, but
        // `settle` won't.
        self.tell_refused_writer();
    }

    /// Returns what was lent and dropped, and tells a refused writer about the room. Called when nothing
    /// is left, and by a reader that stops earlier and may sleep before it continues.
    pub(crate) fn settle(&mut self) {
        self.reclaim();
        // Pairs with the fence in `LaneWriter::make_room`.
        fence(Ordering::SeqCst);
        self.tell_refused_writer();
    }

    fn tell_refused_writer(&self) {
        let wanted = self.cells.wanted().load(Ordering::Relaxed);
        if wanted != 0 && self.head >= wanted {
            let taken = self.cells.wanted().compare_exchange(
                wanted,
                0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                self.writer.wake_urgent();
            }
        }
    }
}
