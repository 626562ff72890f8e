//! From the query graph to subqueries (UPM-CEP, `papers.md` P5).
//!
//! A subquery is a maximal tree of operators that run as plain calls. A new one begins at every source,
//! at every stateful operator, at every operator with several inputs, and wherever rows change instances
//! (by key, in turn, by demand, or to a sink that fewer instances can write), or where the query says so.

use crate::query::{Exchange, Node, NodeKind, QueryGraph};

/// A part of the query graph that each of its instances runs whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subquery {
    /// Nodes in the order of the graph; the first is the head.
    pub nodes: Vec<usize>,
    /// The number of instances.
    pub instances: usize,
}

/// The subqueries of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subqueries {
    /// The subqueries; each comes after those that feed it.
    pub subqueries: Vec<Subquery>,
    /// The subquery of each node.
    pub of_node: Vec<usize>,
}

/// Splits a graph for `parallelism` instances of each subquery that allows as many.
pub fn split(graph: &QueryGraph, parallelism: usize) -> Subqueries {
    split_each(graph, &vec![parallelism; graph.nodes.len()])
}

/// Splits a graph with a separate number of instances for the subquery that begins with each node
/// (`parallelism`, by node).
pub fn split_each(graph: &QueryGraph, parallelism: &[usize]) -> Subqueries {
    split_apart(graph, parallelism, &vec![None; graph.nodes.len()])
}

/// Like [`split_each`], for nodes that are bound to hosts: two that have different numbers in `groups` are
/// never in one subquery.
pub fn split_apart(
    graph: &QueryGraph,
    parallelism: &[usize],
    groups: &[Option<usize>],
) -> Subqueries {
    let mut split = Subqueries {
        subqueries: Vec::new(),
        of_node: Vec::new(),
    };
    for (number, node) in graph.nodes.iter().enumerate() {
        let is_apart = |subquery: &usize| {
            let nodes = &split.subqueries[*subquery].nodes;
            let group = nodes.iter().find_map(|&other| groups[other]);
            matches!((group, groups[number]), (Some(one), Some(other)) if one != other)
        };
        let fuses = fuses_with(node, &split, parallelism[number]);
        let subquery = match fuses.filter(|subquery| !is_apart(subquery)) {
            Some(subquery) => {
                split.subqueries[subquery].nodes.push(number);
                subquery
            }
            None => {
                let instances = instances(node, &split, parallelism[number].max(1));
                split.subqueries.push(Subquery {
                    nodes: vec![number],
                    instances,
                });
                split.subqueries.len() - 1
            }
        };
        split.of_node.push(subquery);
    }
    split
}

/// The subquery that can call the node directly.
fn fuses_with(node: &Node, split: &Subqueries, parallelism: usize) -> Option<usize> {
    let [edge] = node.inputs.as_slice() else {
        return None;
    };
    let subquery = split.of_node[edge.from];
    let stays = match edge.exchange {
        Exchange::Forward => true,
        Exchange::Spread => {
            split.subqueries[subquery].instances >= parallelism.min(node.instances_max)
        }
        _ => false,
    };
    let fits = matches!(node.kind, NodeKind::Stateless | NodeKind::Sink)
        && stays
        && node.instances_max >= split.subqueries[subquery].instances;
    fits.then_some(subquery)
}

