//! The runtime: worker threads, and the doors through which they are controlled.
//!
//! Shutdown: dropping it tells every worker to exit and joins their threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

pub use slackwater_link::{Costs, WaitMode};
use slackwater_link::{IdleStrategy, Waiter, WaiterHandle, Waker, WakerSwitch};

use crate::barrier::{Barrier, Handover};
use crate::counters::{InstanceCounters, WorkerCounters};
use crate::deploy::{Catalog, Deployment, LinkSide, RemoteEnds, build};
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::worker::{COMMANDS_MAX, Command, Event, Worker};

/// What the names of worker threads begin with.
pub const WORKER_NAME: &str = "worker-";

/// What workers to start.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// A worker for each, pinned to that core where one is given.
    pub cores: Vec<Option<usize>>,
    /// The NUMA node whose memory each worker takes, where one is given.
    pub nodes: Vec<Option<usize>>,
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
            nodes: vec![None; cores.len()],
            wait: WaitMode::default(),
            costs: Costs::default(),
        }
    }
}

/// Worker threads that run deployments.
pub struct Runtime {
    workers: Vec<WorkerHandle>,
    silence: Arc<AtomicBool>,
}

/// What a deployment counts, in this process.
#[derive(Debug)]
pub struct Deployed {
    /// Counters of all instances, by number; those of other processes stay zero.
    pub counters: Vec<Arc<InstanceCounters>>,
    /// This process's sides of links to others.
    pub links: Vec<LinkSide>,
    /// Of the instances that may move, by number.
    switches: HashMap<usize, WakerSwitch>,
}

struct WorkerHandle {
    commands: mpsc::SyncSender<Command>,
    handle: WaiterHandle,
    counters: Arc<WorkerCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Starts workers. What they report comes through `events`.
    ///
    /// # Panics
    ///
    /// When `nodes` are not as many as `cores`.
    pub fn start(options: &RuntimeOptions, events: mpsc::Sender<Event>) -> Result<Runtime> {
        let mut workers = Vec::new();
        let silence = Arc::new(AtomicBool::new(false));
        for (index, &core) in options.cores.iter().enumerate() {
            let failed =
                |error: std::io::Error| Error::new(format!("worker {index}"), error.to_string());
            let waiter = Waiter::shared().map_err(failed)?;
            let handle = waiter.handle();
            let (commands, receiver) = mpsc::sync_channel(COMMANDS_MAX);
            let events = events.clone();
            let idle = IdleStrategy::new(options.wait, options.costs);
            let counters = Arc::new(WorkerCounters::default());
            let counting = counters.clone();
            let breaking = silence.clone();
            let node = options.nodes[index];
            let thread = std::thread::Builder::new()
                .name(format!("{WORKER_NAME}{index}"))
                .spawn(move || {
                    if let Some(core) = core {
                        // A core that was taken away since it was chosen: unpinned is slower, not wrong.
                        let _ = slackwater_link::pin_to_core(core);
                    }
                    if let Some(node) = node {
                        // The same: memory further away is slower, not wrong.
                        let _ = slackwater_link::prefer_node(node);
                    }
                    slackwater_link::set_timer_slack_ns(1);
                    let thread = rustix::thread::gettid().as_raw_nonzero().get();
                    counting.thread.store(thread as u64, Ordering::Relaxed);
                    Worker::new(waiter, idle, receiver, events, counting, breaking).run();
                });
            workers.push(WorkerHandle {
                commands,
                handle,
                counters,
                thread: Some(thread.map_err(failed)?),
            });
        }
        Ok(Runtime { workers, silence })
    }

    /// What the workers count.
    pub fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        let workers = self.workers.iter();
        workers.map(|worker| worker.counters.clone()).collect()
    }

    /// The next worker that does something says so, once ([`Event::Active`]): for who watches the
    /// counters and has seen nothing happen, so that no timer need run in a silence.
    pub fn tell_when_active(&self) {
        self.silence.store(true, Ordering::Relaxed);
    }

    /// A worker waits like this from now on, see [`Command::Wait`].
    pub fn wait_like(&self, worker: usize, mode: WaitMode, found_ns: u64) {
        self.workers[worker].tell(Command::Wait { mode, found_ns });
    }

    /// Begins the move of an instance from one worker to another: the worker hands it back in
    /// [`Event::Detached`], for [`Runtime::adopt`].
    pub fn detach(&self, deployment: u32, instance: usize, worker: usize) {
        self.workers[worker].tell(Command::Detach {
            deployment,
            instance,
        });
    }

    /// Ends the move: another worker goes on with the instance.
    ///
    /// # Panics
    ///
    /// For an instance that may not move.
    pub fn adopt(
        &self,
        deployed: &Deployed,
        deployment: u32,
        number: usize,
        instance: Box<Instance>,
        worker: usize,
    ) {
        // First: whoever sends to it rings the new worker, which looks once it has it.
        deployed.switches[&number].set(worker);
        self.workers[worker].tell(Command::Adopt {
            deployment,
            number,
            instance,
        });
    }

    /// The sources of a deployment send a barrier.
    pub fn barrier(&self, deployment: u32, barrier: &Barrier) {
        self.workers.iter().for_each(|worker| {
            worker.tell(Command::Barrier {
                deployment,
                barrier: barrier.clone(),
            });
        });
    }

    /// Hands state to an instance, which `worker` runs.
    pub fn hand_over(&self, deployment: u32, number: usize, worker: usize, handover: Handover) {
        self.workers[worker].tell(Command::TakeOver {
            deployment,
            number,
            handover,
        });
    }

    /// What rings a worker, also from another process, and what registers descriptors with it: for
    /// the ends of links to other processes.
    pub fn waiter(&self, worker: usize) -> WaiterHandle {
        self.workers[worker].handle.clone()
    }

    /// Adds a deployment while others run: the part of it that this process runs, which is all of
    /// it unless [`Runtime::deploy_part`] is called. Returns its counters.
    pub fn deploy(&self, deployment: &Deployment, catalog: &dyn Catalog) -> Result<Deployed> {
        self.deploy_part(deployment, 0, catalog, RemoteEnds::default())
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
        let place_of = |instance: usize| {
            let worker = deployment.instances[instance].worker;
            let place = own.iter().position(|&own| own == worker);
            place.expect("an instance of this process")
        };
        let wakers = self.workers.iter().map(|worker| worker.handle.waker());
        let wakers = wakers.collect::<Vec<Waker>>();
        let mut moving = HashMap::new();
        for (number, plan) in deployment.instances.iter().enumerate() {
            if plan.movable && deployment.process(number) == process {
                let (waker, switch) = Waker::moving(&wakers);
                switch.set(place_of(number));
                moving.insert(number, (waker, switch));
            }
        }
        let waker_of = |instance: usize| match moving.get(&instance) {
            Some((waker, _)) => waker.clone(),
            None => wakers[place_of(instance)].clone(),
        };
        let built = build(deployment, process, catalog, &waker_of, remote)?;
        let mut per_worker = own.iter().map(|_| Vec::new()).collect::<Vec<_>>();
        for (number, instance) in built.instances {
            per_worker[place_of(number)].push((number, instance));
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
            switches: moving
                .into_iter()
                .map(|(number, (_, switch))| (number, switch))
                .collect(),
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
