//! A point: the query with or without checkpoints, and what it costs.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::query::{Spec, text};
use super::running::{OUTPUT, REPORT, Running, STATE};
use super::workers::workers;
use crate::lab::folder::Folder;
use crate::lab::processes::{busy_s, cpu_s};

/// The query's time after the measured interval, so that it doesn't end within it.
const TAIL_S: f64 = 0.3;

/// Measurements of a point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The point.
    #[serde(flatten)]
    pub spec: Spec,
    /// The round.
    pub round: u32,
    /// CPU time of the query's processes, in percent of a core.
    pub percent: f64,
    /// CPU time of those threads that do not process rows: storing and committing, and what starts and
    /// monitors the query.
    pub beside_percent: f64,
    /// CPU time of all other processes, in percent of a core.
    pub others_percent: f64,
    /// How long workers were ready to run while others had their cores, in percent of the time.
    pub waited_percent: f64,
    /// Latency of the sink's rows.
    pub latency_ms: Latency,
    /// For how long more than one row in a hundred was later than the target.
    pub violated_s: f64,
    /// What checkpoints cost; `None` if none were taken.
    pub checkpoints: Option<Checkpoints>,
    /// The size of the last checkpoint.
    pub stored: Stored,
}

/// The fields of the report that are read here.
#[derive(Deserialize)]
struct Report {
    latency_ms: Latency,
    sinks: Vec<SinkReport>,
    checkpoints: Option<Checkpoints>,
}

#[derive(Deserialize)]
struct SinkReport {
    violated_s: Option<f64>,
}

/// Latency as the query reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The longest latency.
    pub max: Option<f64>,
}

/// Checkpoints as the query reports them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// Number of stored checkpoints.
    pub stored: u64,
    /// Number of aborted checkpoints.
    pub aborted: u64,
    /// Mean duration from the barrier to the stored manifest.
    pub duration_ms: Option<f64>,
    /// Longest duration.
    pub duration_max_ms: f64,
    /// Longest time for which an instance stopped.
    pub stall_max_ms: f64,
    /// From a row's arrival to its commit.
    pub commit_delay_ms: Option<Delay>,
}

/// A mean and a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Mean delay.
    pub mean: f64,
    /// Longest delay.
    pub max: f64,
}

/// Bytes of the parts of the last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stored {
    /// Bytes of the parts with complete state.
    pub base_bytes: u64,
    /// Bytes of the parts with changes only, on average.
    pub increment_bytes: u64,
}

impl Point {
    /// A line of progress.
    pub fn line(&self) -> String {
        let Spec { keys, place, .. } = self.spec;
        let interval = self.spec.interval();
        format!(
            "{keys} keys, {place}, {interval}: {:.1} %, p99 {:.1} ms, stall {:.1} ms, others {:.0} %, \
             waited {:.1} % for a core",
            self.percent,
            self.latency_ms.p99.unwrap_or(0.0),
            self.checkpoints.map_or(0.0, |all| all.stall_max_ms),
            self.others_percent,
            self.waited_percent
        )
    }
}

/// Measures a point.
///
/// # Errors
///
/// When the query fails, or takes no checkpoint though it should.
pub fn measure(plan: &Plan, spec: Spec, round: u32) -> Result<Point, String> {
    let folder = Folder::make(&plan.folder)?;
    let warm_up_s = plan.warm_up_s(spec.keys);
    let text = text(&spec, plan.rate_per_s, &folder.file(OUTPUT), true);
    let duration = format!("{}ms", ((warm_up_s + plan.seconds + TAIL_S) * 1e3) as u64);
    let is_saved = spec.interval_ms.is_some();
    let begun = Instant::now();
    let running = Running::start(&text, &folder, is_saved, &["--duration", &duration])?;
    sleep_until(begun + Duration::from_secs_f64(warm_up_s));
    let look = || {
        let (workers, all_s) = (workers(running.pid())?, cpu_s(running.pid())?);
        Ok::<_, String>((Instant::now(), all_s, busy_s(), workers))
    };
    let begin = look();
    sleep_until(begun + Duration::from_secs_f64(warm_up_s + plan.seconds));
    let end = look();
    running.finish()?;
    let (begin, end) = (begin?, end?);
    let wall_s = (end.0 - begin.0).as_secs_f64();
    let cpu_s = end.1 - begin.1;
    let report = std::fs::read(folder.file(REPORT)).map_err(|error| error.to_string());
    let report = report.and_then(|bytes| {
        serde_json::from_slice::<Report>(&bytes).map_err(|error| error.to_string())
    });
    let report = report.map_err(|error| format!("can't read the query's report: {error}"))?;
    if is_saved && report.checkpoints.is_none_or(|all| all.stored == 0) {
        return Err(format!("{} keys: no checkpoint was taken", spec.keys));
    }
    Ok(Point {
        spec,
        round,
        percent: cpu_s / wall_s * 100.0,
        beside_percent: ((cpu_s - (end.3.cpu_s - begin.3.cpu_s)) / wall_s * 100.0).max(0.0),
        waited_percent: (end.3.waited_s - begin.3.waited_s) / wall_s * 100.0,
        others_percent: ((end.2 - begin.2 - cpu_s) / wall_s * 100.0).max(0.0),
        latency_ms: report.latency_ms,
        violated_s: report.sinks.iter().filter_map(|sink| sink.violated_s).sum(),
        checkpoints: report.checkpoints,
        stored: stored(&folder.file(STATE)),
    })
}

fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// Reads the sizes from the newest manifest; zeros if there is none.
fn stored(state: &Path) -> Stored {
    let records = std::fs::read_dir(state.join("checkpoints"));
    let records = records.into_iter().flatten().flatten();
    let mut records = records.map(|entry| entry.path()).collect::<Vec<_>>();
    records.sort();
    let manifests = records.iter().rev().filter_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        // The first line contains the format of the second.
        serde_json::from_str::<Manifest>(text.lines().nth(1)?).ok()
    });
    let parts = manifests
        .map(|manifest| manifest.nodes)
        .find(|nodes| nodes.iter().any(|node| !node.parts.is_empty()));
    let parts = parts.into_iter().flatten().flat_map(|node| node.parts);
    let (bases, increments) = parts.partition::<Vec<Part>, _>(|part| part.since.is_none());
    let sum = |parts: &[Part]| parts.iter().map(|part| part.bytes).sum::<u64>();
    Stored {
        base_bytes: sum(&bases),
        increment_bytes: sum(&increments) / (increments.len() as u64).max(1),
    }
}

#[derive(Deserialize)]
struct Manifest {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    since: Option<u64>,
    bytes: u64,
}
