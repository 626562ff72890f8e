//! Counters between two ticks.

use std::sync::Arc;

use slackwater_control::latency::fit::Fit;
use slackwater_control::latency::model::Work;
use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::deploy::{Deployment, StepKind};
use slackwater_engine::latency::{SLOTS, upper_ns};
use slackwater_engine::runtime::WaitMode;

use super::paths::Path;
use super::{differs, first_fit};
use crate::machine;
use crate::plan::Plan;

/// What finding something costs is told again when it has changed by so much.
const FOUND_CHANGE: u64 = 4;

/// One worker.
pub struct WorkerWatch {
    counters: Arc<WorkerCounters>,
    last: [u64; 3],
    /// Waits behind which there was something to do, since the last look.
    pub activations: u64,
    /// The share of the time since then that it was awake.
    pub utilisation: f64,
    /// It slept for a time since then, rather than to be rung.
    pub slept: bool,
    fit: Fit,
    told: Option<(WaitMode, u64)>,
    cpu_s: Option<f64>,
    /// CPU time per second since the last look.
    pub cores: f64,
    /// CPU time and time of all intervals in which something was done.
    active: (f64, f64),
}

impl WorkerWatch {
    pub fn new(counters: Arc<WorkerCounters>) -> WorkerWatch {
        WorkerWatch {
            counters,
            last: [0; 3],
            activations: 0,
            utilisation: 0.0,
            slept: false,
            fit: first_fit(),
            told: None,
            cpu_s: None,
            cores: 0.0,
            active: (0.0, 0.0),
        }
    }

    fn thread_cpu_s(&self) -> Option<f64> {
        machine::thread_cpu_s(InstanceCounters::read(&self.counters.thread))
    }

    /// What was done until now is not looked at.
    pub fn skip(&mut self) {
        self.read();
        self.cpu_s = self.thread_cpu_s();
    }

    fn read(&mut self) -> [u64; 3] {
        let now = [
            &self.counters.busy_ns,
            &self.counters.activations,
            &self.counters.sleeps,
        ];
        let now = now.map(InstanceCounters::read);
        let last = std::mem::replace(&mut self.last, now);
        std::array::from_fn(|slot| now[slot].wrapping_sub(last[slot]))
    }

    /// Looks at what was done since the last look; its instances took so many rows.
    pub fn look(&mut self, interval_ns: u64, rows: u64) {
        let [busy_ns, activations, sleeps] = self.read();
        self.activations = activations;
        self.utilisation = (busy_ns as f64 / interval_ns as f64).min(1.0);
        self.slept = sleeps > 0;
        self.fit.add(activations, rows, busy_ns);
        let now_s = self.thread_cpu_s();
        let before_s = std::mem::replace(&mut self.cpu_s, now_s);
        let seconds = interval_ns as f64 / 1e9;
        let cpu_s = match (before_s, self.cpu_s) {
            (Some(before_s), Some(now_s)) => now_s - before_s,
            // The first look, or a system that doesn't count.
            _ => busy_ns as f64 / 1e9,
        };
        self.cores = (cpu_s / seconds).min(1.0);
        if activations > 0 {
            self.active.0 += cpu_s;
            self.active.1 += seconds;
        }
    }

    /// What finding something costs, however little it is, in nanoseconds.
    pub fn found_ns(&self) -> u64 {
        self.fit.work().per_chunk_ns as u64
    }

    /// What an activation and a row cost it.
    pub fn work(&self) -> Work {
        self.fit.work()
    }

    /// CPU time per second while something was done.
    pub fn mean_cores(&self) -> f64 {
        self.active.0 / self.active.1.max(1e-9)
    }

    /// Whether the worker is to be told that it should wait like this.
    pub fn tell(&mut self, mode: WaitMode) -> bool {
        let found_ns = self.found_ns();
        let same = self.told.is_some_and(|(told, told_ns)| {
            let near = found_ns.abs_diff(told_ns) <= found_ns.max(told_ns) / FOUND_CHANGE;
            near && same_wait(told, mode)
        });
        if !same {
            self.told = Some((mode, found_ns));
        }
        !same
    }
}

