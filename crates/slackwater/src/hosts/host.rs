//! What a host does for a query: it starts worker processes, carries commands to them and what they say
//! back, and ends them.
//!
//! ```text
//! Processes ─┬─► LocalHost ─────────────────────────────────► processes of this host
//!            └─► JoinedHost ─► session ─► agent: LocalHost ─► processes of that host
//! ```
//!
//! Who starts agents on other hosts (a person, systemd, Kubernetes, Ray) is unknown here.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use slackwater_engine::Error;
use slackwater_engine::recorder::Suspect;

use super::facts::Facts;
use super::look::{Ask, Found};
use super::protocol::{ProcessCommand, ProcessEvent};

/// A host that can run worker processes.
pub trait Host: Send + Sync + fmt::Debug {
    /// What is known of the host.
    fn facts(&self) -> &Facts;

    /// Whether it can be reached, as far as is known.
    fn is_there(&self) -> bool;

    /// How wrong the host's idea of the deployment's clock may be, in nanoseconds, as far as is known.
    fn clock_error_ns(&self) -> u64;

    /// Looks for files and folders there.
    ///
    /// # Errors
    ///
    /// If the host can't be asked.
    fn look(&self, ask: &Ask) -> Result<Found, Error>;

    /// Starts worker processes. `hear` is called with what they say and how they end: in order for each
    /// process, and by several threads. It may block.
    ///
    /// # Errors
    ///
    /// If one can't be started; then none runs.
    fn start(&self, group: &Group, hear: Hear) -> Result<Arc<dyn HostProcesses>, Error>;
}

/// The processes of one incarnation on one host.
pub trait HostProcesses: Send + Sync {
    /// Their process ids, by number.
    fn pids(&self) -> &[u32];

    /// Sends a process a command; never blocks. `state` is a memory file that comes with it.
    fn tell(&self, process: usize, command: ProcessCommand, state: Option<OwnedFd>);

    /// Kills a process; its end is heard as any other.
    fn kill(&self, process: usize);

    /// Kills all of them, and waits for their end.
    fn end(&self) -> Ended;
}

/// The processes that a host is to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Group {
    /// The incarnation's number.
    pub epoch: u64,
    /// The number of the first process.
    pub first: usize,
    /// How many processes there are.
    pub count: usize,
    /// Whether they record which rows they process.
    pub records: bool,
}

impl Group {
    /// Whether a process belongs to the group.
    pub fn has(&self, process: usize) -> bool {
        (self.first..self.first + self.count).contains(&process)
    }
}

/// Whether the processes of a host have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// None is left.
    All,
    /// The host can't be asked. It ends them itself, at the latest at this time, unless it is stopped as a
    /// whole.
    Unknown {
        /// The latest time at which a process may still run.
        until: Instant,
    },
}

impl Ended {
    /// Waits until none is left, but for those of a host that is stopped as a whole.
    pub fn wait(self) {
        if let Ended::Unknown { until } = self {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// The callback for what is heard of processes.
pub type Hear = Arc<dyn Fn(News) + Send + Sync>;

/// What is heard of a process.
#[derive(Debug)]
pub struct News {
    /// The process's number.
    pub process: usize,
    /// What has happened.
    pub what: What,
}

/// What has happened to a process.
#[derive(Debug)]
pub enum What {
    /// It has said something.
    Said {
        /// What it has said.
        event: ProcessEvent,
        /// The bytes that came with it.
        bytes: Vec<u8>,
        /// A memory file with state for an instance of another process.
        state: Option<OwnedFd>,
    },
    /// It has ended; nothing follows.
    Left(Exit),
}

/// How a process ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Exit {
    /// How, as the end of a sentence about the process.
    pub reason: String,
    /// Whether it crashed, and was not killed by others.
    pub is_crash: bool,
    /// The rows that its instances were processing, by instance.
    pub noted: Vec<(usize, Suspect)>,
}
