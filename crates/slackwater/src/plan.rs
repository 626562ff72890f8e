//! From a query graph to a deployment: split, expand, place, and the engine's plain data.

use slackwater_control::expand::{ExecutionGraph, expand};
use slackwater_control::place::{Placement, place};
use slackwater_control::query::{Exchange, NodeKind, QueryGraph};
use slackwater_control::split::{Subqueries, split};
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::deploy::{
    Deployment, InputPlan, InstancePlan, LinkPlan, StepKind, StepPlan,
};
use slackwater_sql::program::Program;
use slackwater_sql::settings::TwoPhase;
use slackwater_sql::specs::NodeSpec;

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
}

impl Plan {
    /// Whether an edge between two nodes leads from one subquery to another.
    pub fn crosses(&self, from: usize, to: usize) -> bool {
        self.subqueries.of_node[from] != self.subqueries.of_node[to]
    }

    /// Whether a subquery begins with a source.
    pub fn is_source(&self, subquery: usize) -> bool {
        self.sources[subquery]
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
    Deployment {
        id,
        instances,
        links,
        chunk_rows: program.settings.chunk_rows,
        process_of: plan.process_of.clone(),
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
                    let route = steps.len() - 1;
                    if combines(program, &steps[route], to) {
                        steps.push(StepPlan {
                            node: to,
                            kind: StepKind::Combine,
                            next: vec![route],
                        });
                    }
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

/// Whether rows may be aggregated before they are sent along `route` to an aggregation by key.
fn combines(program: &Program, route: &StepPlan, to: usize) -> bool {
    let StepKind::Route { balancer, links } = &route.kind else {
        return false;
    };
    let is_split = matches!(balancer, BalancerPlan::Keyed { .. }) && links.len() > 1;
    let NodeSpec::Aggregate { spec, input } = &program.nodes[to] else {
        return false;
    };
    let may = match program.settings.two_phase {
        TwoPhase::On => true,
        // When it is switched on is a matter of time, which no row may depend on.
        TwoPhase::Auto => spec.calls.iter().all(|call| call.is_exact(input)),
        TwoPhase::Off => false,
    };
    is_split && may && spec.can_combine()
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
            to,
        },
        Exchange::RoundRobin => BalancerPlan::RoundRobin,
        Exchange::Demand | Exchange::Spread => BalancerPlan::Demand,
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
