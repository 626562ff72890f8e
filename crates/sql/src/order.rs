//! Where the order of rows can be seen, and what may be done where it can't (I1).
//!
//! A windowed aggregate emits when the watermark closes a window, and the same whatever the order
//! in which its rows came (FIRST_VALUE and LAST_VALUE order them by event time, partition and
//! position). So before it chunks may overtake each other, unless it sums floating-point numbers,
//! whose last bits depend on order. Whatever else a row passes on its way to a sink shows order:
//! the sink itself, running aggregates (in what they emit on the way), window joins and interval
//! joins (in the order of their rows).

use slackwater_control::query::{Exchange, NodeKind, QueryGraph};

use crate::node::{NodeSpec, Order};

/// Lets chunks of sources be dealt out by demand to operators that say so
/// ([`Facts::may_be_dealt`]), where nothing sees the order of their rows. Other stateless operators
/// stay with their source: a hop and a second core cost a query of cheap operators a quarter more
/// CPU time and bring it no row sooner, as decoding is what takes long.
///
/// [`Facts::may_be_dealt`]: crate::node::Facts::may_be_dealt
pub fn deal_where_unseen(graph: &mut QueryGraph, nodes: &[NodeSpec], keep_order: bool) {
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

/// Whether the order in which rows reach each node can be seen in what the query emits.
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
