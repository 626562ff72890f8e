//! A query in this process: worker threads, and a thread that sends them commands.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use slackwater_engine::Error;
use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::protocol::Attached;
use slackwater_engine::runtime::{Runtime, RuntimeOptions};

use super::executor::{Executor, Heard, Inbox, inbox};
use super::measured::{Measured, Measures};
use super::protocol::HostCommand;
use super::work::{Report, Work};
use crate::catalog::ProgramCatalog;
use crate::checkpoints::CheckpointAgent;

/// A message of the host to the executor's thread.
enum FromHost {
    Tell(HostCommand),
    /// The query is over.
    End,
}

/// Threads of this process that run a query. Dropping it ends and joins them.
pub struct Threads {
    inbox: Inbox<FromHost>,
    thread: Option<JoinHandle<()>>,
    counters: Vec<Arc<InstanceCounters>>,
    workers: Vec<Arc<WorkerCounters>>,
    measures: Measures,
}

impl Threads {
    /// Starts the threads; `report` is called for their events.
    ///
    /// # Errors
    ///
    /// If the threads can't be started, or the query can't start.
    pub fn start(
        work: &Work<'_>,
        catalog: &ProgramCatalog<'_>,
        report: Report,
    ) -> Result<Threads, Error> {
        let options = RuntimeOptions {
            wait: work.plan.wait,
            costs: work.costs,
            nodes: work.plan.memory_nodes.clone(),
            ..RuntimeOptions::on(&work.plan.placement.cores)
        };
        let (inbox, heard) = inbox();
        let agent = work.incarnation.map(|incarnation| {
            let inbox = inbox.clone();
            let done = move |done| {
                // The queue has no receiver only when the query is over.
                let _ = inbox.0.send(Heard::Agent(done));
            };
            let members = Arc::clone(work.members);
            CheckpointAgent::start(incarnation, work.program, work.deployment, members, done)
        });
        let agent = agent
            .transpose()
            .map_err(|reason| Error::new("checkpoints", reason))?;
        let runtime = Runtime::start(&options, inbox.clone())?;
        let workers = runtime.counters();
        let deployed = runtime.deploy(work.deployment, catalog)?;
        let controls = catalog.controls();
        let executor = Executor::new(runtime, work.deployment, 0, controls, agent, None)
            .with_sinks(work.deployment, &deployed.counters);
        let thread = std::thread::Builder::new()
            .name("executor".to_string())
            .spawn(move || serve(executor, heard, &report))
            .map_err(|error| Error::new("executor", error.to_string()))?;
        Ok(Threads {
            inbox,
            thread: Some(thread),
            counters: deployed.counters,
            measures: Measures::new(work.deployment, 0, &workers),
            workers,
        })
    }

    /// Sends the executor a command. If a worker is stuck in a write that blocks, the executor no longer
    /// takes commands, and dropping the query doesn't end it.
    pub fn tell(&self, command: HostCommand) {
        let _ = self.inbox.0.try_send(Heard::Host(FromHost::Tell(command)));
    }

    /// What this process uses.
    pub fn measured(&self) -> Measured {
        self.measures.take()
    }

    /// Counters of all instances.
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        &self.counters
    }

    /// Counters of the workers.
    pub fn workers(&self) -> &[Arc<WorkerCounters>] {
        &self.workers
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Fails only when the thread has ended.
        let _ = self.inbox.0.send(Heard::Host(FromHost::End));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut executor: Executor, heard: mpsc::Receiver<Heard<FromHost>>, report: &Report) {
    let report = &mut |event, _state| report(event);
    for heard in &heard {
        match heard {
            Heard::Worker(event, attached) => executor.hear(event, attached, report),
            Heard::Agent(done) => executor.done(done, report),
            Heard::Host(FromHost::Tell(command)) => {
                executor.tell(command, Attached::Nothing, report);
            }
            Heard::Host(FromHost::End) => break,
        }
    }
    // Dropped first, so that the agent's thread, which is joined, doesn't wait for room.
    drop(heard);
    drop(executor);
}
