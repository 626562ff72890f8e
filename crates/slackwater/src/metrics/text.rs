//! The page for Prometheus. Its names are fixed, because dashboards and alerts read them: `docs/metrics.md`.

use slackwater_engine::latency::upper_ns;
use slackwater_serve::prometheus::{Kind, Page};

use super::snapshot::{SinkCounts, Snapshot};
use super::unix_s;

/// The upper bounds of the latency histogram: six in each power of ten, from 0.1 ms to 100 s, in nanoseconds.
/// A sink's slots, of 3 %, are counted up to the last bound that none of their latencies exceeds.
const BOUNDS_NS: [u64; 37] = bounds_ns();

const fn bounds_ns() -> [u64; 37] {
    let within = [100_000, 150_000, 200_000, 300_000, 500_000, 700_000];
    let mut bounds = [100_000_000_000; 37];
    let (mut index, mut factor) = (0, 1);
    while index < 36 {
        bounds[index] = within[index % 6] * factor;
        index += 1;
        if index % 6 == 0 {
            factor *= 10;
        }
    }
    bounds
}

/// What all processes of a run have used together.
pub struct Totals {
    /// Their CPU time.
    pub cpu_s: f64,
    /// The memory that they hold.
    pub resident_bytes: u64,
    /// The number of restarts.
    pub restarts: u64,
}

/// The page, `with_partitions` if each partition is shown.
pub fn page(pipeline: &str, counts: &Snapshot, totals: &Totals, with_partitions: bool) -> String {
    let mut page = Page::default();
    let own = ("pipeline", pipeline);
    sources(&mut page, pipeline, counts);
    if with_partitions {
        partitions(&mut page, pipeline, counts);
    }
    sinks(&mut page, pipeline, counts);
    operators(&mut page, pipeline, counts);
    workers(&mut page, pipeline, counts);
    checkpoints(&mut page, pipeline, counts);
    hosts(&mut page, pipeline, counts);
    page.family(
        "slackwater_restarts_total",
        Kind::Counter,
        "Restarts after a failure.",
    )
    .sample(&[own], totals.restarts as f64);
    page.family(
        "slackwater_cpu_seconds_total",
        Kind::Counter,
        "CPU time of all processes of the run.",
    )
    .sample(&[own], totals.cpu_s);
    page.family(
        "slackwater_resident_memory_bytes",
        Kind::Gauge,
        "Memory that all processes of the run hold.",
    )
    .sample(&[own], totals.resident_bytes as f64);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.family(
        "slackwater_build_info",
        Kind::Gauge,
        "The version of the program; the value is 1.",
    )
    .sample(&version, 1.0);
    page.family(
        "process_cpu_seconds_total",
        Kind::Counter,
        "CPU time of this process and its worker processes.",
    )
    .sample(&[], totals.cpu_s);
    page.family(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Memory that this process and its worker processes hold.",
    )
    .sample(&[], totals.resident_bytes as f64);
    page.into_text()
}

/// The hosts, if there are to be several.
fn hosts(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let Some(hosts) = &counts.hosts else {
        return;
    };
    let own = [("pipeline", pipeline)];
    let gauges = [
        (
            "slackwater_hosts_wanted",
            "How many hosts the query wants, within --hosts MIN..MAX.",
            hosts.wanted,
        ),
        (
            "slackwater_hosts_used",
            "How many hosts the query runs on.",
            hosts.used,
        ),
        (
            "slackwater_hosts_joined",
            "How many hosts have joined the query, used or not.",
            hosts.joined,
        ),
    ];
    for (name, help, count) in gauges {
        let mut family = page.family(name, Kind::Gauge, help);
        family.sample(&own, count as f64);
    }
}

