//! The limits of a read.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Failed;

/// The memory that the operators of a read may hold, unless its reader says otherwise: with 100 bytes a row,
/// two million rows that are sorted or grouped.
pub const READ_BYTES: u64 = 256 << 20;

/// How long a read may take, unless its reader says otherwise.
pub const READ_TIME: Duration = Duration::from_secs(60);

/// The limits of a read.
#[derive(Clone)]
pub struct Limits {
    /// The most bytes that its operators hold; `None` for no limit.
    pub memory: Option<u64>,
    /// When it must be done, and how long that was from its start; `None` for no limit.
    pub until: Option<(Instant, Duration)>,
    /// Whether somebody has cancelled it.
    pub is_cancelled: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::none().with_memory(READ_BYTES).with_time(READ_TIME)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.until.map(|(_, time)| time);
        write!(f, "{:?} bytes, {time:?}", self.memory)
    }
}

impl Limits {
    /// No limits.
    pub fn none() -> Limits {
        Limits {
            memory: None,
            until: None,
            is_cancelled: Arc::new(|| false),
        }
    }

    /// The same with a limit of memory.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Limits {
        Limits {
            memory: Some(bytes),
            ..self
        }
    }

    /// The same with a limit of time, from now on.
    #[must_use]
    pub fn with_time(self, time: Duration) -> Limits {
        Limits {
            // A time that the clock can't express is no limit.
            until: Instant::now().checked_add(time).map(|until| (until, time)),
            ..self
        }
    }

    /// The same for a read that somebody can cancel.
    #[must_use]
    pub fn with_cancel(self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Limits {
        Limits {
            is_cancelled: Arc::new(is_cancelled),
            ..self
        }
    }

    /// How much time is left; `None` for no limit.
    pub fn left(&self) -> Option<Duration> {
        let (until, _) = self.until?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Whether the read may continue.
    ///
    /// # Errors
    ///
    /// If it was cancelled, or its time is over.
    pub fn check(&self) -> Result<(), Failed> {
        if (self.is_cancelled)() {
            return Err(Failed::Cancelled);
        }
        match self.until {
            Some((until, time)) if Instant::now() >= until => Err(Failed::TimedOut(time)),
            _ => Ok(()),
        }
    }
}
