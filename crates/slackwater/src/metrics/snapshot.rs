//! The counts of a query at one moment.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;

use crate::cluster::HostsKnown;
use crate::doctor::Examination;
use crate::report::PartitionReport;

/// The most partitions that are shown: 200 bytes of JSON each.
const PARTITIONS_MAX: usize = 50;

/// What a query has counted, and how it stands.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The sources, by table.
    pub sources: BTreeMap<String, SourceCounts>,
    /// The sinks, by table.
    pub sinks: BTreeMap<String, SinkCounts>,
    /// The operators, by node of the query graph.
    pub operators: Vec<OperatorCounts>,
    /// The workers, by number.
    pub workers: BTreeMap<usize, WorkerCounts>,
    /// Late and bad rows that come from no single source.
    pub unknown: [u64; 2],
    /// The checkpoints, if the query takes any.
    pub checkpoints: Option<CheckpointCounts>,
    /// The partitions that are shown, with their tables.
    pub partitions: Vec<(String, Partition)>,
    /// How many partitions are not shown.
    pub partitions_left_out: usize,
    /// Why nothing comes out, and why rows are late.
    pub diagnosis: Vec<String>,
    /// The hosts, if there are to be several.
    pub hosts: Option<HostsKnown>,
    /// The CPU time of worker processes that run.
    pub processes_cpu_s: f64,
    /// The memory of worker processes that run.
    pub processes_resident_bytes: u64,
}

/// A partition of a source.
#[derive(Debug, Clone, Serialize)]
pub struct Partition {
    name: String,
    /// `active`, `idle` or `ended`.
    state: String,
    holds_back: bool,
    rows: u64,
    rows_late: u64,
    watermark: Option<String>,
    #[serde(skip)]
    watermark_us: Option<i64>,
    silent_s: Option<f64>,
}

/// A source.
#[derive(Debug, Clone, Default)]
pub struct SourceCounts {
    /// Records read, bad ones included.
    pub rows: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Late rows, once per windowing operator.
    pub late: u64,
    /// Rejected records, and rejected rows that were computed from them.
    pub bad: u64,
    /// Lost connections.
    pub connections_lost: u64,
    /// The watermark in microseconds.
    pub watermark_us: Option<i64>,
}

/// A sink.
#[derive(Debug, Clone, Default)]
pub struct SinkCounts {
    /// Rows written.
    pub rows: u64,
    /// The rows by slot of their latency.
    pub latencies: Vec<u64>,
    /// The latency target.
    pub target_ns: Option<u64>,
    /// How long it was violated, by the instance that violated it longest.
    pub violated_ns: u64,
}

/// An operator, a source or a sink.
#[derive(Debug, Clone, Default)]
pub struct OperatorCounts {
    /// The operator's name.
    pub name: String,
    /// The seconds spent in it.
    pub busy_s: f64,
    /// The rows that it took.
    pub rows: u64,
    /// The bytes that it holds.
    pub state_bytes: u64,
    /// The rows that were sent to it over links, and that it has not taken.
    pub waiting: Option<u64>,
}

/// A worker.
#[derive(Debug, Clone, Default)]
pub struct WorkerCounts {
    /// The CPU time; `None` if the system doesn't count it.
    pub cpu_s: Option<f64>,
    /// How often it was woken.
    pub wakeups: Option<u64>,
}

/// The checkpoints of an incarnation.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointCounts {
    /// Checkpoints that were stored.
    pub stored: u64,
    /// Checkpoints that were abandoned.
    pub aborted: u64,
    /// The time that the stored ones took.
    pub total_ns: u64,
    /// The bytes of state in them.
    pub bytes: u64,
    /// When the last one was stored.
    pub last: Option<SystemTime>,
    /// The standby, if one may follow.
    pub standby: Option<StandbyCounts>,
}

/// A standby, if one follows.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandbyCounts {
    /// Whether one follows.
    pub is_connected: bool,
    /// How many records of the store it is behind the newest checkpoint.
    pub behind: u64,
}

