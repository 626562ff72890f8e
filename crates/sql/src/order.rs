//! Where the order of rows affects the output, and what is allowed where it does not.
//!
//! A windowed aggregate emits its result when the watermark closes a window, and the result does not depend
//! on the order of its rows (FIRST_VALUE and LAST_VALUE order them by event time, partition and position). So
//! chunks may overtake each other before it, unless it sums floating-point numbers, whose last bits depend on
//! the order. All other nodes on the way to a sink depend on the order: the sink itself, running aggregates
//! (in the updates that they emit), window joins and interval joins (in the order of their rows).

use slackwater_control::query::{Exchange, NodeKind, QueryGraph};

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
