//! A worker process: it runs its part of a deployment and does what its parent says.

use std::cell::RefCell;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{Deployment, InputPlan};
use slackwater_engine::recorder::Recorder;
use slackwater_engine::runtime::{Deployed, Runtime, RuntimeOptions, WaitMode};
use slackwater_engine::worker::Event;
use slackwater_sql::program::{Program, compile};
use slackwater_sql::settings::LinkKind;

use crate::catalog::{BuiltIn, ProgramCatalog};
use crate::checkpoints::{self, Agent, Members, Restored};
use crate::machine::{self, Machine};
use crate::notices::{Kind, Said};
use crate::plan::{Plan, deployment, fingerprint};
use crate::planner::plan_on;
use crate::processes::channel::Channel;
use crate::processes::connect::{self, Part};
use crate::processes::moving::{HandoverNote, StepCounts};
use crate::processes::protocol::{
    Counts, Farewell, InstanceCounts, LinkCounts, Order, ProcessUsage, SinkCounts, Start, Word,
};

/// How long sinks may take to discard what they wrote when the parent has died.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(1);

/// The only deployment of a worker process.
const DEPLOYMENT: u32 = 0;

enum News {
    Event(Event),
    Order(Order, Option<OwnedFd>),
    Done(checkpoints::Done),
    /// What the user should know of what is read.
    Said(Said),
    /// The parent has died.
    Orphaned,
}

/// Runs a worker process whose control socket is `descriptor`, to its end.
pub fn main(descriptor: RawFd) -> ExitCode {
    // Ctrl-C reaches every process of a terminal, a closed one's SIGHUP too, and a supervisor's SIGTERM
    // every process of a service; the parent decides what they mean.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in crate::signals::ending() {
        let _ = signal_hook::flag::register(signal, ignored.clone());
    }
    // SAFETY: the parent made it for this process, and nothing else here knows of it. Were it no
    // descriptor, or another file's, the first receive would fail.
    let channel = Channel::of(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let (start, sockets) = match channel.receive() {
        Ok(Some((Order::Start(start), sockets))) => (start, sockets),
        _ => return ExitCode::FAILURE,
    };
    let mut sockets = sockets;
    let recorder = start.incarnation.as_ref().and_then(|_| sockets.pop());
    let recorder = recorder.map(|memory| Recorder::new(memory.into()));
    match work(&start, &channel, sockets, recorder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = channel.send(&Word::Refused(reason), &[]);
            ExitCode::FAILURE
        }
    }
}

