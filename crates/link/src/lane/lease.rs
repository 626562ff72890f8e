//! A piece that is lent out of a lane, and how a reader leaves one.

use super::Hold;
use super::cells::Cells;
use crate::doorbell::Waker;
use crate::sync::{Arc, Ordering};

/// How an end marks its going in the lane.
pub(crate) const GONE: u32 = 1;

/// A frame that is read where it lies: a piece of a lane, until it is dropped.
pub struct Lease {
    // Dropped first: the piece goes back before the reader that it was lent to is seen to go.
    pub(crate) hold: Hold,
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Of a feed, where others make the writer go on.
    pub(crate) _departure: Option<Arc<Departure>>,
}

impl Lease {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.hold.cells().bytes(self.start, self.length)
    }
}

/// Says in the lane, when it is dropped, that the reader is gone, and rings the writer.
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
