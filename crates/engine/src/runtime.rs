//! The runtime: worker threads that run a deployment, and the interface that controls them.
//!
//! Shutdown: [`Runtime::join`], or dropping the runtime, ends every worker and waits for their threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

pub use slackwater_link::{Costs, WaitMode};
use slackwater_link::{IdleStrategy, Waiter, WaiterHandle, Waker, WakerSwitch};

use crate::counters::{InstanceCounters, WorkerCounters};
use crate::deploy::{Catalog, Deployment, LinkSide, RemoteEnds, build};
use crate::error::{Error, Result};
use crate::protocol::{Attached, COMMANDS_MAX, Command};
use crate::worker::{Listener, Worker};

/// The prefix of worker threads' names.
pub const WORKER_NAME: &str = "worker-";

/// Which workers to start.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// One entry per worker: the core to pin it to, or `None`.
    pub cores: Vec<Option<usize>>,
    /// The NUMA node from which each worker allocates memory, if given.
    pub nodes: Vec<Option<usize>>,
    /// How workers wait when there is nothing to do.
    pub wait: WaitMode,
    /// The cost of waiting on this host, for [`WaitMode::Auto`].
    pub costs: Costs,
}

impl RuntimeOptions {
    /// Options for workers on these cores that wait in the cheapest way.
    pub fn on(cores: &[Option<usize>]) -> RuntimeOptions {
        RuntimeOptions {
            cores: cores.to_vec(),
            nodes: vec![None; cores.len()],
            wait: WaitMode::default(),
            costs: Costs::default(),
        }
    }
}

/// Worker threads that run a deployment, or this process's part of it.
pub struct Runtime {
    workers: Vec<WorkerHandle>,
    silence: Arc<AtomicBool>,
    places: Mutex<Places>,
}

/// The counters of a deployment, in this process.
#[derive(Debug)]
pub struct Deployed {
    /// The counters of all instances, by number; those of other processes stay zero.
    pub counters: Vec<Arc<InstanceCounters>>,
    /// This process's sides of links to other processes.
    pub links: Vec<LinkSide>,
}

/// Which worker runs each instance; workers by their numbers in this process.
#[derive(Default)]
struct Places {
    /// The workers' numbers in the deployment.
    workers: Vec<usize>,
    worker_of: HashMap<usize, usize>,
    /// The waker switches of the instances that may move.
    switches: HashMap<usize, WakerSwitch>,
}

struct WorkerHandle {
    commands: Mutex<Option<mpsc::SyncSender<(Command, Attached)>>>,
    handle: WaiterHandle,
    counters: Arc<WorkerCounters>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Runtime {
    /// Starts workers. Each worker's events go to its `listener`.
    ///
    /// # Panics
    ///
    /// When `nodes` and `cores` have different lengths.
    pub fn start(
        options: &RuntimeOptions,
        listener: impl Listener + Clone + 'static,
    ) -> Result<Runtime> {
        let mut workers = Vec::new();
        let silence = Arc::new(AtomicBool::new(false));
        for (index, &core) in options.cores.iter().enumerate() {
            let failed =
                |error: std::io::Error| Error::new(format!("worker {index}"), error.to_string());
            let waiter = Waiter::shared().map_err(failed)?;
            let handle = waiter.handle();
            let (commands, receiver) = mpsc::sync_channel(COMMANDS_MAX);
            let listener = Box::new(listener.clone());
            let idle = IdleStrategy::new(options.wait, options.costs);
            let counters = Arc::new(WorkerCounters::default());
            let counting = counters.clone();
            let breaking = silence.clone();
            let node = options.nodes[index];
            let thread = std::thread::Builder::new()
                .name(format!("{WORKER_NAME}{index}"))
                .spawn(move || {
                    if let Some(core) = core {
                        // The core may have been taken away since it was chosen: running unpinned is
                        // slower, not wrong.
                        let _ = slackwater_link::pin_to_core(core);
                    }
                    if let Some(node) = node {
                        // Likewise: memory further away is slower, not wrong.
                        let _ = slackwater_link::prefer_node(node);
                    }
                    slackwater_link::set_timer_slack_ns(1);
                    let thread = rustix::thread::gettid().as_raw_nonzero().get();
                    counting.thread.store(thread as u64, Ordering::Relaxed);
                    Worker::new(waiter, idle, receiver, listener, counting, breaking).run();
                });
            workers.push(WorkerHandle {
                commands: Mutex::new(Some(commands)),
                handle,
                counters,
                thread: Mutex::new(Some(thread.map_err(failed)?)),
            });
        }
        Ok(Runtime {
            workers,
            silence,
            places: Mutex::default(),
        })
    }

    /// The workers' counters.
    pub fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        let workers = self.workers.iter();
        workers.map(|worker| worker.counters.clone()).collect()
    }

