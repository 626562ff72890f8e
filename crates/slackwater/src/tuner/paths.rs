//! The paths of a program: the sources that feed a sink with a latency target, and the subqueries in between.

use std::collections::BTreeSet;

use slackwater_control::demand::rows_into;
use slackwater_control::latency::model::{Load, Work};
use slackwater_sql::program::Program;

use super::running::PathParts;
use crate::costs::{Learned, query_costs};
use crate::plan::Plan;

/// The assumed rows per second of a source without a declared rate.
const ROWS_PER_S: f64 = 10_000.0;

/// The most interrupts per second: rows that arrive together wake a worker once.
const ARRIVALS_PER_S_MAX: f64 = 1_000.0;

/// A sink with a latency target, and the sources and subqueries that feed it.
#[derive(Debug, Clone)]
pub struct Path {
    /// The sink's node.
    pub sink: usize,
    /// Its target in nanoseconds.
    pub target_ns: u64,
    /// The sources that feed the sink.
    pub sources: Vec<usize>,
    /// The subqueries on the path in order, including those of the sources and the sink.
    pub subqueries: Vec<usize>,
}

/// The paths to all sinks with a target.
pub fn paths(program: &Program, plan: &Plan) -> Vec<Path> {
    let sinks = program.sinks();
    let sinks = sinks.filter_map(|(node, sink)| Some((node, sink.latency_target_ns?)));
    let paths = sinks.map(|(sink, target_ns)| path(program, plan, sink, target_ns));
    paths.filter(|path| !path.sources.is_empty()).collect()
}

/// The path to a sink, with a target.
pub fn path(program: &Program, plan: &Plan, sink: usize, target_ns: u64) -> Path {
    let nodes = program.graph.upstream(sink);
    let is_source = |node: &usize| program.nodes[*node].is_source();
    let subqueries = nodes.iter().map(|&node| plan.subqueries.of_node[node]);
    Path {
        sink,
        target_ns,
        sources: nodes.iter().copied().filter(is_source).collect(),
        subqueries: subqueries
            .collect::<BTreeSet<usize>>()
            .into_iter()
            .collect(),
    }
}

/// The parts of a path in this plan.
pub fn parts(program: &Program, plan: &Plan, path: &Path) -> PathParts {
    let instances_of = |wanted: &dyn Fn(usize) -> bool| {
        let instances = plan.execution.instances.iter().enumerate();
        let wanted = instances.filter(|(_, instance)| wanted(instance.subquery));
        wanted
            .map(|(number, _)| number)
            .collect::<BTreeSet<usize>>()
    };
    let sources = path.sources.iter();
    let sources = sources.map(|&node| plan.subqueries.of_node[node]);
    let sources = sources.collect::<Vec<usize>>();
    let mut paced = path.sources.iter();
    PathParts {
        sources: path.sources.iter().copied().collect(),
        source_instances: instances_of(&|subquery| sources.contains(&subquery)),
        instances: instances_of(&|subquery| path.subqueries.contains(&subquery)),
        sink: path.sink,
        is_paced: paced.any(|&node| is_paced(program, node)),
    }
}

/// The largest number of workers that a row of the path passes, with the planned placement of instances.
pub fn workers_in_a_row(plan: &Plan, path: &Path) -> usize {
    let instances = &plan.execution.instances;
    let worker_of = &plan.placement.worker_of;
    let mut passed = vec![1; instances.len()];
    // Links lead from earlier instances to later ones.
    for link in &plan.execution.links {
        let is_of_path = |instance: usize| path.subqueries.contains(&instances[instance].subquery);
        if is_of_path(link.from) && is_of_path(link.to) {
            let crosses = usize::from(worker_of[link.from] != worker_of[link.to]);
            passed[link.to] = passed[link.to].max(passed[link.from] + crosses);
        }
    }
    passed.into_iter().max().unwrap_or(1)
}

/// The estimated work of each subquery of a path, for each row that the sources read; `row_factor` is how
/// many times as much as assumed a row costs on this host.
pub fn guesses(program: &Program, plan: &Plan, path: &Path, row_factor: f64) -> Vec<Work> {
    let mut shares = vec![0.0; program.nodes.len()];
    for &source in &path.sources {
        shares[source] = 1.0 / path.sources.len() as f64;
    }
    let costs = query_costs(program, &Learned::default());
    let taken = rows_into(&program.graph, &costs.of_node, &shares);
    let subqueries = path.subqueries.iter();
    let works = subqueries.map(|&subquery| {
        let of_it = plan.subqueries.subqueries[subquery].nodes.iter();
        of_it.fold(Work::default(), |sum, &node| {
            let guess = program.nodes[node].facts().cost.work;
            Work {
                per_chunk_ns: sum.per_chunk_ns + guess.per_chunk_ns,
                per_row_ns: sum.per_row_ns + guess.per_row_ns * taken[node] * row_factor,
            }
        })
    });
    works.collect()
}

/// Where the rows per second of a plan come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateFrom {
    /// The user named them.
    User,
    /// The sources declare them.
    Sources,
    /// They are assumed.
    Nowhere,
}

impl RateFrom {
    /// In words, after the rate.
    pub fn words(self) -> &'static str {
        match self {
            RateFrom::User => "as --rate says",
            RateFrom::Sources => "as the source says",
            RateFrom::Nowhere => "assumed; the running query measures",
        }
    }
}

/// The load of a path's sources, and where it comes from.
pub fn load(program: &Program, plan: &Plan, path: &Path) -> (Load, RateFrom) {
    let rates = path.sources.iter().map(|&node| {
        let source = program.nodes[node].as_source()?;
        source.connector.describe().rows_per_s
    });
    let rates = rates.collect::<Vec<Option<f64>>>();
    let from = match (plan.rows_per_s, rates.iter().all(Option::is_some)) {
        (Some(_), _) => RateFrom::User,
        (None, true) => RateFrom::Sources,
        (None, false) => RateFrom::Nowhere,
    };
    let rows_per_s = rates.iter().map(|rate| rate.unwrap_or(ROWS_PER_S)).sum();
    let rows_per_s = plan.rows_per_s.unwrap_or(rows_per_s);
    let load = Load {
        rows_per_s,
        arrivals_per_s: f64::min(rows_per_s, ARRIVALS_PER_S_MAX),
    };
    (load, from)
}

/// Whether a source paces its rows, so that the source collects them and not its worker.
pub fn is_paced(program: &Program, node: usize) -> bool {
    let source = program.nodes[node].as_source();
    source.is_some_and(|source| source.connector.describe().rows_per_s.is_some())
}
