//! A worker process: it runs its part of a deployment and executes its parent's commands.

use std::cell::Cell;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use slackwater_engine::Error;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::{Attached, Command, WorkerEvent};
use slackwater_engine::recorder::Recorder;
use slackwater_engine::runtime::{Deployed, Runtime, RuntimeOptions};
use slackwater_sql::program::{Program, compile};
use slackwater_sql::settings::LinkKind;

use super::channel::Channel;
use super::connect::{self, Part};
use super::counts::{Counts, FinalCounts, InstanceCounts, LinkCounts, ProcessUsage};
use super::executor::{Executor, Heard, Inbox, Steered, heads, inbox};
use super::handover;
use super::measured::Measures;
use super::phases;
use super::protocol::{HostCommand, HostEvent, ProcessCommand, ProcessEvent, Start};
use super::steps::StepChanges;
use crate::catalog::{BuiltIn, ProgramCatalog};
use crate::checkpoints::{CheckpointAgent, Members, Restored};
use crate::machine::{self, Machine};
use crate::notices::{Kind, Said};
use crate::plan::{Plan, deployment, fingerprint};
use crate::planner::plan_on;
use crate::probe::Probe;

/// How long sinks may take to discard what they wrote when the parent has died.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(1);

/// A message to the executor's thread from neither a worker nor the agent.
enum FromHost {
    Command(Box<ProcessCommand>, Option<OwnedFd>),
    /// A notice for the user about the input.
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
        Ok(Some((ProcessCommand::Start(start), sockets))) => (start, sockets),
        _ => return ExitCode::FAILURE,
    };
    let mut sockets = sockets;
    let recorder = start.incarnation.as_ref().and_then(|_| sockets.pop());
    let recorder = recorder.map(|memory| Recorder::new(memory.into()));
    match work(&start, &channel, sockets, recorder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = channel.send(&ProcessEvent::Refused(reason), &[]);
            ExitCode::FAILURE
        }
    }
}

/// Everything from the start to the final counts. An error means that the process could not start.
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
    let deployment = deployment(&program, &plan);
    if fingerprint(&program, &deployment) != start.fingerprint {
        return Err(
            "planned this query differently than its parent: have the input files changed?"
                .to_string(),
        );
    }
    let mut catalog = ProgramCatalog::new(&program).map_err(|error| error.to_string())?;
    catalog.share_memory(plan.processes);
    let (inbox, heard) = inbox();
    let saying = inbox.clone();
    catalog.tell(Arc::new(move |said: Said| say_of_input(&saying, said)));
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
    if !prepare(start, &catalog, &deployment, channel) {
        return Ok(());
    }
    let runtime = start_runtime(start, &plan, inbox.clone())?;
    let part = Part {
        deployment: &deployment,
        process: start.process,
        runtime: &runtime,
        epoch: start.epoch,
        pids: &start.pids,
        nodes: &plan.memory_nodes,
    };
    let failed = |error: std::io::Error| format!("can't connect to the other processes: {error}");
    let sockets = by_number(sockets, start.process, start.pids.len());
    let (ends, _watch, _acceptor);
    if program.settings.link == LinkKind::Tcp {
        let listening = connect::Listening::new(&part, start.token).map_err(failed)?;
        let _ = channel.send(&ProcessEvent::Listens(listening.address()), &[]);
        let Ok(Some((ProcessCommand::Connect(addresses), _))) = channel.receive() else {
            return Err("was not told where the other processes listen".to_string());
        };
        (ends, _acceptor) = listening.connect(&part, &addresses).map_err(failed)?;
    } else {
        (ends, _watch) = connect::shared_memory(&part, sockets).map_err(failed)?;
    }
    let deployed = runtime
        .deploy_part(&deployment, start.process, &catalog, ends)
        .map_err(|error| error.to_string())?;
    let agent = start.incarnation.as_ref().map(|incarnation| {
        let inbox = inbox.clone();
        let done = move |done| {
            // Nobody listens only when the process is ending.
            let _ = inbox.0.send(Heard::Agent(done));
        };
        CheckpointAgent::start(incarnation, &program, &deployment, members, done)
    });
    let agent = agent.transpose()?;
    let controls = catalog.controls();
    let sources = controls.tunings();
    let sources = sources.map(|(node, tuning)| (node, Arc::clone(tuning)));
    let mut probe = Probe::new(
        &deployment,
        start.process,
        &deployed.counters,
        &runtime.counters(),
        sources.collect(),
    );
    probe.watch(&deployed.links);
    let measures = Measures::new(&deployment, start.process, &runtime.counters());
    let executor = Executor::new(
        runtime,
        &deployment,
        start.process,
        controls,
        agent,
        Some(probe),
    )
    .with_links(&deployed.links)
    .with_sinks(&deployment, &deployed.counters);
    let worker = WorkerProcess {
        start,
        program: &program,
        deployment: &deployment,
        catalog: &catalog,
        deployed: &deployed,
        channel,
        measures,
        changes: StepChanges::default(),
    };
    worker.serve(executor, inbox, heard)
}

