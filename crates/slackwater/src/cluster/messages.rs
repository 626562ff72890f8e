//! The messages of a session.
//!
//! ```text
//! agent ── Join ───► orchestrator     who it is, which program, what its host has
//!       ◄─ Welcome ─                  or Refused, with the reason
//!       ◄─ Start ─── Started ──►      processes of an incarnation, once its lease is granted; then
//!                                     Command and Said, both ways
//!       ◄─ End ───── Ended ────►
//!       ── Beat ───► Answer ◄──       a lease for each incarnation; while its processes work
//! ```

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use slackwater_control::lease::{Answer, Beat};

use crate::hosts::{Ask, Build, Exit, Facts, Found, Group, ProcessCommand, ProcessEvent};

/// An agent that joins.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The program that it runs: both ends have to run the same.
    pub build: Build,
    /// The host.
    pub facts: Facts,
    /// The latest term of an orchestrator that it has joined.
    pub term: u64,
}

/// The first message to an orchestrator.
#[derive(Debug, Serialize, Deserialize)]
pub enum Greeting {
    /// An agent joins; the answer is a [`ToAgent`].
    Join(Box<Hello>),
    /// Another orchestrator waits until this one is gone; there is no answer.
    StandBy {
        /// The name of its host.
        name: String,
    },
    /// Somebody asks something; the answer is a [`Reply`].
    Ask(Question),
}

/// What an orchestrator can be asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    /// What it directs, and the hosts that have joined.
    Status,
    /// To go on without a host. The answer comes when it has left.
    Drain {
        /// The host's name.
        host: String,
    },
}

/// The answer to a [`Question`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// How it stands.
    Status(Status),
    /// The host has left.
    Drained,
    /// It can't be done, as a sentence about the host.
    Refused(String),
}

/// What an orchestrator directs, and the hosts that have joined it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The name of its host.
    pub name: String,
    /// Where agents join it.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
    /// The number of its term; always 1 without a registry.
    pub term: u64,
    /// The query's name.
    pub query: String,
    /// The query doesn't run on fewer hosts.
    pub hosts_min: usize,
    /// It doesn't use more.
    pub hosts_max: usize,
    /// Whether the orchestrator's own host is one of them.
    pub here: bool,
    /// The hosts that have joined, by name.
    pub hosts: Vec<HostStatus>,
    /// The orchestrators that stand by.
    pub standbys: Vec<String>,
    /// Messages of earlier incarnations that were dropped.
    pub fenced: u64,
    /// Connections that were turned away.
    pub refused: u64,
}

/// A host that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Where other hosts reach its processes.
    pub address: IpAddr,
    /// The cores that queries may use there.
    pub cores: usize,
    /// The worker processes that run there.
    pub processes: usize,
    /// Whether it is about to leave.
    pub is_leaving: bool,
}

/// From the orchestrator to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAgent {
    /// It has joined.
    Welcome {
        /// The orchestrator's term.
        term: u64,
        /// The name of the orchestrator's host.
        name: String,
        /// How long an answer to a beat is good.
        host_timeout_ns: u64,
    },
    /// It waits until a job of a server needs a host.
    Wait {
        /// The name of the server's host.
        name: String,
    },
    /// It is to join the orchestrator of a job, on the same host at this port.
    Serve {
        /// The job's name.
        job: String,
        /// The port.
        port: u16,
    },
    /// It has not joined; nothing follows.
    Refused {
        /// The reason, with its fix.
        reason: String,
        /// Whether it is worth trying again.
        try_again: bool,
    },
    /// Look for files and folders.
    Look(Ask),
    /// Start worker processes.
    Start(Group),
    /// A command for a process, with state for one of its instances if it brings a file.
    Command {
        /// The incarnation.
        epoch: u64,
        /// The process's number.
        process: usize,
        /// The command.
        command: ProcessCommand,
    },
    /// Kill a process.
    Kill {
        /// The incarnation.
        epoch: u64,
        /// The process's number.
        process: usize,
    },
    /// Kill all processes of an incarnation.
    End {
        /// The incarnation.
        epoch: u64,
    },
    /// The answer to a beat.
    Answer {
        /// What it says of the lease.
        #[serde(with = "AnswerData")]
        answer: Answer,
        /// When the beat was received, on the orchestrator's clock.
        received_ns: u64,
        /// When this answer was sent, on the orchestrator's clock.
        answered_ns: u64,
    },
    /// It isn't needed any more; nothing follows.
    Over {
        /// Whether the query goes on without it, as somebody has asked for.
        is_drained: bool,
    },
    /// It can't leave without harm.
    Stay {
        /// The reason.
        reason: String,
    },
}

/// From an agent to the orchestrator, after its [`Hello`].
#[derive(Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// What it has found.
    Looked(Found),
    /// The processes were started.
    Started {
        /// The incarnation.
        epoch: u64,
        /// Their process ids, by number.
        pids: Vec<u32>,
        /// What the agent knows of the orchestrator's clock.
        clock: Option<ClockKnown>,
    },
    /// They could not be started.
    NotStarted {
        /// The incarnation.
        epoch: u64,
        /// The reason.
        reason: String,
    },
    /// A process has said something; its bytes or state come with the message.
    Said {
        /// The incarnation.
        epoch: u64,
        /// The process's number.
        process: usize,
        /// What it has said.
        event: ProcessEvent,
    },
    /// A process has ended.
    Left {
        /// The incarnation.
        epoch: u64,
        /// The process's number.
        process: usize,
        /// How.
        exit: Exit,
    },
    /// It was asked to leave.
    Leaving,
    /// No process of the incarnation is left.
    Ended {
        /// The incarnation.
        epoch: u64,
    },
    /// A beat of the lease of an incarnation ([`slackwater_control::lease`]).
    Beat {
        /// What it says.
        #[serde(with = "BeatData")]
        beat: Beat,
        /// What the agent knows of the orchestrator's clock.
        clock: Option<ClockKnown>,
    },
}

/// How far the orchestrator's clock is ahead of an agent's, and how wrong that may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockKnown {
    /// How far it is ahead.
    pub offset_ns: i64,
    /// The truth is at most so far from it.
    pub error_ns: u64,
}

/// [`Beat`] as data; the crate that defines it has no serialization.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Beat")]
struct BeatData {
    epoch: u64,
    number: u64,
    is_silent: bool,
}

/// [`Answer`] as data.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Answer")]
struct AnswerData {
    epoch: u64,
    number: u64,
    is_granted: bool,
}
