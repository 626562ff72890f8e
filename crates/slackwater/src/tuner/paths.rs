//! The paths of a program: which sources a sink with a latency target hears from, and by way of
//! which subqueries.

use std::collections::BTreeSet;

use slackwater_control::latency::model::{Load, Work};
use slackwater_sql::program::Program;
use slackwater_sql::specs::NodeSpec;

use crate::plan::Plan;

/// What is taken to arrive at a source that doesn't say, in rows per second.
const ROWS_PER_S: f64 = 10_000.0;

/// Interrupts that so many rows per second bring at most: what comes together wakes once.
const ARRIVALS_PER_S_MAX: f64 = 1_000.0;

/// A sink with a latency target, and what feeds it.
#[derive(Debug, Clone)]
pub struct Path {
    /// The sink's node.
    pub sink: usize,
    /// Its target in nanoseconds.
    pub target_ns: u64,
    /// The sources that it hears from.
    pub sources: Vec<usize>,
    /// The subqueries between them and it, in order, the sources' and its own among them.
    pub subqueries: Vec<usize>,
}

/// The paths to all sinks with a target.
pub fn paths(program: &Program, plan: &Plan) -> Vec<Path> {
    let sinks = program.nodes.iter().enumerate();
    let sinks = sinks.filter_map(|(node, spec)| match spec {
        NodeSpec::Sink(sink) => Some((node, sink.latency_target_ns?)),
        _ => None,
    });
    let paths = sinks.map(|(sink, target_ns)| {
        let nodes = program.graph.upstream(sink);
        let is_source = |node: &usize| matches!(program.nodes[*node], NodeSpec::Source(_));
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
    });
    paths.collect()
}

/// What a node's work is taken to cost before anything was measured: what HiBench's queries cost on
/// a virtual machine, rounded.
pub fn guess(node: &NodeSpec) -> Work {
    let (per_chunk_ns, per_row_ns) = match node {
        NodeSpec::Source(_) => (15_000.0, 60.0),
        NodeSpec::Map { .. } | NodeSpec::Filter { .. } | NodeSpec::Window { .. } => (2_000.0, 5.0),
        NodeSpec::ToRows { .. } => (2_000.0, 20.0),
        // Each row is encoded, and kept in a tree.
        NodeSpec::ChangelogJoin(_)
        | NodeSpec::TopN(_)
        | NodeSpec::ByPrimaryKey(_)
        | NodeSpec::Final(_)
        | NodeSpec::SessionRows { .. }
        | NodeSpec::CountWindow(_) => (10_000.0, 500.0),
        NodeSpec::Sessions { .. } => (10_000.0, 200.0),
        NodeSpec::Union { .. } | NodeSpec::DropLate { .. } | NodeSpec::LateRows { .. } => {
            (500.0, 0.0)
        }
        NodeSpec::Aggregate { .. } => (5_000.0, 60.0),
        NodeSpec::TableJoin(_) | NodeSpec::LookupJoin(_) | NodeSpec::TemporalJoin(_) => {
            (5_000.0, 60.0)
        }
        NodeSpec::Join(_) | NodeSpec::IntervalJoin(_) | NodeSpec::Over(_) => (10_000.0, 200.0),
        NodeSpec::Sink(_) => (10_000.0, 40.0),
    };
    Work {
        per_chunk_ns,
        per_row_ns,
    }
}

/// The work of each subquery of a path, as guessed.
pub fn guesses(program: &Program, plan: &Plan, path: &Path) -> Vec<Work> {
    let subqueries = path.subqueries.iter();
    let works = subqueries.map(|&subquery| {
        let nodes = plan.subqueries.subqueries[subquery].nodes.iter();
        nodes.fold(Work::default(), |sum, &node| {
            let guess = guess(&program.nodes[node]);
            Work {
                per_chunk_ns: sum.per_chunk_ns + guess.per_chunk_ns,
                per_row_ns: sum.per_row_ns + guess.per_row_ns,
            }
        })
    });
    works.collect()
}

/// What arrives at a path's sources, and whether they say so themselves.
pub fn load(program: &Program, path: &Path) -> (Load, bool) {
    let rates = path.sources.iter().map(|&node| match &program.nodes[node] {
        NodeSpec::Source(source) => source.connector.describe().rows_per_s,
        _ => None,
    });
    let rates = rates.collect::<Vec<Option<f64>>>();
    let known = rates.iter().all(Option::is_some);
    let rows_per_s = rates.iter().map(|rate| rate.unwrap_or(ROWS_PER_S)).sum();
    let load = Load {
        rows_per_s,
        arrivals_per_s: f64::min(rows_per_s, ARRIVALS_PER_S_MAX),
    };
    (load, known)
}

/// Whether a source sets its rows' pace itself, so that collecting them is its business and not its
/// worker's.
pub fn is_paced(program: &Program, node: usize) -> bool {
    match &program.nodes[node] {
        NodeSpec::Source(source) => source.connector.describe().rows_per_s.is_some(),
        _ => false,
    }
}
