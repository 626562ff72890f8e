//! What the parent and its worker processes say to each other.

use std::net::SocketAddr;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use slackwater_engine::Error;
use slackwater_engine::counters::{InstanceCounters, LinkCounters};
use slackwater_engine::deploy::LinkSide;
use slackwater_engine::instance::SinkResult;
use slackwater_engine::latency::Seconds;

use crate::calibrate::WaitCosts;
use crate::catalog::DeadLetterFile;
use crate::checkpoints::{self, Incarnation};
use crate::costs::Learned;
use crate::machine::Described;
use crate::notices::{Noticed, Said};
use crate::processes::moving::{BarrierNote, HandoverNote, StepCounts};

/// From the parent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Your part. A socket to each other process comes with it, in order of their numbers.
    Start(Box<Start>),
    /// Where the processes listen, by number, when links are TCP.
    Connect(Vec<Option<SocketAddr>>),
    /// End the sources.
    Stop,
    /// Drop the query.
    Remove,
    /// Say what was counted so far.
    Count,
    /// Let the sources send a barrier.
    Barrier(BarrierNote),
    /// State for one of your instances comes with it.
    TakeOver(HandoverNote),
    /// Aggregate rows before they are sent to this node.
    Combine(usize),
    /// Say what steps and buckets have counted so far.
    Look,
    /// Say when something is done.
    TellWhenActive,
    /// Sinks commit what they have prepared up to a barrier.
    Commit(u64),
    /// Say what it came to, and exit.
    Finish,
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
    /// Where checkpoints are kept, and which one it goes on from, if the query takes any.
    pub incarnation: Option<Incarnation>,
}

/// From a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// It listens here for links.
    Listens(Option<SocketAddr>),
    /// It could not start.
    Refused(String),
    /// An instance has ended.
    Ended {
        /// Its number.
        instance: usize,
        /// Its sinks.
        sinks: Vec<SinkCounts>,
    },
    /// An instance has failed.
    Failed {
        /// Its number.
        instance: usize,
        /// Its sinks.
        sinks: Vec<SinkCounts>,
        /// Why.
        error: Failed,
    },
    /// What was counted so far.
    Counted(Counts),
    /// What steps and buckets have counted so far.
    Looked(Vec<StepCounts>),
    /// Something was done after a silence.
    Active,
    /// About a checkpoint.
    Checkpoint(checkpoints::Word),
    /// Its operators hold more than they may.
    OverBudget {
        /// What they hold, in bytes.
        held: u64,
        /// What they may.
        limit: u64,
    },
    /// State for an instance of another process, which comes with it.
    Handover(HandoverNote),
    /// An instance has taken part in a move of buckets.
    Moved {
        /// Its number.
        instance: usize,
        /// The barrier's number.
        barrier: u64,
    },
    /// What the user should know of what is read.
    Said(Said),
    /// What it came to; nothing follows.
    Finished(Box<Farewell>),
}

/// An error of the engine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    place: String,
    reason: String,
    mend: String,
    consequence: bool,
    is_final: bool,
}

impl From<&Error> for Failed {
    fn from(error: &Error) -> Failed {
        Failed {
            place: error.place.clone(),
            reason: error.reason.clone(),
            mend: error.mend.clone(),
            consequence: error.consequence,
            is_final: error.is_final,
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        Error {
            place: failed.place,
            reason: failed.reason,
            mend: failed.mend,
            consequence: failed.consequence,
            is_final: failed.is_final,
        }
    }
}

/// What a sink has measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct SinkCounts {
    node: usize,
    rows: u64,
    /// Latency in microseconds, and how many rows had it.
    latencies_us: Vec<(u64, u64)>,
    /// For how long rows left, and for how much of that the target was violated.
    active_ns: u64,
    violated_ns: u64,
    connections_lost: u64,
}

impl From<&SinkResult> for SinkCounts {
    fn from(result: &SinkResult) -> SinkCounts {
        let recorded = result.latencies_us.iter_recorded();
        let latencies_us =
            recorded.map(|value| (value.value_iterated_to(), value.count_at_value()));
        SinkCounts {
            node: result.node,
            rows: result.rows,
            latencies_us: latencies_us.collect(),
            active_ns: result.seconds.active_ns,
            violated_ns: result.seconds.violated_ns,
            connections_lost: result.connections_lost,
        }
    }
}

