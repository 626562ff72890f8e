//! The runtime: worker threads, and the doors through which they are controlled.
//!
//! Shutdown: dropping it tells every worker to exit and joins their threads.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

pub use slackwater_link::{Costs, WaitMode};
use slackwater_link::{IdleStrategy, Waiter, WaiterHandle};

use crate::counters::InstanceCounters;
use crate::deploy::{Catalog, Deployment, LinkSide, RemoteEnds, build};
use crate::error::{Error, Result};
use crate::worker::{COMMANDS_MAX, Command, Event, Worker};

/// What the names of worker threads begin with.
pub const WORKER_NAME: &str = "worker-";

/// What workers to start.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// A worker for each, pinned to that core where one is given.
    pub cores: Vec<Option<usize>>,
    /// How they wait when there is nothing to do.
    pub wait: WaitMode,
    /// What waiting costs on this host, for [`WaitMode::Auto`].
    pub costs: Costs,
}

impl RuntimeOptions {
    /// Workers on these cores that wait as is cheapest.
    pub fn on(cores: &[Option<usize>]) -> RuntimeOptions {
        RuntimeOptions {
            cores: cores.to_vec(),
            wait: WaitMode::default(),
            costs: Costs::default(),
        }
    }
}

/// Worker threads that run deployments.
pub struct Runtime {
    workers: Vec<WorkerHandle>,
}

/// What a deployment counts, in this process.
#[derive(Debug)]
pub struct Deployed {
    /// Counters of all instances, by number; those of other processes stay zero.
    pub counters: Vec<Arc<InstanceCounters>>,
    /// This process's sides of links to others.
    pub links: Vec<LinkSide>,
}

struct WorkerHandle {
    commands: mpsc::SyncSender<Command>,
    handle: WaiterHandle,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Starts workers. What they report comes through `events`.
    pub fn start(options: &RuntimeOptions, events: mpsc::Sender<Event>) -> Result<Runtime> {
        let mut workers = Vec::new();
        for (index, &core) in options.cores.iter().enumerate() {
            let failed =
                |error: std::io::Error| Error::new(format!("worker {index}"), error.to_string());
            let waiter = Waiter::shared().map_err(failed)?;
            let handle = waiter.handle();
            let (commands, receiver) = mpsc::sync_channel(COMMANDS_MAX);
            let events = events.clone();
            let idle = IdleStrategy::new(options.wait, options.costs);
            let thread = std::thread::Builder::new()
                .name(format!("{WORKER_NAME}{index}"))
                .spawn(move || {
                    if let Some(core) = core {
                        // A core that was taken away since it was chosen: unpinned is slower, not wrong.
                        let _ = slackwater_link::pin_to_core(core);
                    }
                    slackwater_link::set_timer_slack_ns(1);
                    Worker::new(waiter, idle, receiver, events).run();
                });
            workers.push(WorkerHandle {
                commands,
                handle,
                thread: Some(thread.map_err(failed)?),
            });
        }
        Ok(Runtime { workers })
    }

    /// What rings a worker, also from another process, and what registers descriptors with it: for
    /// the ends of links to other processes.
    pub fn waiter(&self, worker: usize) -> WaiterHandle {
        self.workers[worker].handle.clone()
    }

    /// Adds a deployment while others run: the part of it that this process runs, which is all of
    /// it unless [`Runtime::deploy_part`] is called. Returns its counters.
    pub fn deploy(
        &self,
        deployment: &Deployment,
        catalog: &dyn Catalog,
    ) -> Result<Vec<Arc<InstanceCounters>>> {
        let deployed = self.deploy_part(deployment, 0, catalog, RemoteEnds::default())?;
        Ok(deployed.counters)
    }

    /// Adds the part of a deployment that `process` runs, this one. Its workers are this runtime's,
    /// in order.
    pub fn deploy_part(
        &self,
        deployment: &Deployment,
        process: usize,
        catalog: &dyn Catalog,
        remote: RemoteEnds,
    ) -> Result<Deployed> {
        let workers = deployment.process_of.iter().enumerate();
        let own = workers.filter(|&(_, &of)| of == process);
        let mut own = own.map(|(worker, _)| worker).collect::<Vec<usize>>();
        if deployment.process_of.is_empty() {
            own = (0..self.workers.len()).collect();
        }
        assert_eq!(own.len(), self.workers.len(), "a thread for each worker");
        let wakers = own
            .iter()
            .zip(&self.workers)
            .map(|(&worker, handle)| (worker, handle.handle.waker()))
            .collect();
        let built = build(deployment, process, catalog, &wakers, remote)?;
        let mut per_worker = own.iter().map(|_| Vec::new()).collect::<Vec<_>>();
        for (number, instance) in built.instances {
            let worker = deployment.instances[number].worker;
            let place = own.iter().position(|&own| own == worker);
            per_worker[place.expect("an instance of this process")].push((number, instance));
        }
        for (worker, instances) in self.workers.iter().zip(per_worker) {
            worker.tell(Command::Deploy {
                deployment: deployment.id,
                instances,
            });
        }
        Ok(Deployed {
            counters: built.counters,
            links: built.links,
        })
    }

    /// Ends the sources of a deployment; what is on its way still comes through, windows stay open.
    pub fn stop(&self, deployment: u32) {
        self.workers
            .iter()
            .for_each(|worker| worker.tell(Command::Stop { deployment }));
    }

    /// Drops a deployment at once.
    pub fn remove(&self, deployment: u32) {
        self.workers
            .iter()
            .for_each(|worker| worker.tell(Command::Remove { deployment }));
    }
}

impl WorkerHandle {
    fn tell(&self, command: Command) {
        // Fails only when the worker's thread has ended, and then there is nobody to tell.
        let _ = self.commands.send(command);
        // A worker in a timed sleep is not to sleep on beside a command.
        self.handle.waker().wake_urgent();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.workers
            .iter()
            .for_each(|worker| worker.tell(Command::Exit));
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
