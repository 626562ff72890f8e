//! What the page is shown: the counts as JSON. All of them grow; the page takes differences.

use serde::Serialize;
use slackwater_engine::latency::upper_ns;

use super::bad_rows::BadRow;
use crate::cluster::HostsKnown;

use super::snapshot::{OperatorCounts, Partition, SinkCounts, Snapshot, SourceCounts};
use super::text::Totals;
use super::unix_s;

/// How a query stands.
#[derive(Serialize)]
struct Counts<'a> {
    /// Seconds since the run started, by a clock that never jumps.
    at_s: f64,
    status: &'static str,
    restarts: u64,
    cpu_s: f64,
    resident_bytes: u64,
    sources: Vec<Source<'a>>,
    partitions: Vec<OfTable<'a>>,
    partitions_left_out: usize,
    diagnosis: &'a [String],
    /// Late and bad rows of no single source.
    late_elsewhere: u64,
    bad_elsewhere: u64,
    sinks: Vec<Sink<'a>>,
    /// By node of the query graph.
    nodes: Vec<Node>,
    workers: Vec<Worker>,
    /// The hosts, if there are to be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<HostsKnown>,
    checkpoints: Option<Checkpoints>,
    /// The last rejected records.
    bad_rows: &'a [BadRow],
}

#[derive(Serialize)]
struct Source<'a> {
    table: &'a str,
    rows: u64,
    bytes: u64,
    late: u64,
    bad: u64,
    connections_lost: u64,
    /// The watermark in milliseconds since 1970.
    watermark_ms: Option<i64>,
}

#[derive(Serialize)]
struct OfTable<'a> {
    table: &'a str,
    #[serde(flatten)]
    partition: &'a Partition,
}

#[derive(Serialize)]
struct Sink<'a> {
    table: &'a str,
    rows: u64,
    target_ms: Option<f64>,
    violated_s: f64,
    /// Pairs of a latency in milliseconds and the rows up to it, above the one before.
    latency: Vec<(f64, u64)>,
}

#[derive(Serialize)]
struct Node {
    rows: u64,
    busy_s: f64,
    state_bytes: u64,
    /// Rows that were sent to it over links, and that it has not taken.
    waiting: Option<u64>,
}

#[derive(Serialize)]
struct Worker {
    worker: usize,
    cpu_s: Option<f64>,
    wakeups: Option<u64>,
}

#[derive(Serialize)]
struct Checkpoints {
    stored: u64,
    aborted: u64,
    total_s: f64,
    bytes: u64,
    last_s: Option<f64>,
}

/// The counts as one line of JSON.
pub fn json(
    (at_s, status): (f64, &'static str),
    counts: &Snapshot,
    totals: &Totals,
    bad_rows: &[BadRow],
) -> String {
    let sources = counts.sources.iter().map(Source::of);
    let partitions = counts.partitions.iter();
    let partitions = partitions.map(|(table, partition)| OfTable { table, partition });
    let sinks = counts.sinks.iter().map(Sink::of);
    let workers = counts.workers.iter().map(|(&worker, used)| Worker {
        worker,
        cpu_s: used.cpu_s,
        wakeups: used.wakeups,
    });
    let counts = Counts {
        at_s,
        status,
        restarts: totals.restarts,
        cpu_s: totals.cpu_s,
        resident_bytes: totals.resident_bytes,
        sources: sources.collect(),
        partitions: partitions.collect(),
        partitions_left_out: counts.partitions_left_out,
        diagnosis: &counts.diagnosis,
        late_elsewhere: counts.unknown[0],
        bad_elsewhere: counts.unknown[1],
        sinks: sinks.collect(),
        nodes: counts.operators.iter().map(Node::of).collect(),
        workers: workers.collect(),
        hosts: counts.hosts,
        checkpoints: counts.checkpoints.as_ref().map(|taken| Checkpoints {
            stored: taken.stored,
            aborted: taken.aborted,
            total_s: taken.total_ns as f64 / 1e9,
            bytes: taken.bytes,
            last_s: taken.last.map(unix_s),
        }),
        bad_rows,
    };
    // Numbers and strings: it can't fail.
    serde_json::to_string(&counts).unwrap_or_default()
}

impl<'a> Source<'a> {
    fn of((table, counts): (&'a String, &SourceCounts)) -> Source<'a> {
        Source {
            table,
            rows: counts.rows,
            bytes: counts.bytes,
            late: counts.late,
            bad: counts.bad,
            connections_lost: counts.connections_lost,
            watermark_ms: counts.watermark_us.map(|us| us.div_euclid(1_000)),
        }
    }
}

impl<'a> Sink<'a> {
    fn of((table, counts): (&'a String, &SinkCounts)) -> Sink<'a> {
        let slots = counts.latencies.iter().enumerate();
        let filled = slots.filter(|(_, rows)| **rows > 0);
        // A slot ends just before a whole microsecond.
        let latency = filled.map(|(slot, rows)| ((upper_ns(slot) + 1) as f64 / 1e6, *rows));
        Sink {
            table,
            rows: counts.rows,
            target_ms: counts.target_ns.map(|ns| ns as f64 / 1e6),
            violated_s: counts.violated_ns as f64 / 1e9,
            latency: latency.collect(),
        }
    }
}

impl Node {
    fn of(counts: &OperatorCounts) -> Node {
        Node {
            rows: counts.rows,
            busy_s: counts.busy_s,
            state_bytes: counts.state_bytes,
            waiting: counts.waiting,
        }
    }
}
