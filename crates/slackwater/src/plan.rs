//! From a query graph to a deployment: split, expand, place, and the engine's plain data.

mod processes;

use slackwater_control::broadcast::links::Broadcast;
use slackwater_control::broadcast::model::Choice;
use slackwater_control::cluster::Cluster;
use slackwater_control::copies::Copies;
use slackwater_control::demand::demand;
use slackwater_control::expand::{ExecutionGraph, expand_copies};
use slackwater_control::latency::message::{LinkLoad, MessagePlan};
use slackwater_control::place::{Placement, Places, Question, Strategy, place, place_of_workers};
use slackwater_control::query::{Exchange, NodeKind, QueryGraph};
use slackwater_control::split::{Subqueries, split_apart};
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::chunk::RowKind;
use slackwater_engine::deploy::{
    Deployment, InputPlan, InstancePlan, LinkPlan, RelayPlan, StepKind, StepPlan,
};
use slackwater_engine::runtime::WaitMode;
use slackwater_engine::sink::Accepts;
use slackwater_sql::program::Program;
use slackwater_sql::settings::{Processes, TwoPhase};

use crate::bound::Bound;
use crate::checkpoints::takes_part;
use crate::copies::{self, Copied};
use crate::costs::{QueryCosts, source_rates};
use crate::machine::Machine;
use crate::parallel::Parsing;
use crate::report::CopiesReport;

/// A query graph with everything that was decided for it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The subqueries.
    pub subqueries: Subqueries,
    /// The instances of the subqueries, and their links.
    pub execution: ExecutionGraph,
    /// The workers and cores of the instances.
    pub placement: Placement,
    /// The copies of the query, if there are several.
    pub copies: Option<Copied>,
    /// The bytes for each row that the sources read that go from one place ([`PlanRequest::places`]) to
    /// another; `None` if the places are not known.
    pub bytes_between: Option<f64>,
    /// The process of each worker.
    pub process_of: Vec<usize>,
    /// The number of processes.
    pub processes: usize,
    /// The host of each process; empty for one host.
    pub host_of: Vec<usize>,
    /// The NUMA node whose memory each worker uses; `None` if the kernel chooses.
    pub memory_nodes: Vec<Option<usize>>,
    /// The instances of each parallel subquery of the statement that asked for the most.
    pub parallelism: usize,
    /// The threads that parse the input of each source, by node.
    pub parsers: Vec<Parsing>,
    /// Which subqueries begin with a source.
    pub sources: Vec<bool>,
    /// Whether instances start on one worker and are distributed while they run.
    pub elastic: bool,
    /// The decided broadcasts.
    pub broadcasts: Vec<Decided>,
    /// The size of messages on the links between processes, by link.
    pub messages: Vec<LinkMessages>,
    /// How workers wait.
    pub wait: WaitMode,
    /// Notes for the user about restrictions and decisions.
    pub notes: Vec<String>,
    /// Whether the query takes checkpoints.
    pub checkpoints: bool,
    /// The rows per second of the sources of a path together, if the user named them.
    pub rows_per_s: Option<f64>,
}

/// The decision for a broadcast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decided {
    /// The broadcast.
    pub broadcast: Broadcast,
    /// The chosen algorithm.
    pub choice: Choice,
}

/// The size of messages on a link between processes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkMessages {
    /// The link's number.
    pub link: usize,
    /// What was known of the link.
    pub load: LinkLoad,
    /// The bytes of a message, and why.
    pub size: Size,
}

/// The size of messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// As planned.
    Planned(MessagePlan),
    /// As set; `None` for whole chunks.
    Set(Option<usize>),
}

impl Size {
    /// The bytes of a message; `None` for whole chunks.
    pub fn bytes(&self) -> Option<usize> {
        match self {
            Size::Planned(plan) => Some(plan.size_bytes),
            Size::Set(bytes) => *bytes,
        }
    }
}

impl Plan {
    /// The copies in a report; `None` if there is one query.
    pub fn copies_report(&self) -> Option<CopiesReport> {
        let of_node = &self.subqueries.of_node;
        let copied = self.copies.as_ref()?;
        Some(copied.report(of_node, self.bytes_between))
    }

    /// Whether an edge between two nodes leads from one subquery to another.
    pub fn crosses(&self, from: usize, to: usize) -> bool {
        self.subqueries.of_node[from] != self.subqueries.of_node[to]
    }

    /// Whether a subquery begins with a source.
    pub fn is_source(&self, subquery: usize) -> bool {
        self.sources[subquery]
    }

    /// The size of a link's messages, if it leads to another process and is not part of a broadcast.
    pub fn messages_of(&self, link: usize) -> Option<&LinkMessages> {
        self.messages.iter().find(|messages| messages.link == link)
    }

