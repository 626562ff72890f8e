//! From subqueries to the execution graph: the instances of each subquery, and the links between them.

use crate::copies::Copies;
use crate::query::{Exchange, QueryGraph};
use crate::split::Subqueries;

/// Instances and links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionGraph {
    /// The instances.
    pub instances: Vec<InstanceNode>,
    /// The links.
    pub links: Vec<LinkEdge>,
    /// Which receivers of broadcasts forward them ([`crate::broadcast::links`]).
    pub relays: Vec<RelayEdge>,
}

/// A receiver that forwards what comes over a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayEdge {
    /// The link that it receives by.
    pub link: usize,
    /// The links that it forwards on, in the order in which they are served.
    pub links: Vec<usize>,
}

/// One copy of a subquery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceNode {
    /// The subquery.
    pub subquery: usize,
    /// The instance's number among the subquery's instances.
    pub index: usize,
    /// How many there are.
    pub instances: usize,
}

/// A link between two instances, for one edge of the query graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEdge {
    /// The sending instance.
    pub from: usize,
    /// The receiving instance.
    pub to: usize,
    /// The node whose output it carries.
    pub from_node: usize,
    /// The node whose input it feeds, always the head of its subquery.
    pub to_node: usize,
    /// The input of that node.
    pub input: usize,
}

/// Expands subqueries into instances and links.
pub fn expand(graph: &QueryGraph, split: &Subqueries) -> ExecutionGraph {
    expand_copies(graph, split, None)
}

/// Like [`expand`], for a query of which there may be copies: what is dealt out to many stays in its copy.
pub fn expand_copies(
    graph: &QueryGraph,
    split: &Subqueries,
    copies: Option<&Copies>,
) -> ExecutionGraph {
    let mut execution = ExecutionGraph::default();
    let mut first_instance = Vec::with_capacity(split.subqueries.len());
    for (subquery, part) in split.subqueries.iter().enumerate() {
        first_instance.push(execution.instances.len());
        for index in 0..part.instances {
            execution.instances.push(InstanceNode {
                subquery,
                index,
                instances: part.instances,
            });
        }
    }
    for (to_node, node) in graph.nodes.iter().enumerate() {
        for (input, edge) in node.inputs.iter().enumerate() {
            let (from_part, to_part) = (split.of_node[edge.from], split.of_node[to_node]);
            if from_part == to_part {
                continue;
            }
            let (from_count, to_count) = (
                split.subqueries[from_part].instances,
                split.subqueries[to_part].instances,
            );
            for from in 0..from_count {
                for to in 0..to_count {
                    let may_link = || {
                        copies.is_none_or(|copies| {
                            copies.may_link(split, (from_part, from), (to_part, to))
                        })
                    };
                    let linked = match edge.exchange {
                        Exchange::Forward | Exchange::Apart => from % to_count == to,
                        Exchange::Single => to == 0,
                        Exchange::Key(_) | Exchange::Broadcast => true,
                        Exchange::RoundRobin | Exchange::Demand => may_link(),
                        Exchange::Spread if from_count < to_count => may_link(),
                        Exchange::Spread => from % to_count == to,
                    };
                    if linked {
                        execution.links.push(LinkEdge {
                            from: first_instance[from_part] + from,
                            to: first_instance[to_part] + to,
                            from_node: edge.from,
                            to_node,
                            input,
                        });
                    }
                }
            }
        }
    }
    execution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{Edge, Node, NodeKind};
    use crate::split::split;

    fn chain(exchange: Exchange, sources_max: usize) -> ExecutionGraph {
        let node = |kind, inputs, instances_max| Node {
            name: String::new(),
            detail: String::new(),
            kind,
            inputs,
            instances_max,
        };
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, vec![], sources_max));
        graph.add(node(
            NodeKind::Stateful,
            vec![Edge { from: 0, exchange }],
            usize::MAX,
        ));
        let split = split(&graph, 3);
        expand(&graph, &split)
    }

    fn pairs(execution: &ExecutionGraph) -> Vec<(usize, usize)> {
        execution
            .links
            .iter()
            .map(|link| (link.from, link.to))
            .collect()
    }

    #[test]
    fn keys_link_all_with_all_and_single_with_one() {
        let keyed = chain(Exchange::Key(vec![0]), 2);
        assert_eq!(
            pairs(&keyed),
            [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
        );
        let single = chain(Exchange::Single, 2);
        assert_eq!(pairs(&single), [(0, 2), (1, 2)]);
    }

    #[test]
    fn forward_keeps_the_instances_of_a_partition_together() {
        assert_eq!(
            pairs(&chain(Exchange::Forward, 3)),
            [(0, 3), (1, 4), (2, 5)]
        );
    }
}
