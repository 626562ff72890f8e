//! What a run cost and how fast it was: the summary and `--report`.
//!
//! Field names are fixed, because scripts read them.

mod checkpoints;
mod copies;
mod hosts;
mod links;
mod partitions;
mod sinks;
mod sources;
mod threads;
mod tuning;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use checkpoints::{CheckpointReport, CommitDelay};
pub use copies::CopiesReport;
pub use hosts::{FencedReport, HostReport, RefusedReport};
pub use links::{LinkReport, LinkSideReport};
pub use partitions::{
    BehindReport, EventTimeReport, LateForReport, PartitionReport, ProposalReport,
};
pub use sources::{ParsersReport, SourceReport};
pub use threads::{ProcessReport, ThreadReport};
pub use tuning::{LatenessReport, TuningReport};

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Records read from all sources, bad ones included. A query that was restarted from a checkpoint counts
    /// each record of its answer once, here and in the three counts that follow.
    pub rows_in: u64,
    /// Rows handed to all sinks.
    pub rows_out: u64,
    /// Rows that came after all their windows were closed, once per windowing operator.
    pub rows_late: u64,
    /// Records and rows that were rejected.
    pub rows_bad: u64,
    /// The time from the start of the query to its end.
    pub wall_s: f64,
    /// CPU time of all processes, including compiling and planning, from the operating system. What a process
    /// has used before this query is not counted; what else it does during the query is.
    pub cpu_s: f64,
    /// CPU time per record read.
    pub cpu_us_per_row: Option<f64>,
    /// Records read per second.
    pub rows_per_s: f64,
    /// Largest resident size of the process.
    pub peak_rss_bytes: u64,
    /// The target, if there is one.
    pub latency_target_ms: Option<f64>,
    /// Latency over all sinks.
    pub latency_ms: Latency,
    /// Whether every sink's p99 met the target.
    pub target_met: Option<bool>,
    /// Voluntary context switches of all threads since the query began.
    pub wakeups: u64,
    /// How it ran.
    pub plan: PlanReport,
    /// Its sources.
    pub sources: Vec<SourceReport>,
    /// Its sinks.
    pub sinks: Vec<SinkReport>,
    /// The checkpoint from which the query resumed; `null` if it started from nothing.
    pub restored_from: Option<u64>,
    /// How often the query was restarted after a failure.
    pub restarts: u64,
    /// How often it went on with other hosts on purpose: one has left, or joined.
    pub rescales: u64,
    /// The costs of checkpoints; `null` if none were taken.
    pub checkpoints: Option<CheckpointReport>,
    /// The hosts, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostReport>,
    /// How many hosts the query wants, as of the last look at it; missing on one host, and if nothing is
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts_wanted: Option<usize>,
    /// What earlier incarnations were refused; missing on one host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced: Option<FencedReport>,
    /// What strangers were refused; missing on one host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedReport>,
    /// The largest error of a latency between two hosts; missing on one host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_error_ms: Option<f64>,
    /// The warnings about the rows that were read.
    pub warnings: Vec<String>,
    /// Which partition held the others back, and what would have kept late rows, in sentences.
    pub diagnosis: Vec<String>,
}

/// A dead-letter file that a run has written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterFile {
    /// The table of the records; empty for rows that come from no single source.
    pub table: String,
    /// The file's path.
    pub path: String,
    /// The number of records of this run.
    pub records: u64,
    /// The place and reason of the first record.
    pub first: String,
}

/// The kinds of links: `shm`, `tcp` or `shm and tcp`.
fn kinds(links: &[LinkReport]) -> String {
    let kinds = links.iter().map(|link| link.kind.as_str());
    let kinds = kinds.collect::<std::collections::BTreeSet<&str>>();
    kinds.into_iter().collect::<Vec<&str>>().join(" and ")
}

/// Percentiles of latency; `null` without rows.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: Option<f64>,
    /// 99 of 100 rows were faster.
    pub p99: Option<f64>,
    /// 999 of 1,000 rows were faster.
    pub p999: Option<f64>,
    /// The slowest row.
    pub max: Option<f64>,
    /// The number of rows measured.
    pub count: u64,
}