/// Everything from the text to the last word. An error is one of starting.
fn work(
    start: &Start,
    channel: &Channel,
    sockets: Vec<OwnedFd>,
    recorder: Option<Recorder>,
) -> Result<(), String> {
    let compiled = compile(&start.text, &start.settings, &BuiltIn)
        .map_err(|error| error.render(&start.file, &start.text))?;
    let program = compiled.run;
    let machine = Machine {
        topology: start.topology.clone().into(),
        quota_cores: start.quota_cores,
        binds_memory: start.binds_memory,
        notes: Vec::new(),
    };
    let mut plan =
        plan_on(&program, &machine, &start.learned).map_err(|error| error.to_string())?;
    plan.checkpoints = start.incarnation.is_some();
    let deployment = deployment(&program, &plan, DEPLOYMENT);
    if fingerprint(&program, &deployment) != start.fingerprint {
        return Err(
            "plans this query in another way than its parent: did its input files change?"
                .to_string(),
        );
    }
    let mut catalog = ProgramCatalog::new(&program).map_err(|error| error.to_string())?;
    catalog.share_memory(plan.processes);
    let (said_sender, said) = mpsc::channel();
    catalog.tell(Arc::new(move |word: Said| {
        // Which columns are empty nobody knows who sees a part of the rows.
        if word.kind != Kind::Columns {
            // Nobody listens only when the process is ending.
            let _ = said_sender.send(word);
        }
    }));
    let members = Arc::new(Members::new(&program, &deployment));
    if let Some(incarnation) = &start.incarnation {
        let restored = incarnation
            .manifest
            .as_ref()
            .map(|manifest| Restored::new(&incarnation.place, manifest.clone(), members.keys()));
        let restored = restored.transpose().map_err(|error| error.to_string())?;
        catalog.begin(incarnation.epoch, restored);
        catalog.watch_out(recorder, incarnation.suspects.clone());
    }
    let (events_sender, events) = mpsc::channel();
    let wait = crate::tuner::spread_evenly(&program, &plan, &catalog, start.costs.into());
    let wait = wait.unwrap_or(plan.wait);
    let runtime = start_runtime(start, wait, &plan, events_sender)?;
    let part = Part {
        deployment: &deployment,
        process: start.process,
        runtime: &runtime,
        epoch: start.epoch,
        pids: &start.pids,
        nodes: &plan.memory_nodes,
    };
    let failed = |error: std::io::Error| format!("can't connect with the other processes: {error}");
    let sockets = by_number(sockets, start.process, start.pids.len());
    let (ends, _watch, _acceptor);
    if program.settings.link == LinkKind::Tcp {
        let listening = connect::Listening::new(&part, start.token).map_err(failed)?;
        let _ = channel.send(&Word::Listens(listening.address()), &[]);
        let Ok(Some((Order::Connect(addresses), _))) = channel.receive() else {
            return Err("was not told where the other processes listen".to_string());
        };
        (ends, _acceptor) = listening.connect(&part, &addresses).map_err(failed)?;
    } else {
        (ends, _watch) = connect::shared_memory(&part, sockets).map_err(failed)?;
    }
    let deployed = runtime
        .deploy_part(&deployment, start.process, &catalog, ends)
        .map_err(|error| error.to_string())?;
    let (done, agent_done) = mpsc::channel();
    let agent = start.incarnation.as_ref().map(|incarnation| {
        let done = move |what| {
            // Nobody listens only when the process is ending.
            let _ = done.send(what);
        };
        Agent::start(incarnation, &program, &deployment, members, done)
    });
    let worker = WorkerProcess {
        agent: agent.transpose()?.map(RefCell::new),
        start,
        program: &program,
        deployment: &deployment,
        catalog: &catalog,
        runtime: &runtime,
        deployed: &deployed,
        channel,
    };
    worker.serve(events, agent_done, said)
}

fn start_runtime(
    start: &Start,
    wait: WaitMode,
    plan: &Plan,
    events: mpsc::Sender<Event>,
) -> Result<Runtime, String> {
    let own = |of_worker: &[Option<usize>]| {
        let workers = of_worker.iter().zip(&plan.process_of);
        let own = workers.filter(|(_, process)| **process == start.process);
        own.map(|(value, _)| *value).collect::<Vec<_>>()
    };
    let cores = own(&plan.placement.cores);
    let workers = RuntimeOptions {
        wait,
        costs: start.costs.into(),
        nodes: own(&plan.memory_nodes),
        ..RuntimeOptions::on(&cores)
    };
    Runtime::start(&workers, events).map_err(|error| error.to_string())
}

/// The sockets to the other processes at the places of their numbers.
fn by_number(sockets: Vec<OwnedFd>, own: usize, processes: usize) -> Vec<Option<OwnedFd>> {
    let mut sockets = sockets.into_iter();
    (0..processes)
        .map(|process| if process == own { None } else { sockets.next() })
        .collect()
}

struct WorkerProcess<'a> {
    /// Its part in checkpoints.
    agent: Option<RefCell<Agent>>,
    start: &'a Start,
    program: &'a Program,
    deployment: &'a Deployment,
    catalog: &'a ProgramCatalog<'a>,
    runtime: &'a Runtime,
    deployed: &'a Deployed,
    channel: &'a Channel,
}

