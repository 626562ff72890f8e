//! Copies of a query, one on each NUMA node or host: UPM-CEP's "two instances of the query in two nodes"
//! (`papers.md` P5), with one answer.
//!
//! ```text
//! node 0   source [1/4], [3/4] → stateless → first phase ─┐ by key
//!                                                          ├──────► second phase → sink
//! node 1   source [2/4], [4/4] → stateless → first phase ─┘
//! ```
//!
//! Instance `i` of a copied subquery belongs to copy `i` modulo the copies, so what goes from instance to
//! instance by number stays in its copy if both subqueries have a multiple of the copies. What is dealt out
//! (in turn, by demand) is dealt out within the copy. The first phase of an aggregation is done where its
//! rows are; what follows is one for all copies, so that there is one answer.

use crate::query::{Edge, Exchange, NodeKind, QueryGraph};
use crate::split::Subqueries;

/// What is copied of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copies {
    /// The number of copies, at least two.
    pub number: usize,
    /// By subquery, whether each copy has instances of its own.
    pub copied: Vec<bool>,
    /// By node of the query, whether the copies do the first phase of its aggregation.
    pub first_phase: Vec<bool>,
}

impl Copies {
    /// Decides what `number` copies have of their own; `has_first_phase`, by node, are the aggregations that
    /// can be done in two phases.
    pub fn of(
        graph: &QueryGraph,
        split: &Subqueries,
        number: usize,
        has_first_phase: &[bool],
    ) -> Copies {
        let mut copied = Vec::with_capacity(split.subqueries.len());
        for part in &split.subqueries {
            // A subquery comes after those that feed it.
            let stays =
                |edge: &Edge| copied[split.of_node[edge.from]] && keeps_copies(&edge.exchange);
            let is_fed = graph.nodes[part.nodes[0]].inputs.iter().all(stays);
            copied.push(is_fed && part.instances > 1);
        }
        let first_phase = graph.nodes.iter().enumerate().map(|(number, node)| {
            let own = split.of_node[number];
            let is_one_for_all = split.subqueries[own].nodes[0] == number && !copied[own];
            // What holds rows back is told of watermarks by its input and not by an operator with state.
            let may_send = |edge: &Edge| {
                let from = split.of_node[edge.from];
                let head = split.subqueries[from].nodes[0];
                copied[from] && graph.nodes[head].kind != NodeKind::Stateful
            };
            let is_sent = |edge: &Edge| {
                matches!(edge.exchange, Exchange::Key(_) | Exchange::Single) && may_send(edge)
            };
            has_first_phase[number]
                && is_one_for_all
                && !node.inputs.is_empty()
                && node.inputs.iter().all(is_sent)
        });
        let first_phase = first_phase.collect();
        Copies {
            number,
            copied,
            first_phase,
        }
    }

    /// Whether anything is copied.
    pub fn is_used(&self) -> bool {
        self.copied.contains(&true)
    }

    /// The copy of an instance, by its number among those of its subquery; `None` if that is one for all.
    pub fn of_instance(&self, subquery: usize, index: usize) -> Option<usize> {
        self.copied[subquery].then_some(index % self.number)
    }

    /// Whether two instances may be linked where an exchange would link all with all: they are in one copy,
    /// or some copy would have nobody to send to, or to receive from.
    pub fn may_link(&self, split: &Subqueries, from: (usize, usize), to: (usize, usize)) -> bool {
        let all = [from.0, to.0];
        let has_all = all.map(|subquery| split.subqueries[subquery].instances >= self.number);
        match (
            self.of_instance(from.0, from.1),
            self.of_instance(to.0, to.1),
        ) {
            (Some(one), Some(other)) if has_all == [true; 2] => one == other,
            _ => true,
        }
    }
}

/// Whether rows can stay in their copy.
fn keeps_copies(exchange: &Exchange) -> bool {
    match exchange {
        Exchange::Forward
        | Exchange::Apart
        | Exchange::RoundRobin
        | Exchange::Demand
        | Exchange::Spread => true,
        Exchange::Key(_) | Exchange::Single | Exchange::Broadcast => false,
    }
}

/// The number of instances for a subquery that wants some: a multiple of the copies, so that all have as
/// many.
pub fn instances(wanted: usize, copies: usize) -> usize {
    wanted.max(1).next_multiple_of(copies.max(1))
}

#[cfg(test)]
mod tests;
