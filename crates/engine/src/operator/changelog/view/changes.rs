//! The changes of a view, for a subscriber.
//!
//! A queue with a limit: a subscriber that doesn't keep up is cut off, so that it never holds up the query.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::chunk::Chunk;

use super::cut::Cut;

/// The most bytes that wait for a subscriber. Batches that share memory count in full, each time.
pub const CHANGES_BYTES_MAX: usize = 64 << 20;

/// The most chunks that wait for a subscriber.
pub const CHANGES_MAX: usize = 16_384;

/// Why no more changes come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The input of the view has ended.
    Whole,
    /// The query has failed or was stopped, and does not run again.
    Over,
    /// The query resumes from its last checkpoint: what the subscriber has may be ahead of it.
    Restarted,
    /// The subscriber was too slow.
    Overrun,
}

/// What [`Changes::next`] returns.
#[derive(Debug)]
pub enum Next {
    /// Changes, in the order in which they happened to each key.
    Changes(Box<Chunk>),
    /// There were no changes by the given time.
    TimedOut,
    /// No more changes come.
    Ended(Ending),
}

/// The changes of a view after a cut.
#[derive(Default)]
pub struct Changes {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The cut before the first change.
    begun: Option<Arc<Cut>>,
    chunks: VecDeque<(Chunk, usize)>,
    bytes: usize,
    ending: Option<Ending>,
}

impl Changes {
    /// The next changes; those before an end come first, but a slow subscriber loses what it didn't take.
    pub fn next(&self, until: Instant) -> Next {
        let mut queue = self.queue();
        loop {
            if let Some((chunk, bytes)) = queue.chunks.pop_front() {
                queue.bytes -= bytes;
                return Next::Changes(Box::new(chunk));
            }
            if let Some(ending) = queue.ending {
                return Next::Ended(ending);
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Next::TimedOut;
            };
            let waited = self.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The subscriber wants no more changes; whoever waits for some is woken up.
    pub fn cancel(&self) {
        self.end(Ending::Over);
    }

    /// Adds changes; returns whether the subscriber still wants any.
    pub(super) fn push(&self, chunk: &Chunk) -> bool {
        let bytes = chunk.batch.get_array_memory_size();
        let mut queue = self.queue();
        if queue.ending.is_some() {
            return false;
        }
        if queue.chunks.len() >= CHANGES_MAX || queue.bytes + bytes > CHANGES_BYTES_MAX {
            queue.chunks.clear();
            (queue.bytes, queue.ending) = (0, Some(Ending::Overrun));
            self.arrived.notify_all();
            return false;
        }
        queue.chunks.push_back((chunk.clone(), bytes));
        queue.bytes += bytes;
        self.arrived.notify_all();
        true
    }

    /// All instances have published the cut.
    pub(super) fn begin(&self, cut: &Arc<Cut>) {
        self.queue().begun = Some(Arc::clone(cut));
    }

    /// The cut before the first change, once.
    pub(super) fn begun(&self) -> Option<Arc<Cut>> {
        self.queue().begun.take()
    }

    /// Forgets all, because another incarnation begins.
    pub(super) fn reopen(&self) {
        *self.queue() = Queue::default();
    }

    /// No more changes come.
    pub(super) fn end(&self, ending: Ending) {
        let mut queue = self.queue();
        queue.ending = Some(queue.ending.unwrap_or(ending));
        self.arrived.notify_all();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
