//! Runs this process's part of a deployment: its workers, the controls of its sources and aggregations, and
//! its checkpoint agent. The same in a worker process and, for a query in one process, on a thread of the
//! process that the user started; both put everything that it is to hear into one queue.
//!
//! Invariants:
//! - Nobody waits in a circle: workers and whoever tells it something never block on the queue; it blocks on
//!   workers, which always come back to their commands, and on whoever hears its events.
//! - Instances and their state don't leave it, but for state that moves to an instance of another process.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};

use slackwater_engine::counters::{InstanceCounters, LinkCounters};
use slackwater_engine::deploy::{Deployment, InputPlan, LinkSide, StepKind};
use slackwater_engine::protocol::{Attached, Command, EVENTS_MAX, WorkerEvent};
use slackwater_engine::runtime::Runtime;
use slackwater_engine::worker::{Listener, Unheard};

use super::protocol::{HostCommand, HostEvent};
use crate::catalog::Controls;
use crate::checkpoints::{CheckpointAgent, JobDone};
use crate::probe::Probe;

/// A message to the thread of an executor; `H` is the host's message.
pub enum Heard<H> {
    /// An event of a worker.
    Worker(WorkerEvent, Attached),
    /// A finished job of the agent's thread.
    Agent(JobDone),
    /// A message of the host.
    Host(H),
}

/// Creates an executor's queue, with room for what workers report at once.
pub fn inbox<H: Send>() -> (Inbox<H>, mpsc::Receiver<Heard<H>>) {
    let (sender, receiver) = mpsc::sync_channel(EVENTS_MAX);
    (Inbox(sender), receiver)
}

/// The sending end of an executor's queue.
pub struct Inbox<H>(pub mpsc::SyncSender<Heard<H>>);

impl<H> Clone for Inbox<H> {
    fn clone(&self) -> Inbox<H> {
        Inbox(self.0.clone())
    }
}

impl<H: Send> Listener for Inbox<H> {
    fn hear(&self, event: WorkerEvent, attached: Attached) -> Result<(), Unheard> {
        match self.0.try_send(Heard::Worker(event, attached)) {
            Err(mpsc::TrySendError::Full(Heard::Worker(event, attached))) => {
                Err(Box::new((event, attached)))
            }
            // The queue has no receiver only when the query is over.
            _ => Ok(()),
        }
    }
}

/// Instances that have links, by their head's node and their number among the subquery's.
pub fn heads(deployment: &Deployment) -> HashMap<(usize, usize), usize> {
    let instances = deployment.instances.iter().enumerate();
    let heads = instances.filter_map(|(number, instance)| {
        let head = instance.steps.first()?.node;
        let is_linked = matches!(instance.input, InputPlan::Ports(_));
        is_linked.then_some(((head, instance.index), number))
    });
    heads.collect()
}

/// A running part of a deployment.
pub struct Executor {
    runtime: Runtime,
    controls: Controls,
    agent: Option<CheckpointAgent>,
    /// The instances of this process that may receive state from others.
    heads: HashMap<(usize, usize), usize>,
    /// The instances that are being moved, and the workers that they move to.
    relocating: HashMap<usize, usize>,
    is_removed: bool,
    /// The probe of this process, if other processes can't look at its counters.
    probe: Option<Probe>,
    /// The counters of the links to other processes, by link.
    links: HashMap<usize, Arc<LinkCounters>>,
    /// The sinks of this process: the node, and the instance's counters with the number of the step.
    sinks: Vec<(usize, Arc<InstanceCounters>, usize)>,
    steered: Steered,
}

/// The number of requests for a latency target that an executor has received.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steered {
    /// How often it was asked for its activity.
    pub looks: u64,
    /// How often a worker was told how to wait, a source how to cut its rows into chunks, or a link the size
    /// of its messages.
    pub settings: u64,
}

impl Executor {
    /// The part that belongs to `process`, and that `runtime` runs.
    pub fn new(
        runtime: Runtime,
        deployment: &Deployment,
        process: usize,
        controls: Controls,
        agent: Option<CheckpointAgent>,
        probe: Option<Probe>,
    ) -> Executor {
        let mut heads = heads(deployment);
        heads.retain(|_, instance| deployment.process(*instance) == process);
        Executor {
            runtime,
            controls,
            agent,
            heads,
            relocating: HashMap::new(),
            is_removed: false,
            probe,
            links: HashMap::new(),
            sinks: Vec::new(),
            steered: Steered::default(),
        }
    }

    /// Takes over this process's links to other processes, the size of whose messages may change.
    pub fn with_links(mut self, links: &[LinkSide]) -> Executor {
        let sending = links.iter().filter(|side| side.sends);
        let counters = sending.map(|side| (side.link, Arc::clone(&side.counters)));
        self.links = counters.collect();
        self
    }

    /// Takes over the counters of all instances, which hold the latency targets of sinks.
    pub fn with_sinks(
        mut self,
        deployment: &Deployment,
        counters: &[Arc<InstanceCounters>],
    ) -> Executor {
        for (instance, counters) in deployment.instances.iter().zip(counters) {
            let steps = instance.steps.iter().enumerate();
            let sinks = steps.filter(|(_, step)| matches!(step.kind, StepKind::Sink { .. }));
            let sinks = sinks.map(|(number, step)| (step.node, Arc::clone(counters), number));
            self.sinks.extend(sinks);
        }
        self
    }

