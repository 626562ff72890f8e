//! The thread that reads the events of one worker process and waits for its end.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, mpsc};

use rustix::process::Signal;
use slackwater_engine::Error;
use slackwater_engine::barrier::Handover;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::protocol::{Command, WorkerEvent};
use slackwater_engine::recorder::Recorder;

use super::channel::{Channel, Received};
use super::counts::{Counts, FinalCounts};
use super::outbox::Outbox;
use super::phases::Phase;
use super::protocol::{HostCommand, HostEvent, ProcessCommand, ProcessEvent};
use super::steps;
use super::work::Report;
use crate::checkpoints::{AgentEvent, Suspected};
use crate::notices::Notices;

/// What a reader has collected from its process.
#[derive(Default)]
pub struct Collected {
    /// Bytes that sources have read, with their nodes.
    pub bytes_read: Vec<(usize, u64)>,
    /// CPU time.
    pub cpu_s: f64,
}

/// The end of a worker process: its number, and its final counts if it reported them.
pub type Left = (usize, Option<Box<FinalCounts>>);

/// What all readers share.
pub struct Shared {
    /// The queues of commands, by process.
    pub outboxes: Arc<Vec<Outbox>>,
    /// Instances that have links, by their head's node and their number among the subquery's.
    pub heads: HashMap<(usize, usize), usize>,
    /// The process of each instance.
    pub process_of_instance: Vec<usize>,
    /// The source of each instance.
    pub sources: Vec<Option<usize>>,
    /// Called for the processes' events.
    pub report: Report,
    /// Counters of all instances.
    pub counters: Vec<Arc<InstanceCounters>>,
    /// What else the processes have counted.
    pub collected: Arc<Mutex<Vec<Collected>>>,
    /// The notices for the user about the input.
    pub notices: Arc<Notices>,
    /// Receives the processes' ends.
    pub left: mpsc::SyncSender<Left>,
    /// Receives the results of the phases of their starts.
    pub phases: mpsc::SyncSender<(usize, Phase)>,
    /// Receives the addresses at which they listen.
    pub addresses: mpsc::SyncSender<(usize, Option<SocketAddr>)>,
}

/// Reads the events of one worker process.
pub struct Reader {
    number: usize,
    child: Child,
    channel: Channel,
    /// The memory in which the process records the rows that it is processing.
    recorder: Option<Recorder>,
    /// The process's instances that have not ended.
    running: BTreeSet<usize>,
    shared: Arc<Shared>,
}

impl Reader {
    /// The reader of process `number`.
    pub fn new(
        number: usize,
        child: Child,
        channel: Channel,
        recorder: Option<Recorder>,
        shared: Arc<Shared>,
    ) -> Reader {
        let instances = shared.process_of_instance.iter().enumerate();
        let own = instances.filter(|(_, process)| **process == number);
        Reader {
            running: own.map(|(instance, _)| instance).collect(),
            number,
            child,
            channel,
            recorder,
            shared,
        }
    }

    /// Reads until the process has ended, and then waits for its exit.
    pub fn run(mut self) {
        let mut finished = None;
        let mut refused = None;
        while let Ok(Some(received)) = self.channel.receive_with::<ProcessEvent>() {
            let Received {
                message,
                bytes,
                descriptors,
            } = received;
            match message {
                ProcessEvent::Listens(address) => {
                    let _ = self.shared.addresses.try_send((self.number, address));
                }
                ProcessEvent::Refused(reason) => refused = Some(reason),
                ProcessEvent::Phase(phase) => self.say_phase(phase),
                ProcessEvent::Host(event) => self.hear(event, descriptors),
                ProcessEvent::Counted(counts) => self.store(&counts),
                ProcessEvent::CountedSteps => {
                    if let Err(reason) = steps::add(&bytes, &self.shared.counters) {
                        refused = Some(reason);
                        break;
                    }
                }
                ProcessEvent::Said(said) => self.shared.notices.say(said),
                ProcessEvent::Finished(counts) => {
                    self.store(&counts.counts);
                    finished = Some(counts);
                }
            }
        }
        if finished.is_none() && refused.is_some() {
            self.shared.outboxes[self.number].kill();
        }
        self.end(finished, refused);
    }

