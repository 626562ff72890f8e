//! Servers that follow slowly, on purpose: which core an instance of a replicated server runs on, how fast,
//! and how often it looks at what its master sent.
//!
//! A replica needs no fast core, only a bounded lag (Concerto: Lee and Lee, Appl. Sci. 2021, 11, 5731,
//! sections 3 and 4). One number is given, the lag that is allowed, and frequency and batching follow from
//! it, as sleeps follow from a latency target.
//!
//! ```text
//! Observation  →  lag, costs  →  roles  →  assign  →  beat, speed  →  Orders      (all of it: manager)
//! what servers     what they      who may    which      how rarely,    what the program sets;
//! and cores said   show           be slow    core       how slow       a reason with each
//!                                                                      energy: what it saved
//! ```
//!
//! Pure: no clock, no files, no sockets. Times are nanoseconds of one clock that never goes back as far as
//! the caller can help it; a clock that jumps makes decisions late or early, never wrong.

use std::collections::BTreeSet;

pub mod costs;
pub mod lag;

pub mod roles;

pub mod assign;

pub mod beat;
pub mod neighbors;
pub mod speed;

pub mod manager;

pub mod energy;

/// How far a replica may be behind if the configuration doesn't say so: it is guarded, but not batched.
pub const LAG_GUARD_NS: u64 = 100_000_000;

/// An instance, as the caller numbers them; never used again for another one.
pub type InstanceId = u64;

/// A core, as the kernel numbers them.
pub type Cpu = u32;

/// What is allowed, as the configuration says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How far a replica may be behind. Without it nothing is batched, and replicas are guarded as if it
    /// were 100 ms.
    pub lag_ns: Option<u64>,
    /// Which load a slow core must bear.
    pub policy: Policy,
    /// No core is set slower than this; without it, than its slowest frequency.
    pub floor_khz: Option<u32>,
    /// By how much a read at a replica may become slower, if reads are bounded.
    pub read_delay_ns: Option<u64>,
    /// How long a role must last before a core is slowed; 10 s.
    pub settle_ns: u64,
}

impl Limits {
    /// The lag that must not be exceeded.
    pub fn guard_ns(&self) -> u64 {
        self.lag_ns.unwrap_or(LAG_GUARD_NS)
    }
}

/// Which load a slow core must bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A master that is saturated from one moment to the next: by the ratio of the costs of a byte.
    Saturation,
    /// Half as much again as the most of the last minute.
    Load,
}

/// All that was found out for one decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// When.
    pub now_ns: u64,
    /// By how much a timed sleep of this host is longer than asked, in 99 of 100 cases.
    pub oversleep_p99_ns: u64,
    /// Every instance of this host, by its number.
    pub instances: Vec<Seen>,
}

/// An instance, as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The instance's number.
    pub instance: InstanceId,
    /// What it says that it is.
    pub role: Role,
    /// Why it must be fast for now, whatever its role, if it must: it saves a snapshot, loads, or somebody
    /// waits for its acknowledgements.
    pub busy: Option<Busy>,
    /// CPU time that it has used since it began, of all its threads.
    pub cpu_ns: u64,
    /// Bytes that it has received of its master and applied, or that it has sent as a master.
    pub offset: u64,
    /// Commands of clients, without those that a master sent, since it began.
    pub reads: u64,
    /// The frequency at which it ran since the last observation, if it was measured.
    pub mean_khz: Option<u32>,
}

/// What an instance says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It could not be asked, or gave no answer in time.
    Unknown,
    /// It takes writes.
    Master,
    /// It follows.
    Replica {
        /// The master, if that runs on this host.
        master: Option<InstanceId>,
        /// How the connection to it is.
        link: ReplicaLink,
        /// Bytes that the master has sent, asked before the replica's own offset, if it could be asked.
        master_offset: Option<u64>,
    },
}

/// How a replica's connection to its master is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaLink {
    /// It follows.
    Up,
    /// It receives a snapshot.
    Syncing,
    /// There is none.
    Down,
}

