//! Who runs a query: threads of this process, or processes of their own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use slackwater_engine::barrier::{Barrier, Handover};
use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::runtime::{Deployed, Runtime};

use crate::catalog::ProgramCatalog;
use crate::checkpoints::Agent;
use crate::processes::{Children, Farewell};

/// The only deployment of a run.
const DEPLOYMENT: u32 = 0;

/// Who runs a query.
pub enum Crew {
    /// Threads of this process.
    Threads {
        /// They.
        runtime: Runtime,
        /// What they run.
        deployed: Deployed,
        /// Its part in checkpoints, where it takes any.
        agent: Option<Box<Mutex<Agent>>>,
    },
    /// Processes of their own.
    Processes(Children),
}

impl Crew {
    /// Ends the sources.
    pub fn stop(&self) {
        match self {
            Crew::Threads { runtime, .. } => runtime.stop(0),
            Crew::Processes(children) => children.stop(),
        }
    }

    /// Drops the query.
    pub fn remove(&self) {
        match self {
            Crew::Threads { runtime, .. } => runtime.remove(0),
            Crew::Processes(children) => children.remove(),
        }
    }

    /// Counters of all instances.
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        match self {
            Crew::Threads { deployed, .. } => &deployed.counters,
            Crew::Processes(children) => children.counters(),
        }
    }

    /// CPU time of this process and of all that run the query, as of the last [`Crew::count`].
    pub fn cpu_s(&self) -> f64 {
        let own_s = crate::machine::process_cpu_s();
        match self {
            Crew::Threads { .. } => own_s,
            Crew::Processes(children) => own_s + children.cpu_s(),
        }
    }

    /// Counters of this process's workers.
    pub fn workers(&self) -> Vec<Arc<WorkerCounters>> {
        match self {
            Crew::Threads { runtime, .. } => runtime.counters(),
            Crew::Processes(_) => Vec::new(),
        }
    }

    /// Brings counters up to date for who looks at them now and then.
    pub fn count(&self, catalog: &ProgramCatalog<'_>) {
        if let Crew::Processes(children) = self {
            children.store_bytes_read(catalog);
            children.count();
        }
    }

    /// Ends other processes; what they counted is in the counters afterwards.
    pub fn finish(&mut self, catalog: &ProgramCatalog<'_>) -> Vec<Farewell> {
        match self {
            Crew::Threads { .. } => Vec::new(),
            Crew::Processes(children) => {
                let mut farewells = children.finish();
                farewells.sort_by_key(|farewell| farewell.process);
                children.store_bytes_read(catalog);
                farewells
            }
        }
    }

    /// How long it may take to drop a query. Workers do so within a duty cycle, unless a write to
    /// a terminal or socket that nobody reads keeps one of them in the kernel. A process that is
    /// stuck is killed, so less patience is needed there: a query whose process died is over
    /// within two seconds.
    pub fn remove_patience(&self) -> Duration {
        match self {
            Crew::Threads { .. } => Duration::from_secs(2),
            Crew::Processes(_) => Duration::from_millis(500),
        }
    }

    /// The sources send a barrier.
    pub fn barrier(&self, barrier: &Barrier) {
        match self {
            Crew::Threads { runtime, .. } => runtime.barrier(DEPLOYMENT, barrier),
            Crew::Processes(children) => children.barrier(barrier),
        }
    }

    /// How many processes commit what sinks have prepared.
    pub fn processes(&self) -> usize {
        match self {
            Crew::Threads { .. } => 1,
            Crew::Processes(children) => children.count_of_processes(),
        }
    }

    /// Sinks commit what they have prepared up to a barrier.
    pub fn commit(&self, barrier: u64) {
        match self {
            Crew::Threads { .. } => {
                if let Some(mut agent) = self.agent() {
                    agent.commit(barrier);
                }
            }
            Crew::Processes(children) => children.commit(barrier),
        }
    }

    /// This process's agent.
    pub fn agent(&self) -> Option<MutexGuard<'_, Agent>> {
        match self {
            Crew::Threads { agent, .. } => {
                let agent = agent.as_ref()?;
                Some(agent.lock().expect("no thread panics under it"))
            }
            Crew::Processes(_) => None,
        }
    }

    /// Ends everything at once, without a word: the query goes on from its last checkpoint.
    pub fn kill(&mut self) {
        match self {
            Crew::Threads { runtime, .. } => runtime.remove(DEPLOYMENT),
            Crew::Processes(children) => children.kill(),
        }
    }

    /// Hands state to an instance that `worker` runs. Other processes do that among themselves.
    pub fn hand_over(&self, instance: usize, worker: usize, handover: Handover) {
        if let Crew::Threads { runtime, .. } = self {
            runtime.hand_over(DEPLOYMENT, instance, worker, handover);
        }
    }

    /// Rows are aggregated before they are sent to `node`, from now on.
    pub fn combine(&self, node: usize, catalog: &ProgramCatalog<'_>) {
        catalog.combining(node).store(true, Ordering::Relaxed);
        if let Crew::Processes(children) = self {
            children.combine(node);
        }
    }

    /// Brings what steps and buckets count up to date, a little later where others count it.
    pub fn look(&self) {
        if let Crew::Processes(children) = self {
            children.look();
        }
    }

    /// The next that does something says so, once.
    pub fn tell_when_active(&self) {
        match self {
            Crew::Threads { runtime, .. } => runtime.tell_when_active(),
            Crew::Processes(children) => children.tell_when_active(),
        }
    }
}
