//! A piece that is lent out of a lane, and how a reader departs.

use super::Hold;
use super::cells::Cells;
use crate::doorbell::Waker;
use crate::sync::{Arc, Ordering};

/// The mark of an end that is gone.
pub(crate) const GONE: u32 = 1;

/// A frame that is read in place: a piece of a lane, until it is dropped.
pub struct Lease {
    // Dropped first: the piece is returned before its reader is seen to be gone.
    pub(crate) hold: Hold,
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// For a feed, where the writer continues with other readers.
    pub(crate) _departure: Option<Arc<Departure>>,
}

impl Lease {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.hold.cells().bytes(self.start, self.length)
    }
}

/// Marks in the lane, when dropped, that the reader is gone, and wakes the writer.
pub(crate) struct Departure {
    pub(crate) cells: Cells,
    pub(crate) writer: Waker,
}

impl Drop for Departure {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Opposite::has_left`; what was read of the ring was
        // read before.
        self.cells.reader_gone().store(GONE, Ordering::Release);
        self.writer.wake_urgent();
    }
}