/// How a query ran.
#[derive(Debug, Clone, Serialize)]
pub struct PlanReport {
    /// Instances of each parallel subquery of the statement that asked for the most.
    pub parallelism: usize,
    /// Worker threads.
    pub workers: usize,
    /// The core of each worker, `null` if it was not pinned.
    pub cores: Vec<Option<usize>>,
    /// How instances were placed: `numa`, `spread` or `os`.
    pub placement: &'static str,
    /// The NUMA node of each worker, `null` if there is one node or the worker was not pinned.
    pub nodes: Vec<Option<usize>>,
    /// The mean distance that a byte between two instances travels, by NUMA distances (0 within a core, 10
    /// within a node); `null` if it is not known.
    pub distance_mean: Option<f64>,
    /// The copies of the query; `null` if there was one.
    pub copies: Option<CopiesReport>,
    /// How idle workers waited, in the words of the setting.
    pub wait: String,
    /// Notes for the user about restrictions and decisions.
    pub notes: Vec<String>,
    /// Each subquery: its operators and its instances.
    pub subqueries: Vec<SubqueryReport>,
    /// Links between instances.
    pub links: usize,
    /// Processes that ran the workers; empty if this process did.
    pub processes: Vec<ProcessReport>,
    /// Links between processes.
    pub remote_links: Vec<LinkReport>,
    /// Rows per chunk at most.
    pub chunk_rows: usize,
    /// How long sources collect rows at most, unless a target decides.
    pub linger_ms: f64,
    /// What each operator cost, sources and sinks among them, over all its instances.
    pub operators: Vec<OperatorReport>,
    /// What each worker thread of this process cost; empty if other processes ran them.
    pub threads: Vec<ThreadReport>,
    /// How the latency target was met.
    pub tuning: Option<TuningReport>,
    /// How keys were moved between instances; `null` if none could move.
    pub rebalancing: Option<RebalancingReport>,
}

/// How keys were moved between instances.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RebalancingReport {
    /// How often keys moved.
    pub times: u64,
    /// The total number of key buckets that moved.
    pub buckets: u64,
    /// How many aggregations by key had their rows pre-aggregated.
    pub combined: usize,
}

/// What an operator cost.
#[derive(Debug, Clone, Serialize)]
pub struct OperatorReport {
    /// The operator's node in the query graph.
    pub node: usize,
    /// The operator's name.
    pub name: String,
    /// Seconds spent in it: CPU time unless a thread was preempted meanwhile.
    pub busy_s: f64,
    /// The number of input chunks.
    pub chunks: u64,
    /// The number of input rows.
    pub rows: u64,
    /// The most bytes that each instance held, added up.
    pub state_bytes_max: u64,
}

/// A subquery.
#[derive(Debug, Clone, Serialize)]
pub struct SubqueryReport {
    /// The subquery's operators, in order.
    pub operators: Vec<String>,
    /// The number of its instances.
    pub instances: usize,
}

/// A sink.
#[derive(Debug, Clone, Serialize)]
pub struct SinkReport {
    /// The table; `null` for the terminal.
    pub table: Option<String>,
    /// The sink's connector, with its place.
    pub connector: String,
    /// Rows written.
    pub rows_out: u64,
    /// Connections whose reader left or that broke, after which the sink waited for the next one.
    pub connections_lost: u64,
    /// The sink's target, if it has one.
    pub latency_target_ms: Option<f64>,
    /// How often the target was changed while the query ran.
    pub latency_target_changes: u64,
    /// Whether its p99 met the target; `null` if the target was changed, for then no single p99 says so.
    pub target_met: Option<bool>,
    /// How long rows left the sink, in slices of a second.
    pub active_s: Option<f64>,
    /// How much of that time more than one row in a hundred was late.
    pub violated_s: Option<f64>,
    /// The latency of its rows.
    pub latency_ms: Latency,
}

impl Latency {
    /// The latency as text.
    fn shown(&self) -> String {
        match (self.p50, self.p99, self.max) {
            (Some(p50), Some(p99), Some(max)) => {
                format!("p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms")
            }
            _ => "no rows".to_string(),
        }
    }

    /// The percentiles of a histogram of microseconds.
    pub fn of(latencies_us: &Histogram<u64>) -> Latency {
        let at = |quantile: f64| {
            let value_us = latencies_us.value_at_quantile(quantile);
            (!latencies_us.is_empty()).then_some(value_us as f64 / 1000.0)
        };
        Latency {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: (!latencies_us.is_empty()).then(|| latencies_us.max() as f64 / 1000.0),
            count: latencies_us.len(),
        }
    }
}

impl Report {
    /// Whether anything was read or written.
    pub fn has_moved_rows(&self) -> bool {
        self.rows_in + self.rows_out > 0
    }

    /// One line about bad and late rows, if there are any: all that `--quiet` shows.
    pub fn warning(&self, dead_letters: &[DeadLetterFile]) -> Option<String> {
        let mut parts = Vec::new();
        for (number, what) in [(self.rows_bad, "bad"), (self.rows_late, "late")] {
            match number {
                0 => {}
                1 => parts.push(format!("1 {what} row")),
                number => parts.push(format!("{} {what} rows", count(number))),
            }
        }
        if parts.is_empty() {
            return None;
        }
        let files = dead_letters.iter().map(|file| {
            let DeadLetterFile { path, first, .. } = file;
            format!(": {path}; the first: {}", one_line(first))
        });
        let rows = parts.join(" and ");
        Some(format!("warning: {rows}{}", files.collect::<String>()))
    }

