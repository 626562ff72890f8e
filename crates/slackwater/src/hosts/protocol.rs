//! The commands and events of hosts, as plain data.
//!
//! ```text
//! supervisor ── HostCommand ──► Execution ── ProcessCommand::Host ──► Executor ── Command ──► workers
//!            ◄── HostEvent ────            ◄── ProcessEvent::Host ──           ◄─ WorkerEvent ─
//! ```
//!
//! Each message exists once: a layer that passes one on wraps it and doesn't look into it. [`ProcessCommand`]
//! and [`ProcessEvent`] have what only the two ends of a control socket tell each other.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::{Command, WaitModeData, WorkerEvent};
use slackwater_engine::runtime::WaitMode;

use super::counts::{Counts, FinalCounts};
use super::measured::Measured;
use super::phases::{Pending, Phase};
use crate::calibrate::WaitCosts;
use crate::checkpoints::{AgentEvent, Incarnation};
use crate::notices::Said;
use crate::probe::Seen;

/// A command for the host of a running query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostCommand {
    /// A command for its workers.
    Workers(Command),
    /// Run an instance on another worker of its process ([`HostEvent::Relocated`]). Has no effect if the
    /// instance has ended.
    Relocate {
        /// The instance's number.
        instance: usize,
        /// The worker, by its number in the deployment.
        worker: usize,
    },
    /// Change how a source divides its rows into chunks.
    Tune {
        /// The source's node in the query graph.
        node: usize,
        /// How long rows may wait for more rows.
        linger_ns: u64,
        /// The most rows of a chunk.
        chunk_rows: usize,
    },
    /// Change the latency target of a sink.
    Retarget {
        /// The sink's node in the query graph.
        node: usize,
        /// The latency that 99 of 100 rows are to stay below, in nanoseconds.
        target_ns: u64,
    },
    /// Change the size of a link's messages.
    Resize {
        /// The link, by its number in the deployment.
        link: usize,
        /// The bytes of a message at most.
        message_bytes: usize,
    },
    /// Pre-aggregate rows before they are sent to an aggregation.
    Combine {
        /// The aggregation's node in the query graph.
        node: usize,
    },
    /// Report a process's activity since the last request ([`HostEvent::Observed`]).
    Observe {
        /// The process.
        process: usize,
        /// By how much latencies of sinks may be wrong, in nanoseconds, by the sink's node; without those
        /// that aren't.
        #[serde(default)]
        errors_ns: Vec<(usize, u64)>,
    },
    /// Commit what sinks have prepared up to a barrier of a checkpoint.
    Commit {
        /// The barrier.
        barrier: u64,
    },
    /// The standby of the state in this folder stores what changes; or no standby, and it is stored here.
    Follow {
        /// The folder.
        folder: Option<PathBuf>,
    },
}

/// An event of the host of a running query.
#[derive(Debug, Serialize, Deserialize)]
pub enum HostEvent {
    /// An event of its workers.
    Worker(WorkerEvent),
    /// An instance now runs on another worker ([`HostCommand::Relocate`]).
    Relocated {
        /// The instance's number.
        instance: usize,
    },
    /// The activity of one of its processes ([`HostCommand::Observe`]).
    Observed(Seen),
    /// An event of its checkpoint agents.
    Checkpoint(AgentEvent),
    /// What one of its worker processes has used; its counters came before.
    Measured(Measured),
}

/// A command for a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ProcessCommand {
    /// The processes of the same host. The first command; comes with a socket to each of them but itself, in
    /// the order of their numbers, and with memory that outlives the process if it is to record rows.
    Neighbors(Neighbors),
    /// Prepare a part, without running it yet.
    Start(Box<Start>),
    /// The addresses of all processes by number, if there are links over TCP.
    Connect(Vec<Option<SocketAddr>>),
    /// Read the state of its instances from the checkpoint ([`ProcessEvent::Phase`]).
    Restore,
    /// Make sinks commit what is pending ([`ProcessEvent::Phase`]).
    Recommit(Vec<Pending>),
    /// Run the part.
    Run,
    /// A command for the host. May come with state for one of its instances in a memory file.
    Host(HostCommand),
    /// The clock of the orchestrator's host is so far ahead of this host's.
    Clock {
        /// How far.
        offset_ns: i64,
    },
    /// Report, once, when it next does something ([`ProcessEvent::Active`]).
    ReportActivity,
    /// Report the counters.
    Count,
    /// Report what steps and buckets have counted since the last report.
    CountSteps,
    /// Report what the process has used ([`HostEvent::Measured`]).
    Measure,
    /// Report the final counts and exit.
    Finish,
}

/// An event of a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ProcessEvent {
    /// The address at which it listens for links.
    Listens(Option<SocketAddr>),
    /// Why it could not start.
    Refused {
        /// The reason.
        reason: String,
        /// Whether it would be the same the next time.
        is_final: bool,
    },
    /// The result of a phase of its start.
    Phase(Phase),
    /// An event of its host.
    Host(HostEvent),
    /// A command for another process. May come with state for one of its instances in a memory file.
    Forward {
        /// The other process.
        process: usize,
        /// The command.
        command: HostCommand,
    },
    /// It does something ([`ProcessCommand::ReportActivity`]).
    Active,
    /// The counters.
    Counted(Counts),
    /// Comes with what steps and buckets have counted since the last report ([`super::counts::StepChanges`]).
    CountedSteps,
    /// A notice for the user about the input.
    Said(Said),
    /// The final counts; no event follows.
    Finished(Box<FinalCounts>),
}

/// The worker processes of one host.
#[derive(Clone, Serialize, Deserialize)]
pub struct Neighbors {
    /// The number of the first.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// Whether they record which rows they process.
    pub records: bool,
    /// Whether they are killed when the process that started them dies: of an agent, whose end means theirs.
    pub end_with_parent: bool,
    /// The secret of links to other hosts.
    pub secret: Option<String>,
}

/// The secret never reaches a log.
impl fmt::Debug for Neighbors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Neighbors { first, count, .. } = self;
        write!(f, "Neighbors({first}, {count})")
    }
}

/// The part of a worker process: what was decided for it, which it doesn't decide again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The name of the SQL file.
    pub file: String,
    /// The SQL.
    pub text: String,
    /// The settings of the command line.
    pub settings: Vec<(String, String)>,
    /// What sources have found outside, by table.
    pub findings: BTreeMap<String, String>,
    /// The folder in which relative paths begin.
    pub folder: PathBuf,
    /// Whether the query has relative paths.
    pub has_relative_paths: bool,
    /// The whole query as instances on workers.
    pub deployment: Deployment,
    /// The core that each worker is pinned to, on its host.
    pub cores: Vec<Option<usize>>,
    /// The NUMA node whose memory each worker uses, on its host.
    pub memory_nodes: Vec<Option<usize>>,
    /// How workers wait.
    #[serde(with = "WaitModeData")]
    pub wait: WaitMode,
    /// What waiting costs on the process's host.
    pub costs: WaitCosts,
    /// The process's number.
    pub process: usize,
    /// The names of all processes, by number.
    pub names: Vec<String>,
    /// The address at which it listens for links.
    pub address: IpAddr,
    /// The ports of which it may take one; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// The incarnation's number.
    pub epoch: u64,
    /// The secret with which TCP links identify themselves.
    pub token: [u8; 16],
    /// The fingerprint of the query, as the first process has compiled it.
    pub fingerprint: u64,
    /// Where checkpoints are stored, and which one to resume from, if the query takes any.
    pub incarnation: Option<Incarnation>,
}
