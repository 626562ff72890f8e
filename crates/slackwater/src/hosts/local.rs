//! The host that runs a query on this machine: by threads of this process, or by worker processes.

use std::sync::Arc;
use std::time::Duration;

use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::protocol::Command;

use super::counts::FinalCounts;
use super::processes::Processes;
use super::protocol::HostCommand;
use super::threads::Threads;
use crate::catalog::ProgramCatalog;

/// Runs a query on this machine. Dropping it ends whoever runs it.
pub struct LocalHost {
    runs: Runs,
}

enum Runs {
    Threads(Threads),
    Processes(Processes),
}

impl LocalHost {
    /// Threads of this process that run a query.
    pub(super) fn of_threads(threads: Threads) -> LocalHost {
        LocalHost {
            runs: Runs::Threads(threads),
        }
    }

    /// Worker processes that run a query.
    pub(super) fn of_processes(processes: Processes) -> LocalHost {
        LocalHost {
            runs: Runs::Processes(processes),
        }
    }

    /// Tells whom it concerns; never blocks.
    pub fn tell(&self, command: HostCommand) {
        match &self.runs {
            Runs::Threads(threads) => threads.tell(command),
            Runs::Processes(processes) => processes.tell(&command),
        }
    }

    /// Counters of all instances; those of other processes are as of the last [`LocalHost::count`] and
    /// [`LocalHost::count_steps`].
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

    /// How many worker processes run the query; none where threads of this one do.
    pub fn worker_processes(&self) -> usize {
        match &self.runs {
            Runs::Threads(_) => 0,
            Runs::Processes(processes) => processes.len(),
        }
    }

    /// How many checkpoint agents there are.
    pub fn agents(&self) -> usize {
        self.worker_processes().max(1)
    }

    /// CPU time of this process and of all that run the query, as of the last [`LocalHost::count`].
    pub fn cpu_s(&self) -> f64 {
        let own_s = crate::machine::process_cpu_s();
        match &self.runs {
            Runs::Threads(_) => own_s,
            Runs::Processes(processes) => own_s + processes.cpu_s(),
        }
    }

    /// Brings counters up to date for whoever looks at them now and then: a little later where other
    /// processes count.
    pub fn count(&self, catalog: &ProgramCatalog<'_>) {
        if let Runs::Processes(processes) = &self.runs {
            processes.store_bytes_read(catalog);
            processes.count();
        }
    }

    /// Brings what steps and buckets count up to date, a little later where other processes count.
    pub fn count_steps(&self) {
        if let Runs::Processes(processes) = &self.runs {
            processes.count_steps();
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

    /// Ends other processes; what they counted is in the counters afterwards.
    pub fn finish(&mut self, catalog: &ProgramCatalog<'_>) -> Vec<FinalCounts> {
        match &mut self.runs {
            Runs::Threads(_) => Vec::new(),
            Runs::Processes(processes) => {
                let mut counts = processes.finish();
                counts.sort_by_key(|counts| counts.process);
                processes.store_bytes_read(catalog);
                counts
            }
        }
    }

    /// Ends everything at once, and asks for no counts: the query resumes from its last checkpoint.
    pub fn kill(&mut self) {
        match &mut self.runs {
            Runs::Threads(threads) => {
                threads.tell(HostCommand::Workers(Command::Remove));
            }
            Runs::Processes(processes) => processes.kill(),
        }
    }
}