impl WorkerProcess<'_> {
    /// Does what the parent says until it says that the query is over.
    fn serve(
        &self,
        events: mpsc::Receiver<Event>,
        done: mpsc::Receiver<checkpoints::Done>,
        said: mpsc::Receiver<Said>,
    ) -> Result<(), String> {
        let news = self.listen(events, done, said)?;
        let instances = 0..self.deployment.instances.len();
        let own = instances.filter(|&i| self.deployment.process(i) == self.start.process);
        let mut running = own.count();
        let mut orphaned: Option<Instant> = None;
        loop {
            let received = match orphaned {
                None => news.recv().ok(),
                Some(_) if running == 0 => exit(1),
                Some(until) => {
                    let patience = until.saturating_duration_since(Instant::now());
                    Some(news.recv_timeout(patience).unwrap_or_else(|_| exit(1)))
                }
            };
            match received {
                Some(News::Event(event)) => {
                    let is_over = matches!(event, Event::Ended { .. } | Event::Failed { .. });
                    running -= usize::from(is_over);
                    self.tell(event);
                }
                Some(News::Order(order, file)) => self.obey(order, file),
                Some(News::Said(said)) => self.say(&Word::Said(said)),
                Some(News::Done(done)) => {
                    if let Some(agent) = &self.agent {
                        let word = agent.borrow_mut().done(done);
                        self.say(&Word::Checkpoint(word));
                    }
                }
                Some(News::Orphaned) | None => {
                    self.runtime.remove(DEPLOYMENT);
                    orphaned = Some(Instant::now() + ORPHAN_PATIENCE);
                }
            }
        }
    }

    fn obey(&self, order: Order, file: Option<OwnedFd>) {
        match order {
            Order::Stop => self.runtime.stop(DEPLOYMENT),
            Order::Remove => self.runtime.remove(DEPLOYMENT),
            Order::Count => self.say(&Word::Counted(self.counts())),
            Order::Finish => {
                self.say(&Word::Finished(Box::new(self.farewell())));
                // Not by returning: a worker that is stuck in a write would be waited for.
                exit(0);
            }
            Order::Barrier(note) => self.runtime.barrier(DEPLOYMENT, &note.into()),
            Order::TakeOver(note) => self.take_over(note, file),
            Order::Combine(node) => self.catalog.combining(node).store(true, Ordering::Relaxed),
            Order::Look => self.say(&Word::Looked(self.step_counts())),
            Order::Commit(barrier) => {
                if let Some(agent) = &self.agent {
                    agent.borrow_mut().commit(barrier);
                }
            }
            Order::TellWhenActive => self.runtime.tell_when_active(),
            Order::Start(_) | Order::Connect(_) => {}
        }
    }

    /// Hands state to the instance that it is for.
    fn take_over(&self, note: HandoverNote, file: Option<OwnedFd>) {
        let Some(instance) = instance_of(self.deployment, note.receiver()) else {
            return;
        };
        match note.open(file) {
            Ok(handover) => {
                let workers = self.deployment.process_of.iter().enumerate();
                let mut own = workers.filter(|(_, of)| **of == self.start.process);
                let worker = self.deployment.instances[instance].worker;
                if let Some(place) = own.position(|(own, _)| own == worker) {
                    self.runtime
                        .hand_over(DEPLOYMENT, instance, place, handover);
                }
            }
            Err(error) => self.say(&Word::Failed {
                instance,
                sinks: Vec::new(),
                error: (&error).into(),
            }),
        }
    }

    /// Tells the parent what a worker has reported.
    fn tell(&self, mut event: Event) {
        if let Some(agent) = &self.agent {
            for word in agent.borrow_mut().hear(&mut event) {
                self.say(&Word::Checkpoint(word));
            }
        }
        let Event::Handover { handover, .. } = &event else {
            if let Some(word) = word(event) {
                self.say(&word);
            }
            return;
        };
        match HandoverNote::seal(handover) {
            Ok((note, file)) => {
                let file = file.as_ref().map(|file| file.as_fd());
                let _ = self.channel.send(&Word::Handover(note), file.as_slice());
            }
            Err(error) => {
                let giver = instance_of(self.deployment, (handover.node, handover.from));
                self.say(&Word::Failed {
                    instance: giver.unwrap_or(0),
                    sinks: Vec::new(),
                    error: (&error).into(),
                });
            }
        }
    }

    fn say(&self, word: &Word) {
        // A parent that has gone is noticed by who listens to it.
        let _ = self.channel.send(word, &[]);
    }

    fn step_counts(&self) -> Vec<StepCounts> {
        let counters = self.own_counters();
        let counts = counters.map(|(instance, slots)| StepCounts::of(instance, slots));
        counts.collect()
    }

    fn own_counters(&self) -> impl Iterator<Item = (usize, &Arc<InstanceCounters>)> {
        let counters = self.deployed.counters.iter().enumerate();
        counters.filter(|(instance, _)| self.deployment.process(*instance) == self.start.process)
    }

    /// One queue for what the workers report and what the parent orders.
    fn listen(
        &self,
        events: mpsc::Receiver<Event>,
        done: mpsc::Receiver<checkpoints::Done>,
        said: mpsc::Receiver<Said>,
    ) -> Result<mpsc::Receiver<News>, String> {
        let (sender, news) = mpsc::channel();
        let words = sender.clone();
        std::thread::spawn(move || {
            while let Ok(word) = said.recv() {
                if words.send(News::Said(word)).is_err() {
                    return;
                }
            }
        });
        let stored = sender.clone();
        std::thread::spawn(move || {
            while let Ok(done) = done.recv() {
                if stored.send(News::Done(done)).is_err() {
                    return;
                }
            }
        });
        let orders = sender.clone();
        let channel = self
            .channel
            .try_clone()
            .map_err(|error| error.to_string())?;
        std::thread::spawn(move || {
            while let Ok(Some((order, files))) = channel.receive() {
                let file = files.into_iter().next();
                if orders.send(News::Order(order, file)).is_err() {
                    return;
                }
            }
            let _ = orders.send(News::Orphaned);
        });
        std::thread::spawn(move || {
            while let Ok(event) = events.recv() {
                if sender.send(News::Event(event)).is_err() {
                    return;
                }
            }
        });
        Ok(news)
    }

    fn counts(&self) -> Counts {
        let counters = self.own_counters();
        let nodes = 0..self.program.nodes.len();
        let read = nodes.map(|node| (node, self.catalog.bytes_read(node)));
        Counts {
            instances: counters
                .map(|(instance, slots)| (instance, InstanceCounts::of(slots)))
                .collect(),
            bytes_read: read.filter(|(_, bytes)| *bytes > 0).collect(),
            cpu_s: machine::process_cpu_s(),
        }
    }

    fn farewell(&self) -> Farewell {
        Farewell {
            process: self.start.process,
            counts: self.counts(),
            steps: self.step_counts(),
            links: self.deployed.links.iter().map(LinkCounts::from).collect(),
            dead_letters: self.catalog.dead_letter_files(),
            noticed: self.catalog.noticed(),
            usage: ProcessUsage {
                pid: std::process::id(),
                cpu_s: machine::process_cpu_s(),
                peak_rss_bytes: machine::peak_rss_bytes(),
                wakeups: machine::voluntary_switches(),
            },
        }
    }
}