fn same_wait(one: WaitMode, other: WaitMode) -> bool {
    match (one, other) {
        (WaitMode::Auto { delay: one }, WaitMode::Auto { delay: other }) => {
            !differs(one.as_nanos() as u64, other.as_nanos() as u64)
        }
        (one, other) => one == other,
    }
}

/// What one path has done between two ticks.
pub struct PathSeen {
    /// Rows that its sources have read.
    pub rows: u64,
    /// Latencies in nanoseconds, and how many rows had them.
    pub latencies: Vec<(u64, u64)>,
    /// What a row costs from the source to the sink.
    pub per_row_ns: f64,
}

/// One path.
pub struct PathWatch {
    /// Instances of its sources.
    sources: Vec<Arc<InstanceCounters>>,
    /// All its instances.
    instances: Vec<Arc<InstanceCounters>>,
    /// Its sink's instances, the step that is the sink, and what was seen of each.
    sinks: Vec<(Arc<InstanceCounters>, usize, Box<[u64; SLOTS]>)>,
    rows: u64,
    busy_ns: u64,
    chunks: u64,
    fit: Fit,
}

impl PathWatch {
    pub fn new(
        deployment: &Deployment,
        plan: &Plan,
        path: &Path,
        counters: &[Arc<InstanceCounters>],
    ) -> PathWatch {
        let of = |wanted: &dyn Fn(usize) -> bool| {
            let instances = plan.execution.instances.iter().zip(counters);
            let instances = instances.filter(|(instance, _)| wanted(instance.subquery));
            instances
                .map(|(_, slots)| slots.clone())
                .collect::<Vec<_>>()
        };
        let sources = path
            .sources
            .iter()
            .map(|&node| plan.subqueries.of_node[node]);
        let sources = sources.collect::<Vec<usize>>();
        let mut sinks = Vec::new();
        for (instance, slots) in deployment.instances.iter().zip(counters) {
            for (step, plan) in instance.steps.iter().enumerate() {
                if plan.node == path.sink && matches!(plan.kind, StepKind::Sink { .. }) {
                    sinks.push((slots.clone(), step, Box::new([0; SLOTS])));
                }
            }
        }
        PathWatch {
            sources: of(&|subquery| sources.contains(&subquery)),
            instances: of(&|subquery| path.subqueries.contains(&subquery)),
            sinks,
            rows: 0,
            busy_ns: 0,
            chunks: 0,
            fit: first_fit(),
        }
    }

    pub fn look(&mut self) -> PathSeen {
        let sum = |slots: &[Arc<InstanceCounters>], pick: &dyn Fn(&InstanceCounters) -> u64| {
            slots.iter().map(|slots| pick(slots)).sum::<u64>()
        };
        let rows_in = sum(&self.sources, &|slots| {
            InstanceCounters::read(&slots.rows_in)
        });
        let rows = rows_in.wrapping_sub(std::mem::replace(&mut self.rows, rows_in));
        let busy_in = sum(&self.instances, &busy_ns);
        let busy = busy_in.wrapping_sub(std::mem::replace(&mut self.busy_ns, busy_in));
        let chunks_in = sum(&self.sources, &|slots| {
            InstanceCounters::read(&slots.chunks)
        });
        let chunks = chunks_in.wrapping_sub(std::mem::replace(&mut self.chunks, chunks_in));
        self.fit.add(chunks, rows, busy);
        let mut seen = Box::new([0; SLOTS]);
        for (slots, step, last) in &mut self.sinks {
            if let Some(latency) = &slots.steps[*step].latency {
                latency.add_new(last, &mut seen);
            }
        }
        let latencies = seen.iter().enumerate().filter(|(_, rows)| **rows > 0);
        PathSeen {
            rows,
            latencies: latencies
                .map(|(slot, rows)| (upper_ns(slot), *rows))
                .collect(),
            per_row_ns: self.fit.work().per_row_ns,
        }
    }
}

/// Time that an instance has spent on its work.
pub fn busy_ns(slots: &InstanceCounters) -> u64 {
    let steps = slots
        .steps
        .iter()
        .map(|step| InstanceCounters::read(&step.busy_ns));
    InstanceCounters::read(&slots.source.busy_ns) + steps.sum::<u64>()
}
