//! Time, events, faults, and the checks at the end.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::agent::Relay;
use super::data::{Data, Sums};
use super::disk::{Disk, Fate, Requests};
use super::ledger::Ledger;
use super::mutation::Mutation;
use super::pipeline::Barrier;
use super::random::Random;
use super::replica::Replica;
use super::seen::Seen;
use super::standby::{self, Standby};
use super::supervisor::{Deployment, Run};
use super::truth::Restores;
use crate::manifest::{Manifest, Part};
use crate::store::{CheckpointWriter, Found, Store};
use crate::{Result, coordinator, recovery};

/// The most events of a seed: a run that has not ended by then never does. Most take a few thousand.
const EVENTS_MAX: u64 = 400_000;

/// An event at some time.
pub enum Event {
    /// A request to storage is answered.
    Answered {
        request: u64,
        task: u64,
    },
    Step {
        run: usize,
        member: usize,
    },
    ToCoordinator {
        run: usize,
        input: coordinator::Input,
    },
    ToMember {
        run: usize,
        member: usize,
        command: Command,
    },
    ToRecovery {
        deployment: usize,
        input: recovery::Input,
    },
    TickCoordinator {
        run: usize,
    },
    TickRecovery {
        deployment: usize,
    },
    Recommit {
        run: usize,
        next: usize,
    },
    StopProcess {
        run: usize,
        process: usize,
    },
    Stopped {
        run: usize,
    },
    Deploy,
    Fault,
    Standby(standby::Step),
    /// A deployment that is believed dead dies.
    Die {
        deployment: usize,
    },
}

pub enum Command {
    Inject(Barrier),
    Commit(u64),
}

/// The result of a task.
pub enum After {
    Begun {
        deployment: usize,
        result: Result<(CheckpointWriter, Found)>,
    },
    Restored {
        run: usize,
        result: Result<Sums>,
    },
    Adopted {
        run: usize,
        replica: Box<Replica>,
        result: Result<()>,
    },
    Relayed {
        relay: usize,
        result: Result<()>,
    },
    Standby(standby::Done),
    Part {
        run: usize,
        member: usize,
        barrier: u64,
        result: Result<Part>,
    },
    Manifest {
        run: usize,
        barrier: u64,
        incarnation: Box<CheckpointWriter>,
        result: Result<u64>,
    },
    Swept {
        run: usize,
        incarnation: Box<CheckpointWriter>,
        result: Result<()>,
    },
}

/// Who waits for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Supervisor,
    Run(usize),
    Standby(usize),
}

struct Task {
    future: Pin<Box<dyn Future<Output = After>>>,
    /// The process that waits for it has died; a request in flight may still arrive.
    orphan: bool,
    owner: Owner,
}

pub struct World {
    pub random: Random,
    pub now: u64,
    pub clock_offset: u64,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub disk: Disk,
    pub requests: Arc<Mutex<Requests>>,
    pub store: Store,
    tasks: HashMap<u64, Task>,
    pub ledger: Ledger,
    pub data: Data,
    pub deployments: Vec<Deployment>,
    pub runs: Vec<Run>,
    pub standbys: Vec<Standby>,
    pub relays: Vec<Relay>,
    /// What a restore of each checkpoint gives.
    pub restores: Restores,
    pub mutation: Option<Mutation>,
    /// No faults from this time on.
    chaos_until: u64,
    /// How frequent faults are, 0 to 3.
    pub badness: u64,
    /// The longest time that a member takes for a few rows.
    pub pace: u64,
    /// Deployments that reported that the query has ended.
    pub ends: u32,
    pub seen: Seen,
}

impl World {
    pub fn new(seed: u64, mutation: Option<Mutation>) -> World {
        let mut random = Random(seed);
        let disk = Disk::new();
        let requests = Arc::clone(&disk.requests);
        let partitions = random.between(1, 4);
        let rows = (0..partitions).map(|_| random.between(10, 300));
        let data = Data(rows.collect());
        let badness = random.below(4);
        let chaos_until = random.between(1_000, 20_000);
        let pace = random.between(5, 80);
        World {
            store: Store::new(Arc::new(disk.clone()), "memory"),
            disk,
            requests,
            random,
            now: 0,
            clock_offset: 1 << 40,
            next: 0,
            events: BTreeMap::new(),
            tasks: HashMap::new(),
            ledger: Ledger::default(),
            data,
            deployments: Vec::new(),
            runs: Vec::new(),
            standbys: Vec::new(),
            relays: Vec::new(),
            restores: Restores::default(),
            mutation,
            chaos_until,
            badness,
            pace,
            ends: 0,
            seen: Seen::default(),
        }
    }

    pub fn clock(&self) -> u64 {
        self.now + self.clock_offset
    }