    /// The decision for a broadcast from one node to another.
    pub fn decided(&self, from_node: usize, to_node: usize) -> Option<&Decided> {
        let mut broadcasts = self.broadcasts.iter();
        broadcasts.find(|decided| {
            (decided.broadcast.from_node, decided.broadcast.to_node) == (from_node, to_node)
        })
    }
}

/// The input of planning.
pub struct PlanRequest<'a> {
    /// The query.
    pub program: &'a Program,
    /// The instances of the subquery that starts at each node.
    pub parallelism: &'a [usize],
    /// The threads that parse the input of each source, by node.
    pub parsers: &'a [Parsing],
    /// The largest of these numbers.
    pub most: usize,
    /// The costs of rows.
    pub costs: &'a QueryCosts,
    /// The number of worker threads.
    pub workers: usize,
    /// The number of processes for these threads, at most as many.
    pub processes: Processes,
    /// Whether all movable instances start on the first worker.
    pub elastic: bool,
    /// What is to have a copy of the query each, and how many they are.
    pub copies: Option<(Places, usize)>,
    /// What the bytes between them are to be predicted for.
    pub places: Option<Places>,
    /// How instances are placed, if it was set.
    pub strategy: Option<Strategy>,
    /// The machine.
    pub machine: &'a Machine,
    /// What is bound to hosts.
    pub bound: &'a Bound,
}

/// Plans a query.
pub fn plan(request: &PlanRequest<'_>) -> Plan {
    let graph = &request.program.graph;
    let groups = request.bound.groups(request.program);
    let subqueries = split_apart(graph, request.parallelism, &groups);
    let wanted = request.copies.map(|(places, number)| {
        let first_phases = copies::first_phases(request.program);
        (
            places,
            Copies::of(graph, &subqueries, number, &first_phases),
        )
    });
    let copied = wanted.filter(|(_, copies)| copies.is_used());
    let copies = copied.as_ref().map(|(_, copies)| copies);
    let execution = expand_copies(graph, &subqueries, copies);
    let heads = subqueries.subqueries.iter();
    let sources = heads.map(|part| graph.nodes[part.nodes[0]].kind == NodeKind::Source);
    let sources = sources.collect();
    let instances = |node: usize| subqueries.subqueries[subqueries.of_node[node]].instances;
    let rates = source_rates(request.program, request.costs, instances);
    let costs = &request.costs.of_node;
    let cluster = request.machine.hosts.as_ref();
    let host_of_nodes = cluster.map_or_else(Vec::new, Cluster::host_of_nodes);
    let demand = demand(graph, &subqueries, &execution, copies, costs, &rates);
    let mut placement = place(&Question {
        graph,
        split: &subqueries,
        execution: &execution,
        demand: &demand,
        workers: request.workers,
        topology: &request.machine.topology,
        host_of_nodes: &host_of_nodes,
        bound: &request.bound.of_node,
        strategy: request.strategy,
        copies: copied.as_ref().map(|(places, _)| *places),
    });
    let bytes_between = request.places.and_then(|places| {
        let (topology, cores) = (&request.machine.topology, &placement.cores);
        let place_of = place_of_workers(topology, &host_of_nodes, places, cores);
        copies::bytes_between(&execution, &demand, &placement.worker_of, &place_of, &rates)
    });
    if request.elastic {
        placement.worker_of.fill(0);
        placement.distance_mean = None;
    }
    let (process_of, host_of) = match &request.machine.hosts {
        Some(cluster) => {
            processes::over_hosts(request, cluster, &subqueries, &execution, &mut placement)
        }
        None => (processes::on_one_host(request, &placement), Vec::new()),
    };
    Plan {
        processes: process_of.iter().max().map_or(1, |last| last + 1),
        copies: copied.map(|(places, copies)| Copied {
            places,
            copies,
            bytes_without: None,
        }),
        bytes_between,
        process_of,
        host_of,
        memory_nodes: match request.machine.binds_memory {
            true => placement.nodes.clone(),
            false => vec![None; placement.nodes.len()],
        },
        subqueries,
        execution,
        placement,
        parallelism: request.most,
        parsers: request.parsers.to_vec(),
        sources,
        elastic: request.elastic,
        wait: WaitMode::default(),
        notes: Vec::new(),
        broadcasts: Vec::new(),
        messages: Vec::new(),
        checkpoints: false,
        rows_per_s: None,
    }
}

/// A fingerprint of a query and the numbers of its partitions. Processes that compile it separately compare
/// it.
pub fn fingerprint(program: &Program) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{:?}", program.graph).hash(&mut hasher);
    for (_, source) in program.sources() {
        source.connector.describe().max_instances.hash(&mut hasher);
    }
    hasher.finish()
}