    fn say_phase(&self, phase: Phase) {
        // There is room for one message of each process and for its end; a process that sends more is broken.
        let _ = self.shared.phases.try_send((self.number, phase));
    }

    fn hear(&mut self, event: HostEvent, state: Vec<OwnedFd>) {
        match event {
            HostEvent::Worker(WorkerEvent::Handover(handover)) => self.hand_over(handover, state),
            HostEvent::Worker(
                WorkerEvent::Ended { instance, .. } | WorkerEvent::Failed { instance, .. },
            ) => {
                // Each instance ends once, whatever a process reports.
                if self.running.remove(&instance) {
                    (self.shared.report)(event);
                }
            }
            event => (self.shared.report)(event),
        }
    }

    /// Passes state on to the process that runs its new instance.
    fn hand_over(&self, handover: Handover, state: Vec<OwnedFd>) {
        let receiver = (handover.node, handover.to);
        // Only a broken process sends state for an instance that doesn't exist.
        if let Some(&instance) = self.shared.heads.get(&receiver) {
            let process = self.shared.process_of_instance[instance];
            let command = HostCommand::Workers(Command::TakeOver { instance, handover });
            self.shared.outboxes[process].put(ProcessCommand::Host(command), state);
        }
    }

    /// The process has ended or is about to.
    fn end(mut self, finished: Option<Box<FinalCounts>>, refused: Option<String>) {
        let status = self.child.wait();
        // So that no thread waits for its address.
        let _ = self.shared.addresses.try_send((self.number, None));
        if finished.is_none() {
            let name = format!("process {} (pid {})", self.number, self.child.id());
            let reason = refused.or_else(|| self.shared.outboxes[self.number].lost());
            let reason = reason.unwrap_or_else(|| how_it_died(&status));
            let error = Error::new(name, reason);
            self.say_phase(Phase::Died(error.clone()));
            let report = &self.shared.report;
            if status.as_ref().is_ok_and(is_its_own_fault) {
                let suspects = AgentEvent::Suspects(self.suspects());
                report(HostEvent::Checkpoint(suspects));
            }
            // All of its instances may have ended, but what they have prepared has to be committed.
            let reason = error.to_string();
            report(HostEvent::Checkpoint(AgentEvent::NotCommitted { reason }));
            for &instance in &self.running {
                report(HostEvent::Worker(WorkerEvent::Failed {
                    instance,
                    sinks: Vec::new(),
                    error: error.clone(),
                }));
            }
        }
        let _ = self.shared.left.try_send((self.number, finished));
    }

    /// The rows that the process was processing.
    fn suspects(&self) -> Vec<Suspected> {
        let noted = self.recorder.iter().flat_map(Recorder::read);
        let suspects = noted.filter_map(|(instance, suspect)| {
            let node = self.shared.sources.get(instance).copied().flatten()?;
            Some(Suspected {
                node,
                partition: suspect.partition,
                first: suspect.first,
                last: suspect.last,
            })
        });
        suspects.collect()
    }

    fn store(&self, counts: &Counts) {
        for (instance, counts) in &counts.instances {
            if let Some(slots) = self.shared.counters.get(*instance) {
                counts.store(slots);
            }
        }
        let mut collected = self
            .shared
            .collected
            .lock()
            .expect("no thread panics under it");
        collected[self.number] = Collected {
            bytes_read: counts.bytes_read.clone(),
            cpu_s: counts.cpu_s,
        };
    }
}

/// Whether the process itself crashed: these signals are rarely sent by others.
fn is_its_own_fault(status: &ExitStatus) -> bool {
    let faults = [
        Signal::SEGV,
        Signal::ABORT,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
    ];
    let signal = status.signal();
    signal.is_some_and(|signal| faults.iter().any(|fault| fault.as_raw() == signal))
}

fn how_it_died(status: &io::Result<ExitStatus>) -> String {
    let Ok(status) = status else {
        return "died for an unknown reason".to_string();
    };
    match (status.signal(), status.code()) {
        (Some(9), _) => "was killed (signal 9), by a user or because memory ran out".to_string(),
        (Some(signal), _) => format!("was terminated by signal {signal}"),
        (None, Some(code)) => format!("exited (code {code}) before its part was done"),
        (None, None) => "died".to_string(),
    }
}
