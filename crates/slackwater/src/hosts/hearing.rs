//! What is heard of a query's worker processes, whichever host they run on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};

use slackwater_engine::Error;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::InstancePlan;
use slackwater_engine::protocol::WorkerEvent;

use super::counts::{Counts, FinalCounts};
use super::host::{Exit, Group, Host, HostProcesses, News, What};
use super::phases::Phase;
use super::protocol::{HostEvent, ProcessCommand, ProcessEvent};
use super::steps;
use super::work::{Report, Work};
use crate::checkpoints::{AgentEvent, Suspected};
use crate::notices::Notices;

/// The end of a worker process: its number, and its final counts if it reported them.
pub type Left = (usize, Option<Box<FinalCounts>>);

/// Where what somebody waits for goes.
pub struct Queues {
    /// The processes' ends.
    pub left: mpsc::SyncSender<Left>,
    /// The results of the phases of their starts.
    pub phases: mpsc::SyncSender<(usize, Phase)>,
    /// The addresses at which they listen.
    pub addresses: mpsc::SyncSender<(usize, Option<SocketAddr>)>,
}

/// The processes of one host.
pub struct Started {
    /// Which they are.
    pub group: Group,
    /// The host's number.
    pub host: usize,
    /// The processes.
    pub processes: Arc<dyn HostProcesses>,
}

/// What is known of one process.
#[derive(Default)]
struct Known {
    /// Its instances that have not ended.
    running: BTreeSet<usize>,
    /// Why it could not start, or is not believed any more.
    refused: Option<(String, bool)>,
    finished: Option<Box<FinalCounts>>,
    /// Bytes that its sources have read, with their nodes.
    bytes_read: Vec<(usize, u64)>,
    cpu_s: f64,
    name: String,
}

/// Hears the processes of a query.
pub struct Hearing {
    started: OnceLock<Vec<Started>>,
    known: Vec<Mutex<Known>>,
    /// The process of each instance.
    process_of_instance: Vec<usize>,
    /// The source of each instance.
    sources: Vec<Option<usize>>,
    report: Report,
    counters: Vec<Arc<InstanceCounters>>,
    notices: Arc<Notices>,
    queues: Queues,
}

impl Hearing {
    /// Hears the processes that run `work`; `report` is called for their events.
    pub fn new(work: &Work<'_>, report: Report, queues: Queues) -> Hearing {
        let deployment = work.deployment;
        let instances = 0..deployment.instances.len();
        let process_of_instance = instances.map(|instance| deployment.process(instance));
        let process_of_instance = process_of_instance.collect::<Vec<usize>>();
        let known = (0..work.plan.processes).map(|process| {
            let instances = process_of_instance.iter().enumerate();
            let own = instances.filter(|(_, owner)| **owner == process);
            Mutex::new(Known {
                running: own.map(|(instance, _)| instance).collect(),
                name: format!("process {process}"),
                ..Known::default()
            })
        });
        let counters = deployment.instances.iter();
        let counters = counters.map(|instance| Arc::new(instance.counters()));
        let sources = deployment.instances.iter().map(InstancePlan::source);
        Hearing {
            started: OnceLock::new(),
            known: known.collect(),
            process_of_instance,
            sources: sources.collect(),
            report,
            counters: counters.collect(),
            notices: Arc::clone(work.notices),
            queues,
        }
    }

    /// Makes the processes known. Only the first call counts.
    pub fn know(&self, started: Vec<Started>) {
        let _ = self.started.set(started);
    }

    /// The processes, by host.
    pub fn groups(&self) -> impl Iterator<Item = &Started> {
        self.started.get().into_iter().flatten()
    }

    /// The number of processes.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Names the processes for messages: `process 3 (pid 4711) on h2`.
    pub fn name(&self, hosts: &[Arc<dyn Host>]) -> Vec<String> {
        let mut names = Vec::new();
        for started in self.groups() {
            for (process, pid) in (started.group.first..).zip(started.processes.pids()) {
                let place = match hosts {
                    [_] => String::new(),
                    hosts => format!(" on {}", hosts[started.host].facts().name),
                };
                let name = format!("process {process} (pid {pid}){place}");
                self.known(process).name.clone_from(&name);
                names.push(name);
            }
        }
        names
    }

    /// The name of a process for messages.
    pub fn name_of(&self, process: usize) -> String {
        self.known(process).name.clone()
    }

    /// Sends a process a command.
    pub fn tell(&self, process: usize, command: ProcessCommand) {
        self.tell_with(process, command, None);
    }

    fn tell_with(&self, process: usize, command: ProcessCommand, state: Option<OwnedFd>) {
        if let Some(started) = self.of(process) {
            started.processes.tell(process, command, state);
        }
    }

    fn of(&self, process: usize) -> Option<&Started> {
        self.groups().find(|started| started.group.has(process))
    }

    /// The process that runs an instance.
    pub fn process_of_instance(&self, instance: usize) -> Option<usize> {
        self.process_of_instance.get(instance).copied()
    }

