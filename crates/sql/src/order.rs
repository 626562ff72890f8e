//! Where the order of rows affects the output, and what is allowed where it does not.
//!
//! A windowed aggregate emits its result when the watermark closes a window, and the result does not depend
//! on the order of its rows (FIRST_VALUE and LAST_VALUE order them by event time, partition and position). So
//! chunks may overtake each other before it, unless it sums floating-point numbers, whose last bits depend on
//! the order. All other nodes on the way to a sink depend on the order: the sink itself, running aggregates
//! (in the updates that they emit), window joins and interval joins (in the order of their rows).

use slackwater_control::query::{Edge, Exchange, Node, NodeKind, QueryGraph};

use crate::node::{NodeSpec, Order};

/// Lets chunks of sources be dealt out by demand to operators that allow it ([`Facts::may_be_dealt`]), where
/// the order of their rows does not affect the output. Other stateless operators stay with their source: for
/// a query of cheap operators a hop to a second core costs a quarter more CPU time without making any row
/// faster, because decoding is the slow part.
///
/// [`Facts::may_be_dealt`]: crate::node::Facts::may_be_dealt
pub fn deal_if_order_is_unseen(graph: &mut QueryGraph, nodes: &[NodeSpec], keep_order: bool) {
    let seen = order_is_seen(graph, nodes);
    let kinds = graph.nodes.iter().map(|node| node.kind);
    let kinds = kinds.collect::<Vec<NodeKind>>();
    for ((node, spec), seen) in graph.nodes.iter_mut().zip(nodes).zip(seen) {
        if !spec.facts().may_be_dealt || (keep_order && seen) {
            continue;
        }
        for edge in &mut node.inputs {
            if kinds[edge.from] == NodeKind::Source && edge.exchange == Exchange::Forward {
                edge.exchange = Exchange::Spread;
            }
        }
    }
}

/// Deals chunks to a union where they would be dealt behind it: the union then runs in each of the copies
/// that they are dealt to. As a subquery of its own it would be one more hop, and its worker would deal for
/// all inputs, which is late if it also runs a slow copy.
pub fn deal_into_unions(graph: &mut QueryGraph) {
    for node in 0..graph.nodes.len() {
        let [edge] = graph.nodes[node].inputs.as_slice() else {
            continue;
        };
        let (from, exchange) = (edge.from, edge.exchange.clone());
        if !matches!(exchange, Exchange::Demand | Exchange::RoundRobin)
            || !is_union(&graph.nodes[from])
            || graph.consumers(from).len() > 1
        {
            continue;
        }
        graph.nodes[node].inputs[0].exchange = Exchange::Forward;
        for edge in &mut graph.nodes[from].inputs {
            edge.exchange = exchange.clone();
        }
    }
}

/// Whether the node merges several streams whose rows go to any of its instances.
fn is_union(node: &Node) -> bool {
    let is_free = |edge: &Edge| {
        matches!(
            edge.exchange,
            Exchange::Forward | Exchange::Spread | Exchange::Demand | Exchange::RoundRobin
        )
    };
    node.kind == NodeKind::Stateless && node.inputs.len() > 1 && node.inputs.iter().all(is_free)
}

/// Whether the order in which rows reach each node affects the output of the query.
fn order_is_seen(graph: &QueryGraph, nodes: &[NodeSpec]) -> Vec<bool> {
    let mut seen = vec![false; nodes.len()];
    // Consumers have larger numbers.
    for node in (0..nodes.len()).rev() {
        seen[node] = match nodes[node].facts().order {
            Order::Seen => true,
            Order::Unseen => false,
            Order::AsOutput => {
                let consumers = graph.consumers(node);
                consumers.into_iter().any(|(consumer, _)| seen[consumer])
            }
        };
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sources, a union of them, and `consumers` nodes that get its rows by `exchange`.
    fn graph(inputs: Exchange, exchange: Exchange, consumers: usize) -> QueryGraph {
        let mut graph = QueryGraph::default();
        let mut add = |kind, inputs: Vec<(usize, Exchange)>| {
            let inputs = inputs.into_iter();
            graph.add(Node {
                name: String::new(),
                detail: String::new(),
                kind,
                inputs: inputs
                    .map(|(from, exchange)| Edge { from, exchange })
                    .collect(),
                instances_max: usize::MAX,
            })
        };
        let sources = [(); 2].map(|()| add(NodeKind::Source, Vec::new()));
        let inputs = sources.map(|source| (source, inputs.clone()));
        let union = add(NodeKind::Stateless, inputs.to_vec());
        for _ in 0..consumers {
            add(NodeKind::Stateless, vec![(union, exchange.clone())]);
        }
        graph
    }

    /// The exchanges before the union, and the one behind it.
    fn dealt(inputs: Exchange, exchange: Exchange, consumers: usize) -> [Exchange; 3] {
        let mut graph = graph(inputs, exchange, consumers);
        deal_into_unions(&mut graph);
        let of = |node: usize, input: usize| graph.nodes[node].inputs[input].exchange.clone();
        [of(2, 0), of(2, 1), of(3, 0)]
    }

    #[test]
    fn rows_that_are_dealt_behind_a_union_are_dealt_to_it() {
        use Exchange::{Demand, Forward, Key, RoundRobin, Spread};
        let by_key = || Key(vec![0]);
        assert_eq!(dealt(Forward, Demand, 1), [Demand, Demand, Forward]);
        assert_eq!(
            dealt(Spread, RoundRobin, 1),
            [RoundRobin, RoundRobin, Forward]
        );
        assert_eq!(dealt(Forward, by_key(), 1), [Forward, Forward, by_key()]);
        assert_eq!(dealt(by_key(), Demand, 1), [by_key(), by_key(), Demand]);
        // Another consumer gets the rows of the union in their order.
        assert_eq!(dealt(Forward, Demand, 2), [Forward, Forward, Demand]);
    }
}
