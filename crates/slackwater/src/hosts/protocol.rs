//! What hosts are told and what they report, as plain data.
//!
//! ```text
//! supervisor ── HostCommand ──► LocalHost ── ProcessCommand::Host ──► Executor ── Command ──► workers
//!            ◄── HostEvent ────            ◄── ProcessEvent::Host ──           ◄─ WorkerEvent ─
//! ```
//!
//! Each message exists once. Whoever hands one on wraps it and doesn't look into it; what only the two ends
//! of a control socket say to each other is in [`ProcessCommand`] and [`ProcessEvent`].

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use slackwater_engine::protocol::{Command, WorkerEvent};

use super::counts::{Counts, FinalCounts};
use super::phases::{Pending, Phase};
use crate::calibrate::WaitCosts;
use crate::checkpoints::{AgentEvent, Incarnation};
use crate::costs::Learned;
use crate::machine::Described;
use crate::notices::Said;
use crate::probe::Seen;

/// What a host is told about the query that it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostCommand {
    /// To its workers.
    Workers(Command),
    /// Run an instance on another worker of its process ([`HostEvent::Relocated`]). Nothing is done when
    /// the instance has ended.
    Relocate {
        /// The instance's number.
        instance: usize,
        /// The worker, by its number in the deployment.
        worker: usize,
    },
    /// Cut the rows of a source into chunks like this.
    Tune {
        /// The source's node in the query graph.
        node: usize,
        /// How long rows may wait for others.
        linger_ns: u64,
        /// Rows of a chunk at most.
        chunk_rows: usize,
    },
    /// Aggregate rows before they are sent to an aggregation.
    Combine {
        /// The aggregation's node in the query graph.
        node: usize,
    },
    /// Report what a process has done since it was last asked ([`HostEvent::Observed`]).
    Observe {
        /// The process.
        process: usize,
    },
    /// Sinks commit what they have prepared up to a barrier of a checkpoint.
    Commit {
        /// The barrier.
        barrier: u64,
    },
}

/// What a host reports of the query that it runs.
#[derive(Debug, Serialize, Deserialize)]
pub enum HostEvent {
    /// From its workers.
    Worker(WorkerEvent),
    /// An instance runs on another worker ([`HostCommand::Relocate`]).
    Relocated {
        /// The instance's number.
        instance: usize,
    },
    /// What one of its processes has done ([`HostCommand::Observe`]).
    Observed(Seen),
    /// From its checkpoint agents.
    Checkpoint(AgentEvent),
}

/// What a worker process is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum ProcessCommand {
    /// Its part, which it prepares and does not run yet. A socket to each other process comes with it, in
    /// order of their numbers, and the memory that it leaves behind when it dies.
    Start(Box<Start>),
    /// Where the processes listen, by number, when links are TCP.
    Connect(Vec<Option<SocketAddr>>),
    /// Read what is to be restored of its instances ([`ProcessEvent::Phase`]).
    Restore,
    /// Let sinks commit what they have pending ([`ProcessEvent::Phase`]).
    Recommit(Vec<Pending>),
    /// Run its part.
    Run,
    /// What its host was told. State for one of its instances comes with it in a memory file.
    Host(HostCommand),
    /// Report what was counted so far.
    Count,
    /// Report what steps and buckets have counted since the last time.
    CountSteps,
    /// Report what it came to, and exit.
    Finish,
}

/// What a worker process reports.
#[derive(Debug, Serialize, Deserialize)]
pub enum ProcessEvent {
    /// It listens here for links.
    Listens(Option<SocketAddr>),
    /// It could not start.
    Refused(String),
    /// How what it was told to do before it runs has ended.
    Phase(Phase),
    /// What its host reports. State for an instance of another process comes with it in a memory file.
    Host(HostEvent),
    /// What was counted so far.
    Counted(Counts),
    /// What steps and buckets have counted since the last time comes with it
    /// ([`super::counts::StepChanges`]).
    CountedSteps,
    /// What the user should know of what is read.
    Said(Said),
    /// What it came to; nothing follows.
    Finished(Box<FinalCounts>),
}

/// A worker process's part.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The text's name.
    pub file: String,
    /// The text.
    pub text: String,
    /// Settings of the command line.
    pub settings: Vec<(String, String)>,
    /// The machine that the parent has planned on.
    pub topology: Described,
    /// Cores' worth of CPU time that a container permits.
    pub quota_cores: Option<f64>,
    /// Memory is bound to NUMA nodes.
    pub binds_memory: bool,
    /// What earlier runs have learned of the query's costs.
    pub learned: Learned,
    /// What waiting costs on this host.
    pub costs: WaitCosts,
    /// Its number.
    pub process: usize,
    /// Process ids of all, by number.
    pub pids: Vec<u32>,
    /// The incarnation of this deployment.
    pub epoch: u64,
    /// Its secret.
    pub token: [u8; 16],
    /// What the parent's deployment looks like.
    pub fingerprint: u64,
    /// Where checkpoints are kept, and which one it resumes from, if the query takes any.
    pub incarnation: Option<Incarnation>,
}
