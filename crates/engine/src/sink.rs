//! Sinks: they take rows out of the engine.

use std::fmt;

use slackwater_link::Waiter;

use crate::chunk::Chunk;
use crate::error::Result;

/// A table that can be written.
pub trait SinkConnector: Send + Sync {
    /// The connector, and where it writes to.
    fn describe(&self) -> SinkDescription;

    /// The capabilities of its sinks.
    fn capabilities(&self) -> SinkCapabilities;

    /// Makes the sink of one instance.
    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>>;

    /// Prepares for a query that starts from nothing: rejects a target whose data would be destroyed (an
    /// existing file). `saved` means that the query takes checkpoints. Only then may output that earlier
    /// queries with checkpoints have prepared be discarded.
    fn begin(&self, saved: bool) -> Result<()>;

    /// The checkpoint handler for what its sinks prepare; `None` if they prepare nothing.
    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints>;
}

/// The capabilities of a table's sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkCapabilities {
    /// The most instances that can write at the same time (1 for a single file).
    pub max_instances: usize,
    /// The most instances in a query that takes checkpoints.
    pub max_instances_saved: usize,
    /// Whether sinks register descriptors or wakers with the waiter that they are opened with. Sinks that
    /// don't may move to another worker.
    pub uses_waiter: bool,
    /// What the sinks can do with rows that change others.
    pub accepts: Accepts,
    /// What happens to rows when a process dies and the query resumes from a checkpoint.
    pub delivery: Delivery,
    /// Whether prepared output can be lost before it is committed: a transaction that a broker ends
    /// ([`Recovered::Lost`]).
    pub may_lose_prepared: bool,
    /// The options, in milliseconds, that let rows wait in the connector's own client. The measured latency
    /// does not include this wait.
    pub client_waits_ms: &'static [&'static str],
}

/// Secures and commits what the sinks of a table have prepared ([`Sink::prepare`]).
pub trait SinkCheckpoints: Send + Sync {
    /// Makes it durable, on another thread than the sink's, before the checkpoint that names it is
    /// stored.
    fn secure(&self, prepared: &str) -> Result<()>;

    /// Commits it, in the process of the sink that has prepared it. Committing again does nothing.
    fn commit(&self, prepared: &str) -> Result<()>;

    /// Recovers before anything of the incarnation `epoch` runs, in the process that starts it: commits
    /// what the checkpoint names as prepared, and removes whatever else *earlier* incarnations have left.
    /// Earlier and later incarnations may still be alive; nothing of later ones is touched. `prepared` is
    /// `None` if the query starts from nothing, or has not written to this table before.
    fn recover(&self, epoch: u64, prepared: Option<&[String]>) -> Result<Recovered>;
}

/// [`SinkCheckpoints`] for any table: if its sinks prepare nothing, there is nothing to secure, commit or
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

/// Where rows go. Checkpoints store it: a query resumes only if it is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SinkDescription {
    /// The connector's name (`file`).
    pub connector: &'static str,
    /// The path, address or topic; empty if the connector has only one place.
    pub place: String,
    /// The table of a database.
    pub table: Option<String>,
    /// The column that says where each row goes, if there is no single place.
    pub column: Option<String>,
}

impl SinkDescription {
    /// A description with one place.
    pub fn new(connector: &'static str, place: impl Into<String>) -> SinkDescription {
        SinkDescription {
            connector,
            place: place.into(),
            ..SinkDescription::default()
        }
    }
}

/// The description for people: `file out.csv`.
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
    /// The incarnation of a query that takes checkpoints: [`Sink::prepare`] will be called, and the names
    /// of what it prepares must contain the epoch. `None` for a query without checkpoints.
    pub epoch: Option<u64>,
}

impl SinkRequest {
    /// A request for a query without checkpoints.
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
    /// The sink writes each row, whatever its kind: a new value follows the old one, and nothing can be
    /// retracted.
    Rows,
    /// The sink applies each change, or writes it down as a change.
    Changes,
}

/// What happens to rows when the query resumes from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each row is written once.
    ExactlyOnce,
    /// Rows that were written since the checkpoint are written again.
    AtLeastOnce,
}

/// The result of [`SinkCheckpoints::recover`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// Everything that was prepared is committed.
    Committed,
    /// Something that was prepared is gone, uncommitted: the query must resume from an earlier
    /// checkpoint.
    Lost,
}

/// One instance's part of a sink.
pub trait Sink: Send {
    /// Opens files and sockets. Called once, on the worker's thread.
    fn open(&mut self, waiter: &mut Waiter) -> Result<()>;

    /// Whether it takes a chunk now. If not, it makes sure that the waiter is woken.
    fn ready(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Takes the chunk: afterwards its rows have left the engine, except for what [`Sink::flush`] still
    /// writes out.
    fn write(&mut self, chunk: &Chunk) -> Result<()>;

    /// Writes out what is buffered. Called before the worker waits, and at the end.
    fn flush(&mut self) -> Result<()>;

    /// Prepares a checkpoint: completes what was written since the last one, so that it can be committed,
    /// and returns the name to commit it by ([`SinkCheckpoints`]); `None` if there is nothing to commit.
    /// Called after `flush`, and with `is_last` once before `finish`, which with [`SinkRequest::epoch`]
    /// commits nothing itself. A query that is stopped or fails resumes from its last checkpoint; what
    /// was not prepared is dropped then.
    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        Ok(None)
    }

    /// The number of connections that it has lost and reconnected or waited for.
    fn connections_lost(&self) -> u64 {
        0
    }

    /// Ends the sink. `complete` is false when the query failed: then partial output must not look
    /// complete (a file keeps its temporary name and is removed). Called once.
    fn finish(&mut self, complete: bool) -> Result<()>;
}
