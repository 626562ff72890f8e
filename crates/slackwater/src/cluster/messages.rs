//! The messages of a session.
//!
//! ```text
//! agent ── Hello ──► orchestrator     who it is, which program, what its host has
//!       ◄─ Welcome ─                  or Refused, with the reason
//!       ◄─ Start ─── Started ──►      processes of an incarnation, once its lease is granted; then
//!                                     Command and Said, both ways
//!       ◄─ End ───── Ended ────►
//!       ── Beat ───► Answer ◄──       a lease for each incarnation; while its processes work
//! ```

use serde::{Deserialize, Serialize};
use slackwater_control::lease::{Answer, Beat};

use crate::hosts::{Ask, Build, Exit, Facts, Found, Group, ProcessCommand, ProcessEvent};

/// The first message of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The program that it runs: both ends have to run the same.
    pub build: Build,
    /// The host.
    pub facts: Facts,
    /// The latest term of an orchestrator that it has joined.
    pub term: u64,
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
        host_timeout_ms: u64,
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
    /// It may leave, or the query is over; nothing follows.
    Over,
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