fn sources(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let of = |page: &mut Page, name, help, pick: fn(&super::snapshot::SourceCounts) -> u64| {
        let mut family = page.family(name, Kind::Counter, help);
        for (table, source) in &counts.sources {
            let labels = [("pipeline", pipeline), ("table", table)];
            family.sample(&labels, pick(source) as f64);
        }
    };
    of(
        page,
        "slackwater_source_rows_total",
        "Records read, bad ones included.",
        |source| source.rows,
    );
    of(
        page,
        "slackwater_source_bytes_total",
        "Bytes read; 0 if the connector doesn't count them.",
        |source| source.bytes,
    );
    of(
        page,
        "slackwater_source_connections_lost_total",
        "Connections that broke, or whose peer left.",
        |source| source.connections_lost,
    );
    refused(
        page,
        pipeline,
        counts,
        (
            "slackwater_rows_late_total",
            "Rows that came after all their windows were closed, once per windowing operator.",
        ),
        (|source| source.late, counts.unknown[0]),
    );
    refused(
        page,
        pipeline,
        counts,
        (
            "slackwater_rows_bad_total",
            "Records that were rejected, and rejected rows that were computed from them.",
        ),
        (|source| source.bad, counts.unknown[1]),
    );
    let mut family = page.family(
        "slackwater_watermark_timestamp_seconds",
        Kind::Gauge,
        "The event time up to which rows are complete, as seconds since 1970.",
    );
    for (table, source) in &counts.sources {
        if let Some(time_us) = source.watermark_us {
            let labels = [("pipeline", pipeline), ("table", table)];
            family.sample(&labels, time_us as f64 / 1e6);
        }
    }
}

/// The watermarks of partitions: those that hold others back first.
fn partitions(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let mut family = page.family(
        "slackwater_partition_watermark_timestamp_seconds",
        Kind::Gauge,
        "The watermark of a partition, as seconds since 1970.",
    );
    for (table, partition) in &counts.partitions {
        if let Some((name, time_us)) = partition.watermark() {
            let labels = [
                ("pipeline", pipeline),
                ("table", table),
                ("partition", name),
            ];
            family.sample(&labels, time_us as f64 / 1e6);
        }
    }
}

/// Late or bad rows by table. Those that come from no single one have an empty name, which for Prometheus is
/// no label.
fn refused(
    page: &mut Page,
    pipeline: &str,
    counts: &Snapshot,
    (name, help): (&'static str, &'static str),
    (pick, unknown): (fn(&super::snapshot::SourceCounts) -> u64, u64),
) {
    let mut family = page.family(name, Kind::Counter, help);
    for (table, source) in &counts.sources {
        let labels = [("pipeline", pipeline), ("table", table)];
        family.sample(&labels, pick(source) as f64);
    }
    if unknown > 0 {
        let labels = [("pipeline", pipeline), ("table", "")];
        family.sample(&labels, unknown as f64);
    }
}

fn sinks(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let mut family = page.family(
        "slackwater_sink_rows_total",
        Kind::Counter,
        "Rows handed to sinks.",
    );
    for (table, sink) in &counts.sinks {
        let labels = [("pipeline", pipeline), ("table", table)];
        family.sample(&labels, sink.rows as f64);
    }
    let mut family = page.family(
        "slackwater_sink_latency_seconds",
        Kind::Histogram,
        "The time from the arrival of the last record that a row needed to the row's leaving.",
    );
    for (table, sink) in &counts.sinks {
        let labels = [("pipeline", pipeline), ("table", table)];
        let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9);
        let (buckets, rows, sum_s) = histogram(sink);
        family.histogram(&labels, bounds.zip(buckets), rows, sum_s);
    }
    let mut family = page.family(
        "slackwater_latency_target_seconds",
        Kind::Gauge,
        "The latency that 99 of 100 rows are to stay below.",
    );
    for (table, sink) in &counts.sinks {
        if let Some(target_ns) = sink.target_ns {
            let labels = [("pipeline", pipeline), ("table", table)];
            family.sample(&labels, target_ns as f64 / 1e9);
        }
    }
    let mut family = page.family(
        "slackwater_target_violated_seconds_total",
        Kind::Counter,
        "How long more than one row in a hundred was later than the target.",
    );
    for (table, sink) in &counts.sinks {
        if sink.target_ns.is_some() {
            let labels = [("pipeline", pipeline), ("table", table)];
            family.sample(&labels, sink.violated_ns as f64 / 1e9);
        }
    }
}