impl Snapshot {
    /// Adds the counts of a later incarnation, and takes over how it stands.
    pub fn add(&mut self, later: Snapshot) {
        for (table, counts) in later.sources {
            self.sources.entry(table).or_default().add(&counts);
        }
        for (table, counts) in later.sinks {
            self.sinks.entry(table).or_default().add(&counts);
        }
        let nodes = later.operators.len().max(self.operators.len());
        self.operators.resize_with(nodes, OperatorCounts::default);
        for (own, counts) in self.operators.iter_mut().zip(later.operators) {
            own.name = counts.name;
            own.busy_s += counts.busy_s;
            own.rows += counts.rows;
            own.state_bytes = counts.state_bytes;
            own.waiting = counts.waiting;
        }
        for (worker, counts) in later.workers {
            let own = self.workers.entry(worker).or_default();
            own.cpu_s = sum(own.cpu_s, counts.cpu_s);
            own.wakeups = sum(own.wakeups, counts.wakeups);
        }
        for (own, rows) in self.unknown.iter_mut().zip(later.unknown) {
            *own += rows;
        }
        if let Some(counts) = later.checkpoints {
            self.checkpoints.get_or_insert_default().add(&counts);
        }
        self.partitions = later.partitions;
        self.partitions_left_out = later.partitions_left_out;
        self.diagnosis = later.diagnosis;
        self.hosts = later.hosts.or(self.hosts);
        self.processes_cpu_s += later.processes_cpu_s;
        self.processes_resident_bytes = later.processes_resident_bytes;
    }

    /// Does not fall behind an earlier look at the same incarnation. While workers count, the rows of no
    /// single source may seem to be fewer than they are, never more.
    pub fn keep_up_with(&mut self, earlier: &Snapshot) {
        for (own, rows) in self.unknown.iter_mut().zip(earlier.unknown) {
            *own = (*own).max(rows);
        }
    }

    /// Shows what sources have said of their partitions: those that hold others back and those with the most
    /// late rows first.
    pub fn show_partitions(&mut self, examination: Examination) {
        let sources = examination.sources.into_iter();
        let all = sources.flat_map(|(_, source)| {
            let table = source.table;
            let partitions = source.partitions.into_iter();
            partitions.map(move |partition| (table.clone(), partition))
        });
        let mut all = all.collect::<Vec<_>>();
        all.sort_by_key(|(_, partition)| (!partition.holds_back, Reverse(partition.rows_late)));
        self.partitions_left_out = all.len().saturating_sub(PARTITIONS_MAX);
        let shown = all.into_iter().take(PARTITIONS_MAX);
        let shown = shown.map(|(table, partition)| (table, Partition::from(partition)));
        self.partitions = shown.collect();
        self.diagnosis = examination.diagnosis;
    }

    /// All worker processes have ended.
    pub fn processes_ended(&mut self) {
        (self.processes_cpu_s, self.processes_resident_bytes) = (0.0, 0);
    }
}

impl Partition {
    /// Its name, and its watermark in microseconds.
    pub fn watermark(&self) -> Option<(&str, i64)> {
        Some((&self.name, self.watermark_us?))
    }
}

impl SourceCounts {
    /// Adds counts of the same table.
    pub fn add(&mut self, other: &SourceCounts) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.late += other.late;
        self.bad += other.bad;
        self.connections_lost += other.connections_lost;
        self.watermark_us = other.watermark_us.or(self.watermark_us);
    }
}

impl SinkCounts {
    /// Adds counts of the same table.
    pub fn add(&mut self, other: &SinkCounts) {
        self.rows += other.rows;
        let slots = self.latencies.len().max(other.latencies.len());
        self.latencies.resize(slots, 0);
        for (own, rows) in self.latencies.iter_mut().zip(&other.latencies) {
            *own += rows;
        }
        self.target_ns = other.target_ns.or(self.target_ns);
        self.violated_ns += other.violated_ns;
    }
}

impl CheckpointCounts {
    fn add(&mut self, later: &CheckpointCounts) {
        self.stored += later.stored;
        self.aborted += later.aborted;
        self.total_ns += later.total_ns;
        self.bytes += later.bytes;
        self.last = later.last.or(self.last);
        self.standby = later.standby;
    }
}

/// The sum of what is known.
fn sum<N: std::ops::Add<Output = N> + Default>(one: Option<N>, other: Option<N>) -> Option<N> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or_default() + other.unwrap_or_default()),
    }
}

impl From<PartitionReport> for Partition {
    fn from(report: PartitionReport) -> Partition {
        Partition {
            name: report.name,
            state: report.state,
            holds_back: report.holds_back,
            rows: report.rows,
            rows_late: report.rows_late,
            watermark: report.watermark,
            watermark_us: report.watermark_us,
            silent_s: report.silent_s,
        }
    }
}
