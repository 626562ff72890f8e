//! The query graph: the query as the user wrote it, one operator per node.

use std::collections::BTreeSet;

/// A directed acyclic graph of operators. A node's inputs have smaller numbers than the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryGraph {
    /// The nodes; a node's number is its index here.
    pub nodes: Vec<Node>,
}

/// One operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The operator in one word: `source`, `filter`, `aggregate`.
    pub name: String,
    /// What it does, for `explain`: `bid.price > 100`.
    pub detail: String,
    /// How it may be run.
    pub kind: NodeKind,
    /// Where its rows come from; an input's number is its index here.
    pub inputs: Vec<Edge>,
    /// The most instances that have something to do and do no harm.
    pub instances_max: usize,
}

/// How an operator may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Reads rows from outside.
    Source,
    /// Processes each row alone.
    Stateless,
    /// Keeps state between rows: it is the head of a subquery.
    Stateful,
    /// Writes rows to the outside.
    Sink,
}

/// An input of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The node that the rows come from.
    pub from: usize,
    /// How the rows are spread over the instances of the receiving node.
    pub exchange: Exchange,
}

/// How rows are spread over the receiving instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exchange {
    /// Instance `i` of `n` sends to instance `i % m` of `m`: the order of each source partition is kept.
    Forward,
    /// As [`Exchange::Forward`], to a subquery of its own: the query says so.
    Apart,
    /// By the hash of these columns.
    Key(Vec<usize>),
    /// All rows to one instance.
    Single,
    /// Chunks to each instance in turn; order is lost.
    RoundRobin,
    /// Each chunk to the instance that has the least waiting; order is lost.
    Demand,
    /// As [`Exchange::Demand`] if there can be more receivers than senders, else as
    /// [`Exchange::Forward`]: nothing depends on the order of the rows.
    Spread,
    /// All rows to every instance.
    Broadcast,
}

impl QueryGraph {
    /// Adds a node and returns its number.
    pub fn add(&mut self, node: Node) -> usize {
        assert!(
            node.inputs.iter().all(|edge| edge.from < self.nodes.len()),
            "a node is added after its inputs"
        );
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// A node and all nodes whose rows reach it, in order.
    pub fn upstream(&self, node: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([node]);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            for edge in &self.nodes[node].inputs {
                if found.insert(edge.from) {
                    open.push(edge.from);
                }
            }
        }
        found
    }

    /// The nodes that read the output of `node`, with the number of their input.
    pub fn consumers(&self, node: usize) -> Vec<(usize, usize)> {
        let mut consumers = Vec::new();
        for (consumer, candidate) in self.nodes.iter().enumerate() {
            for (input, edge) in candidate.inputs.iter().enumerate() {
                if edge.from == node {
                    consumers.push((consumer, input));
                }
            }
        }
        consumers
    }
}
