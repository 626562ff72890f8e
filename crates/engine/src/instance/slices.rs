//! A snapshot that an instance takes in slices, between its inputs, and passes to the store as it goes.
//!
//! So neither the instance nor its memory has to bear a copy of all changes at once: the pause is that of
//! one slice, and few slices exist at a time. What is handed over together is one consistent cut
//! ([`crate::state::Sliced`]).

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use arrow_array::RecordBatch;

use super::Instance;
use crate::checkpoint::{SLICES_MAX, Slice};
use crate::error::Result;
use crate::state::{Mark, Sliced};
use crate::time::now_ns;

/// How long an instance stops for a slice, about: a twentieth of a latency target of 20 ms.
const SLICE_NS: u64 = 1_000_000;

/// The entries of the first slice: at 50 to 100 ns each, a fifth to two fifths of [`SLICE_NS`]. The next
/// ones are sized by what this one took.
const ENTRIES_FIRST: usize = 4096;

/// The limits of a slice. A slice of the largest size has some 2 MB; one entry may have a thousand values.
const ENTRIES_MIN: usize = 16;
const ENTRIES_MAX: usize = 32_768;

/// How soon an instance looks again whether the store has room for a slice. The time in which a disk that
/// writes 500 MB/s stores one.
const AGAIN_NS: u64 = 2_000_000;

/// A snapshot of which slices are left.
pub(super) struct Open {
    to: SyncSender<Slice>,
    /// Slices that were copied ahead, because the state is about to be cleared.
    ahead: VecDeque<Vec<RecordBatch>>,
    is_copied: bool,
    /// A slice that the store had no room for.
    unsent: Option<Slice>,
    pace: Pace,
    /// When to look again whether there is room.
    pub due_ns: Option<u64>,
}

/// How large slices are, and how long they take.
struct Pace {
    entries: usize,
    longest_ns: u64,
}

impl Pace {
    /// Takes a slice.
    fn next(&mut self, state: &mut dyn Sliced) -> Result<Option<Vec<RecordBatch>>> {
        let begin_ns = now_ns();
        let slice = state.next(self.entries)?;
        let took_ns = now_ns().saturating_sub(begin_ns);
        self.longest_ns = self.longest_ns.max(took_ns);
        match took_ns {
            took_ns if took_ns > SLICE_NS => self.entries = (self.entries / 2).max(ENTRIES_MIN),
            took_ns if took_ns < SLICE_NS / 3 => {
                self.entries = (self.entries * 2).min(ENTRIES_MAX);
            }
            _ => {}
        }
        Ok(slice)
    }
}

/// What a snapshot has at the barrier, and the slices that follow.
pub(super) struct Begun {
    pub mark: Mark,
    pub batches: Vec<RecordBatch>,
    pub open: Option<(Open, Receiver<Slice>)>,
}

/// Begins a snapshot. What is copied within the time of a slice needs no further ones.
pub(super) fn begin(state: &mut dyn Sliced, since: Mark) -> Result<Begun> {
    let begin_ns = now_ns();
    let mark = state.begin(since);
    let mut pace = Pace {
        entries: ENTRIES_FIRST,
        longest_ns: 0,
    };
    let mut batches = Vec::new();
    while now_ns().saturating_sub(begin_ns) < SLICE_NS {
        match pace.next(state)? {
            Some(slice) => batches.extend(slice),
            None => {
                return Ok(Begun {
                    mark,
                    batches,
                    open: None,
                });
            }
        }
    }
    let (to, slices) = sync_channel(SLICES_MAX);
    let open = Open {
        to,
        ahead: VecDeque::new(),
        is_copied: false,
        unsent: None,
        pace,
        due_ns: None,
    };
    Ok(Begun {
        mark,
        batches,
        open: Some((open, slices)),
    })
}

impl Instance {
    /// Whether a snapshot is incomplete.
    pub(super) fn has_open_snapshot(&self) -> bool {
        self.member.open.is_some()
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        self.head()?.operator.state()?.sliced()
    }

    /// Copies the next slice of an open snapshot, if the store has room for it; returns whether it did.
    pub(super) fn copy_slice(&mut self) -> Result<bool> {
        let Some(mut open) = self.member.open.take() else {
            return Ok(false);
        };
        let slice = match open.unsent.take() {
            Some(slice) => slice,
            None => self.next_slice(&mut open)?,
        };
        let is_end = matches!(slice, Slice::End { .. });
        open.due_ns = None;
        match open.to.try_send(slice) {
            Ok(()) if is_end => {}
            Ok(()) => self.member.open = Some(open),
            Err(TrySendError::Full(slice)) => {
                open.unsent = Some(slice);
                open.due_ns = Some(now_ns() + AGAIN_NS);
                self.member.open = Some(open);
                return Ok(false);
            }
            // The store has given the checkpoint up.
            Err(TrySendError::Disconnected(_)) => self.give_up_slices(),
        }
        Ok(true)
    }

    fn next_slice(&mut self, open: &mut Open) -> Result<Slice> {
        let slice = match (open.ahead.pop_front(), open.is_copied, self.sliced()) {
            (Some(ahead), ..) => Some(ahead),
            (None, false, Some(state)) => open.pace.next(state)?,
            _ => None,
        };
        Ok(match slice {
            Some(batches) => Slice::Rows(batches),
            None => Slice::End {
                longest_ns: open.pace.longest_ns,
            },
        })
    }

    /// Copies all that is left of an open snapshot, because the state is about to be cleared.
    pub(super) fn copy_all_slices(&mut self) -> Result<()> {
        let Some(mut open) = self.member.open.take() else {
            return Ok(());
        };
        if let Some(state) = self.sliced() {
            while let Some(slice) = open.pace.next(state)? {
                open.ahead.push_back(slice);
            }
        }
        open.is_copied = true;
        self.member.open = Some(open);
        Ok(())
    }

    /// Gives an open snapshot up: its checkpoint fails, and is tried again.
    pub(super) fn give_up_slices(&mut self) {
        self.member.open = None;
        if let Some(state) = self.sliced() {
            state.give_up();
        }
    }
}

#[cfg(test)]
mod tests;
