//! The thread that calls a user's function, and its end.

use std::thread::JoinHandle;

use crate::error::{Error, Kind, Result};

/// A thread that ends when this is dropped; its owner has told it to before.
pub struct Thread(Option<JoinHandle<()>>);

impl Thread {
    /// Starts a thread.
    pub fn start(place: &str, name: &str, run: impl FnOnce() + Send + 'static) -> Result<Thread> {
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = started.map_err(|error| {
            let reason = format!("can't start a thread: {error}");
            Error::new(Kind::Unavailable, place, reason)
        })?;
        Ok(Thread(Some(thread)))
    }

    /// Waits for the thread's end, unless it is the caller: then it ends afterwards.
    pub fn join(&mut self) {
        if let Some(thread) = self.0.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the user's function was reported when it happened.
            let _ = thread.join();
        }
    }
}
