//! Placement: which worker runs which instance, and which core runs which worker.
//!
//! ```text
//! instances, links, demand ─┬─ spread: dealt out by number; workers over nodes in turn
//!          (demand.rs)      ├─ numa: problem.rs ─► search.rs ─► exact.rs if it is small
//!                           │  on several hosts: workers over hosts in turn, then the same
//!                           ├─ copies: workers over nodes or hosts in turn, instances by number
//!                           └─ os: dealt out by number; the kernel chooses cores
//! ```
//!
//! Dealt out by number means: instance `i` of every subquery goes to worker `i` modulo the workers, so
//! that the parts of one pipeline share a core's caches. Subqueries with one instance are dealt out
//! differently: sources start at the first worker that no larger subquery needs, others at the last one
//! and go backwards, so that a single source and a single sink do not share a worker when there are two.
//!
//! On a machine of several NUMA nodes that leaves it to chance how far rows travel. UPM-CEP (`papers.md`
//! P5) binds its instance managers to cores of nodes; here the whole placement minimizes the sum of
//! traffic times distance, with work balanced over the cores.

use std::collections::BTreeSet;

use crate::demand::Demand;
use crate::expand::ExecutionGraph;
use crate::query::{NodeKind, QueryGraph};
use crate::split::Subqueries;
use crate::topology::Topology;

pub mod exact;
pub mod problem;
pub mod search;

#[cfg(test)]
mod tests;

use problem::{Problem, Traffic, balance};

/// The worker of each instance, and the core of each worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The strategy that was used: the requested one, if it is possible.
    pub strategy: Strategy,
    /// The worker of each instance of the execution graph.
    pub worker_of: Vec<usize>,
    /// The core that each worker is pinned to; `None` if the kernel chooses.
    pub cores: Vec<Option<usize>>,
    /// The NUMA node (its number) from which each worker allocates memory; `None` on a machine of one
    /// node, and if the kernel chooses.
    pub nodes: Vec<Option<usize>>,
    /// The mean distance that a byte travels between two instances, in the unit of NUMA distances: 0
    /// within a core, 10 within a node. `None` if it is unknown, or nothing travels.
    pub distance_mean: Option<f64>,
}

/// How instances are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Keeps instances that exchange rows near each other; on several hosts with workers on each.
    Numa,
    /// Deals instances out evenly over workers, and workers over nodes.
    Spread,
    /// Deals instances out evenly over workers; the kernel chooses the cores.
    Os,
}

impl Strategy {
    /// The strategy's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Numa => "numa",
            Strategy::Spread => "spread",
            Strategy::Os => "os",
        }
    }
}

/// What to place, and where.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The query.
    pub graph: &'a QueryGraph,
    /// Its subqueries.
    pub split: &'a Subqueries,
    /// Their instances.
    pub execution: &'a ExecutionGraph,
    /// The demand of the instances.
    pub demand: &'a Demand,
    /// The number of worker threads, at least one.
    pub workers: usize,
    /// The machine.
    pub topology: &'a Topology,
    /// The host of each node of the machine, if it stands for several hosts; else empty.
    pub host_of_nodes: &'a [usize],
    /// With several hosts, the host that each node of the query is bound to.
    pub bound: &'a [Option<usize>],
    /// The requested strategy; `None` for [`Strategy::Numa`] on a machine of several nodes,
    /// [`Strategy::Spread`] elsewhere.
    pub strategy: Option<Strategy>,
    /// Whether there is a copy of the query in each place: then instance `i` of every subquery is in place
    /// `i` modulo the places.
    pub copies: Option<Places>,
}

/// What has a copy of a query each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// The NUMA nodes, of all hosts.
    Nodes,
    /// The hosts.
    Hosts,
}

/// The place of each worker, if its core is known: a NUMA node by its index in the topology, or a host.
pub fn place_of_workers(
    topology: &Topology,
    host_of_nodes: &[usize],
    places: Places,
    cores: &[Option<usize>],
) -> Vec<Option<usize>> {
    let cores = cores.iter();
    let places = cores.map(|core| {
        let node = topology.node_of((*core)?);
        match places {
            Places::Nodes => Some(node),
            Places::Hosts => host_of_nodes.get(node).copied(),
        }
    });
    places.collect()
}

/// The most instances for which the best placement is searched exhaustively, and the most attempts for
/// that: some milliseconds.
const EXACT_INSTANCES_MAX: usize = 10;
const EXACT_STEPS_MAX: usize = 100_000;

/// On several hosts, the share of the traffic's cost by which another placement than dealing out must be
/// cheaper.
const GAIN_MIN: f64 = 0.01;

