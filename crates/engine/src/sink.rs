//! Sinks: where rows go.

use slackwater_link::Waiter;

use crate::chunk::Chunk;
use crate::error::Result;

/// A table that can be written.
pub trait SinkConnector: Send + Sync {
    /// More instances than this can't write at the same time (1 for a single file).
    fn max_instances(&self) -> usize;

    /// The connector's name and where it writes to (`file out.csv`).
    fn describe(&self) -> String;

    /// Whether its sinks register descriptors or wakers with the waiter that they are opened with.
    /// Those that don't may go on on another worker.
    fn uses_waiter(&self) -> bool {
        true
    }

    /// The sink of instance `instance` of `instances`.
    fn sink(&self, instance: usize, instances: usize) -> Result<Box<dyn Sink>>;
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

    /// The end. `complete` is false when the query failed: nothing half-done may then look
    /// whole (a file keeps its temporary name and is removed). Called once.
    fn finish(&mut self, complete: bool) -> Result<()>;
}
