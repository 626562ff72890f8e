//! From a query graph to a deployment: split, expand, place, and the engine's plain data.

use arrow_schema::SchemaRef;
use slackwater_control::expand::{ExecutionGraph, expand};
use slackwater_control::place::{Placement, place};
use slackwater_control::query::{Exchange, NodeKind, QueryGraph};
use slackwater_control::split::{Subqueries, split};
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::deploy::{
    Deployment, InputPlan, InstancePlan, LinkPlan, RelayPlan, StepKind, StepPlan,
};
use slackwater_sql::program::Program;
use slackwater_sql::specs::NodeSpec;

use crate::broadcast::Decided;

/// A query graph with what the control path decided for it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The subqueries.
    pub subqueries: Subqueries,
    /// Their instances and links.
    pub execution: ExecutionGraph,
    /// Where they run.
    pub placement: Placement,
    /// The process of each worker.
    pub process_of: Vec<usize>,
    /// Instances of each parallelisable subquery that were asked for.
    pub parallelism: usize,
    /// Which subqueries begin with a source.
    pub sources: Vec<bool>,
    /// Instances begin on one worker, and are spread and gathered while they run.
    pub elastic: bool,
    /// How rows get to all instances that want them all.
    pub broadcasts: Vec<Decided>,
}

impl Plan {
    /// Whether a subquery begins with a source.
    pub fn is_source(&self, subquery: usize) -> bool {
        self.sources[subquery]
    }

    /// What was decided for a broadcast to an input of a node.
    pub fn decided(&self, to_node: usize, input: usize) -> Option<&Decided> {
        let mut broadcasts = self.broadcasts.iter();
        broadcasts.find(|decided| {
            (decided.broadcast.to_node, decided.broadcast.input) == (to_node, input)
        })
    }
}

/// The columns that a node puts out.
pub fn output_schema(program: &Program, node: usize) -> &SchemaRef {
    match &program.nodes[node] {
        NodeSpec::Source(source) => &source.schema,
        NodeSpec::Map { schema, .. }
        | NodeSpec::Window { schema, .. }
        | NodeSpec::Union { schema } => schema,
        NodeSpec::Aggregate { spec, .. } => &spec.schema,
        NodeSpec::Join(spec) => &spec.schema,
        NodeSpec::Sink(sink) => &sink.schema,
        // It puts out what it takes in.
        NodeSpec::Filter { .. } => output_schema(program, program.graph.nodes[node].inputs[0].from),
    }
}

/// Plans a graph for `parallelism` instances on `workers` threads and those on `cores`, dealt out to
/// `processes`, at most as many as workers. `elastic` puts all on the first worker to begin with.
pub fn plan(
    graph: &QueryGraph,
    parallelism: usize,
    workers: usize,
    processes: usize,
    cores: &[usize],
    elastic: bool,
) -> Plan {
    let subqueries = split(graph, parallelism);
    let execution = expand(graph, &subqueries);
    let heads = subqueries.subqueries.iter();
    let sources = heads.map(|part| graph.nodes[part.nodes[0]].kind == NodeKind::Source);
    let sources = sources.collect();
    let mut placement = place(graph, &subqueries, &execution, workers, cores);
    if elastic {
        placement.worker_of.fill(0);
    }
    Plan {
        subqueries,
        execution,
        placement,
        // Neighbours share a process, and all processes get as many workers, or one fewer.
        process_of: (0..workers)
            .map(|worker| worker * processes / workers)
            .collect(),
        parallelism,
        sources,
        elastic,
        broadcasts: Vec::new(),
    }
}

