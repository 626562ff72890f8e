//! Arranges the links of an execution graph along the trees of its broadcasts.

use std::collections::HashMap;

use super::{Algorithm, Place, Tree};
use crate::expand::{ExecutionGraph, RelayEdge};
use crate::query::{Exchange, QueryGraph};

/// An input of a node to which another node broadcasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Broadcast {
    /// The node whose output it is.
    pub from_node: usize,
    /// The node that receives it.
    pub to_node: usize,
    /// The input of that node.
    pub input: usize,
}

/// The broadcasts of a query graph.
pub fn broadcasts(graph: &QueryGraph) -> Vec<Broadcast> {
    let mut broadcasts = Vec::new();
    for (to_node, node) in graph.nodes.iter().enumerate() {
        for (input, edge) in node.inputs.iter().enumerate() {
            if edge.exchange == Exchange::Broadcast {
                broadcasts.push(Broadcast {
                    from_node: edge.from,
                    to_node,
                    input,
                });
            }
        }
    }
    broadcasts
}

/// The links of a broadcast by the instance that sends on them, with their receivers in order.
pub fn by_origin(execution: &ExecutionGraph, broadcast: Broadcast) -> Vec<(usize, Vec<usize>)> {
    let mut origins: Vec<(usize, Vec<usize>)> = Vec::new();
    for (number, link) in execution.links.iter().enumerate() {
        let own = Broadcast {
            from_node: link.from_node,
            to_node: link.to_node,
            input: link.input,
        };
        if own != broadcast {
            continue;
        }
        match origins.iter_mut().find(|(origin, _)| *origin == link.from) {
            Some((_, links)) => links.push(number),
            None => origins.push((link.from, vec![number])),
        }
    }
    origins
}

/// Rearranges the links of a broadcast, which run from its origins to all receivers, along the trees of
/// an algorithm: a link to a receiver then begins at its parent in the tree, which forwards the messages.
pub fn lay(
    execution: &mut ExecutionGraph,
    broadcast: Broadcast,
    algorithm: Algorithm,
    place_of: &dyn Fn(usize) -> Place,
) {
    for (origin, links) in by_origin(execution, broadcast) {
        let receivers = links.iter().map(|&link| execution.links[link].to);
        let receivers = receivers.collect::<Vec<usize>>();
        let places = receivers.iter().map(|&receiver| place_of(receiver));
        let tree = Tree::new(algorithm, place_of(origin), &places.collect::<Vec<_>>());
        // The link by which each receiver gets its messages keeps its number and its end.
        let relays = tree.children.iter().enumerate();
        let relays = relays.filter(|(_, below)| !below.is_empty());
        let mut begins = HashMap::new();
        for (receiver, below) in relays {
            begins.extend(
                below
                    .iter()
                    .map(|&below| (links[below], receivers[receiver])),
            );
            execution.relays.push(RelayEdge {
                link: links[receiver],
                links: below.iter().map(|&below| links[below]).collect(),
            });
        }
        for (link, from) in begins {
            execution.links[link].from = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::expand;
    use crate::query::{Edge, Node, NodeKind};
    use crate::split::split;

    /// Two sources that broadcast to five instances.
    fn execution() -> (QueryGraph, ExecutionGraph) {
        let node = |kind, inputs, instances_max| Node {
            name: String::new(),
            detail: String::new(),
            kind,
            inputs,
            instances_max,
        };
        let edge = |from, exchange| vec![Edge { from, exchange }];
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, vec![], 2));
        let many = usize::MAX;
        graph.add(node(NodeKind::Stateful, edge(0, Exchange::Broadcast), many));
        let split = split(&graph, 5);
        let execution = expand(&graph, &split);
        (graph, execution)
    }

    #[test]
    fn every_receiver_keeps_one_link_for_each_origin() {
        let (graph, before) = execution();
        let [broadcast] = broadcasts(&graph)[..] else {
            panic!("one broadcast")
        };
        assert_eq!(before.links.len(), 10);
        // Instances 0 and 1 are the sources; each instance in the process of its number modulo 3.
        let place_of = |instance: usize| Place {
            host: 0,
            process: instance % 3,
        };
        for algorithm in Algorithm::ALL {
            let mut laid = before.clone();
            lay(&mut laid, broadcast, algorithm, &place_of);
            for (link, was) in laid.links.iter().zip(&before.links) {
                assert_eq!((link.to, link.from_node), (was.to, was.from_node));
            }
            // Each link that begins at a receiver belongs to one relay, whose own link ends there.
            let mut handed_on = Vec::new();
            for relay in &laid.relays {
                for &link in &relay.links {
                    assert_eq!(laid.links[link].from, laid.links[relay.link].to);
                    handed_on.push(link);
                }
            }
            handed_on.sort();
            let moved = (0..10).filter(|&link| laid.links[link].from > 1);
            assert_eq!(handed_on, moved.collect::<Vec<_>>());
            assert_eq!(laid.relays.is_empty(), algorithm == Algorithm::Serial);
        }
    }
}
