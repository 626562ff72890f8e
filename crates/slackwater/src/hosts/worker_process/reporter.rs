//! Sends what happens in a worker process to the process that commands it.

use std::cell::Cell;
use std::os::fd::AsFd;

use slackwater_engine::barrier::Handover;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::{Attached, Command, WorkerEvent};

use crate::hosts::channel::Channel;
use crate::hosts::executor::heads;
use crate::hosts::handover;
use crate::hosts::protocol::{HostCommand, HostEvent, ProcessEvent};

/// Sends the executor's events to the parent.
pub struct Reporter<'a> {
    channel: &'a Channel,
    deployment: &'a Deployment,
    /// The number of instances of this process that have not ended.
    running: Cell<usize>,
}

impl<'a> Reporter<'a> {
    /// Sends events to `channel`, of a process with so many instances.
    pub fn new(channel: &'a Channel, deployment: &'a Deployment, instances: usize) -> Reporter<'a> {
        Reporter {
            channel,
            deployment,
            running: Cell::new(instances),
        }
    }

    /// Whether all instances have ended.
    pub fn is_done(&self) -> bool {
        self.running.get() == 0
    }

    /// Sends an event.
    pub fn report(&self, event: HostEvent, attached: Attached) {
        if let HostEvent::Worker(WorkerEvent::Handover(handover)) = event {
            return self.hand_over(handover, &attached);
        }
        let is_end = matches!(
            event,
            HostEvent::Worker(WorkerEvent::Ended { .. } | WorkerEvent::Failed { .. })
        );
        self.running.set(self.running.get() - usize::from(is_end));
        // The thread that listens notices if the parent has gone.
        let _ = self.channel.send(&ProcessEvent::Host(event), &[]);
    }

    /// Sends state to the process that runs its new instance.
    fn hand_over(&self, handover: Handover, attached: &Attached) {
        let heads = heads(self.deployment);
        let instance_of = |number: usize| heads.get(&(handover.node, number)).copied();
        // The executor has asked for an instance that exists.
        let Some(instance) = instance_of(handover.to) else {
            return;
        };
        let state = match attached {
            Attached::State(state) => state.as_slice(),
            Attached::Nothing | Attached::Instances(_) | Attached::Snapshot(_) => &[],
        };
        let state = match handover::seal(state) {
            Ok(state) => state,
            Err(error) => {
                let failed = WorkerEvent::Failed {
                    instance: instance_of(handover.from).unwrap_or(0),
                    sinks: Vec::new(),
                    error,
                };
                return self.report(HostEvent::Worker(failed), Attached::Nothing);
            }
        };
        let event = ProcessEvent::Forward {
            process: self.deployment.process(instance),
            command: HostCommand::Workers(Command::TakeOver { instance, handover }),
        };
        let state = state.as_ref().map(|file| file.as_fd());
        let _ = self.channel.send(&event, state.as_slice());
    }
}