impl From<SinkCounts> for SinkResult {
    fn from(counts: SinkCounts) -> SinkResult {
        let mut latencies_us = Histogram::new(3).expect("3 digits are supported");
        for (value, count) in counts.latencies_us {
            // An auto-resizing histogram takes any value.
            let _ = latencies_us.record_n(value, count);
        }
        SinkResult {
            node: counts.node,
            rows: counts.rows,
            latencies_us,
            seconds: Seconds::of(counts.active_ns, counts.violated_ns),
            connections_lost: counts.connections_lost,
        }
    }
}

/// What a worker process has counted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Of its instances, with their numbers.
    pub instances: Vec<(usize, InstanceCounts)>,
    /// Bytes that its sources have read, by node.
    pub bytes_read: Vec<(usize, u64)>,
    /// CPU time of all its threads.
    pub cpu_s: f64,
}

/// The slots of [`InstanceCounters`], apart from those of its steps; of these only what sinks with a target know of
/// their latency, which `--live` draws.
#[derive(Debug, Serialize, Deserialize)]
pub struct InstanceCounts {
    slots: [u64; 9],
    late_by_source: Vec<u64>,
    /// By step, the slots that hold something.
    latencies: Vec<(usize, Vec<(usize, u64)>)>,
}

impl InstanceCounts {
    pub(super) fn of(counters: &InstanceCounters) -> InstanceCounts {
        let mut late_by_source = counters
            .late_by_source
            .each_ref()
            .map(InstanceCounters::read)
            .to_vec();
        // Most queries have one source.
        let used = late_by_source.iter().rposition(|rows| *rows > 0);
        late_by_source.truncate(used.map_or(0, |last| last + 1));
        let steps = counters.steps.iter().enumerate();
        let latencies = steps.filter_map(|(step, slots)| {
            let latency = slots.latency.as_ref()?;
            Some((step, latency.filled().collect()))
        });
        InstanceCounts {
            slots: slots(counters).map(InstanceCounters::read),
            late_by_source,
            latencies: latencies.collect(),
        }
    }

    /// Puts the counts into slots that nobody else writes.
    pub(super) fn store(&self, counters: &InstanceCounters) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        for (slot, count) in slots(counters).into_iter().zip(self.slots) {
            slot.store(count, relaxed);
        }
        for (slot, count) in counters.late_by_source.iter().zip(&self.late_by_source) {
            slot.store(*count, relaxed);
        }
        for (step, filled) in &self.latencies {
            let slots = counters.steps.get(*step);
            if let Some(latency) = slots.and_then(|slots| slots.latency.as_ref()) {
                filled
                    .iter()
                    .for_each(|(slot, rows)| latency.store(*slot, *rows));
            }
        }
    }
}

fn slots(counters: &InstanceCounters) -> [&std::sync::atomic::AtomicU64; 9] {
    [
        &counters.rows_in,
        &counters.rows_out,
        &counters.rows_late,
        &counters.rows_bad,
        &counters.connections_lost,
        &counters.chunks,
        &counters.latency_recent_ns,
        &counters.state_bytes,
        &counters.state_bytes_max,
    ]
}

/// What one side of a link between processes has counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkCounts {
    /// The link's number.
    pub link: usize,
    /// The sending side, else the receiving one.
    pub sends: bool,
    /// Messages.
    pub messages: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Seconds spent on it.
    pub busy_s: f64,
}

impl From<&LinkSide> for LinkCounts {
    fn from(side: &LinkSide) -> LinkCounts {
        let LinkCounters {
            messages,
            bytes,
            busy_ns,
        } = &*side.counters;
        LinkCounts {
            link: side.link,
            sends: side.sends,
            messages: InstanceCounters::read(messages),
            bytes: InstanceCounters::read(bytes),
            busy_s: InstanceCounters::read(busy_ns) as f64 / 1e9,
        }
    }
}

/// What a worker process used, as it says itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Process id.
    pub pid: u32,
    /// CPU time of all its threads.
    pub cpu_s: f64,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
    /// Voluntary context switches.
    pub wakeups: u64,
}

/// The last that a worker process says.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Farewell {
    /// Its number.
    pub process: usize,
    /// What it counted.
    pub counts: Counts,
    /// What its steps counted.
    pub steps: Vec<StepCounts>,
    /// Its sides of links.
    pub links: Vec<LinkCounts>,
    /// Dead-letter files that it wrote to.
    pub dead_letters: Vec<DeadLetterFile>,
    /// What its sources noticed of their rows.
    pub noticed: Vec<Noticed>,
    /// What it used.
    pub usage: ProcessUsage,
}
