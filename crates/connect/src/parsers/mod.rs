//! Several threads for one partition: blocks are parsed in any order, and handed out in that of the
//! partition.
//!
//! ```text
//! file ── block 0 ──► source's own thread ─┐
//!      ── block 1 ──► parser-0            ─┼─► BlockReader ─► rows in order ─► the source's instance
//!      ── block 2 ──► parser-1            ─┘   lines and places checked
//! ```
//!
//! A [`BlockReader`] keeps a few blocks ahead of what it has handed out. Threads of a [`Parsers`] take them
//! in turn; the source takes one itself when the next one in order is not ready. Each thread reads its blocks
//! from the file, and finds the first line of each alone (`block.rs`). What depends on the blocks before is
//! settled when a block's turn has come, at a cost per block and not per row: the number of its first line,
//! and whether that line really begins a record. If it doesn't (a line end in a quoted field, a line that is
//! too long), the [`RecordReader`] that reads everything else reads from where the records before have ended
//! until it meets the beginning of a block again. So the rows, their positions and the rejected records are
//! those of one thread.
//!
//! What can only be read in order is read by the source, which cuts it into blocks after line ends: files
//! that are compressed (`unpacked.rs`), and what arrives from a pipe or socket (`pushed.rs`).
//!
//! Everything that follows (event times, watermarks, dead letters, checkpoints) stays in the source's
//! instance, and sees the rows in order.
//!
//! [`RecordReader`]: crate::lines::RecordReader

mod block;
mod pushed;
mod reader;
mod team;
mod unpacked;

use std::collections::VecDeque;
use std::sync::Arc;

use slackwater_engine::link::Waker;

pub(crate) use block::Block;
pub(crate) use reader::BlockReader;
use team::{Found, Team};
pub(crate) use team::{Task, Work};

/// Blocks that are kept ahead for each thread: one that it parses, and one that it takes next, so that it
/// need not wait for the source. With 512 KiB blocks 1 MiB for each thread, and their rows.
const BLOCKS_AHEAD: usize = 2;

/// The threads that parse for a source, besides its own.
pub(crate) struct Parsers<W: Work = Block> {
    team: Team<W>,
    waker: Option<Waker>,
}

impl<W: Work> Parsers<W> {
    /// At most `threads` threads, which start when there is something for them. Called before the calling
    /// thread is pinned to a core: they run on any.
    pub(crate) fn new(threads: usize) -> Parsers<W> {
        Parsers {
            team: Team::new(threads),
            waker: None,
        }
    }

    /// Sets what is woken when a reader that had nothing may have something.
    pub(crate) fn wakes(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// The threads that were started.
    pub(crate) fn started(&self) -> usize {
        self.team.started()
    }

    /// How many blocks of each of `partitions` partitions are kept ahead.
    pub(crate) fn ahead(&self, partitions: usize) -> usize {
        let all = (self.team.threads_max() + 1) * BLOCKS_AHEAD;
        (all / partitions.max(1)).max(1)
    }

    /// Hands out work, to be taken after all `tasks` before it.
    pub(crate) fn submit(&self, work: W, tasks: &mut VecDeque<Arc<Task<W>>>) {
        let task = Task::new(work);
        self.team.submit(Arc::clone(&task));
        tasks.push_back(task);
    }

    /// The result of the first task, unless a thread is at it, or there is none; does others meanwhile.
    pub(crate) fn take(&self, tasks: &mut VecDeque<Arc<Task<W>>>) -> Option<W::Done> {
        // Once all have been begun, the source can only wait for the first one.
        let mut waits = false;
        loop {
            let waker = self.waker.as_ref().filter(|_| waits);
            match tasks.front()?.take(waker) {
                Found::Done(done) => {
                    tasks.pop_front();
                    return Some(done);
                }
                Found::Begun if waits => return None,
                Found::Begun | Found::Waiting => waits = !tasks.iter().any(|task| task.run()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