/// The rows up to each bound, all rows, and the sum of their latencies, taken as the middle of their slots.
fn histogram(sink: &SinkCounts) -> ([u64; BOUNDS_NS.len()], u64, f64) {
    let mut buckets = [0; BOUNDS_NS.len()];
    let (mut all, mut sum_ns) = (0, 0.0);
    for (slot, rows) in sink.latencies.iter().enumerate() {
        let upper_ns = upper_ns(slot);
        let lower_ns = slot
            .checked_sub(1)
            .map_or(0, slackwater_engine::latency::upper_ns);
        sum_ns += *rows as f64 * (lower_ns + upper_ns) as f64 / 2.0;
        all += rows;
        let first = BOUNDS_NS.partition_point(|bound| *bound < upper_ns);
        buckets[first..]
            .iter_mut()
            .for_each(|bucket| *bucket += rows);
    }
    (buckets, all, sum_ns / 1e9)
}

fn operators(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let of =
        |page: &mut Page, name, kind, help, pick: fn(&super::snapshot::OperatorCounts) -> f64| {
            let mut family = page.family(name, kind, help);
            for (node, operator) in counts.operators.iter().enumerate() {
                let labels = [
                    ("pipeline", pipeline),
                    ("node", &*node.to_string()),
                    ("operator", &*operator.name),
                ];
                family.sample(&labels, pick(operator));
            }
        };
    of(
        page,
        "slackwater_operator_rows_total",
        Kind::Counter,
        "Rows that the operator took.",
        |operator| operator.rows as f64,
    );
    of(
        page,
        "slackwater_operator_busy_seconds_total",
        Kind::Counter,
        "Time spent in the operator: CPU time unless a thread was preempted meanwhile.",
        |operator| operator.busy_s,
    );
    of(
        page,
        "slackwater_operator_state_bytes",
        Kind::Gauge,
        "Bytes that the operator holds, as last measured.",
        |operator| operator.state_bytes as f64,
    );
}

fn workers(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let mut family = page.family(
        "slackwater_worker_cpu_seconds_total",
        Kind::Counter,
        "CPU time of the worker's thread.",
    );
    for (worker, used) in &counts.workers {
        if let Some(cpu_s) = used.cpu_s {
            let labels = [("pipeline", pipeline), ("worker", &*worker.to_string())];
            family.sample(&labels, cpu_s);
        }
    }
    let mut family = page.family(
        "slackwater_worker_wakeups_total",
        Kind::Counter,
        "How often the worker's thread went to sleep and was woken.",
    );
    for (worker, used) in &counts.workers {
        if let Some(wakeups) = used.wakeups {
            let labels = [("pipeline", pipeline), ("worker", &*worker.to_string())];
            family.sample(&labels, wakeups as f64);
        }
    }
}

fn checkpoints(page: &mut Page, pipeline: &str, counts: &Snapshot) {
    let Some(taken) = &counts.checkpoints else {
        return;
    };
    let own = ("pipeline", pipeline);
    page.family(
        "slackwater_checkpoints_total",
        Kind::Counter,
        "Checkpoints by result: stored or aborted.",
    )
    .sample(&[own, ("result", "stored")], taken.stored as f64)
    .sample(&[own, ("result", "aborted")], taken.aborted as f64);
    page.family(
        "slackwater_checkpoint_duration_seconds",
        Kind::Summary,
        "The time from the barrier to the stored checkpoint.",
    )
    .summary(&[own], taken.total_ns as f64 / 1e9, taken.stored);
    page.family(
        "slackwater_checkpoint_bytes",
        Kind::Summary,
        "Bytes of state stored per checkpoint.",
    )
    .summary(&[own], taken.bytes as f64, taken.stored);
    if let Some(last) = taken.last {
        page.family(
            "slackwater_last_checkpoint_timestamp_seconds",
            Kind::Gauge,
            "When this run stored its last checkpoint, as seconds since 1970.",
        )
        .sample(&[own], unix_s(last));
    }
    if let Some(standby) = taken.standby {
        page.family(
            "slackwater_standby_connected",
            Kind::Gauge,
            "Whether a standby follows: 1 or 0.",
        )
        .sample(&[own], f64::from(u8::from(standby.is_connected)));
        page.family(
            "slackwater_standby_checkpoints_behind",
            Kind::Gauge,
            "How many checkpoints what the standby holds is behind the newest one.",
        )
        .sample(&[own], standby.behind as f64);
    }
}
