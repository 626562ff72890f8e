//! What a process does before its part of a query runs: it reads what is to be restored, so that damage is
//! found before anything is committed; then its sinks commit what the checkpoint has pending. Each process
//! restores its own instances, and commits for the sinks whose first instance it runs.

use serde::{Deserialize, Serialize};
use slackwater_checkpoint::Kind;
use slackwater_engine::Error;
use slackwater_engine::deploy::{Catalog, Deployment, InputPlan, StepKind};
use slackwater_engine::operator::Operator;
use slackwater_engine::sink::Recovered;

use crate::catalog::ProgramCatalog;

/// The result of a phase of the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The phase has succeeded.
    Done,
    /// The state to restore is damaged.
    Corrupt {
        /// The reason, with the place.
        reason: String,
    },
    /// The state to restore can't be read now.
    Unreadable {
        /// The reason, with the place.
        reason: String,
    },
    /// A sink would destroy existing data if it started.
    Rejected {
        /// The sink's node in the query graph.
        node: usize,
        /// What would be destroyed, and how to avoid that.
        error: Error,
    },
    /// What a sink had prepared is gone.
    Lost {
        /// The sink's node in the query graph.
        node: usize,
    },
    /// A sink can't commit or start.
    Failed(Error),
    /// A process ended during the phase.
    Died(Error),
}

/// What a sink has pending in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The sink's node in the query graph.
    pub node: usize,
    /// The commits of all its instances; `None` if the query starts or the sink is new.
    pub commits: Option<Vec<String>>,
    /// Whether the sink is asked first if it may start.
    pub is_new: bool,
}

/// The process that restores a sink, for all of its instances: the one that runs the first of them.
pub fn process_of_sink(deployment: &Deployment, node: usize) -> usize {
    let is_it = |instance: usize| {
        let mut steps = deployment.instances[instance].steps.iter();
        steps.any(|step| step.node == node && matches!(step.kind, StepKind::Sink { .. }))
    };
    let first = (0..deployment.instances.len()).find(|&instance| is_it(instance));
    first.map_or(0, |instance| deployment.process(instance))
}

/// Reads what the instances of a process have in the checkpoint that `catalog` begins with, and keeps it for
/// them.
pub fn restore(catalog: &ProgramCatalog<'_>, deployment: &Deployment, process: usize) -> Phase {
    for (number, instance) in deployment.instances.iter().enumerate() {
        let Some(head) = instance.steps.first() else {
            continue;
        };
        let is_head = matches!(instance.input, InputPlan::Ports(_));
        if deployment.process(number) != process || !instance.checkpointed || !is_head {
            continue;
        }
        // An operator that can't be created reports that when the part starts.
        let Ok(Operator::Stateful(mut operator)) = catalog.operator(head.node) else {
            continue;
        };
        if operator.state().is_none() {
            continue;
        }
        let is_replicated = operator.facts().is_replicated;
        let share = (!is_replicated).then_some((instance.index, instance.instances));
        if let Err(error) = catalog.read_restored(head.node, share) {
            let reason = error.to_string();
            return match error.kind {
                Kind::Corrupt | Kind::Missing => Phase::Corrupt { reason },
                _ => Phase::Unreadable { reason },
            };
        }
    }
    Phase::Done
}

/// Makes sinks commit what is pending, in this order, as incarnation `epoch`.
pub fn recommit(catalog: &ProgramCatalog<'_>, epoch: u64, sinks: &[Pending]) -> Phase {
    for pending in sinks {
        let node = pending.node;
        let Some((_, sink)) = catalog.sinks().find(|(sink, _)| *sink == node) else {
            continue;
        };
        if pending.is_new
            && let Err(error) = sink.connector.begin(true)
        {
            return Phase::Rejected { node, error };
        }
        match sink.connector.recover(epoch, pending.commits.as_deref()) {
            Ok(Recovered::Committed) => {}
            Ok(Recovered::Lost) => return Phase::Lost { node },
            Err(error) => return Phase::Failed(error),
        }
    }
    Phase::Done
}

#[cfg(test)]
mod tests {
    use slackwater_engine::deploy::{InstancePlan, StepPlan};

    use super::*;

    #[test]
    fn a_sink_is_restored_where_the_first_of_its_instances_runs() {
        let instance = |worker, sinks: &[usize]| {
            let steps = sinks.iter().map(|&node| StepPlan {
                node,
                kind: StepKind::Sink {
                    latency_target_ns: None,
                    leaves_out: Vec::new(),
                },
                next: Vec::new(),
            });
            InstancePlan {
                name: String::new(),
                worker,
                movable: false,
                checkpointed: true,
                index: 0,
                instances: 1,
                input: InputPlan::source(0),
                steps: steps.collect(),
                roots: Vec::new(),
            }
        };
        let deployment = Deployment {
            instances: vec![instance(0, &[]), instance(2, &[7]), instance(1, &[7, 8])],
            links: Vec::new(),
            chunk_rows: 1,
            process_of: vec![0, 1, 2],
            host_of: Vec::new(),
            relays: Vec::new(),
        };
        assert_eq!(process_of_sink(&deployment, 7), 2);
        assert_eq!(process_of_sink(&deployment, 8), 1);
    }
}
