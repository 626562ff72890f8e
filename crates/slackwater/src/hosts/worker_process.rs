//! A worker process: it runs its part of a deployment and executes its parent's commands.

mod prepared;
mod reporter;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use slackwater_engine::Error;
use slackwater_engine::counters::{InstanceCounters, clock};
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::{Attached, Command, WorkerEvent};
use slackwater_engine::recorder::Recorder;
use slackwater_engine::runtime::Deployed;
use slackwater_link::tcp::{Acceptor, Guard};
use slackwater_secure::Secret;
use slackwater_sql::program::{Program, compile};

use prepared::{addresses, by_number, start_runtime};
use reporter::Reporter;

use super::channel::Channel;
use super::connect::{self, Part};
use super::counts::{Counts, FinalCounts, InstanceCounts, LinkCounts, ProcessUsage};
use super::executor::{Executor, Heard, Inbox, Steered, inbox};
use super::handover;
use super::measured::Measures;
use super::phases;
use super::protocol::{HostCommand, HostEvent, ProcessCommand, ProcessEvent, Start};
use super::steps::StepChanges;
use crate::catalog::{Informed, ProgramCatalog};
use crate::checkpoints::{CheckpointAgent, Members, Restored};
use crate::machine;
use crate::notices::{Kind, Said};
use crate::plan::fingerprint;
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
    let (neighbors, mut sockets) = match channel.receive() {
        Ok(Some((ProcessCommand::Neighbors(neighbors), sockets))) => (neighbors, sockets),
        _ => return ExitCode::FAILURE,
    };
    if neighbors.end_with_parent {
        // If it can't be set, the process still ends when its control socket does.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let start = loop {
        match channel.receive() {
            Ok(Some((ProcessCommand::Start(start), _))) => break start,
            Ok(Some((ProcessCommand::Clock { offset_ns }, _))) => clock::set(offset_ns),
            _ => return ExitCode::FAILURE,
        }
    };
    let recorder = neighbors.records.then(|| sockets.pop()).flatten();
    let recorder = recorder.map(|memory| Recorder::new(memory.into()));
    let sockets = by_number(sockets, &neighbors, &start);
    let guard = match neighbors.secret.as_deref().map(Secret::parse).transpose() {
        Ok(secret) => secret.map(|secret| secret.guard()),
        Err(_) => return ExitCode::FAILURE,
    };
    match work(&start, &channel, sockets, recorder, guard) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refusal { reason, is_final }) => {
            let _ = channel.send(&ProcessEvent::Refused { reason, is_final }, &[]);
            ExitCode::FAILURE
        }
    }
}

/// Why a process could not start.
struct Refusal {
    reason: String,
    /// Whether it would be the same the next time.
    is_final: bool,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal {
            reason,
            is_final: true,
        }
    }
}

/// Everything from the start to the final counts. An error means that the process could not start.
fn work(
    start: &Start,
    channel: &Channel,
    sockets: Vec<Option<OwnedFd>>,
    recorder: Option<Recorder>,
    guard: Option<Arc<dyn Guard>>,
) -> Result<(), Refusal> {
    if let Err(error) = std::env::set_current_dir(&start.folder)
        && start.has_relative_paths
    {
        let folder = start.folder.display();
        let reason = format!(
            "relative paths begin in {folder}, which this host can't enter: {error}\n  \
             = write absolute paths, or share the folder with this host"
        );
        return Err(reason.into());
    }
    let connectors = Informed {
        findings: &start.findings,
        home: None,
    };
    let compiled = compile(&start.text, &start.settings, &connectors)
        .map_err(|error| error.render(&start.file, &start.text))?;
    let program = compiled.run;
    if fingerprint(&program) != start.fingerprint {
        return Err(
            "found another query than the first process: have the input files changed?"
                .to_string()
                .into(),
        );
    }
    let deployment = &start.deployment;
    let mut catalog = ProgramCatalog::new(&program).map_err(|error| error.to_string())?;
    catalog.share_memory(start.names.len());
    let (inbox, heard) = inbox();
    let saying = inbox.clone();
    catalog.tell(Arc::new(move |said: Said| say_of_input(&saying, said)));
    let members = Arc::new(Members::new(&program, deployment));
    if let Some(incarnation) = &start.incarnation {
        let restored = incarnation
            .manifest
            .as_ref()
            .map(|manifest| Restored::new(&incarnation.place, manifest.clone(), members.keys()));
        let restored = restored.transpose().map_err(|error| error.to_string())?;
        catalog.begin(incarnation.epoch, restored);
        catalog.watch_out(recorder, incarnation.suspects.clone());
    }
    if !prepare(start, &catalog, channel) {
        return Ok(());
    }
    let runtime = start_runtime(start, inbox.clone())?;
    let part = Part {
        deployment,
        process: start.process,
        runtime: &runtime,
        epoch: start.epoch,
        names: &start.names,
        nodes: &start.memory_nodes,
        kind: program.settings.link,
        guard,
    };
    let failed = |error: io::Error| Refusal {
        reason: format!("can't connect to the other processes: {error}"),
        // Otherwise another process has died, and is replaced.
        is_final: connect::is_final(&error),
    };
    let mut watches = Watches::default();
    let listening = match connect::uses_tcp(deployment, program.settings.link) {
        true => {
            let listening = connect::Listening::at(start.address, start.ports, &part, start.token);
            let listening = listening.map_err(failed)?;
            let _ = channel.send(&ProcessEvent::Listens(listening.address()), &[]);
            Some(listening)
        }
        false => None,
    };
    let (mut ends, _watch) = connect::shared_memory(&part, sockets).map_err(failed)?;
    let acceptor = match listening {
        Some(listening) => {
            let addresses = addresses(channel, &mut watches)?;
            let connected = listening.connect(&part, &addresses, &mut ends);
            connected.map_err(failed)?
        }
        None => None,
    };
    let deployed = runtime
        .deploy_part(deployment, start.process, &catalog, ends)
        .map_err(|error| error.to_string())?;
    let agent = start.incarnation.as_ref().map(|incarnation| {
        let inbox = inbox.clone();
        let done = move |done| {
            // Nobody listens only when the process is ending.
            let _ = inbox.0.send(Heard::Agent(done));
        };
        CheckpointAgent::start(incarnation, &program, deployment, members, done)
    });
    let agent = agent.transpose()?;
    let controls = catalog.controls();
    let sources = controls.tunings();
    let sources = sources.map(|(node, tuning)| (node, Arc::clone(tuning)));
    let mut probe = Probe::new(
        deployment,
        start.process,
        &deployed.counters,
        &runtime.counters(),
        sources.collect(),
    );
    probe.watch(&deployed.links);
    let measures = Measures::new(deployment, start.process, &runtime.counters());
    let executor = Executor::new(
        runtime,
        deployment,
        start.process,
        controls,
        agent,
        Some(probe),
    )
    .with_links(&deployed.links)
    .with_sinks(deployment, &deployed.counters);
    let worker = WorkerProcess {
        start,
        program: &program,
        deployment,
        catalog: &catalog,
        deployed: &deployed,
        acceptor: acceptor.as_ref(),
        channel,
        measures,
        changes: StepChanges::default(),
        watches,
    };
    Ok(worker.serve(executor, inbox, heard)?)
}