    pub fn at(&mut self, delay: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.now + delay, self.next), event);
    }

    /// A message takes a while, and sometimes a long while.
    pub fn soon(&mut self, event: Event) {
        let delay = match self.random.permille(20) {
            true => self.random.between(100, 400),
            false => self.random.between(1, 30),
        };
        self.at(delay, event);
    }

    pub fn start(&mut self, owner: Owner, future: impl Future<Output = After> + 'static) {
        self.next += 1;
        let id = self.next;
        let future = Box::pin(future);
        self.tasks.insert(
            id,
            Task {
                future,
                orphan: false,
                owner,
            },
        );
        self.poll(id);
    }

    /// The process that waits for these tasks is gone.
    pub fn abandon(&mut self, owner: Owner) {
        for task in self.tasks.values_mut() {
            task.orphan |= task.owner == owner;
        }
    }

    fn poll(&mut self, id: u64) {
        let Some(mut task) = self.tasks.remove(&id) else {
            return;
        };
        let polled = task
            .future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let new = std::mem::take(&mut self.requests.lock().unwrap().new);
        self.check_manifests();
        if task.orphan {
            return;
        }
        match polled {
            Poll::Ready(after) => self.after(after),
            Poll::Pending => {
                self.tasks.insert(id, task);
            }
        }
        for request in new {
            let is_slow = self.chaos() && self.random.permille(10 * self.badness);
            let delay = match is_slow {
                true => self.random.between(200, 3_000),
                false => self.random.between(1, 20),
            };
            self.at(delay, Event::Answered { request, task: id });
        }
    }

    fn answer(&mut self, request: u64, task: u64) {
        let Some(waiting) = self.tasks.get(&task) else {
            return;
        };
        // Half of the requests of a dead process still arrive.
        if waiting.orphan && self.random.permille(500) {
            self.tasks.remove(&task);
            return;
        }
        let share = if self.chaos() { 15 * self.badness } else { 0 };
        let fate = match self.random.permille(share) {
            false => Fate::Done,
            true => match self.random.below(3) {
                0 => Fate::Failed,
                1 => Fate::Unanswered,
                _ => Fate::Torn(self.random.below(1_000)),
            },
        };
        self.requests.lock().unwrap().answered.insert(request, fate);
        self.poll(task);
    }

    pub fn chaos(&self) -> bool {
        self.now < self.chaos_until
    }

    pub fn run(mut self) -> std::result::Result<Seen, String> {
        self.at(0, Event::Deploy);
        if self.badness > 0 {
            self.at(50, Event::Fault);
        }
        self.begin_standby();
        // After the end the query is started once more: it must end without doing anything.
        let mut again = 2;
        while again > 0 {
            while let Some(((time, _), event)) = self.events.pop_first() {
                self.now = self.now.max(time);
                self.seen.events += 1;
                if self.seen.events > EVENTS_MAX {
                    return Err(format!("no end after {EVENTS_MAX} events"));
                }
                self.happen(event);
                if let Some(reason) = self.ledger.wrong.take() {
                    return Err(format!("at {}: {reason}", self.now));
                }
            }
            if self.ends > 0 {
                self.ledger.check(&self.data.wanted())?;
                again -= 1;
            } else if self.deployments.iter().all(|deployment| deployment.over) {
                self.now = self.now.max(self.chaos_until);
            } else {
                return Err(format!("it stands still at {}", self.now));
            }
            self.at(0, Event::Deploy);
        }
        self.check_store()?;
        Ok(self.seen)
    }

    /// Checks that the store ends with a valid checkpoint that says so, and with no more checkpoints than are
    /// kept.
    fn check_store(&self) -> std::result::Result<(), String> {
        let store = Store::new(self.disk.objects(), "memory");
        let found = ready(store.newest(None)).map_err(|error| error.to_string())?;
        let manifest = found.manifest.ok_or("there is no checkpoint in the end")?;
        if !manifest.finished {
            return Err("the last checkpoint doesn't say that the query has ended".to_string());
        }
        for part in manifest.objects() {
            ready(store.read_part(part)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The latest incarnation, whether or not anybody knows of it.
    pub fn latest_claim(&self) -> u64 {
        self.requests.lock().unwrap().latest_claim
    }

    /// While a sweep removes something, the newest checkpoint must stay complete.
    pub fn check_newest(&mut self) {
        let store = Store::new(self.disk.objects(), "memory");
        match ready(store.newest(None)) {
            Ok(Found {
                manifest: Some(manifest),
                ..
            }) => {
                let parts = manifest.objects().cloned().collect::<Vec<Part>>();
                for part in parts {
                    if let Err(error) = ready(store.read_part(&part)) {
                        self.ledger.complain(error.to_string());
                    }
                }
            }
            Ok(_) => self
                .ledger
                .complain("a sweep has removed all checkpoints".to_string()),
            Err(error) => self.ledger.complain(error.to_string()),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Answered { request, task } => self.answer(request, task),
            Event::Step { run, member } => self.step(run, member),
            Event::ToCoordinator { run, input } => self.tell_coordinator(run, input),
            Event::ToMember {
                run,
                member,
                command,
            } => self.tell_member(run, member, command),
            Event::ToRecovery { deployment, input } => self.tell_recovery(deployment, input),
            Event::TickCoordinator { run } => {
                self.runs[run].tick = None;
                self.tell_coordinator(run, coordinator::Input::Tick);
            }
            Event::TickRecovery { deployment } => {
                self.deployments[deployment].tick = None;
                self.tell_recovery(deployment, recovery::Input::Tick);
            }
            Event::Recommit { run, next } => self.recommit(run, next),
            Event::StopProcess { run, process } => self.kill_process(run, process),
            Event::Stopped { run } => {
                let deployment = self.runs[run].deployment;
                let epoch = self.runs[run].epoch;
                self.tell_recovery(deployment, recovery::Input::Stopped { epoch });
            }
            Event::Deploy => self.deploy(None),
            Event::Fault => self.fault(),
            Event::Standby(step) => self.standby(step),
            Event::Die { deployment } => self.kill_deployment(deployment),
        }
    }
}

/// The result of a future that never waits.
pub fn ready<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("objects in memory are there at once"),
    }
}

/// The positions of a manifest, by partition.
pub fn positions(manifest: Option<&Manifest>) -> BTreeMap<u32, u64> {
    let nodes = manifest.into_iter().flat_map(|manifest| &manifest.nodes);
    let partitions = nodes.flat_map(|node| &node.partitions);
    let named = partitions.map(|one| (one.name.parse().expect("a number"), one.position));
    named.collect()
}