/// A name for an instance, as messages and `explain` show it.
pub fn instance_name(graph: &QueryGraph, plan: &Plan, instance: usize) -> String {
    let node = &plan.execution.instances[instance];
    let head = plan.subqueries.subqueries[node.subquery].nodes[0];
    let name = &graph.nodes[head].name;
    if node.instances == 1 {
        format!("{name} #{head}")
    } else {
        format!("{name} #{head} [{}/{}]", node.index + 1, node.instances)
    }
}

/// The engine's form of the plan.
pub fn deployment(program: &Program, plan: &Plan) -> Deployment {
    let links = plan.execution.links.iter().enumerate();
    let links = links
        .map(|(number, link)| LinkPlan {
            message_bytes: plan
                .messages_of(number)
                .and_then(|messages| messages.size.bytes()),
            ..LinkPlan::new(link.from, link.to)
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
        instances,
        links,
        chunk_rows: program.settings.chunk_rows,
        process_of: plan.process_of.clone(),
        host_of: plan.host_of.clone(),
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
                    leaves_out: leaves_out(program, node),
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
                    if let Some(kind) = first_phase(program, plan, node.subquery, &steps[route], to)
                    {
                        steps.push(StepPlan {
                            node: to,
                            kind,
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
        let parsers = plan.parsers[nodes[0]].threads;
        let remainder = parsers % node.instances;
        let share = parsers / node.instances + usize::from(node.index < remainder);
        InputPlan::Source {
            node: nodes[0],
            parsers: share.max(1),
        }
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
        movable: plan.elastic && !is_source && nodes.iter().all(|&node| may_move(program, node)),
        checkpointed: plan.checkpoints && takes_part(program)[nodes[0]],
        index: node.index,
        instances: node.instances,
        input,
        steps,
        roots,
    }
}

/// The first phase, before `route`, of the aggregation at `to`.
fn first_phase(
    program: &Program,
    plan: &Plan,
    subquery: usize,
    route: &StepPlan,
    to: usize,
) -> Option<StepKind> {
    let copies = plan.copies.as_ref().map(|copied| &copied.copies);
    match copies {
        Some(copies) if copies.first_phase[to] && copies.copied[subquery] => {
            Some(StepKind::FirstPhase)
        }
        _ => combines(program, route, to).then_some(StepKind::Combine),
    }
}

/// Whether rows may be aggregated before they are sent along `route` to an aggregation by key.
fn combines(program: &Program, route: &StepPlan, to: usize) -> bool {
    let StepKind::Route { balancer, links } = &route.kind else {
        return false;
    };
    let is_split = matches!(balancer, BalancerPlan::Keyed { .. }) && links.len() > 1;
    let Some(combines) = program.nodes[to].facts().combines else {
        return false;
    };
    let may = match program.settings.two_phase {
        TwoPhase::On => true,
        // The moment at which it is switched on depends on timing, and no result may.
        TwoPhase::Auto => combines.is_exact,
        TwoPhase::Off => false,
    };
    is_split && may
}

/// Whether a sink has a latency target.
pub fn has_target(program: &Program) -> bool {
    let mut sinks = program.sinks();
    sinks.any(|(_, sink)| sink.latency_target_ns.is_some())
}

fn latency_target(program: &Program, node: usize) -> Option<u64> {
    program.nodes[node].as_sink()?.latency_target_ns
}

/// The kinds of rows that a sink ignores: another reader of the same rows may have asked for the old values,
/// and a sink that can only add rows takes none back, not even for a sum that overflows.
fn leaves_out(program: &Program, node: usize) -> Vec<RowKind> {
    match program.nodes[node].as_sink() {
        Some(sink) if sink.connector.capabilities().accepts == Accepts::Rows => {
            vec![RowKind::UpdateBefore, RowKind::Delete]
        }
        Some(sink) if !sink.gets_before => vec![RowKind::UpdateBefore],
        Some(_) | None => Vec::new(),
    }
}

/// Whether a node other than a source may move to another worker while it runs.
fn may_move(program: &Program, node: usize) -> bool {
    let sink = program.nodes[node].as_sink();
    !sink.is_some_and(|sink| sink.connector.capabilities().uses_waiter)
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
            keep_origin: program.nodes[to].facts().orders_by_origin,
            to,
        },
        Exchange::RoundRobin => BalancerPlan::RoundRobin,
        Exchange::Demand | Exchange::Spread => BalancerPlan::Demand,
        Exchange::Broadcast => BalancerPlan::Broadcast {
            segment_bytes: plan
                .decided(from, to)
                .and_then(|decided| decided.choice.segment_bytes),
        },
        Exchange::Forward | Exchange::Apart | Exchange::Single => BalancerPlan::PointToPoint,
    };
    StepPlan {
        node: from,
        kind: StepKind::Route { balancer, links },
        next: Vec::new(),
    }
}
