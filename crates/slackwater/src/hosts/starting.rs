//! A host that prepares to run a query: what is to be restored is read, and what is pending is committed,
//! where the instances will run. Nothing is taken in until it runs.

use slackwater_engine::Error;

use super::local::LocalHost;
use super::phases::{Pending, Phase, recommit, restore};
use super::processes::Processes;
use super::threads::Threads;
use super::work::{Report, Work};
use crate::catalog::ProgramCatalog;

/// Prepares to run a query on this machine. Dropping it ends whoever was started.
pub struct StartingHost {
    starts: Starts,
}

enum Starts {
    Threads(Report),
    Processes(Processes),
}

impl StartingHost {
    /// Starts worker processes, where these are to run the query; `report` hears what there is to say of it.
    ///
    /// # Errors
    ///
    /// When processes can't be started.
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

    /// Reads what is to be restored, so that what is corrupt shows before anything is committed.
    pub fn restore(&self, work: &Work<'_>, catalog: &ProgramCatalog<'_>) -> Phase {
        match &self.starts {
            Starts::Threads(_) => restore(catalog, work.deployment, 0),
            Starts::Processes(processes) => processes.restore(),
        }
    }

    /// Lets sinks commit what they have pending, in this order as far as they are in the same process.
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
    /// When threads can't be started, or the query can't begin.
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
