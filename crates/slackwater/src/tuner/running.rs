//! The paths of a running query: combines the activity of the processes along each path and hands it to the
//! path's [`Controller`]. Pure: no clock, no counters, no commands.
//!
//! A path may lead through several
//! processes: its sources are in some, its sink in others. Each process reports its own activity, so the two
//! halves of a row's way may be reported in different rounds. The controller only adds up rows, latencies and
//! shares of time, and all processes of a host share the clock, so a half that is reported later counts
//! later.

use std::collections::BTreeSet;

use slackwater_control::latency::controller::{Controller, Goal, Observation, Setting};
use slackwater_control::latency::fit::Fit;
use slackwater_control::latency::lateness::{Late, Lost};
use slackwater_control::latency::model::Work;

use crate::probe::{Seen, WorkerSeen};

/// The assumed cost of finding work, before anything is measured.
const WORK_GUESSED: Work = Work {
    per_chunk_ns: 30_000.0,
    per_row_ns: 100.0,
};

/// The activity of a worker, from the last report of its process.
#[derive(Debug, Clone)]
pub struct WorkerState {
    /// Waits after which there was something to do.
    pub activations: u64,
    /// The input rows: from its sources or, without any, over links.
    pub rows: u64,
    /// The length of the process's interval, in nanoseconds.
    pub interval_ns: u64,
    /// The share of that time in which the worker was awake.
    pub utilization: f64,
    /// Whether it used timed sleeps instead of waiting to be woken.
    pub slept: bool,
    /// The CPU time per second.
    pub cores: f64,
    /// What the host took from it.
    pub lost: Lost,
    fit: Fit,
    /// The CPU time and the length of all active intervals, in seconds.
    active: (f64, f64),
}

impl Default for WorkerState {
    fn default() -> WorkerState {
        WorkerState {
            activations: 0,
            rows: 0,
            interval_ns: 0,
            utilization: 0.0,
            slept: false,
            cores: 0.0,
            lost: Lost::default(),
            fit: Fit::new(WORK_GUESSED),
            active: (0.0, 0.0),
        }
    }
}

impl WorkerState {
    /// Adds the activity of the worker in an interval, with its input rows and the time stolen from its core.
    pub fn see(&mut self, seen: &WorkerSeen, rows: u64, interval_ns: u64, stolen_ns: u64) {
        let seconds = interval_ns.max(1) as f64 / 1e9;
        self.activations = seen.activations;
        self.rows = rows;
        self.interval_ns = interval_ns;
        self.utilization = (seen.busy_ns as f64 / 1e9 / seconds).min(1.0);
        self.slept = seen.sleeps > 0;
        self.lost = Lost {
            overslept_ns: seen.overslept_ns,
            longest_ns: seen.overslept_longest_ns,
            queued_ns: seen.queued_ns,
            stolen_ns,
        };
        self.fit.add(seen.activations, rows, seen.busy_ns);
        let cpu_s = seen.cpu_ns.unwrap_or(seen.busy_ns) as f64 / 1e9;
        self.cores = (cpu_s / seconds).min(1.0);
        // A worker that polls is never activated.
        if seen.activations > 0 || rows > 0 {
            self.active.0 += cpu_s;
            self.active.1 += seconds;
        }
    }

    /// The costs of an activation and of a row.
    pub fn work(&self) -> Work {
        self.fit.work()
    }

    /// The cost of finding any work at all, in nanoseconds.
    pub fn found_ns(&self) -> u64 {
        self.fit.work().per_chunk_ns as u64
    }

    /// The CPU time per second in active intervals.
    pub fn mean_cores(&self) -> f64 {
        self.active.0 / self.active.1.max(1e-9)
    }
}