/// Why an instance must be fast for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// It loads its data.
    Loads,
    /// It saves a snapshot, by a child that inherits its core.
    Saves,
    /// Clients wait for replicas' acknowledgements, or the master stops without them.
    IsWaitedFor,
}

/// A core that may be slowed, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// The core.
    pub cpu: Cpu,
    /// The lowest and highest frequency that may be set; none if it can't be set.
    pub khz: Option<(u32, u32)>,
    /// Frequencies that it has, ascending; empty if any between the two will do.
    pub steps_khz: Vec<u32>,
    /// Cores that have the same clock, itself included, its siblings of one physical core among them.
    pub domain: BTreeSet<Cpu>,
    /// The NUMA node.
    pub node: u32,
}

/// What is to be set for an instance: all of it, as soon as any of it changes. Of an instance without an
/// order nothing changes. Of the orders of one answer, those that make faster come first.
///
/// A core on which no order puts an instance any more belongs to nobody: what was found there is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The instance.
    pub instance: InstanceId,
    /// The core that the instance is pinned to; none is wherever the system puts it.
    pub cpu: Option<Cpu>,
    /// The frequency of its core; none is the core's highest.
    pub khz: Option<u32>,
    /// How often it looks at what its master sent; none is at once.
    pub beat_ns: Option<u64>,
    /// Why.
    pub reason: Reason,
}

/// Why an instance is as fast as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is a master.
    Master,
    /// Nobody knows what it is.
    Unknown,
    /// Its master was lost: it may be promoted.
    MasterLost,
    /// The caller is about to promote it.
    Promoted,
    /// Its connection is down, or it receives a snapshot.
    NotFollowing,
    /// See [`Busy`].
    Busy(Busy),
    /// Its role is not settled.
    Settling,
    /// It follows, but how far it is behind, or what a byte costs, is not known.
    NotMeasured,
    /// It is behind by more than what is allowed.
    Lag,
    /// It follows, slowly.
    Follows,
    /// It follows, and no slower core would keep up.
    NeedsSpeed,
    /// It follows, and its core can't be slowed.
    NotSlowed(Obstacle),
    /// It is no longer there.
    Gone,
}

/// Why a core can't be slowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no core left for the instance that doesn't share its clock with a fast one.
    NoCore,
    /// The frequency of this core can't be set.
    NotSettable {
        /// The instance's core.
        cpu: Cpu,
    },
    /// The core shares its clock with one on which an instance has to be fast.
    SharesClock {
        /// The instance's core.
        cpu: Cpu,
        /// The other core, or the same one.
        with: Cpu,
        /// The instance there.
        fast: InstanceId,
    },
    /// The core shares its clock with one that the configuration wants to be fast.
    ListedFast {
        /// The instance's core.
        cpu: Cpu,
        /// The core that is listed.
        with: Cpu,
    },
    /// A master's core ran more slowly while this one was slow, although they share no clock.
    SlowsMaster {
        /// The instance's core.
        cpu: Cpu,
        /// The master.
        master: InstanceId,
    },
    /// An instance that has to be fast has no core, so the system may put it on any.
    Roams {
        /// That instance.
        fast: InstanceId,
    },
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Obstacle::NoCore => write!(f, "no core is left that shares its clock with no fast one"),
            Obstacle::NotSettable { cpu } => write!(f, "the frequency of cpu{cpu} can't be set"),
            Obstacle::SharesClock { cpu, with, fast } => {
                write!(
                    f,
                    "cpu{cpu} shares its clock with cpu{with} of instance {fast}, which has to be fast"
                )
            }
            Obstacle::ListedFast { cpu, with } => {
                write!(
                    f,
                    "cpu{cpu} shares its clock with cpu{with}, which is listed as fast"
                )
            }
            Obstacle::SlowsMaster { cpu, master } => {
                write!(
                    f,
                    "while cpu{cpu} was slow, the clock of instance {master}, a master, fell by more than 3 %"
                )
            }
            Obstacle::Roams { fast } => {
                write!(
                    f,
                    "instance {fast} has to be fast, and no core is left to pin it to"
                )
            }
        }
    }
}

#[cfg(test)]
mod simulation;
