//! A host that prepares to run a query: it reads what is to be restored and commits what is pending, in the
//! processes in which the instances will run. No input is read until the query runs.

use slackwater_engine::Error;

use super::local::LocalHost;
use super::phases::{Pending, Phase, recommit, restore};
use super::processes::Processes;
use super::threads::Threads;
use super::work::{Report, Work};
use crate::catalog::ProgramCatalog;

/// Prepares to run a query on this machine. Dropping it ends the processes that were started.
pub struct StartingHost {
    starts: Starts,
}

enum Starts {
    Threads(Report),
    Processes(Processes),
}

impl StartingHost {
    /// Starts worker processes if they are to run the query; `report` is called for events.
    ///
    /// # Errors
    ///
    /// If processes can't be started.
    pub fn new(work: &Work<'_>, report: Report) -> Result<StartingHost, Error> {
        let starts = match work.plan.processes {
            1 => Starts::Threads(report),
            _ => {
                let failed =
                    |error: std::io::Error| Error::new("worker processes", error.to_string());
                Starts::Processes(Processes::start(work, report).map_err(failed)?)
            }
        };
        Ok(StartingHost { starts })
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
    pub fn run(self, work: &Work<'_>, catalog: &ProgramCatalog<'_>) -> Result<LocalHost, Error> {
        match self.starts {
            Starts::Threads(report) => {
                Threads::start(work, catalog, report).map(LocalHost::of_threads)
            }
            Starts::Processes(mut processes) => {
                processes.run();
                Ok(LocalHost::of_processes(processes))
            }
        }
    }
}