    /// Counters of all instances, as of their processes' last reports.
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        &self.counters
    }

    /// CPU time of all processes, as of their last reports.
    pub fn cpu_s(&self) -> f64 {
        (0..self.len())
            .map(|process| self.known(process).cpu_s)
            .sum()
    }

    /// The bytes that the sources of all processes have read, by node.
    pub fn bytes_read(&self) -> BTreeMap<usize, u64> {
        let mut nodes = BTreeMap::new();
        for process in 0..self.len() {
            for &(node, bytes) in &self.known(process).bytes_read {
                *nodes.entry(node).or_insert(0) += bytes;
            }
        }
        nodes
    }

    /// Hears of a process. What is said of one that doesn't exist is dropped: the host is broken.
    pub fn hear(&self, news: News) {
        if news.process >= self.known.len() {
            return;
        }
        match news.what {
            What::Said {
                event,
                bytes,
                state,
            } => self.hear_event(news.process, event, &bytes, state),
            What::Left(exit) => self.left(news.process, exit),
        }
    }

    fn hear_event(
        &self,
        process: usize,
        event: ProcessEvent,
        bytes: &[u8],
        state: Option<OwnedFd>,
    ) {
        match event {
            ProcessEvent::Listens(address) => {
                let _ = self.queues.addresses.try_send((process, address));
            }
            ProcessEvent::Refused { reason, is_final } => {
                self.known(process).refused = Some((reason, is_final));
            }
            ProcessEvent::Phase(phase) => self.say_phase(process, phase),
            ProcessEvent::Host(HostEvent::Worker(
                event
                @ (WorkerEvent::Ended { instance, .. } | WorkerEvent::Failed { instance, .. }),
            )) => {
                // Each instance ends once, whatever a process reports.
                if self.known(process).running.remove(&instance) {
                    (self.report)(HostEvent::Worker(event));
                }
            }
            ProcessEvent::Host(event) => (self.report)(event),
            ProcessEvent::Forward { process, command } => {
                self.tell_with(process, ProcessCommand::Host(command), state);
            }
            ProcessEvent::Counted(counts) => self.store(process, &counts),
            ProcessEvent::CountedSteps => {
                if let Err(reason) = steps::add(bytes, &self.counters) {
                    self.known(process).refused = Some((reason, false));
                    if let Some(started) = self.of(process) {
                        started.processes.kill(process);
                    }
                }
            }
            // Only an agent asks for it.
            ProcessEvent::Active => {}
            ProcessEvent::Said(said) => self.notices.say(said),
            ProcessEvent::Finished(counts) => {
                self.store(process, &counts.counts);
                self.known(process).finished = Some(counts);
            }
        }
    }

    fn say_phase(&self, process: usize, phase: Phase) {
        // There is room for one message of each process and for its end; a process that sends more is broken.
        let _ = self.queues.phases.try_send((process, phase));
    }

    /// A process has ended.
    fn left(&self, process: usize, exit: Exit) {
        // So that no thread waits for its address.
        let _ = self.queues.addresses.try_send((process, None));
        let (finished, refused, running, name) = {
            let mut known = self.known(process);
            (
                known.finished.take(),
                known.refused.take(),
                std::mem::take(&mut known.running),
                known.name.clone(),
            )
        };
        if finished.is_none() {
            let error = match refused {
                Some((reason, true)) => Error::new(name, reason).final_one(),
                Some((reason, false)) => Error::new(name, reason),
                None => Error::new(name, exit.reason),
            };
            self.say_phase(process, Phase::Died(error.clone()));
            let report = &self.report;
            if exit.is_crash {
                let suspects = AgentEvent::Suspects(self.suspects(&exit.noted));
                report(HostEvent::Checkpoint(suspects));
            }
            let failed = || {
                for &instance in &running {
                    report(HostEvent::Worker(WorkerEvent::Failed {
                        instance,
                        sinks: Vec::new(),
                        error: error.clone(),
                    }));
                }
            };
            // That the query can't be helped is said first.
            if error.is_final {
                failed();
            }
            // All of its instances may have ended, but what they have prepared has to be committed.
            let reason = error.to_string();
            report(HostEvent::Checkpoint(AgentEvent::NotCommitted { reason }));
            if !error.is_final {
                failed();
            }
        }
        let _ = self.queues.left.try_send((process, finished));
    }

    /// The rows that a process was processing.
    fn suspects(&self, noted: &[(usize, slackwater_engine::recorder::Suspect)]) -> Vec<Suspected> {
        let suspects = noted.iter().filter_map(|(instance, suspect)| {
            let node = self.sources.get(*instance).copied().flatten()?;
            Some(Suspected {
                node,
                partition: suspect.partition,
                first: suspect.first,
                last: suspect.last,
            })
        });
        suspects.collect()
    }

    fn store(&self, process: usize, counts: &Counts) {
        for (instance, counts) in &counts.instances {
            if let Some(slots) = self.counters.get(*instance) {
                counts.store(slots);
            }
        }
        let mut known = self.known(process);
        known.bytes_read.clone_from(&counts.bytes_read);
        known.cpu_s = counts.cpu_s;
    }

    fn known(&self, process: usize) -> MutexGuard<'_, Known> {
        let known = self.known[process].lock();
        known.expect("no thread panics under it")
    }
}
