//! The thread that the client runs on, and how others wait for what they have asked it.

use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::{Error, Kind, Result};
use crate::thread::Thread;

/// A thread that runs what is asynchronous; dropping this ends it.
pub struct Runtime {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Thread,
}

impl Runtime {
    /// Starts the thread.
    pub fn start(place: &str) -> Result<Runtime> {
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| {
            let reason = format!("can't start its client: {error}");
            Error::new(Kind::Unavailable, place, reason)
        })?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = Thread::start(place, "registry", move || {
            // Ends when the sender is dropped.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Runtime {
            handle,
            end: Some(end),
            thread,
        })
    }

    /// Runs `operation`, and waits for it: not on this thread. Operations end by themselves.
    pub fn wait<T: Send + 'static>(
        &self,
        place: &str,
        operation: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (done, is_done) = sync_channel(1);
        self.handle.spawn(async move {
            // Whoever asked is waiting.
            let _ = done.send(operation.await);
        });
        is_done.recv().unwrap_or_else(|_| {
            let reason = "its client has failed; see what it wrote before";
            Err(Error::new(Kind::Unavailable, place, reason))
        })
    }

    /// Runs `task` beside others.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(task)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end = None;
        self.thread.join();
    }
}
