//! Runs a store's futures from ordinary threads.

use std::future::Future;
use std::time::Duration;

use crate::error::{Error, Kind, Result};

/// Threads that wait for a local disk at most: so many objects are written at once.
const DISK_THREADS_MAX: usize = 4;

/// How long they wait for more to do: parts of one checkpoint follow each other sooner, and between two
/// checkpoints nobody shall wake up to find that there is nothing.
const DISK_THREADS_STAY: Duration = Duration::from_millis(100);

/// Lets a thread that knows nothing of futures use a [`crate::Store`]. Its own threads end by themselves
/// when there is nothing to do. Not to be used from within a future.
#[derive(Debug)]
pub struct Runner {
    runtime: tokio::runtime::Runtime,
}

impl Runner {
    /// A runner.
    ///
    /// # Errors
    ///
    /// When the operating system gives it no descriptors.
    pub fn new() -> Result<Runner> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(DISK_THREADS_MAX)
            .thread_name("checkpoint-disk")
            .thread_keep_alive(DISK_THREADS_STAY)
            .enable_all()
            .build();
        let runtime =
            runtime.map_err(|error| Error::new(Kind::Unavailable, "runtime", error.to_string()))?;
        Ok(Runner { runtime })
    }

    /// Runs a future to its end.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}
