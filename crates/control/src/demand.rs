//! How much CPU time instances need and how much links carry, as far as this is known before they run.

use crate::copies::Copies;
use crate::expand::ExecutionGraph;
use crate::query::{NodeKind, QueryGraph};
use crate::split::Subqueries;

/// The costs of a node's rows, assumed or measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeCost {
    /// The CPU time of each row taken, in nanoseconds; for a source, of each row read.
    pub per_row_ns: f64,
    /// The number of output rows per input row.
    pub rows_out: f64,
    /// The bytes of an output row.
    pub row_bytes: f64,
}

/// What a placed query needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Demand {
    /// The CPU seconds per second (cores) of each instance.
    pub cores: Vec<f64>,
    /// The bytes per second on each link.
    pub bytes_per_s: Vec<f64>,
}

/// The rows per second that go into each node, if each source reads this many rows per second
/// (`source_rows_per_s`, by node; the values of other nodes are ignored).
pub fn rows_into(graph: &QueryGraph, costs: &[NodeCost], source_rows_per_s: &[f64]) -> Vec<f64> {
    let mut rows = vec![0.0; graph.nodes.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        // A node's inputs have smaller numbers.
        let inputs = node.inputs.iter();
        let from_inputs = inputs.map(|edge| rows[edge.from] * costs[edge.from].rows_out);
        rows[number] = match node.kind {
            NodeKind::Source => source_rows_per_s[number],
            _ => from_inputs.sum(),
        };
    }
    rows
}

/// The demand of a query, of which there may be copies. Work and rows are assumed to be spread evenly over
/// instances and links.
pub fn demand(
    graph: &QueryGraph,
    split: &Subqueries,
    execution: &ExecutionGraph,
    copies: Option<&Copies>,
    costs: &[NodeCost],
    source_rows_per_s: &[f64],
) -> Demand {
    let rows = rows_into(graph, costs, source_rows_per_s);
    let cores = execution.instances.iter().map(|instance| {
        let nodes = split.subqueries[instance.subquery].nodes.iter();
        let busy_ns = nodes.map(|&node| rows[node] * costs[node].per_row_ns);
        busy_ns.sum::<f64>() / 1e9 / instance.instances as f64
    });
    let mut links_of = std::collections::HashMap::new();
    for link in &execution.links {
        *links_of
            .entry((link.from_node, link.to_node, link.input))
            .or_insert(0usize) += 1;
    }
    let bytes_per_s = execution.links.iter().map(|link| {
        let from = link.from_node;
        let links = links_of[&(from, link.to_node, link.input)];
        rows[from] * costs[from].rows_out * costs[from].row_bytes / links as f64
    });
    let mut demand = Demand {
        cores: cores.collect(),
        bytes_per_s: bytes_per_s.collect(),
    };
    let nodes = 0..graph.nodes.len();
    for node in nodes.filter(|&node| copies.is_some_and(|copies| copies.first_phase[node])) {
        let left = rows_left(graph, split, costs, node);
        let cores = rows[node] * costs[node].per_row_ns / 1e9;
        move_first_phase(graph, split, execution, node, (cores, left), &mut demand);
    }
    demand
}

/// Moves the first phase of an aggregation that needs `cores` to its senders, which send the share `left` of
/// its rows.
fn move_first_phase(
    graph: &QueryGraph,
    split: &Subqueries,
    execution: &ExecutionGraph,
    node: usize,
    (cores, left): (f64, f64),
    demand: &mut Demand,
) {
    let inputs = graph.nodes[node].inputs.iter();
    let senders = inputs.map(|edge| split.of_node[edge.from]);
    let senders = senders.collect::<Vec<usize>>();
    for (own, instance) in demand.cores.iter_mut().zip(&execution.instances) {
        let share = cores / instance.instances as f64;
        if instance.subquery == split.of_node[node] {
            *own -= share * (1.0 - left);
        } else if senders.contains(&instance.subquery) {
            *own += share / senders.len() as f64;
        }
    }
    for (bytes, link) in demand.bytes_per_s.iter_mut().zip(&execution.links) {
        if link.to_node == node {
            *bytes *= left;
        }
    }
}

/// The share of the rows into an aggregation that is left after its first phase: each sender has at most the
/// groups of all.
pub fn rows_left(graph: &QueryGraph, split: &Subqueries, costs: &[NodeCost], node: usize) -> f64 {
    let inputs = graph.nodes[node].inputs.iter();
    let senders = inputs.map(|edge| split.subqueries[split.of_node[edge.from]].instances);
    (costs[node].rows_out * senders.sum::<usize>() as f64).min(1.0)
}

/// The bytes per second that go from one place (a NUMA node, a host) to another; `place_of` is the place of
/// each instance.
pub fn bytes_between(execution: &ExecutionGraph, demand: &Demand, place_of: &[usize]) -> f64 {
    let links = execution.links.iter().zip(&demand.bytes_per_s);
    let crossing = links.filter(|(link, _)| place_of[link.from] != place_of[link.to]);
    crossing.map(|(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::expand;
    use crate::query::{Edge, Exchange, Node};
    use crate::split::split;

    #[test]
    fn dropped_rows_load_no_later_operator() {
        let node = |kind, inputs| Node {
            name: String::new(),
            detail: String::new(),
            kind,
            inputs,
            instances_max: usize::MAX,
        };
        let edge = |from, exchange| vec![Edge { from, exchange }];
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, vec![]));
        graph.add(node(NodeKind::Stateless, edge(0, Exchange::Forward)));
        let by_key = edge(1, Exchange::Key(vec![0]));
        graph.add(node(NodeKind::Stateful, by_key));
        let split = split(&graph, 2);
        let execution = expand(&graph, &split);
        let cost = |per_row_ns, rows_out| NodeCost {
            per_row_ns,
            rows_out,
            row_bytes: 8.0,
        };
        let costs = [cost(100.0, 1.0), cost(10.0, 0.25), cost(400.0, 1.0)];
        let demand = demand(&graph, &split, &execution, None, &costs, &[1e6, 0.0, 0.0]);
        // 1 M rows/s of 110 ns, and a quarter of them of 400 ns, each on two instances.
        assert_eq!(demand.cores, [0.055, 0.055, 0.05, 0.05]);
        // 250 k rows/s of 8 bytes over four links.
        assert_eq!(demand.bytes_per_s, [500_000.0; 4]);
    }
}
