//! What is checkpointed, and the keys and meanings of its state.

use std::collections::{BTreeSet, HashMap};

use slackwater_checkpoint::compatible::Wanted;
use slackwater_checkpoint::manifest::{Identity, Meaning, NodeKind};
use slackwater_engine::deploy::{Deployment, StepKind};
use slackwater_sql::node::NodeSpec;
use slackwater_sql::program::Program;
use slackwater_sql::state::{StateIdentity, legacy};

use super::shown;

/// The nodes and instances of a query that have positions, state or commits.
pub struct Members {
    /// The identities of the nodes.
    pub nodes: Vec<Identity>,
    /// Their nodes in the query graph.
    pub graph_nodes: Vec<usize>,
    /// For each node, whether its partitions are connections, which can't be resumed.
    pub transient: Vec<bool>,
    /// The instances, each as an index into `nodes` and its number among the node's instances.
    pub members: Vec<(usize, u32)>,
    /// The number of each member's instance in the deployment.
    pub instances: Vec<usize>,
    index: HashMap<(usize, u32), usize>,
}

/// For each node of the query graph, whether it is checkpointed: all are, except tables that are read again.
pub fn takes_part(program: &Program) -> Vec<bool> {
    let nodes = program.nodes.len();
    let mut takes_part = vec![false; nodes];
    // A node's consumers have larger numbers.
    for node in (0..nodes).rev() {
        let mut consumers = program.graph.consumers(node).into_iter();
        takes_part[node] = program.nodes[node].is_sink()
            || consumers.any(|(to, input)| {
                let is_table = program.nodes[to].facts().first_input == Some(input);
                takes_part[to] && !is_table
            });
    }
    takes_part
}

impl Members {
    /// The members of a deployed query.
    pub fn new(program: &Program, deployment: &Deployment) -> Members {
        let keys = keys(program);
        let takes_part = takes_part(program);
        let mut members = Members {
            nodes: Vec::new(),
            graph_nodes: Vec::new(),
            transient: Vec::new(),
            members: Vec::new(),
            instances: Vec::new(),
            index: HashMap::new(),
        };
        for (node, spec) in program.nodes.iter().enumerate() {
            let Some(identity) = identity(spec, keys.get(&node)) else {
                continue;
            };
            if takes_part[node] {
                members.nodes.push(identity);
                members.graph_nodes.push(node);
                members.transient.push(
                    spec.as_source()
                        .is_some_and(|source| source.connector.describe().transient_partitions),
                );
            }
        }
        for (number, instance) in deployment.instances.iter().enumerate() {
            if let Some(node) = instance.source() {
                members.add(node, instance.index, number);
            }
            for step in &instance.steps {
                if matches!(step.kind, StepKind::Operator | StepKind::Sink { .. }) {
                    members.add(step.node, instance.index, number);
                }
            }
        }
        members
    }

    fn add(&mut self, graph_node: usize, instance: usize, number: usize) {
        let Some(node) = self
            .graph_nodes
            .iter()
            .position(|&other| other == graph_node)
        else {
            return;
        };
        let member = (node, instance as u32);
        self.index
            .insert((graph_node, member.1), self.members.len());
        self.members.push(member);
        self.instances.push(number);
    }

    /// The member that is an instance of a node of the query graph.
    pub fn find(&self, graph_node: usize, instance: usize) -> Option<usize> {
        self.index.get(&(graph_node, instance as u32)).copied()
    }

    /// The key of a node of the query graph.
    pub fn key(&self, graph_node: usize) -> Option<&str> {
        let node = self
            .graph_nodes
            .iter()
            .position(|&other| other == graph_node)?;
        Some(&self.nodes[node].key)
    }

    /// The keys, by node of the query graph.
    pub fn keys(&self) -> HashMap<usize, String> {
        let nodes = self.graph_nodes.iter().zip(&self.nodes);
        nodes
            .map(|(&node, identity)| (node, identity.key.clone()))
            .collect()
    }

    /// What the query needs from a checkpoint.
    pub fn wanted(&self, program: &Program) -> Vec<Wanted> {
        let nodes = self.nodes.iter().zip(&self.graph_nodes);
        let wanted = nodes.map(|(identity, &node)| {
            let upstream = program.graph.upstream(node);
            let sources = upstream
                .into_iter()
                .filter(|&other| other != node && program.nodes[other].is_source());
            Wanted {
                identity: identity.clone(),
                sources: sources
                    .filter_map(|other| self.key(other).map(str::to_string))
                    .collect(),
                may_begin_empty: false,
            }
        });
        wanted.collect()
    }
}

/// The keys by which nodes are found again. Sources and sinks are named by their tables; the nodes between
/// them are counted backwards from their sink.
fn keys(program: &Program) -> HashMap<usize, String> {
    let mut keys = HashMap::new();
    let mut used = BTreeSet::new();
    let mut name = |wish: String| {
        let mut numbers = 2..;
        let mut name = wish.clone();
        while !used.insert(name.clone()) {
            name = format!("{wish} {}", numbers.next().unwrap_or(0));
        }
        name
    };
    for (node, spec) in program.nodes.iter().enumerate() {
        let wish = match spec {
            NodeSpec::Source(source) => format!("source {}", source.table.name),
            NodeSpec::Operator(_) => continue,
            NodeSpec::Sink(sink) => match &sink.table {
                Some(table) => format!("sink {}", table.name),
                None => "terminal".to_string(),
            },
        };
        keys.insert(node, name(wish));
    }
    for (node, spec) in program.nodes.iter().enumerate() {
        if !spec.is_sink() {
            continue;
        }
        let sink = keys[&node].clone();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let inputs = &program.graph.nodes[node].inputs;
            for from in inputs.iter().rev().map(|edge| edge.from) {
                if let Some(state) = program.nodes[from].state()
                    && !keys.contains_key(&from)
                {
                    keys.insert(from, name(format!("{} of {sink}", state.kind.word())));
                }
                open.push(from);
            }
        }
    }
    keys
}

fn identity(spec: &NodeSpec, key: Option<&String>) -> Option<Identity> {
    let state = spec.identity()?;
    let kind = match spec {
        NodeSpec::Source(_) => NodeKind::Source,
        NodeSpec::Operator(_) => NodeKind::Stateful,
        NodeSpec::Sink(_) => NodeKind::Sink,
    };
    Some(Identity {
        key: key?.clone(),
        kind,
        meaning: Meaning::State(state.to_json()),
    })
}

/// Why a checkpoint's state does not fit the query, in words for users; `None` if it fits.
pub fn differs(stored: &Meaning, now: &Meaning) -> Option<String> {
    let Meaning::State(now) = now else {
        unreachable!("the query's own identities are made in the format that is written")
    };
    match stored {
        Meaning::State(stored) => StateIdentity::difference(stored, now),
        Meaning::Aspects(stored) => match StateIdentity::from_json(now) {
            Ok(now) => legacy::difference(stored, &now).map(|reason| shown(&reason)),
            Err(reason) => Some(reason),
        },
    }
}