/// Places the instances on workers, and the workers on cores that may be used.
pub fn place(question: &Question<'_>) -> Placement {
    let workers = question.workers.max(1);
    let cores = by_node(question.topology);
    let first = cores.first().map(|core| core.node);
    let several = cores.iter().any(|core| Some(core.node) != first);
    let wanted = question.strategy.unwrap_or(match several {
        true => Strategy::Numa,
        false => Strategy::Spread,
    });
    // More threads than cores: the kernel moves them better than a fixed choice would.
    let strategy = match workers <= cores.len() {
        true => wanted,
        false => Strategy::Os,
    };
    let dealt = deal(question, workers);
    let host = |core: &CoreOfNode| question.host_of_nodes.get(core.node).copied().unwrap_or(0);
    let (worker_of, cores) = match (strategy, question.copies) {
        (Strategy::Os, _) => {
            return Placement {
                strategy,
                worker_of: dealt,
                cores: vec![None; workers],
                nodes: vec![None; workers],
                distance_mean: None,
            };
        }
        (_, Some(Places::Nodes)) => (dealt, in_turn(&cores, workers, |core| core.node)),
        (_, Some(Places::Hosts)) => (dealt, in_turn(&cores, workers, host)),
        (Strategy::Numa, None) if has_several_hosts(question) => {
            over_hosts(question, workers, &cores, dealt)
        }
        (Strategy::Numa, None) if several => optimise(question, workers, &cores, &dealt),
        (Strategy::Numa, None) => (dealt, cores[..workers].to_vec()),
        (Strategy::Spread, None) => (dealt, in_turn(&cores, workers, |core| core.node)),
    };
    let topology = question.topology;
    let node_id = |core: &CoreOfNode| topology.nodes[core.node].id;
    Placement {
        strategy,
        distance_mean: distance_mean(question, &worker_of, &cores),
        worker_of,
        nodes: cores
            .iter()
            .map(|core| several.then(|| node_id(core)))
            .collect(),
        cores: cores.iter().map(|core| Some(core.core)).collect(),
    }
}

/// A core with the place of its node in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CoreOfNode {
    core: usize,
    node: usize,
}

/// The allowed cores, node by node; for each node first one hardware thread of every physical core, then
/// the others: two threads of one core share its capacity.
fn by_node(topology: &Topology) -> Vec<CoreOfNode> {
    let allowed = topology.cores.iter().filter(|core| core.allowed);
    let mut cores = allowed
        .map(|core| {
            let siblings = topology.cores.iter().filter(|other| {
                other.allowed && other.id < core.id && core.siblings.contains(&other.id)
            });
            let node = topology.node_of(core.id);
            let thread = siblings.count();
            (node, thread, core.id)
        })
        .collect::<Vec<(usize, usize, usize)>>();
    cores.sort_unstable();
    let cores = cores.into_iter();
    cores
        .map(|(node, _, core)| CoreOfNode { core, node })
        .collect()
}

/// A core for each worker, from every group in turn.
fn in_turn(
    cores: &[CoreOfNode],
    workers: usize,
    group: impl Fn(&CoreOfNode) -> usize,
) -> Vec<CoreOfNode> {
    let mut numbered = Vec::with_capacity(cores.len());
    for (place, core) in cores.iter().enumerate() {
        let before = cores[..place]
            .iter()
            .filter(|other| group(other) == group(core));
        numbered.push((before.count(), *core));
    }
    // The first core of each group, then the second of each; stable, so groups stay in order.
    numbered.sort_by_key(|(number, _)| *number);
    numbered.truncate(workers);
    numbered.into_iter().map(|(_, core)| core).collect()
}

/// The worker of each instance, by its number.
fn deal(question: &Question<'_>, workers: usize) -> Vec<usize> {
    let (graph, split) = (question.graph, question.split);
    let many = split.subqueries.iter().map(|part| part.instances);
    let widest = many.filter(|&instances| instances > 1).max().unwrap_or(0);
    // If there are more workers than any subquery has instances, sources have the rest to themselves.
    let (mut next_source, mut next_other) = (widest % workers, 0);
    let mut lone_worker = vec![0; split.subqueries.len()];
    for (number, subquery) in split.subqueries.iter().enumerate() {
        if subquery.instances > 1 {
            continue;
        }
        if graph.nodes[subquery.nodes[0]].kind == NodeKind::Source {
            lone_worker[number] = next_source % workers;
            next_source += 1;
        } else {
            lone_worker[number] = workers - 1 - next_other % workers;
            next_other += 1;
        }
    }
    let worker_of = question.execution.instances.iter().map(|instance| {
        if instance.instances == 1 {
            lone_worker[instance.subquery]
        } else {
            instance.index % workers
        }
    });
    worker_of.collect()
}

fn has_several_hosts(question: &Question<'_>) -> bool {
    let mut hosts = question.host_of_nodes.iter();
    let first = hosts.next();
    hosts.any(|host| Some(host) != first)
}

