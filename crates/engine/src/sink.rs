//! Sinks: where rows go.

use slackwater_link::Waiter;

use crate::chunk::Chunk;
use crate::error::Result;

/// A table that can be written.
pub trait SinkConnector: Send + Sync {
    /// More instances than this can't write at the same time (1 for a single file).
    fn max_instances(&self) -> usize;

    /// The same in a query that takes checkpoints.
    fn max_instances_saved(&self) -> usize {
        self.max_instances()
    }

    /// The connector's name and where it writes to (`file out.csv`).
    fn describe(&self) -> String;

    /// Whether its sinks register descriptors or wakers with the waiter that they are opened with.
    /// Those that don't may go on on another worker.
    fn uses_waiter(&self) -> bool {
        true
    }

    /// The sink of one instance.
    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>>;

    /// What becomes of rows when a process dies and the query goes on from a checkpoint.
    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    /// What its sinks can do with rows that change others.
    fn accepts(&self) -> Accepts {
        Accepts::Rows
    }

    /// Whether what is prepared can be given up by somebody else before it is committed: a transaction
    /// that a broker ends ([`Recovered::Lost`]).
    fn may_lose_prepared(&self) -> bool {
        false
    }

    /// The query begins from nothing: refuses what it would destroy (a file that is there).
    fn begin(&self) -> Result<()> {
        Ok(())
    }

    /// Whether `begin` is for queries with checkpoints alone, because it gives up what earlier ones have
    /// prepared.
    fn begins_saved_only(&self) -> bool {
        self.may_lose_prepared()
    }

    /// Makes what a sink of this table has prepared durable, on another thread than the sink's, before
    /// the checkpoint that names it is stored.
    fn secure(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    /// Commits what a sink of this table has prepared, in the process of that sink. Committing again
    /// what is committed does nothing.
    fn commit(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    /// Before anything of the incarnation `epoch` runs, in the process that begins it: commits what the
    /// checkpoint has as prepared, and removes what else *earlier* incarnations have left, which may
    /// still be alive; of later ones, which may be alive as well, nothing. `prepared` is none where the
    /// query begins from nothing, or has not written to this table before.
    fn recover(&self, _epoch: u64, _prepared: Option<&[String]>) -> Result<Recovered> {
        Ok(Recovered::Committed)
    }
}

/// What a sink is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkRequest {
    /// This instance's number.
    pub instance: usize,
    /// Number of instances.
    pub instances: usize,
    /// The incarnation of a query that takes checkpoints: [`Sink::prepare`] will be called, and what
    /// it prepares is to have the epoch in its name. None for a query that takes none.
    pub epoch: Option<u64>,
}

impl SinkRequest {
    /// For a query that takes no checkpoints.
    pub fn new(instance: usize, instances: usize) -> SinkRequest {
        SinkRequest {
            instance,
            instances,
            epoch: None,
        }
    }
}

/// What a sink can do with rows that change others ([`crate::chunk::RowKind`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// It writes each row, whatever it does: a new value stands behind the old one, and nothing can be
    /// taken back.
    Rows,
    /// It does what each row says, or writes down what that is.
    Changes,
}

/// What becomes of rows when the query goes on from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each is there once.
    ExactlyOnce,
    /// Rows that were written since the checkpoint are written again.
    AtLeastOnce,
}

/// What [`SinkConnector::recover`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// All that was prepared is committed.
    Committed,
    /// Something that was prepared is gone, uncommitted: the query has to go on from an earlier
    /// checkpoint.
    Lost,
}

/// One instance's part of a sink.
pub trait Sink: Send {
    /// Opens files and sockets. Called once, on the worker's thread.
    fn open(&mut self, waiter: &mut Waiter) -> Result<()>;

    /// Whether it takes a chunk now. When not, it sees to it that the waiter is woken.
    fn ready(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Takes the chunk: afterwards its rows have left the engine, but for what
    /// [`Sink::flush`] still pushes out.
    fn write(&mut self, chunk: &Chunk) -> Result<()>;

    /// Pushes out what is buffered. Called before the worker waits, and at the end.
    fn flush(&mut self) -> Result<()>;

    /// A checkpoint: ends what was written since the last one, so that it can be committed, and says by
    /// what name ([`SinkConnector::secure`], [`SinkConnector::commit`]); `None` where there
    /// is nothing to commit. Called behind `flush`, and with `is_last` once before `finish`, which with
    /// [`SinkRequest::epoch`] commits nothing itself. A query that is stopped or fails goes on from its
    /// last checkpoint: what was not prepared is dropped then.
    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        Ok(None)
    }

    /// How many connections it has lost, and waited for others.
    fn connections_lost(&self) -> u64 {
        0
    }

    /// The end. `complete` is false when the query failed: nothing half-done may then look
    /// whole (a file keeps its temporary name and is removed). Called once.
    fn finish(&mut self, complete: bool) -> Result<()>;
}
