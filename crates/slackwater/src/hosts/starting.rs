//! A query that is being prepared to run: it reads what is to be restored and commits what is pending, in the
//! processes in which the instances will run. No input is read until the query runs.

use slackwater_engine::Error;

use super::execution::Execution;
use super::phases::{Pending, Phase, recommit, restore};
use super::processes::Processes;
use super::threads::Threads;
use super::work::{Report, Work};
use crate::catalog::ProgramCatalog;

/// A query that is being prepared to run. Dropping it ends the processes that were started.
pub struct StartingExecution {
    starts: Starts,
}

enum Starts {
    Threads(Report),
    Processes(Processes),
}

impl StartingExecution {
    /// Starts worker processes if they are to run the query; `report` is called for events.
    ///
    /// # Errors
    ///
    /// If processes can't be started.
    pub fn new(work: &Work<'_>, report: Report) -> Result<StartingExecution, Error> {
        let starts = match work.hosts.len().max(work.plan.processes) {
            1 => Starts::Threads(report),
            _ => Starts::Processes(Processes::start(work, report)?),
        };
        Ok(StartingExecution { starts })
    }

    /// Reads what is to be restored, so that damage is found before anything is committed.
    pub fn restore(&self, work: &Work<'_>, catalog: &ProgramCatalog<'_>) -> Phase {
        match &self.starts {
            Starts::Threads(_) => restore(catalog, work.deployment, 0),
            Starts::Processes(processes) => processes.restore(),
        }
    }

    /// Makes sinks commit what is pending, in this order within each process.
    pub fn recommit(
        &self,
        work: &Work<'_>,
        catalog: &ProgramCatalog<'_>,
        epoch: u64,
        sinks: &[Pending],
    ) -> Phase {
        match &self.starts {
            Starts::Threads(_) => recommit(catalog, epoch, sinks),
            Starts::Processes(processes) => processes.recommit(work.deployment, sinks),
        }
    }

    /// Runs the query.
    ///
    /// # Errors
    ///
    /// If threads can't be started, or the query can't start.
    pub fn run(self, work: &Work<'_>, catalog: &ProgramCatalog<'_>) -> Result<Execution, Error> {
        match self.starts {
            Starts::Threads(report) => {
                Threads::start(work, catalog, report).map(Execution::of_threads)
            }
            Starts::Processes(mut processes) => {
                processes.run();
                Ok(Execution::of_processes(processes))
            }
        }
    }
}
