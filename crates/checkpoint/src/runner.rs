//! Runs a store's futures from ordinary threads.

use std::future::Future;
use std::time::Duration;

use crate::error::{Error, Kind, Result};

/// The most threads that wait for a local disk, so the most objects that are written at once.
const DISK_THREADS_MAX: usize = 4;

/// How long they wait for more work: parts of one checkpoint follow each other sooner, and between two
/// checkpoints no thread should wake up for nothing.
const DISK_THREADS_STAY: Duration = Duration::from_millis(100);

/// Runs the futures of a [`crate::Store`] from ordinary threads. Its own threads end when there is nothing to
/// do. Must not be used from within a future.
#[derive(Debug)]
pub struct Runner {
    runtime: tokio::runtime::Runtime,
}

impl Runner {
    /// A runner.
    ///
    /// # Errors
    ///
    /// If the operating system has no descriptors left.
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
