//! The rows of a SELECT on their way to its reader: a sink, a queue, and a reader on any thread.
//!
//! The sink's workers never block: while the queue is full they do other work or sleep, and are woken when it
//! is half empty. When the reader is gone, rows are dropped, so that the query can end.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{Int8Array, RecordBatch};
use arrow_schema::SchemaRef;
use slackwater_engine::Result;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::link::{Waiter, Waker};
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::sink::{
    Accepts, Delivery, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector, SinkDescription,
    SinkRequest,
};
use slackwater_sql::node::{Changes, NodeSpec};
use slackwater_sql::program::Program;

use crate::run::Screen;

/// The rows that wait for the reader: some chunks of the largest size. With a latency target chunks have few
/// rows, and it is batches that are bounded.
const WAITING_ROWS_MAX: usize = 131_072;

/// The batches that wait for the reader.
const WAITING_BATCHES_MAX: usize = 1_024;

/// Rows of a result.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The rows.
    pub rows: RecordBatch,
    /// What each row does to the result (a [`RowKind`](slackwater_engine::chunk::RowKind) as a number);
    /// `None` if all rows are new.
    pub kinds: Option<Int8Array>,
}

/// What a reader gets.
#[derive(Debug)]
pub enum Next {
    /// The next rows.
    Rows(Batch),
    /// There are no further rows, because the query has ended.
    End,
    /// There were none in time.
    TimedOut,
}

/// The rows of a SELECT.
#[derive(Debug)]
pub struct Results {
    schema: SchemaRef,
    changes: Changes,
    order: RowOrder,
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Batch>,
    rows: usize,
    /// Instances that wait for room, with what wakes their workers.
    blocked: Vec<(usize, Waker)>,
    has_ended: bool,
    /// Whether nobody reads any more.
    is_abandoned: bool,
}

impl State {
    fn is_full(&self) -> bool {
        !self.is_abandoned
            && (self.rows >= WAITING_ROWS_MAX || self.waiting.len() >= WAITING_BATCHES_MAX)
    }

    fn is_half_empty(&self) -> bool {
        self.rows <= WAITING_ROWS_MAX / 2 && self.waiting.len() <= WAITING_BATCHES_MAX / 2
    }
}

impl Results {
    /// A queue for the rows of a SELECT.
    pub(super) fn new(schema: SchemaRef, changes: Changes, order: RowOrder) -> Results {
        Results {
            schema,
            changes,
            order,
            state: Mutex::default(),
            came: Condvar::new(),
        }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How rows change earlier ones.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The order of the rows, if they are the first ones of the result.
    pub fn order(&self) -> &RowOrder {
        &self.order
    }

    /// Waits for the next rows, but no longer than `limit`.
    pub fn next(&self, limit: Duration) -> Next {
        let is_empty = |state: &mut State| state.waiting.is_empty() && !state.has_ended;
        let waited = self.came.wait_timeout_while(self.state(), limit, is_empty);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(batch) = state.waiting.pop_front() else {
            return match state.has_ended {
                true => Next::End,
                false => Next::TimedOut,
            };
        };
        state.rows -= batch.rows.num_rows();
        let blocked = match state.is_half_empty() {
            true => std::mem::take(&mut state.blocked),
            false => Vec::new(),
        };
        drop(state);
        blocked.iter().for_each(|(_, waker)| waker.wake());
        Next::Rows(batch)
    }

    /// Nobody reads any more: the rows that wait, and those that come, are dropped.
    pub fn abandon(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        state.waiting.clear();
        state.rows = 0;
        let blocked = std::mem::take(&mut state.blocked);
        drop(state);
        blocked.iter().for_each(|(_, waker)| waker.wake());
    }

    /// The query has ended.
    pub(super) fn end(&self) {
        self.state().has_ended = true;
        self.came.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a program write the rows of its SELECT here instead of printing them.
#[derive(Debug)]
pub(super) struct Taking(pub Arc<Results>);

impl Screen for Taking {
    fn take_over(&self, program: &mut Program) {
        for node in &mut program.nodes {
            let NodeSpec::Sink(sink) = node else { continue };
            if sink.table.is_none() {
                sink.connector = Arc::new(ResultsConnector(Arc::clone(&self.0)));
            }
        }
    }
}

struct ResultsConnector(Arc<Results>);

impl SinkConnector for ResultsConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("reader", "")
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved: usize::MAX,
            uses_waiter: true,
            accepts: Accepts::Changes,
            delivery: Delivery::AtLeastOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(ResultsSink {
            number: request.instance,
            results: Arc::clone(&self.0),
            waker: None,
        }))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        None
    }
}

struct ResultsSink {
    number: usize,
    results: Arc<Results>,
    /// Wakes this sink's worker.
    waker: Option<Waker>,
}

impl Sink for ResultsSink {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        self.waker = Some(waiter.waker());
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        let mut state = self.results.state();
        if !state.is_full() {
            return Ok(true);
        }
        // Once: it is asked again whenever its worker wakes up, whoever wakes it.
        let is_known = |known: &(usize, Waker)| known.0 == self.number;
        if let Some(waker) = &self.waker
            && !state.blocked.iter().any(is_known)
        {
            state.blocked.push((self.number, waker.clone()));
        }
        Ok(false)
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        let batch = Batch {
            rows: chunk.batch.clone(),
            kinds: chunk.kinds.clone(),
        };
        let mut state = self.results.state();
        if state.is_abandoned {
            return Ok(());
        }
        state.rows += batch.rows.num_rows();
        state.waiting.push_back(batch);
        drop(state);
        self.results.came.notify_one();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}
