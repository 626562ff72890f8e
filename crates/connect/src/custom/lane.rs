//! The rows of a partition on their way from its reader to the query: a bounded queue.
//!
//! The reader has an [`Outlet`], on any thread, and waits there while the lane is full. The worker of the
//! source takes from the lane and never waits. Either side may leave first: a reader that ends says why, and
//! a query that ends closes the lane, which a waiting reader notices at once.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use slackwater_engine::error::Error;
use slackwater_engine::link::Waker;
use slackwater_engine::time::now_ns;

use super::Custom;
use super::rows::{Bad, Fitted, Piece, fit};
use crate::feed::{Given, WAITING_BYTES_MAX};

/// The pieces that wait in a lane: some may have a row each.
pub(super) const WAITING_PIECES_MAX: usize = 1_024;

/// The bytes of a stored offset. Offsets of all partitions are in each manifest: 256 of them are 4 MiB.
const OFFSET_BYTES_MAX: usize = 16 * 1024;

/// The queue of a partition.
pub(super) struct Lane {
    pub(super) partition: u32,
    schema: SchemaRef,
    /// The bytes that may wait; a single piece may be larger.
    bytes_max: usize,
    waker: Waker,
    state: Mutex<State>,
    /// There is room, or nobody takes anything any more.
    room: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// How the reader has ended.
    end: Option<Result<(), Error>>,
    /// Whether nobody takes anything any more.
    is_closed: bool,
}

/// A piece that waits.
pub(super) struct Waiting {
    pub(super) fitted: Fitted,
    pub(super) offset: Option<String>,
    pub(super) since_ns: u64,
    bytes: usize,
}

/// What is taken from a lane.
pub(super) enum Taken {
    Piece(Waiting),
    Nothing,
    End,
}

impl Lane {
    /// A lane of a source with so many partitions, which share what may wait.
    pub(super) fn new(partition: u32, partitions: u32, schema: SchemaRef, waker: Waker) -> Lane {
        Lane {
            partition,
            schema,
            bytes_max: WAITING_BYTES_MAX / partitions as usize,
            waker,
            state: Mutex::default(),
            room: Condvar::new(),
        }
    }

    /// The next piece. The reader's error comes after what it has handed on.
    pub(super) fn take(&self) -> Result<Taken, Error> {
        let mut state = self.state();
        if let Some(next) = state.waiting.pop_front() {
            state.bytes -= next.bytes;
            drop(state);
            self.room.notify_all();
            return Ok(Taken::Piece(next));
        }
        match &state.end {
            None => Ok(Taken::Nothing),
            Some(Ok(())) => Ok(Taken::End),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Nobody takes anything any more; returns whether somebody still reads.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
        state.bytes = 0;
        let is_read = state.end.is_none();
        drop(state);
        self.room.notify_all();
        is_read
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a lane that the reader of a partition has. If it is dropped before it was told how reading
/// ended, the query fails.
pub struct Outlet {
    pub(super) lane: Arc<Lane>,
    pub(super) offset: Option<String>,
    pub(super) source: Arc<Custom>,
    /// The reader's number.
    pub(super) number: u64,
}

impl Outlet {
    /// The partition, from 0.
    pub fn partition(&self) -> u32 {
        self.lane.partition
    }

    /// Where to resume: the offset that came with the last rows that count. `None`: at the beginning.
    pub fn offset(&self) -> Option<&str> {
        self.offset.as_deref()
    }

    /// The columns of the table.
    pub fn schema(&self) -> &SchemaRef {
        &self.lane.schema
    }

    /// Waits until readers of this partition that earlier attempts of the query have started are gone, but no
    /// longer than `limit`: they may hold what this one needs.
    pub fn wait_for_turn(&self, limit: Duration) {
        if let Custom::Source(source) = &*self.source {
            let (partition, number) = (self.lane.partition, self.number);
            source.running.wait(limit, |run| {
                run.partition == partition && run.number < number
            });
        }
    }

    /// Hands rows on; waits for room, but no longer than `limit` if there is one. Once it is
    /// [`Given::Closed`], nothing is taken any more, and the reader should end.
    ///
    /// # Errors
    ///
    /// If the rows don't have the columns of the table, or the offset is too long.
    pub fn push(&self, piece: Piece, limit: Option<Duration>) -> Result<Given, String> {
        let mut piece = piece;
        let offset = piece.offset.take();
        if let Some(bytes) = offset.as_ref().map(String::len)
            && bytes > OFFSET_BYTES_MAX
        {
            return Err(format!(
                "an offset has {bytes} bytes, and at most {OFFSET_BYTES_MAX} are stored"
            ));
        }
        let fitted = fit(piece, &self.lane.schema)?;
        let bytes =
            fitted.rows.get_array_memory_size() + fitted.bad.iter().map(bytes_of).sum::<usize>();
        let until = limit.map(|limit| Instant::now() + limit);
        let lane = &self.lane;
        let mut state = lane.state();
        loop {
            if state.is_closed || state.end.is_some() {
                return Ok(Given::Closed);
            }
            let has_room =
                state.bytes + bytes <= lane.bytes_max && state.waiting.len() < WAITING_PIECES_MAX;
            if state.waiting.is_empty() || has_room {
                break;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                None => lane
                    .room
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Ok(Given::Full),
                Some(left) => {
                    let waited = lane.room.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.bytes += bytes;
        state.waiting.push_back(Waiting {
            fitted,
            offset,
            since_ns: now_ns(),
            bytes,
        });
        drop(state);
        lane.waker.wake();
        Ok(Given::Taken)
    }

    /// Whether nothing is taken any more.
    pub fn is_closed(&self) -> bool {
        self.lane.state().is_closed
    }

    /// The partition has no further rows, or the reader has ended because the lane is closed.
    pub fn end(&self) {
        self.ended(Ok(()));
    }

    /// The partition can't be read any further, which ends the query.
    pub fn fail(&self, error: Error) {
        self.ended(Err(error));
    }

    fn ended(&self, end: Result<(), Error>) {
        let mut state = self.lane.state();
        if state.end.is_none() {
            state.end = Some(end);
            drop(state);
            self.lane.waker.wake();
        }
        if let Custom::Source(source) = &*self.source {
            source.running.end(self.number);
        }
    }
}

fn bytes_of(bad: &Bad) -> usize {
    bad.record.len() + bad.reason.len()
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let reason = "whoever read it is gone, and has not said that it has ended";
        self.fail(Error::new("", reason).hint("see what was printed on standard error"));
    }
}
