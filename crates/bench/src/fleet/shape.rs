//! What the processes of a fleet run.

use serde::{Deserialize, Serialize};
use slackwater_control::broadcast::links::{broadcasts, lay};
use slackwater_control::broadcast::{Algorithm, Place};
use slackwater_control::expand::expand;
use slackwater_control::query::{Edge, Exchange, Node, NodeKind, QueryGraph};
use slackwater_control::split::split;
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::deploy::{
    Deployment, InputPlan, InstancePlan, LinkPlan, RelayPlan, StepKind, StepPlan,
};

/// Rows per chunk of an operator; no operator here creates chunks of its own.
const CHUNK_ROWS: usize = 8192;

/// The node of the source, and the node after it.
const SOURCE: usize = 0;
const SINK: usize = 1;

/// Instances and what connects them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// A source in process 0 sends everything to every receiver; neighboring receivers share a process.
    Broadcast {
        /// Receivers.
        receivers: usize,
        /// Number of processes, at most the number of receivers.
        processes: usize,
        /// The algorithm's name.
        algorithm: String,
        /// Bytes of a segment, if larger messages are cut into segments.
        segment_bytes: Option<usize>,
    },
    /// A row of a source, instances that pass on what they receive, and a sink.
    Line {
        /// Number of processes, with an instance each.
        workers: usize,
    },
}

impl Shape {
    /// Number of processes.
    pub fn processes(&self) -> usize {
        match *self {
            Shape::Broadcast { processes, .. } => processes,
            Shape::Line { workers } => workers,
        }
    }

    /// The deployment, the same in every process.
    ///
    /// # Errors
    ///
    /// If there is no such algorithm.
    pub fn deployment(&self) -> Result<Deployment, String> {
        match self {
            Shape::Broadcast {
                receivers,
                processes,
                algorithm,
                segment_bytes,
            } => {
                let algorithm = Algorithm::named(algorithm)
                    .ok_or_else(|| format!("there is no algorithm '{algorithm}'"))?;
                Ok(broadcast(*receivers, *processes, algorithm, *segment_bytes))
            }
            Shape::Line { workers } => Ok(line(*workers)),
        }
    }

    /// Number of sinks in a process.
    pub fn sinks(&self, deployment: &Deployment, process: usize) -> usize {
        let instances = deployment.instances.iter().enumerate();
        let sinks = instances.filter(|&(number, instance)| {
            let writes = |step: &StepPlan| matches!(step.kind, StepKind::Sink { .. });
            deployment.process(number) == process && instance.steps.iter().any(writes)
        });
        sinks.count()
    }
}

fn broadcast(
    receivers: usize,
    processes: usize,
    algorithm: Algorithm,
    segment_bytes: Option<usize>,
) -> Deployment {
    let node = |name: &str, kind, inputs, instances_max| Node {
        name: name.to_string(),
        detail: String::new(),
        kind,
        inputs,
        instances_max,
    };
    let mut graph = QueryGraph::default();
    graph.add(node("source", NodeKind::Source, vec![], 1));
    let edge = Edge {
        from: SOURCE,
        exchange: Exchange::Broadcast,
    };
    graph.add(node("sink", NodeKind::Sink, vec![edge], receivers));
    let mut execution = expand(&graph, &split(&graph, receivers));
    // Instance 0 is the source.
    let process_of = |instance: usize| instance.saturating_sub(1) * processes / receivers;
    let place_of = |instance: usize| Place {
        host: 0,
        process: process_of(instance),
    };
    for broadcast in broadcasts(&graph) {
        lay(&mut execution, broadcast, algorithm, &place_of);
    }
    let instances = (0..execution.instances.len()).map(|number| {
        let links = execution.links.iter().enumerate();
        if number == 0 {
            let own = links.filter(|(_, link)| link.from == 0);
            let kind = StepKind::Route {
                balancer: BalancerPlan::Broadcast { segment_bytes },
                links: own.map(|(number, _)| number).collect(),
            };
            return instance(number, 0, InputPlan::source(SOURCE), kind);
        }
        let into = links.filter(|(_, link)| link.to == number);
        let into = into.map(|(number, _)| number).collect();
        let input = InputPlan::Ports(vec![into]);
        instance(number, process_of(number), input, sink())
    });
    let links = execution.links.iter();
    let links = links.map(|link| LinkPlan::new(link.from, link.to));
    let relays = execution.relays.iter().map(|relay| RelayPlan {
        link: relay.link,
        links: relay.links.clone(),
    });
    Deployment {
        instances: instances.collect(),
        links: links.collect(),
        chunk_rows: CHUNK_ROWS,
        process_of: (0..processes).collect(),
        host_of: Vec::new(),
        relays: relays.collect(),
    }
}

fn line(workers: usize) -> Deployment {
    let last = workers - 1;
    let instances = (0..workers).map(|worker| {
        let input = match worker {
            0 => InputPlan::source(SOURCE),
            // Link `i` leads from instance `i` to the next one.
            _ => InputPlan::Ports(vec![vec![worker - 1]]),
        };
        let pass_on = StepKind::Route {
            balancer: BalancerPlan::PointToPoint,
            links: vec![worker],
        };
        let kind = if worker == last { sink() } else { pass_on };
        instance(worker, worker, input, kind)
    });
    Deployment {
        instances: instances.collect(),
        links: (0..last)
            .map(|from| LinkPlan::new(from, from + 1))
            .collect(),
        chunk_rows: CHUNK_ROWS,
        process_of: (0..workers).collect(),
        host_of: Vec::new(),
        relays: Vec::new(),
    }
}

fn sink() -> StepKind {
    StepKind::Sink {
        latency_target_ns: None,
        leaves_out: Vec::new(),
    }
}

fn instance(number: usize, worker: usize, input: InputPlan, kind: StepKind) -> InstancePlan {
    let step = StepPlan {
        node: SINK,
        kind,
        next: vec![],
    };
    InstancePlan {
        name: format!("instance {number}"),
        worker,
        movable: false,
        checkpointed: false,
        index: number,
        instances: 1,
        input,
        steps: vec![step],
        roots: vec![0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_receiver_has_a_link_and_every_process_its_share_of_them() {
        for algorithm in Algorithm::ALL {
            let shape = Shape::Broadcast {
                receivers: 32,
                processes: 8,
                algorithm: algorithm.name().to_string(),
                segment_bytes: None,
            };
            let deployment = shape.deployment().expect("an algorithm");
            assert_eq!(
                (deployment.instances.len(), deployment.links.len()),
                (33, 32)
            );
            for process in 0..8 {
                assert_eq!(shape.sinks(&deployment, process), 4);
            }
        }
    }

    #[test]
    fn a_line_has_one_sink_at_its_end() {
        let shape = Shape::Line { workers: 8 };
        let deployment = shape.deployment().expect("a line");
        assert_eq!(deployment.remote_links().count(), 7);
        let sinks = (0..8).map(|process| shape.sinks(&deployment, process));
        assert_eq!(sinks.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
