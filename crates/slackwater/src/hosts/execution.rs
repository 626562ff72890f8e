//! A running query: on threads of this process, or in worker processes of this host and of others.

use std::sync::Arc;
use std::time::Duration;

use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::protocol::Command;

use super::counts::FinalCounts;
use super::measured::Measured;
use super::processes::Processes;
use super::protocol::HostCommand;
use super::threads::Threads;
use crate::catalog::ProgramCatalog;

/// A running query. Dropping it ends the query's threads or processes.
pub struct Execution {
    runs: Runs,
}

enum Runs {
    Threads(Threads),
    Processes(Processes),
}

impl Execution {
    /// A query that threads of this process run.
    pub(super) fn of_threads(threads: Threads) -> Execution {
        Execution {
            runs: Runs::Threads(threads),
        }
    }

    /// A query that worker processes run.
    pub(super) fn of_processes(processes: Processes) -> Execution {
        Execution {
            runs: Runs::Processes(processes),
        }
    }

    /// Sends a command to the threads or processes that it concerns; never blocks.
    pub fn tell(&self, command: HostCommand) {
        match &self.runs {
            Runs::Threads(threads) => threads.tell(command),
            Runs::Processes(processes) => processes.tell(&command),
        }
    }

    /// Counters of all instances; those of other processes are as of the last [`Execution::count`] and
    /// [`Execution::count_steps`].
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        match &self.runs {
            Runs::Threads(threads) => threads.counters(),
            Runs::Processes(processes) => processes.counters(),
        }
    }

    /// Counters of the workers of this process.
    pub fn workers(&self) -> Vec<Arc<WorkerCounters>> {
        match &self.runs {
            Runs::Threads(threads) => threads.workers().to_vec(),
            Runs::Processes(_) => Vec::new(),
        }
    }

    /// The number of worker processes; 0 if threads of this process run the query.
    pub fn worker_processes(&self) -> usize {
        match &self.runs {
            Runs::Threads(_) => 0,
            Runs::Processes(processes) => processes.len(),
        }
    }

    /// The number of checkpoint agents.
    pub fn agents(&self) -> usize {
        self.worker_processes().max(1)
    }

    /// The CPU time of this process and of all worker processes, as of the last [`Execution::count`].
    pub fn cpu_s(&self) -> f64 {
        let own_s = crate::machine::process_cpu_s();
        match &self.runs {
            Runs::Threads(_) => own_s,
            Runs::Processes(processes) => own_s + processes.cpu_s(),
        }
    }

    /// Updates the counters; with worker processes a little later.
    pub fn count(&self, catalog: &ProgramCatalog<'_>) {
        if let Runs::Processes(processes) = &self.runs {
            processes.store_bytes_read(catalog);
            processes.count();
        }
    }

    /// Updates the counters of steps and buckets; with worker processes a little later.
    pub fn count_steps(&self) {
        if let Runs::Processes(processes) = &self.runs {
            processes.count_steps();
        }
    }

    /// Updates all counters and measures what each process uses, at once for this process. Worker processes
    /// answer a little later, each with a [`super::HostEvent::Measured`] after its counters.
    pub fn look(&self, catalog: &ProgramCatalog<'_>) -> Option<Measured> {
        match &self.runs {
            Runs::Threads(threads) => Some(threads.measured()),
            Runs::Processes(processes) => {
                self.count(catalog);
                processes.count_steps();
                processes.measure();
                None
            }
        }
    }

    /// Tells the catalog how many bytes sources have read, as of the last [`Execution::count`].
    pub fn store_bytes_read(&self, catalog: &ProgramCatalog<'_>) {
        if let Runs::Processes(processes) = &self.runs {
            processes.store_bytes_read(catalog);
        }
    }

    /// How long it may take to drop a query. Workers do so within a duty cycle, unless a write to
    /// a terminal or socket that nobody reads keeps one of them in the kernel. A process that is
    /// stuck is killed, so less patience is needed there: a query whose process died is over
    /// within two seconds.
    pub fn remove_patience(&self) -> Duration {
        match &self.runs {
            Runs::Threads(_) => Duration::from_secs(2),
            Runs::Processes(_) => Duration::from_millis(500),
        }
    }

    /// Ends the worker processes; afterwards their counts are in the counters. They get more time for that if
    /// the query has not failed.
    pub fn finish(&mut self, catalog: &ProgramCatalog<'_>, has_failed: bool) -> Vec<FinalCounts> {
        match &mut self.runs {
            Runs::Threads(_) => Vec::new(),
            Runs::Processes(processes) => {
                let mut counts = processes.finish(has_failed);
                counts.sort_by_key(|counts| counts.process);
                processes.store_bytes_read(catalog);
                counts
            }
        }
    }

    /// Ends everything at once without final counts: the query resumes from its last checkpoint.
    pub fn kill(&mut self) {
        match &mut self.runs {
            Runs::Threads(threads) => {
                threads.tell(HostCommand::Workers(Command::Remove));
            }
            Runs::Processes(processes) => processes.kill(),
        }
    }
}