/// Workers over all hosts in turn, so that all of them work, and instances on these workers so that traffic
/// stays near. Instances stay as they were dealt if nothing is gained by anything else.
fn over_hosts(
    question: &Question<'_>,
    workers: usize,
    cores: &[CoreOfNode],
    dealt: Vec<usize>,
) -> (Vec<usize>, Vec<CoreOfNode>) {
    let host = |core: &CoreOfNode| question.host_of_nodes.get(core.node).copied().unwrap_or(0);
    let cores = in_turn(cores, workers, host);
    let problem = problem(question, workers, &cores);
    let placed = solve(&problem, &dealt);
    let used = |placed: &[usize]| placed.iter().copied().collect::<BTreeSet<usize>>().len();
    let gains = problem.cost(&placed) < problem.cost(&dealt) * (1.0 - GAIN_MIN);
    let is_better = gains && used(&placed) >= used(&dealt);
    (if is_better { placed } else { dealt }, cores)
}

/// The best placement that the search finds, and that trying everything finds if there are few instances that
/// may be anywhere.
fn solve(problem: &Problem, first: &[usize]) -> Vec<usize> {
    let placed = search::search(problem, first);
    match placed.len() <= EXACT_INSTANCES_MAX && problem.node_costs.is_empty() {
        true => exact::improve(problem, placed, EXACT_STEPS_MAX).0,
        false => placed,
    }
}

/// A placement that keeps traffic near: the worker of each instance, and the core of each worker.
fn optimise(
    question: &Question<'_>,
    workers: usize,
    cores: &[CoreOfNode],
    dealt: &[usize],
) -> (Vec<usize>, Vec<CoreOfNode>) {
    let problem = problem(question, workers, cores);
    let near = search::near_cores(&problem);
    let first = dealt.iter().map(|&worker| near[worker]);
    let placed = solve(&problem, &first.collect::<Vec<usize>>());
    let mut used = placed.clone();
    used.sort_unstable();
    used.dedup();
    // Workers without an instance, which an elastic query starts with, are kept near.
    let spare = near.iter().copied().chain(0..cores.len());
    for core in spare {
        if used.len() < workers && !used.contains(&core) {
            used.push(core);
        }
    }
    let worker_of = placed.iter().map(|core| {
        let worker = used.iter().position(|used| used == core);
        worker.expect("a core of an instance is used")
    });
    let worker_of = worker_of.collect();
    (
        worker_of,
        used.into_iter().map(|core| cores[core]).collect(),
    )
}

/// The problem behind a question; its cores are places in `cores`.
fn problem(question: &Question<'_>, workers: usize, cores: &[CoreOfNode]) -> Problem {
    let topology = question.topology;
    let nodes = 0..topology.nodes.len().max(1);
    let distances = nodes.clone().map(|one| {
        let row = nodes.clone().map(|other| topology.distance(one, other));
        row.collect()
    });
    // Balanced as well as possible: demands are guesses, and everything would wait for a core that has
    // more than its share.
    let demands = question.demand.cores.clone();
    let (_, capacity) = balance(&demands, &(0..workers).collect::<Vec<usize>>());
    Problem {
        capacity,
        demands,
        traffic: traffic(question),
        node_of_core: cores.iter().map(|core| core.node).collect(),
        distances: distances.collect(),
        cores_used_max: workers,
        node_costs: node_costs(question),
    }
}

/// What an instance that is bound to a host costs elsewhere: more than any traffic would.
fn node_costs(question: &Question<'_>) -> Vec<Vec<f64>> {
    if !has_several_hosts(question) || question.bound.iter().all(Option::is_none) {
        return Vec::new();
    }
    let nodes = 0..question.topology.nodes.len();
    let pairs = nodes
        .clone()
        .flat_map(|one| nodes.clone().map(move |other| (one, other)));
    let furthest = pairs.map(|(one, other)| question.topology.distance(one, other));
    let traffic = traffic(question)
        .iter()
        .map(|traffic| traffic.weight)
        .sum::<f64>();
    let elsewhere = 2.0 * (1.0 + traffic) * furthest.fold(0.0, f64::max);
    let instances = question.execution.instances.iter().map(|instance| {
        let mut members = question.split.subqueries[instance.subquery].nodes.iter();
        let bound = members.find_map(|&node| question.bound.get(node).copied().flatten());
        let cost = |host: &usize| match bound {
            Some(bound) if bound != *host => elsewhere,
            _ => 0.0,
        };
        question.host_of_nodes.iter().map(cost).collect()
    });
    instances.collect()
}

fn traffic(question: &Question<'_>) -> Vec<Traffic> {
    let links = question.execution.links.iter();
    let links = links.zip(&question.demand.bytes_per_s);
    let traffic = links.map(|(link, &weight)| Traffic {
        from: link.from,
        to: link.to,
        weight,
    });
    traffic.collect()
}

fn distance_mean(
    question: &Question<'_>,
    worker_of: &[usize],
    cores: &[CoreOfNode],
) -> Option<f64> {
    let (mut travelled, mut sent) = (0.0, 0.0);
    for traffic in traffic(question) {
        let [one, other] = [traffic.from, traffic.to].map(|end| cores[worker_of[end]]);
        sent += traffic.weight;
        if one.core != other.core {
            travelled += traffic.weight * question.topology.distance(one.node, other.node);
        }
    }
    (sent > 0.0).then(|| travelled / sent)
}
