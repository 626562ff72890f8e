//! What the operating system counts of a process and of its workers, when somebody looks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::deploy::Deployment;

use crate::machine;

/// What a process has used so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The process's number.
    pub process: usize,
    /// The CPU time of all its threads.
    pub cpu_s: f64,
    /// The memory that it holds now.
    pub resident_bytes: u64,
    /// Its workers.
    pub workers: Vec<WorkerMeasured>,
}

/// What a worker has used so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerMeasured {
    /// The worker, by its number in the deployment.
    pub worker: usize,
    /// Its CPU time; `None` if the system doesn't count it.
    pub cpu_s: Option<f64>,
    /// How often it went to sleep and was woken.
    pub wakeups: Option<u64>,
}

/// The workers of a process.
pub struct Measures {
    process: usize,
    workers: Vec<(usize, Arc<WorkerCounters>)>,
}

impl Measures {
    /// The workers of `process`; `counters` has theirs in order.
    pub fn new(
        deployment: &Deployment,
        process: usize,
        counters: &[Arc<WorkerCounters>],
    ) -> Measures {
        let of_process = deployment.process_of.iter().enumerate();
        let own = of_process.filter(|(_, owner)| **owner == process);
        let workers = own.zip(counters);
        let workers = workers.map(|((worker, _), counters)| (worker, Arc::clone(counters)));
        Measures {
            process,
            workers: workers.collect(),
        }
    }

    /// Measures this process.
    pub fn take(&self) -> Measured {
        let workers = self.workers.iter().map(|(worker, counters)| {
            let thread = InstanceCounters::read(&counters.thread);
            WorkerMeasured {
                worker: *worker,
                cpu_s: machine::thread_cpu_s(thread),
                wakeups: machine::thread_switches(thread),
            }
        });
        Measured {
            process: self.process,
            cpu_s: machine::process_cpu_s(),
            resident_bytes: machine::resident_bytes(),
            workers: workers.collect(),
        }
    }
}
