//! Broadcasts: which instance forwards a message to which others, so that every receiver gets it once.
//!
//! ```text
//! serial            flat tree             binary tree            ring
//! O ─► a1           O ─► a1 ─► a2         O ─► a1 ─► c1          O ─► a1 ─► b1
//! O ─► a2           O ─► b1 ─► b2         │     └──► d1          └──► c1 ─► d1
//! O ─► b1 …         O ─► c1 …             └──► b1 …              (a2, b2 … as in the trees)
//! ```
//!
//! `a1` and `a2` are receivers in process `a`. Except with the serial algorithm, a message goes to a
//! process once, to its first receiver, which passes it to the others there by reference; and to a host
//! once, to its first process. Hosts have the shape that is drawn, and so have the processes of a host below
//! the first. Flat tree, binary tree and bidirectional ring are those of Kamburugamuve et al., "Towards High
//! Performance Processing of Streaming Data" (2016), section on broadcasting, whose nodes are hosts here, and
//! whose workers are processes.
//!
//! [`model`] chooses the cheapest algorithm; [`links`] arranges the links of an execution graph
//! accordingly.

pub mod links;
pub mod model;

use std::collections::BTreeMap;

/// How a broadcast reaches its receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// The origin sends to each receiver.
    Serial,
    /// The origin sends to each process of its host and to the first of each other host, which forwards to
    /// the others there.
    FlatTree,
    /// Hosts form a binary tree below the origin, and the processes of a host one below its first.
    BinaryTree,
    /// Hosts form two lines that begin at the origin, a ring in both directions, and so do the processes of a
    /// host.
    Ring,
}

impl Algorithm {
    /// All algorithms, the simplest first.
    pub const ALL: [Algorithm; 4] = [
        Algorithm::Serial,
        Algorithm::FlatTree,
        Algorithm::BinaryTree,
        Algorithm::Ring,
    ];

    /// The algorithm's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Serial => "serial",
            Algorithm::FlatTree => "flat_tree",
            Algorithm::BinaryTree => "binary_tree",
            Algorithm::Ring => "ring",
        }
    }

    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Algorithm> {
        let mut all = Algorithm::ALL.into_iter();
        all.find(|algorithm| algorithm.name() == name)
    }
}

/// Where an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The host.
    pub host: usize,
    /// The process; its number is unique over all hosts.
    pub process: usize,
}

/// The tree of a broadcast: who forwards a message to whom. Receivers go by their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The receivers that the origin sends to, in that order.
    pub roots: Vec<usize>,
    /// For each receiver, those that it forwards to, in that order.
    pub children: Vec<Vec<usize>>,
}

impl Tree {
    /// The tree of an algorithm.
    pub fn new(algorithm: Algorithm, origin: Place, receivers: &[Place]) -> Tree {
        if algorithm == Algorithm::Serial {
            return Tree {
                roots: (0..receivers.len()).collect(),
                children: vec![Vec::new(); receivers.len()],
            };
        }
        let mut processes = BTreeMap::<_, Vec<usize>>::new();
        for (receiver, place) in receivers.iter().enumerate() {
            // Other hosts first, which are the furthest, and neighbors on the same host.
            let key = (place.host == origin.host, *place);
            processes.entry(key).or_default().push(receiver);
        }
        let own = processes.remove(&(true, origin)).unwrap_or_default();
        let groups = processes.into_iter();
        let groups = groups.map(|((_, place), receivers)| Group { place, receivers });
        let groups = groups.collect::<Vec<Group>>();
        let parents = parents(algorithm, origin, &groups);
        let mut tree = Tree {
            roots: Vec::new(),
            children: vec![Vec::new(); receivers.len()],
        };
        for (group, parent) in groups.iter().zip(parents) {
            match parent {
                None => tree.roots.push(group.receivers[0]),
                Some(parent) => {
                    let parent = groups[parent].receivers[0];
                    tree.children[parent].push(group.receivers[0]);
                }
            }
        }
        // These come last, because a message that stays in the process has a short way.
        for Group { receivers, .. } in &groups {
            let (first, others) = receivers.split_first().expect("a process has a receiver");
            tree.children[*first].extend(others);
        }
        tree.roots.extend(own);
        tree
    }

    /// The longest way, in senders: 1 if the origin sends to all.
    pub fn depth(&self) -> usize {
        let mut depth = 0;
        let mut level = self.roots.clone();
        while !level.is_empty() {
            depth += 1;
            let below = level.iter().flat_map(|&receiver| &self.children[receiver]);
            level = below.copied().collect();
        }
        depth
    }
}

/// The receivers of a process other than the origin's.
struct Group {
    place: Place,
    receivers: Vec<usize>,
}

/// For each process, the one whose first receiver sends to it; `None` for the origin. The same shape twice:
/// among the hosts, each by its first process, and among the processes of a host, below that one.
fn parents(algorithm: Algorithm, origin: Place, groups: &[Group]) -> Vec<Option<usize>> {
    let mut hosts = BTreeMap::<usize, Vec<usize>>::new();
    for (number, group) in groups.iter().enumerate() {
        hosts.entry(group.place.host).or_default().push(number);
    }
    let own = hosts.remove(&origin.host).unwrap_or_default();
    let heads = hosts.values().map(|processes| processes[0]);
    let heads = heads.collect::<Vec<usize>>();
    let others = hosts.values();
    let others = others.map(|processes| (Some(processes[0]), &processes[1..]));
    let levels = [(None, &own[..]), (None, &heads[..])].into_iter();
    let mut parents = vec![None; groups.len()];
    for (root, members) in levels.chain(others) {
        for (number, &member) in members.iter().enumerate() {
            let parent = above(algorithm, number, members.len());
            parents[member] = parent.map_or(root, |parent| Some(members[parent]));
        }
    }
    parents
}

/// Of so many that are reached from a root, the one that sends to `number`; `None` for the root.
fn above(algorithm: Algorithm, number: usize, count: usize) -> Option<usize> {
    match algorithm {
        Algorithm::Serial | Algorithm::FlatTree => None,
        // A heap with the root on top.
        Algorithm::BinaryTree => (number / 2).checked_sub(1),
        Algorithm::Ring => {
            let begins = number == 0 || number == count.div_ceil(2);
            (!begins).then(|| number - 1)
        }
    }
}

#[cfg(test)]
mod tests;
