//! Sinks: where rows go.

use std::fmt;

use slackwater_link::Waiter;

use crate::chunk::Chunk;
use crate::error::Result;

/// A table that can be written.
pub trait SinkConnector: Send + Sync {
    /// What it is, and where it writes to.
    fn describe(&self) -> SinkDescription;

    /// What its sinks can do.
    fn capabilities(&self) -> SinkCapabilities;

    /// The sink of one instance.
    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>>;

    /// The query begins from nothing: rejects what would be destroyed (a file that is there). `saved` means
    /// that it will take checkpoints. What earlier queries with checkpoints have prepared may only be given up
    /// then.
    fn begin(&self, saved: bool) -> Result<()>;

    /// What is done with what its sinks prepare for checkpoints; `None` where they prepare nothing.
    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints>;
}

/// What the sinks of a table can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkCapabilities {
    /// More instances than this can't write at the same time (1 for a single file).
    pub max_instances: usize,
    /// The same in a query that takes checkpoints.
    pub max_instances_saved: usize,
    /// Sinks register descriptors or wakers with the waiter that they are opened with. Those that don't may
    /// move to another worker.
    pub uses_waiter: bool,
    /// What they can do with rows that change others.
    pub accepts: Accepts,
    /// What becomes of rows when a process dies and the query resumes from a checkpoint.
    pub delivery: Delivery,
    /// What is prepared can be given up by somebody else before it is committed: a transaction that a broker
    /// ends ([`Recovered::Lost`]).
    pub may_lose_prepared: bool,
}

/// What is done with what the sinks of a table have prepared ([`Sink::prepare`]).
pub trait SinkCheckpoints: Send + Sync {
    /// Makes it durable, on another thread than the sink's, before the checkpoint that names it is stored.
    fn secure(&self, prepared: &str) -> Result<()>;

    /// Commits it, in the process of the sink that has prepared it. Committing again what is committed does
    /// nothing.
    fn commit(&self, prepared: &str) -> Result<()>;

    /// Before anything of the incarnation `epoch` runs, in the process that begins it: commits what the
    /// checkpoint has as prepared, and removes what else *earlier* incarnations have left, which may
    /// still be alive; of later ones, which may be alive as well, nothing. `prepared` is none where the
    /// query begins from nothing, or has not written to this table before.
    fn recover(&self, epoch: u64, prepared: Option<&[String]>) -> Result<Recovered>;
}

/// [`SinkCheckpoints`] for any table: one whose sinks prepare nothing has nothing to secure, commit or
/// recover.
impl dyn SinkConnector + '_ {
    /// [`SinkCheckpoints::secure`].
    pub fn secure(&self, prepared: &str) -> Result<()> {
        let checkpoints = self.checkpoints();
        checkpoints.map_or(Ok(()), |checkpoints| checkpoints.secure(prepared))
    }

    /// [`SinkCheckpoints::commit`].
    pub fn commit(&self, prepared: &str) -> Result<()> {
        let checkpoints = self.checkpoints();
        checkpoints.map_or(Ok(()), |checkpoints| checkpoints.commit(prepared))
    }

    /// [`SinkCheckpoints::recover`].
    pub fn recover(&self, epoch: u64, prepared: Option<&[String]>) -> Result<Recovered> {
        match self.checkpoints() {
            Some(checkpoints) => checkpoints.recover(epoch, prepared),
            None => Ok(Recovered::Committed),
        }
    }
}

/// Where rows go. Checkpoints hold it: a query resumes where it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SinkDescription {
    /// The connector's name (`file`).
    pub connector: &'static str,
    /// The path, address or topic; empty where the connector has one place only.
    pub place: String,
    /// The table of a database.
    pub table: Option<String>,
    /// The column that says where each row goes, where there is no one place.
    pub column: Option<String>,
}

impl SinkDescription {
    /// One place.
    pub fn new(connector: &'static str, place: impl Into<String>) -> SinkDescription {
        SinkDescription {
            connector,
            place: place.into(),
            ..SinkDescription::default()
        }
    }
}

/// For people: `file out.csv`.
impl fmt::Display for SinkDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.connector)?;
        if let Some(column) = &self.column {
            write!(f, " topics of '{column}'")?;
        } else if !self.place.is_empty() {
            write!(f, " {}", self.place)?;
        }
        if let Some(table) = &self.table {
            write!(f, ", table {table}")?;
        }
        Ok(())
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

/// What becomes of rows when the query resumes from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each is there once.
    ExactlyOnce,
    /// Rows that were written since the checkpoint are written again.
    AtLeastOnce,
}

/// What [`SinkCheckpoints::recover`] came to.
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
    /// what name ([`SinkCheckpoints`]); `None` where there
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