/// The parts of a path, by their numbers in the query graph and the deployment.
#[derive(Debug, Clone, Default)]
pub struct PathParts {
    /// Nodes of its sources.
    pub sources: BTreeSet<usize>,
    /// Instances of its sources.
    pub source_instances: BTreeSet<usize>,
    /// All its instances.
    pub instances: BTreeSet<usize>,
    /// The sink's node.
    pub sink: usize,
    /// Whether one of its sources paces its rows and collects them for the delay.
    pub is_paced: bool,
}

/// What the correction of a path takes into account besides the path.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// The time since the last correction, in nanoseconds.
    pub interval_ns: u64,
    /// The busy share of the busiest worker.
    pub utilization: f64,
    /// Whether one of the sources' workers slept.
    pub slept: bool,
    /// The number of sleeping workers that a row passes.
    pub sleeps: f64,
    /// By how much latencies may be wrong, in nanoseconds.
    pub error_ns: u64,
    /// What the host took from the worker from which it took most.
    pub lost: Lost,
}

/// The result of a correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrected {
    /// The rows that the sources have read.
    pub rows: u64,
    /// The setting before.
    pub before: Setting,
    /// The setting from now on.
    pub after: Setting,
}

/// One path of a running query.
#[derive(Debug, Clone)]
pub struct PathControl {
    parts: PathParts,
    controller: Controller,
    fit: Fit,
}

impl PathControl {
    /// A path that starts with the planner's setting.
    pub fn new(parts: PathParts, goal: Goal, setting: Setting) -> PathControl {
        PathControl {
            parts,
            controller: Controller::new(goal, setting),
            fit: Fit::new(WORK_GUESSED),
        }
    }

    /// The parts of the path.
    pub fn parts(&self) -> &PathParts {
        &self.parts
    }

    /// The current setting of the path.
    pub fn setting(&self) -> Setting {
        self.controller.setting()
    }

    /// Changes the target.
    pub fn retarget(&mut self, target_ns: u64) {
        self.controller.retarget(target_ns);
    }

    /// How often the setting was changed.
    pub fn changes(&self) -> u64 {
        self.controller.changes()
    }

    /// The rows that were late, and by what.
    pub fn late(&self) -> Late {
        self.controller.late()
    }

    /// Corrects the path by the processes' activity, at most one report each; `None` if the path was idle.
    pub fn correct(&mut self, seen: &[Seen], around: &Around) -> Option<Corrected> {
        let instances = seen.iter().flat_map(|seen| &seen.instances);
        let (mut rows, mut chunks, mut busy_ns) = (0, 0, 0);
        for instance in instances {
            if self.parts.instances.contains(&instance.instance) {
                busy_ns += instance.busy_ns;
            }
            if self.parts.source_instances.contains(&instance.instance) {
                rows += instance.rows_in;
                chunks += instance.chunks;
            }
        }
        self.fit.add(chunks, rows, busy_ns);
        let sinks = seen.iter().flat_map(|seen| &seen.sinks);
        let sinks = sinks.filter(|sink| sink.node == self.parts.sink);
        let latencies = sinks.flat_map(|sink| sink.latencies.iter().copied());
        let latencies = latencies.collect::<Vec<(u64, u64)>>();
        if rows == 0 && latencies.is_empty() {
            return None;
        }
        let fills = seen.iter().flat_map(|seen| &seen.fills);
        let fills = fills.filter(|(node, _)| self.parts.sources.contains(node));
        let before = self.controller.setting();
        let after = self.controller.correct(&Observation {
            interval_ns: around.interval_ns,
            latencies: &latencies,
            rows,
            utilisation: around.utilization,
            per_row_ns: self.fit.work().per_row_ns,
            slept: around.slept || self.parts.is_paced,
            sleeps: around.sleeps,
            error_ns: around.error_ns,
            fill: fills.map(|(_, fill)| *fill).fold(0.0, f64::max),
            lost: around.lost,
        });
        Some(Corrected {
            rows,
            before,
            after,
        })
    }
}

#[cfg(test)]
mod simulation;