/// What a deployment looks like: processes that plan a query for themselves compare it, together
/// with the number of partitions that they see.
pub fn fingerprint(program: &Program, deployment: &Deployment) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{deployment:?}").hash(&mut hasher);
    for node in &program.nodes {
        if let NodeSpec::Source(source) = node {
            source.connector.describe().max_instances.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// A name for an instance, as messages and `explain` show it.
pub fn instance_name(graph: &QueryGraph, plan: &Plan, instance: usize) -> String {
    let node = &plan.execution.instances[instance];
    let head = plan.subqueries.subqueries[node.subquery].nodes[0];
    let name = &graph.nodes[head].name;
    if node.of == 1 {
        format!("{name} #{head}")
    } else {
        format!("{name} #{head} [{}/{}]", node.index + 1, node.of)
    }
}

/// The plan as the engine's plain data.
pub fn deployment(program: &Program, plan: &Plan, id: u32) -> Deployment {
    let links = plan.execution.links.iter();
    let links = links
        .map(|link| LinkPlan {
            from: link.from,
            to: link.to,
        })
        .collect();
    let instances = (0..plan.execution.instances.len())
        .map(|instance| instance_plan(program, plan, instance))
        .collect();
    let relays = plan.execution.relays.iter().map(|relay| RelayPlan {
        link: relay.link,
        links: relay.links.clone(),
    });
    Deployment {
        id,
        instances,
        links,
        chunk_rows: program.settings.chunk_rows,
        process_of: plan.process_of.clone(),
        relays: relays.collect(),
    }
}

fn instance_plan(program: &Program, plan: &Plan, instance: usize) -> InstancePlan {
    let graph = &program.graph;
    let node = &plan.execution.instances[instance];
    let nodes = &plan.subqueries.subqueries[node.subquery].nodes;
    let is_source = graph.nodes[nodes[0]].kind == NodeKind::Source;
    // A source is the input of its instance, every other node a step.
    let stepped = if is_source { &nodes[1..] } else { &nodes[..] };
    let step_of = |node: usize| stepped.iter().position(|&stepped| stepped == node);
    let mut steps = stepped
        .iter()
        .map(|&node| StepPlan {
            node,
            kind: match graph.nodes[node].kind {
                NodeKind::Sink => StepKind::Sink {
                    latency_target_ns: latency_target(program, node),
                },
                _ => StepKind::Operator,
            },
            next: Vec::new(),
        })
        .collect::<Vec<_>>();
    let mut roots = if is_source { Vec::new() } else { vec![0] };
    for &from in nodes {
        for (to, input) in graph.consumers(from) {
            let step = match step_of(to) {
                // Fused: a plain call.
                Some(step) => step,
                None => {
                    steps.push(route(program, plan, instance, from, to, input));
                    steps.len() - 1
                }
            };
            match step_of(from) {
                Some(from) => steps[from].next.push(step),
                None => roots.push(step),
            }
        }
    }
    let head = &graph.nodes[nodes[0]];
    let input = if is_source {
        InputPlan::Source { node: nodes[0] }
    } else {
        let ports = (0..head.inputs.len()).map(|input| {
            let links = plan.execution.links.iter().enumerate();
            let links = links.filter(|(_, link)| link.to == instance && link.input == input);
            links.map(|(number, _)| number).collect::<Vec<usize>>()
        });
        InputPlan::Ports(ports.collect())
    };
    InstancePlan {
        name: instance_name(graph, plan, instance),
        worker: plan.placement.worker_of[instance],
        movable: plan.elastic
            && !is_source
            && nodes.iter().all(|&node| may_move(&program.nodes[node])),
        index: node.index,
        of: node.of,
        input,
        steps,
        roots,
    }
}

fn latency_target(program: &Program, node: usize) -> Option<u64> {
    match &program.nodes[node] {
        NodeSpec::Sink(sink) => sink.latency_target_ns,
        _ => None,
    }
}

/// Whether a node may go on on another worker while it runs.
fn may_move(node: &NodeSpec) -> bool {
    match node {
        NodeSpec::Source(_) => false,
        NodeSpec::Sink(sink) => !sink.connector.uses_waiter(),
        _ => true,
    }
}

fn route(
    program: &Program,
    plan: &Plan,
    instance: usize,
    from: usize,
    to: usize,
    input: usize,
) -> StepPlan {
    let links = plan.execution.links.iter().enumerate().filter(|(_, link)| {
        link.from == instance && link.from_node == from && link.to_node == to && link.input == input
    });
    let links = links.map(|(number, _)| number).collect::<Vec<usize>>();
    let balancer = match &program.graph.nodes[to].inputs[input].exchange {
        Exchange::Key(columns) => BalancerPlan::Keyed {
            columns: columns.clone(),
            keep_origin: orders_rows(&program.nodes[to]),
        },
        Exchange::RoundRobin => BalancerPlan::RoundRobin,
        Exchange::Broadcast => BalancerPlan::Broadcast {
            segment_bytes: plan
                .decided(to, input)
                .and_then(|decided| decided.choice.segment_bytes),
        },
        Exchange::Forward | Exchange::Single => BalancerPlan::PointToPoint,
    };
    StepPlan {
        node: from,
        kind: StepKind::Route { balancer, links },
        next: Vec::new(),
    }
}

/// Whether the node orders rows by where they come from.
fn orders_rows(node: &NodeSpec) -> bool {
    match node {
        NodeSpec::Aggregate { spec, .. } => {
            spec.calls.iter().any(|call| call.function.needs_order())
        }
        _ => false,
    }
}