/// Executes the phases before the part runs; returns whether it is to run.
fn prepare(
    start: &Start,
    catalog: &ProgramCatalog<'_>,
    deployment: &Deployment,
    channel: &Channel,
) -> bool {
    while let Ok(Some((command, _))) = channel.receive() {
        let phase = match command {
            ProcessCommand::Restore => phases::restore(catalog, deployment, start.process),
            ProcessCommand::Recommit(sinks) => phases::recommit(catalog, start.epoch, &sinks),
            ProcessCommand::Run => return true,
            ProcessCommand::Finish => return false,
            // These come later, when the part runs.
            ProcessCommand::Start(_)
            | ProcessCommand::Connect(_)
            | ProcessCommand::Host(_)
            | ProcessCommand::Count
            | ProcessCommand::CountSteps
            | ProcessCommand::Measure => continue,
        };
        if channel.send(&ProcessEvent::Phase(phase), &[]).is_err() {
            return false;
        }
    }
    false
}

/// Sends a notice, except about empty columns: a process that sees a part of the rows can't know them.
fn say_of_input(inbox: &Inbox<FromHost>, said: Said) {
    if said.kind == Kind::Columns {
        return;
    }
    // By a worker, which never blocks here. There are a few of these in a run; one for which there is no
    // room is said without asking whether another process has said the same.
    let heard = Heard::Host(FromHost::Said(said));
    if let Err(mpsc::TrySendError::Full(Heard::Host(FromHost::Said(said)))) =
        inbox.0.try_send(heard)
    {
        eprintln!("warning: {}", said.text);
    }
}

fn start_runtime(start: &Start, plan: &Plan, inbox: Inbox<FromHost>) -> Result<Runtime, String> {
    let own = |of_worker: &[Option<usize>]| {
        let workers = of_worker.iter().zip(&plan.process_of);
        let own = workers.filter(|(_, process)| **process == start.process);
        own.map(|(value, _)| *value).collect::<Vec<_>>()
    };
    let cores = own(&plan.placement.cores);
    let workers = RuntimeOptions {
        wait: plan.wait,
        costs: start.costs.into(),
        nodes: own(&plan.memory_nodes),
        ..RuntimeOptions::on(&cores)
    };
    Runtime::start(&workers, inbox).map_err(|error| error.to_string())
}

/// The sockets to the other processes, indexed by their numbers.
fn by_number(sockets: Vec<OwnedFd>, own: usize, processes: usize) -> Vec<Option<OwnedFd>> {
    let mut sockets = sockets.into_iter();
    (0..processes)
        .map(|process| if process == own { None } else { sockets.next() })
        .collect()
}

struct WorkerProcess<'a> {
    start: &'a Start,
    program: &'a Program,
    deployment: &'a Deployment,
    catalog: &'a ProgramCatalog<'a>,
    deployed: &'a Deployed,
    channel: &'a Channel,
    measures: Measures,
    /// The reported counts of steps and buckets.
    changes: StepChanges,
}