    /// The summary as text.
    pub fn summary(&self, dead_letters: &[DeadLetterFile]) -> String {
        let mut text = String::new();
        let mut line =
            |name: &str, value: String| text.push_str(&format!("  {name:<10} {value}\n"));
        let mut rows = format!("{} in, {} out", count(self.rows_in), count(self.rows_out));
        rows.push_str(&format!(
            ", {} late, {} bad",
            count(self.rows_late),
            count(self.rows_bad)
        ));
        line("rows", rows);
        if let Some(by_table) = sinks::by_table(&self.sources) {
            line("by table", by_table);
        }
        line(
            "time",
            format!(
                "{:.2} s, {} rows/s",
                self.wall_s,
                count(self.rows_per_s as u64)
            ),
        );
        let per_row = self
            .cpu_us_per_row
            .map_or(String::new(), |us| format!(", {us:.3} us per row"));
        line(
            "cpu",
            format!(
                "{:.3} s{per_row}, {} wake-ups",
                self.cpu_s,
                count(self.wakeups)
            ),
        );
        let lost = self.sources.iter().map(|source| source.connections_lost);
        let lost = lost.chain(self.sinks.iter().map(|sink| sink.connections_lost));
        match lost.sum::<u64>() {
            0 => {}
            1 => line("peers", "1 connection was lost".to_string()),
            lost => line("peers", format!("{} connections were lost", count(lost))),
        }
        if !self.plan.remote_links.is_empty() {
            let sum = |pick: fn(&LinkReport) -> f64| -> f64 {
                self.plan.remote_links.iter().map(pick).sum()
            };
            line(
                "links",
                format!(
                    "{} between {} processes over {}: {:.1} MB, {:.3} s of CPU to send, {:.3} s to receive",
                    self.plan.remote_links.len(),
                    self.plan.processes.len(),
                    kinds(&self.plan.remote_links),
                    sum(|link| link.send.bytes as f64) / 1e6,
                    sum(|link| link.send.busy_s),
                    sum(|link| link.receive.busy_s),
                ),
            );
        }
        if let Some(hosts) = self.hosts_line() {
            line("hosts", hosts);
        }
        line(
            "memory",
            format!("{:.1} MB at most", self.peak_rss_bytes as f64 / 1e6),
        );
        if let Some(checkpoints) = &self.checkpoints {
            line(
                "state",
                checkpoints.summary(self.restored_from, self.restarts, self.rescales),
            );
        }
        let of_all = match self.sinks.len() {
            0 | 1 => "",
            _ => "all sinks: ",
        };
        line("latency", format!("{of_all}{}", self.latency_ms.shown()));
        for (name, value) in sinks::lines(self) {
            line(name, value);
        }
        if let Some(moved) = &self.plan.rebalancing
            && moved.times + moved.combined as u64 > 0
        {
            let mut said = Vec::new();
            if moved.times > 0 {
                let (buckets, times) = (moved.buckets, moved.times);
                let plural = if times == 1 { "" } else { "s" };
                said.push(format!(
                    "{buckets} moves of key buckets at {times} barrier{plural}"
                ));
            }
            if moved.combined > 0 {
                said.push("rows were pre-aggregated before they were sent by key".to_string());
            }
            line("balance", said.join("; "));
        }
        for note in &self.plan.notes {
            line("note", note.clone());
        }
        // Why nothing came out; otherwise `slackwater doctor` is asked.
        if self.rows_in > 0 && self.rows_out == 0 {
            for sentence in &self.diagnosis {
                line("doctor", sentence.clone());
            }
        }
        for file in dead_letters {
            let DeadLetterFile {
                path,
                records,
                first,
                ..
            } = file;
            line(
                "bad rows",
                format!("{} kept in {path}; the first: {first}", count(*records)),
            );
        }
        text
    }
}

/// The place and reason of a record in one line: of a traceback the last one, which says what was raised.
fn one_line(first: &str) -> String {
    match first.split_once("Traceback (most recent call last):") {
        Some((place, lines)) => format!("{place}{}", lines.lines().last().unwrap_or_default()),
        None => first.lines().collect::<Vec<&str>>().join(" "),
    }
}

/// A number with commas between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn latency_without_rows_is_null_and_not_zero() {
        let empty = Histogram::new(3).unwrap();
        assert_eq!(Latency::of(&empty).p99, None);
    }
}