fn instances(node: &Node, split: &Subqueries, parallelism: usize) -> usize {
    let forward = node.inputs.iter();
    let forward =
        forward.filter(|edge| matches!(edge.exchange, Exchange::Forward | Exchange::Apart));
    let fed_by = forward.map(|edge| split.subqueries[split.of_node[edge.from]].instances);
    let wanted = if node
        .inputs
        .iter()
        .any(|edge| edge.exchange == Exchange::Single)
    {
        1
    } else {
        fed_by.max().unwrap_or(parallelism)
    };
    wanted.min(node.instances_max).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Edge;

    fn node(kind: NodeKind, inputs: &[(usize, Exchange)], instances_max: usize) -> Node {
        let inputs = inputs.iter().map(|(from, exchange)| Edge {
            from: *from,
            exchange: exchange.clone(),
        });
        Node {
            name: String::new(),
            detail: String::new(),
            kind,
            inputs: inputs.collect(),
            instances_max,
        }
    }

    #[test]
    fn a_new_subquery_begins_at_state_at_several_inputs_and_at_a_narrow_sink() {
        let many = usize::MAX;
        let forward = |from: usize| (from, Exchange::Forward);
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, &[], 4)); // 0
        graph.add(node(NodeKind::Stateless, &[forward(0)], many)); // 1
        graph.add(node(
            NodeKind::Stateful,
            &[(1, Exchange::Key(vec![0]))],
            many,
        )); // 2
        graph.add(node(NodeKind::Stateless, &[forward(2)], many)); // 3
        graph.add(node(NodeKind::Sink, &[forward(3)], 1)); // 4: one file
        graph.add(node(NodeKind::Sink, &[forward(1)], many)); // 5: a second query, many files
        graph.add(node(NodeKind::Stateless, &[forward(1), forward(3)], many)); // 6: union
        let two = split(&graph, 2);
        assert_eq!(two.of_node, [0, 0, 1, 1, 2, 0, 3]);
        let instances = |split: &Subqueries| -> Vec<usize> {
            split
                .subqueries
                .iter()
                .map(|subquery| subquery.instances)
                .collect()
        };
        assert_eq!(instances(&two), [2, 2, 1, 2]);
        // With one instance, the subquery that feeds the single file can write it.
        let one = split(&graph, 1);
        assert_eq!(one.of_node, [0, 0, 1, 1, 1, 0, 2]);
        assert_eq!(instances(&one), [1, 1, 1]);
        // At most four instances can read the source.
        assert_eq!(instances(&split(&graph, 8)), [4, 8, 1, 8]);
    }

    #[test]
    fn a_query_can_begin_a_subquery_where_nothing_else_does() {
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, &[], 2));
        graph.add(node(NodeKind::Stateless, &[(0, Exchange::Forward)], 9));
        graph.add(node(NodeKind::Stateless, &[(1, Exchange::Apart)], 9));
        graph.add(node(NodeKind::Sink, &[(2, Exchange::Forward)], 9));
        let split = split(&graph, 3);
        assert_eq!(split.of_node, [0, 0, 1, 1]);
        // Rows of a partition stay together: there are as many instances as before.
        assert_eq!(split.subqueries[1].instances, 2);
    }

    #[test]
    fn what_is_bound_to_two_hosts_is_apart() {
        let forward = |from: usize| (from, Exchange::Forward);
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, &[], 1));
        graph.add(node(NodeKind::Stateless, &[forward(0)], 9));
        graph.add(node(NodeKind::Sink, &[forward(1)], 1));
        let of_node = |groups: [Option<usize>; 3]| split_apart(&graph, &[1; 3], &groups).of_node;
        assert_eq!(of_node([Some(1), None, Some(0)]), [0, 0, 1]);
        assert_eq!(of_node([Some(1), None, Some(1)]), [0, 0, 0]);
        assert_eq!(of_node([None, None, Some(1)]), [0, 0, 0]);
    }

    #[test]
    fn statements_that_share_a_source_differ_after_it() {
        let many = usize::MAX;
        let by_key = |from: usize| (from, Exchange::Key(vec![0]));
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, &[], many));
        graph.add(node(NodeKind::Stateful, &[by_key(0)], many));
        graph.add(node(NodeKind::Stateful, &[by_key(0)], many));
        let split = split_each(&graph, &[3, 3, 2]);
        let instances = split.subqueries.iter().map(|part| part.instances);
        assert_eq!(instances.collect::<Vec<usize>>(), [3, 3, 2]);
    }
}