impl WorkerProcess<'_> {
    /// Executes the parent's commands until the query is over.
    fn serve(
        mut self,
        mut executor: Executor,
        inbox: Inbox<FromHost>,
        heard: mpsc::Receiver<Heard<FromHost>>,
    ) -> Result<(), String> {
        self.listen(inbox)?;
        let mut orphaned: Option<Instant> = None;
        let reporter = Reporter {
            channel: self.channel,
            deployment: self.deployment,
            running: Cell::new(self.own_counters().count()),
        };
        let report = &mut |event, attached| reporter.report(event, attached);
        loop {
            let received = match orphaned {
                None => heard.recv().ok(),
                Some(_) if reporter.running.get() == 0 => exit(1),
                Some(until) => {
                    let patience = until.saturating_duration_since(Instant::now());
                    Some(heard.recv_timeout(patience).unwrap_or_else(|_| exit(1)))
                }
            };
            match received {
                Some(Heard::Worker(event, attached)) => executor.hear(event, attached, report),
                Some(Heard::Agent(done)) => executor.done(done, report),
                Some(Heard::Host(FromHost::Command(command, state))) => match *command {
                    ProcessCommand::Host(command) => match attached(&command, state) {
                        Ok(attached) => executor.tell(command, attached, report),
                        Err((instance, error)) => {
                            let failed = WorkerEvent::Failed {
                                instance,
                                sinks: Vec::new(),
                                error,
                            };
                            self.say(&ProcessEvent::Host(HostEvent::Worker(failed)));
                        }
                    },
                    ProcessCommand::Count => self.say(&ProcessEvent::Counted(self.counts())),
                    ProcessCommand::CountSteps => self.say_changes(),
                    ProcessCommand::Measure => {
                        let measured = HostEvent::Measured(self.measures.take());
                        self.say(&ProcessEvent::Host(measured));
                    }
                    ProcessCommand::Finish => {
                        self.say_changes();
                        let counts = self.final_counts(executor.steered());
                        self.say(&ProcessEvent::Finished(Box::new(counts)));
                        // Returning would wait for a worker that is stuck in a write.
                        exit(0);
                    }
                    // Each of these was handled before.
                    ProcessCommand::Start(_)
                    | ProcessCommand::Restore
                    | ProcessCommand::Recommit(_)
                    | ProcessCommand::Run
                    | ProcessCommand::Connect(_) => {}
                },
                Some(Heard::Host(FromHost::Said(said))) => self.say(&ProcessEvent::Said(said)),
                Some(Heard::Host(FromHost::Orphaned)) | None => {
                    let remove = HostCommand::Workers(Command::Remove);
                    executor.tell(remove, Attached::Nothing, report);
                    orphaned = Some(Instant::now() + ORPHAN_PATIENCE);
                }
            }
        }
    }

    fn say(&self, event: &ProcessEvent) {
        // The thread that listens notices if the parent has gone.
        let _ = self.channel.send(event, &[]);
    }

    fn say_changes(&mut self) {
        let counters = self.deployed.counters.iter().enumerate();
        let own = counters
            .filter(|(instance, _)| self.deployment.process(*instance) == self.start.process);
        let changes = self
            .changes
            .encode(own.map(|(instance, slots)| (instance, &**slots)));
        let _ = self
            .channel
            .send_with(&ProcessEvent::CountedSteps, &changes, &[]);
    }

    /// Passes the parent's commands on to the executor.
    fn listen(&self, inbox: Inbox<FromHost>) -> Result<(), String> {
        let channel = self
            .channel
            .try_clone()
            .map_err(|error| error.to_string())?;
        std::thread::spawn(move || {
            while let Ok(Some((command, descriptors))) = channel.receive() {
                let descriptor = descriptors.into_iter().next();
                let command = FromHost::Command(Box::new(command), descriptor);
                if inbox.0.send(Heard::Host(command)).is_err() {
                    return;
                }
            }
            let _ = inbox.0.send(Heard::Host(FromHost::Orphaned));
        });
        Ok(())
    }

    fn own_counters(&self) -> impl Iterator<Item = (usize, &Arc<InstanceCounters>)> {
        let counters = self.deployed.counters.iter().enumerate();
        counters.filter(|(instance, _)| self.deployment.process(*instance) == self.start.process)
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

    fn final_counts(&self, steered: Steered) -> FinalCounts {
        FinalCounts {
            process: self.start.process,
            counts: self.counts(),
            links: self.deployed.links.iter().map(LinkCounts::from).collect(),
            dead_letters: self.catalog.dead_letter_files(),
            noticed: self.catalog.noticed(),
            usage: ProcessUsage {
                pid: std::process::id(),
                cpu_s: machine::process_cpu_s(),
                peak_rss_bytes: machine::peak_rss_bytes(),
                wakeups: machine::voluntary_switches(),
                looks: steered.looks,
                settings: steered.settings,
            },
        }
    }
}

/// The state that comes with a command, read from its memory file. An error belongs to the instance that the
/// state was for.
fn attached(command: &HostCommand, state: Option<OwnedFd>) -> Result<Attached, (usize, Error)> {
    match command {
        HostCommand::Workers(Command::TakeOver { instance, .. }) => handover::open(state)
            .map(Attached::State)
            .map_err(|error| (*instance, error)),
        _ => Ok(Attached::Nothing),
    }
}

/// Sends the executor's events to the parent.
struct Reporter<'a> {
    channel: &'a Channel,
    deployment: &'a Deployment,
    /// The number of instances of this process that have not ended.
    running: Cell<usize>,
}

impl Reporter<'_> {
    fn report(&self, event: HostEvent, attached: Attached) {
        let is_end = matches!(
            event,
            HostEvent::Worker(WorkerEvent::Ended { .. } | WorkerEvent::Failed { .. })
        );
        self.running.set(self.running.get() - usize::from(is_end));
        let state = match &attached {
            Attached::State(state) => handover::seal(state),
            Attached::Nothing | Attached::Instances(_) | Attached::Snapshot(_) => Ok(None),
        };
        let (event, state) = match state {
            Ok(state) => (event, state),
            Err(error) => (self.not_handed_over(&event, error), None),
        };
        let state = state.as_ref().map(|file| file.as_fd());
        // The thread that listens notices if the parent has gone.
        let _ = self
            .channel
            .send(&ProcessEvent::Host(event), state.as_slice());
    }

    /// The event for an instance whose state can't be handed over.
    fn not_handed_over(&self, event: &HostEvent, error: Error) -> HostEvent {
        let giver = match event {
            HostEvent::Worker(WorkerEvent::Handover(handover)) => {
                let heads = heads(self.deployment);
                heads.get(&(handover.node, handover.from)).copied()
            }
            _ => None,
        };
        HostEvent::Worker(WorkerEvent::Failed {
            instance: giver.unwrap_or(0),
            sinks: Vec::new(),
            error,
        })
    }
}

/// Exits, after flushing the rows in standard output.
fn exit(code: i32) -> ! {
    use std::io::Write;
    let _ = std::io::stdout().flush();
    std::process::exit(code)
}