/// The instance that is one of a subquery's, by its head's node and its number among them.
fn instance_of(deployment: &Deployment, (node, index): (usize, usize)) -> Option<usize> {
    deployment.instances.iter().position(|instance| {
        let head = instance.steps.first().map(|step| step.node);
        matches!(instance.input, InputPlan::Ports(_))
            && (head, instance.index) == (Some(node), index)
    })
}

/// What the parent hears of it; instances of worker processes stay where they are.
fn word(event: Event) -> Option<Word> {
    let counts = |sinks: Vec<slackwater_engine::instance::SinkResult>| {
        sinks.iter().map(SinkCounts::from).collect()
    };
    Some(match event {
        Event::Active => Word::Active,
        Event::OverBudget { held, limit, .. } => Word::OverBudget { held, limit },
        Event::Moved {
            instance, barrier, ..
        } => Word::Moved { instance, barrier },
        Event::Detached { .. }
        | Event::Handover { .. }
        | Event::Snapshot { .. }
        | Event::Changed { .. } => return None,
        Event::Ended {
            instance, sinks, ..
        } => Word::Ended {
            instance,
            sinks: counts(sinks),
        },
        Event::Failed {
            instance,
            sinks,
            error,
            ..
        } => Word::Failed {
            instance,
            sinks: counts(sinks),
            error: (&error).into(),
        },
    })
}

/// Ends the process; standard output may hold rows that the terminal has not seen.
fn exit(code: i32) -> ! {
    use std::io::Write;
    let _ = std::io::stdout().flush();
    std::process::exit(code)
}
