//! The counters of worker processes, as they cross the control sockets.

use serde::{Deserialize, Serialize};
use slackwater_engine::counters::{InstanceCounters, LinkCounters};
use slackwater_engine::deploy::LinkSide;

use crate::notices::Noticed;
use crate::report::DeadLetterFile;

/// What a worker process has counted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// The counts of its instances, with their numbers.
    pub instances: Vec<(usize, InstanceCounts)>,
    /// Bytes that its sources have read, by node.
    pub bytes_read: Vec<(usize, u64)>,
    /// The CPU time of all threads of the process.
    pub cpu_s: f64,
}

/// The slots of [`InstanceCounters`], apart from those of its steps; of these only what sinks know
/// of their latency.
#[derive(Debug, Serialize, Deserialize)]
pub struct InstanceCounts {
    slots: [u64; 13],
    late_by_source: Vec<u64>,
    /// The slots that are not zero, by step.
    latencies: Vec<(usize, Vec<(usize, u64)>)>,
}

impl InstanceCounts {
    pub fn of(counters: &InstanceCounters) -> InstanceCounts {
        // Read before the late rows by source: what a worker counts in between must not seem to come from
        // no source.
        let slots = slots(counters).map(InstanceCounters::read);
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
            Some((step, latency.filled()))
        });
        InstanceCounts {
            slots,
            late_by_source,
            latencies: latencies.collect(),
        }
    }

    /// Puts the counts into slots that nobody else writes.
    pub fn store(&self, counters: &InstanceCounters) {
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

fn slots(counters: &InstanceCounters) -> [&std::sync::atomic::AtomicU64; 13] {
    [
        &counters.rows_in,
        &counters.rows_out,
        &counters.rows_late,
        &counters.rows_bad,
        &counters.connections_lost,
        &counters.chunks,
        &counters.latency_recent_ns,
        &counters.parsers,
        &counters.parsers_busy_ns,
        &counters.state_bytes,
        &counters.state_bytes_max,
        &counters.watermark,
        &counters.silent,
    ]
}

/// What one side of a link between processes has counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkCounts {
    /// The link's number.
    pub link: usize,
    /// Whether this is the sending side.
    pub sends: bool,
    /// The number of messages.
    pub messages: u64,
    /// The rows in them.
    pub rows: u64,
    /// The bytes of the messages' frames.
    pub bytes: u64,
    /// The bytes of a message at most, at the sending side; `None` if chunks are sent whole.
    pub message_bytes: Option<usize>,
    /// The seconds spent on the link.
    pub busy_s: f64,
}

impl From<&LinkSide> for LinkCounts {
    fn from(side: &LinkSide) -> LinkCounts {
        let LinkCounters {
            messages,
            rows,
            bytes,
            busy_ns,
            message_bytes: _,
        } = &*side.counters;
        LinkCounts {
            link: side.link,
            sends: side.sends,
            messages: InstanceCounters::read(messages),
            rows: InstanceCounters::read(rows),
            message_bytes: side.counters.message_bytes(),
            bytes: InstanceCounters::read(bytes),
            busy_s: InstanceCounters::read(busy_ns) as f64 / 1e9,
        }
    }
}

/// What a worker process used, by its own measurement.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// The process id.
    pub pid: u32,
    /// The CPU time of all threads of the process.
    pub cpu_s: f64,
    /// The largest resident size.
    pub peak_rss_bytes: u64,
    /// The number of voluntary context switches.
    pub wakeups: u64,
    /// How often the process was asked for its activity, for a latency target.
    pub looks: u64,
    /// How often a worker was told how to wait, or a source how to cut its rows into chunks.
    pub settings: u64,
}

/// The final counts of a worker process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FinalCounts {
    /// The process's number.
    pub process: usize,
    /// The counters.
    pub counts: Counts,
    /// The process's sides of links.
    pub links: Vec<LinkCounts>,
    /// The dead-letter files that the process wrote to.
    pub dead_letters: Vec<DeadLetterFile>,
    /// What the process's sources noticed about their rows.
    pub noticed: Vec<Noticed>,
    /// Connections to its links that were refused, of earlier incarnations and of strangers.
    pub refused: (u64, u64),
    /// The resources that the process used.
    pub usage: ProcessUsage,
}
