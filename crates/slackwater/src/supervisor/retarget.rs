//! Latency targets that change while the query runs.

use super::events::Retarget;
use super::watch::Watch;
use crate::hosts::HostCommand;
use crate::traces::Fact;
use crate::tuner::{Site, Tuner};

impl Watch<'_> {
    /// Tells the host the targets that were changed in an earlier incarnation.
    pub(super) fn restore_targets(&self) {
        for (node, target_ns) in self.targets.changed() {
            self.host.tell(HostCommand::Retarget { node, target_ns });
        }
    }

    /// Changes the targets of sinks.
    pub(super) fn retarget(&mut self, retarget: Retarget) {
        let Retarget { targets, done } = retarget;
        for (node, target_ns) in targets {
            self.targets.set(node, target_ns);
            let target = Fact::Number(target_ns);
            self.traces
                .event("retarget", vec![("slackwater.latency_target_ns", target)]);
            self.host.tell(HostCommand::Retarget { node, target_ns });
            if let Some(tuner) = &mut self.tuner {
                tuner.retarget(node, target_ns);
            }
        }
        // It was a query without targets until now.
        if self.tuner.is_none() {
            self.tuner = Tuner::new(
                self.program,
                self.plan,
                self.catalog,
                self.deployment,
                Site {
                    execution: self.host,
                    hosts: self.hosts,
                },
                self.costs,
                self.targets,
            );
            if let Some(tuner) = &mut self.tuner {
                tuner.begin();
            }
        }
        done();
    }
}