/// Executes the phases before the part runs; returns whether it is to run.
fn prepare(start: &Start, catalog: &ProgramCatalog<'_>, channel: &Channel) -> bool {
    while let Ok(Some((command, _))) = channel.receive() {
        let phase = match command {
            ProcessCommand::Restore => phases::restore(catalog, &start.deployment, start.process),
            ProcessCommand::Recommit(sinks) => phases::recommit(catalog, start.epoch, &sinks),
            ProcessCommand::Run => return true,
            ProcessCommand::Clock { offset_ns } => {
                clock::set(offset_ns);
                continue;
            }
            ProcessCommand::Finish => return false,
            // These come later, when the part runs.
            ProcessCommand::Neighbors(_)
            | ProcessCommand::Start(_)
            | ProcessCommand::Connect(_)
            | ProcessCommand::Host(_)
            | ProcessCommand::ReportActivity
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

struct WorkerProcess<'a> {
    start: &'a Start,
    program: &'a Program,
    deployment: &'a Deployment,
    catalog: &'a ProgramCatalog<'a>,
    deployed: &'a Deployed,
    acceptor: Option<&'a Acceptor>,
    channel: &'a Channel,
    measures: Measures,
    /// The reported counts of steps and buckets.
    changes: StepChanges,
    watches: Watches,
}

/// Who has asked when a worker next does something.
#[derive(Default)]
struct Watches {
    orchestrator: bool,
    host: bool,
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
        let own = self.own_counters().count();
        let reporter = Reporter::new(self.channel, self.deployment, own);
        let report = &mut |event, attached| reporter.report(event, attached);
        if self.watches.host {
            let command = HostCommand::Workers(Command::ReportActivity);
            executor.tell(command, Attached::Nothing, report);
        }
        loop {
            let received = match orphaned {
                None => heard.recv().ok(),
                Some(_) if reporter.is_done() => exit(1),
                Some(until) => {
                    let patience = until.saturating_duration_since(Instant::now());
                    Some(heard.recv_timeout(patience).unwrap_or_else(|_| exit(1)))
                }
            };
            match received {
                Some(Heard::Worker(WorkerEvent::Active, _)) if !self.is_active() => {}
                Some(Heard::Worker(event, attached)) => executor.hear(event, attached, report),
                Some(Heard::Agent(done)) => executor.done(done, report),
                Some(Heard::Host(FromHost::Command(command, state))) => match *command {
                    ProcessCommand::Clock { offset_ns } => clock::set(offset_ns),
                    ProcessCommand::ReportActivity => {
                        self.watches.host = true;
                        let command = HostCommand::Workers(Command::ReportActivity);
                        executor.tell(command, Attached::Nothing, report);
                    }
                    ProcessCommand::Host(command) => match attached(&command, state) {
                        Ok(attached) => {
                            let asked = HostCommand::Workers(Command::ReportActivity);
                            self.watches.orchestrator |= command == asked;
                            executor.tell(command, attached, report);
                        }
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
                    ProcessCommand::Neighbors(_)
                    | ProcessCommand::Start(_)
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

    /// A worker did something after a silence; returns whether the orchestrator has asked for that.
    fn is_active(&mut self) -> bool {
        let watches = std::mem::take(&mut self.watches);
        if watches.host {
            self.say(&ProcessEvent::Active);
        }
        watches.orchestrator
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
        self.program.end_functions();
        FinalCounts {
            process: self.start.process,
            counts: self.counts(),
            links: self.deployed.links.iter().map(LinkCounts::from).collect(),
            dead_letters: self.catalog.dead_letter_files(),
            noticed: self.catalog.noticed(),
            refused: self.acceptor.map_or((0, 0), |acceptor| {
                let refused = acceptor.refused();
                (refused.stale, refused.count - refused.stale)
            }),
            usage: ProcessUsage {
                pid: std::process::id(),
                cpu_s: machine::process_cpu_s() + machine::children_cpu_s(),
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

/// Exits, after flushing the rows in standard output.
fn exit(code: i32) -> ! {
    use std::io::Write;
    let _ = std::io::stdout().flush();
    std::process::exit(code)
}