    /// Sends a command to the workers, with its attachment. Commands about an instance go to the worker
    /// that runs it; they have no effect if the instance isn't here.
    pub fn tell(&self, command: Command, attached: Attached) {
        match &command {
            Command::ReportActivity => self.silence.store(true, Ordering::Relaxed),
            Command::Stop | Command::Remove | Command::Barrier(_) | Command::Examine => {
                for worker in &self.workers {
                    worker.tell(command.clone(), Attached::Nothing);
                }
            }
            Command::Wait { worker, .. } => {
                if let Some(worker) = self.own(*worker) {
                    self.workers[worker].tell(command, attached);
                }
            }
            Command::Detach { instance } | Command::TakeOver { instance, .. } => {
                if let Some(worker) = self.place(*instance) {
                    self.workers[worker].tell(command, attached);
                }
            }
            &Command::Adopt { instance, worker } => {
                if let Some(worker) = self.moves(instance, worker) {
                    self.workers[worker].tell(command, attached);
                }
            }
            // Only deploying does that.
            Command::Deploy => {}
        }
    }

    fn place(&self, instance: usize) -> Option<usize> {
        let places = self.places.lock().expect("no thread panics under it");
        places.worker_of.get(&instance).copied()
    }

    /// The number in this process of a worker of the deployment.
    fn own(&self, worker: usize) -> Option<usize> {
        let places = self.places.lock().expect("no thread panics under it");
        places.workers.iter().position(|&own| own == worker)
    }

    /// Makes senders to an instance wake its new worker from now on. Returns the worker's number in this
    /// process, if both exist here.
    fn moves(&self, instance: usize, worker: usize) -> Option<usize> {
        let worker = self.own(worker)?;
        let mut places = self.places.lock().expect("no thread panics under it");
        // First the switch: senders then wake the new worker, which looks once it has the instance.
        places.switches.get(&instance)?.set(worker);
        places.worker_of.insert(instance, worker);
        Some(worker)
    }

    /// The handle that wakes a worker, also from another process, and registers descriptors with it: for
    /// the ends of links to other processes.
    pub fn waiter(&self, worker: usize) -> WaiterHandle {
        self.workers[worker].handle.clone()
    }

    /// Runs a deployment in this process. Returns its counters.
    pub fn deploy(&self, deployment: &Deployment, catalog: &dyn Catalog) -> Result<Deployed> {
        self.deploy_part(deployment, 0, catalog, RemoteEnds::default())
    }

    /// Runs the part of a deployment that belongs to `process`, this one. The part's workers are this
    /// runtime's, in order.
    ///
    /// # Panics
    ///
    /// When the part has another number of workers.
    pub fn deploy_part(
        &self,
        deployment: &Deployment,
        process: usize,
        catalog: &dyn Catalog,
        remote: RemoteEnds,
    ) -> Result<Deployed> {
        let workers = deployment.process_of.iter().enumerate();
        let own = workers.filter(|&(_, &owner)| owner == process);
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
        let mut places = Places {
            workers: own.clone(),
            ..Places::default()
        };
        for (number, instance) in built.instances {
            let place = place_of(number);
            per_worker[place].push((number, instance));
            places.worker_of.insert(number, place);
        }
        let switches = moving.into_iter();
        places.switches = switches
            .map(|(number, (_, switch))| (number, switch))
            .collect();
        *self.places.lock().expect("no thread panics under it") = places;
        for (worker, instances) in self.workers.iter().zip(per_worker) {
            worker.tell(Command::Deploy, Attached::Instances(instances));
        }
        Ok(Deployed {
            counters: built.counters,
            links: built.links,
        })
    }

    /// Ends the workers, and waits until each has closed what it still runs.
    pub fn join(&self) {
        self.workers.iter().for_each(WorkerHandle::end);
        for worker in &self.workers {
            let thread = worker
                .thread
                .lock()
                .expect("no thread panics under it")
                .take();
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
    }
}

impl WorkerHandle {
    fn tell(&self, command: Command, attached: Attached) {
        let commands = self
            .commands
            .lock()
            .expect("no thread panics under it")
            .clone();
        if let Some(commands) = commands {
            // Sending fails only if the worker's thread has ended.
            let _ = commands.send((command, attached));
            self.wake();
        }
    }

    /// Drops the command queue: the worker then ends.
    fn end(&self) {
        *self.commands.lock().expect("no thread panics under it") = None;
        self.wake();
    }

    fn wake(&self) {
        // A worker in a timed sleep must wake for a command.
        self.handle.waker().wake_urgent();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.join();
    }
}