    /// The number of requests for a latency target.
    pub fn steered(&self) -> Steered {
        self.steered
    }

    /// Executes a command; `report` is called for immediate events.
    pub fn tell(
        &mut self,
        command: HostCommand,
        attached: Attached,
        report: &mut impl FnMut(HostEvent, Attached),
    ) {
        match command {
            HostCommand::Workers(command) => {
                self.is_removed |= command == Command::Remove;
                self.steered.settings += u64::from(matches!(command, Command::Wait { .. }));
                self.runtime.tell(command, attached);
            }
            HostCommand::Relocate { instance, worker } => {
                self.relocating.insert(instance, worker);
                self.runtime
                    .tell(Command::Detach { instance }, Attached::Nothing);
            }
            HostCommand::Tune {
                node,
                linger_ns,
                chunk_rows,
            } => {
                self.steered.settings += 1;
                self.controls.tune(node, linger_ns, chunk_rows);
            }
            HostCommand::Retarget { node, target_ns } => {
                let own = self.sinks.iter().filter(|(sink, ..)| *sink == node);
                own.for_each(|(_, counters, step)| {
                    counters.steps[*step].set_target(Some(target_ns))
                });
            }
            HostCommand::Resize {
                link,
                message_bytes,
            } => {
                if let Some(counters) = self.links.get(&link) {
                    self.steered.settings += 1;
                    counters.resize(Some(message_bytes));
                }
            }
            HostCommand::Observe { errors_ns, .. } => {
                for (node, counters, step) in &self.sinks {
                    let mut errors = errors_ns.iter();
                    let error = errors.find(|(sink, _)| sink == node);
                    let error_ns = error.map_or(0, |(_, error_ns)| *error_ns);
                    counters.steps[*step].set_latency_error(error_ns);
                }
                if let Some(probe) = &mut self.probe {
                    self.steered.looks += 1;
                    report(HostEvent::Observed(probe.look()), Attached::Nothing);
                }
            }
            HostCommand::Combine { node } => self.controls.combine(node),
            HostCommand::Follow { folder } => {
                if let Some(agent) = &mut self.agent {
                    agent.follow(folder);
                }
            }
            HostCommand::Commit { barrier } => {
                let event = self.agent.as_mut().and_then(|agent| agent.commit(barrier));
                if let Some(event) = event {
                    report(HostEvent::Checkpoint(event), Attached::Nothing);
                }
            }
        }
    }

    /// Handles an event of a worker.
    pub fn hear(
        &mut self,
        event: WorkerEvent,
        mut attached: Attached,
        report: &mut impl FnMut(HostEvent, Attached),
    ) {
        if let Some(agent) = &mut self.agent
            && matches!(attached, Attached::Snapshot(_) | Attached::Nothing)
        {
            for event in agent.hear(&event, std::mem::take(&mut attached)) {
                report(HostEvent::Checkpoint(event), Attached::Nothing);
            }
        }
        match event {
            // The agent has handled these.
            WorkerEvent::Snapshot { .. } | WorkerEvent::Changed => {}
            WorkerEvent::Detached { instance } => self.relocate(instance, attached, report),
            WorkerEvent::Handover(handover) => {
                match self.heads.get(&(handover.node, handover.to)) {
                    Some(&instance) => {
                        let command = Command::TakeOver { instance, handover };
                        self.runtime.tell(command, attached);
                    }
                    None => report(HostEvent::Worker(event), attached),
                }
            }
            WorkerEvent::Active => {
                // The probe's interval starts with the activity that ended the silence.
                self.probe.iter_mut().for_each(Probe::skip);
                report(HostEvent::Worker(event), Attached::Nothing);
            }
            WorkerEvent::Ended { .. }
            | WorkerEvent::Failed { .. }
            | WorkerEvent::Examined { .. }
            | WorkerEvent::OverBudget { .. }
            | WorkerEvent::Moved { .. } => report(HostEvent::Worker(event), Attached::Nothing),
        }
    }

    /// An instance has left its worker.
    fn relocate(
        &mut self,
        instance: usize,
        mut attached: Attached,
        report: &mut impl FnMut(HostEvent, Attached),
    ) {
        match self.relocating.remove(&instance) {
            Some(worker) if !self.is_removed => {
                let command = Command::Adopt { instance, worker };
                self.runtime.tell(command, attached);
                report(HostEvent::Relocated { instance }, Attached::Nothing);
            }
            // The query is being dropped, and no worker has this instance.
            _ => {
                let mut sinks = Vec::new();
                if let Attached::Instances(instances) = &mut attached {
                    for (_, instance) in instances {
                        sinks.extend(instance.close());
                    }
                }
                let ended = WorkerEvent::Ended { instance, sinks };
                report(HostEvent::Worker(ended), Attached::Nothing);
            }
        }
    }

    /// Handles a finished job of the agent's thread.
    pub fn done(&mut self, done: JobDone, report: &mut impl FnMut(HostEvent, Attached)) {
        if let Some(agent) = &mut self.agent {
            let event = agent.done(done);
            report(HostEvent::Checkpoint(event), Attached::Nothing);
        }
    }
}
