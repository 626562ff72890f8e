//! The paths of a query while it runs: what the processes along each have seen, put together and handed to
//! its [`Controller`]. Pure: no clock, no counters, no commands.
//!
//! A path may lead through several processes: its sources are in some, its sink in others. Each reports what
//! it has seen, so the halves of a row's way may come in different rounds. The controller only adds
//! up rows, latencies and shares of time, and the clock that latencies are taken by is common to the
//! processes of a host: a half that comes later counts later.

use std::collections::BTreeSet;

use slackwater_control::latency::controller::{Controller, Goal, Observation, Setting};
use slackwater_control::latency::fit::Fit;
use slackwater_control::latency::model::Work;

use crate::probe::{Seen, WorkerSeen};

/// What finding something costs a worker and a path, before anything was measured.
const WORK_GUESSED: Work = Work {
    per_chunk_ns: 30_000.0,
    per_row_ns: 100.0,
};

/// A worker, as of the last time that its process was looked at.
#[derive(Debug, Clone)]
pub struct WorkerState {
    /// Waits after which there was something to do.
    pub activations: u64,
    /// Rows that came to it: from its sources, or, where it has none, over links.
    pub rows: u64,
    /// How long the process was looked at, in nanoseconds.
    pub interval_ns: u64,
    /// The share of that time that it was awake.
    pub utilization: f64,
    /// Whether it slept for a time, rather than to be woken.
    pub slept: bool,
    /// CPU time per second.
    pub cores: f64,
    fit: Fit,
    /// CPU time and time of all intervals in which something was done, in seconds.
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
            fit: Fit::new(WORK_GUESSED),
            active: (0.0, 0.0),
        }
    }
}

impl WorkerState {
    /// Takes in what was seen of the worker within an interval; so many rows came to it.
    pub fn see(&mut self, seen: &WorkerSeen, rows: u64, interval_ns: u64) {
        let seconds = interval_ns.max(1) as f64 / 1e9;
        self.activations = seen.activations;
        self.rows = rows;
        self.interval_ns = interval_ns;
        self.utilization = (seen.busy_ns as f64 / 1e9 / seconds).min(1.0);
        self.slept = seen.sleeps > 0;
        self.fit.add(seen.activations, rows, seen.busy_ns);
        let cpu_s = seen.cpu_ns.unwrap_or(seen.busy_ns) as f64 / 1e9;
        self.cores = (cpu_s / seconds).min(1.0);
        if seen.activations > 0 {
            self.active.0 += cpu_s;
            self.active.1 += seconds;
        }
    }

    /// What an activation and a row cost it.
    pub fn work(&self) -> Work {
        self.fit.work()
    }

    /// What finding something costs, however little it is, in nanoseconds.
    pub fn found_ns(&self) -> u64 {
        self.fit.work().per_chunk_ns as u64
    }

    /// CPU time per second while something was done.
    pub fn mean_cores(&self) -> f64 {
        self.active.0 / self.active.1.max(1e-9)
    }
}

/// What a path consists of, by numbers of the query graph and of the deployment.
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
    /// One of its sources sets its rows' pace itself, and collects them for the delay.
    pub is_paced: bool,
}

/// What a path's correction takes into account beside the path.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// How long it is since the last correction, in nanoseconds.
    pub interval_ns: u64,
    /// The busiest worker's share of the time.
    pub utilization: f64,
    /// Whether one of the sources' workers slept.
    pub slept: bool,
    /// How many sleeping workers a row passes in a row.
    pub sleeps: f64,
}

/// What a correction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrected {
    /// Rows that the sources had read.
    pub rows: u64,
    /// The setting before.
    pub before: Setting,
    /// The setting from now on.
    pub after: Setting,
}

/// One path while it runs.
#[derive(Debug, Clone)]
pub struct PathControl {
    parts: PathParts,
    controller: Controller,
    fit: Fit,
}

impl PathControl {
    /// A path that begins with what the planner has chosen.
    pub fn new(parts: PathParts, goal: Goal, setting: Setting) -> PathControl {
        PathControl {
            parts,
            controller: Controller::new(goal, setting),
            fit: Fit::new(WORK_GUESSED),
        }
    }

    /// What the path consists of.
    pub fn parts(&self) -> &PathParts {
        &self.parts
    }

    /// How the path is run for now.
    pub fn setting(&self) -> Setting {
        self.controller.setting()
    }

    /// How often the setting was changed.
    pub fn changes(&self) -> u64 {
        self.controller.changes()
    }

    /// Corrects the path by what processes have seen, at most once each; `None` where it had nothing to do.
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
            fill: fills.map(|(_, fill)| *fill).fold(0.0, f64::max),
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
