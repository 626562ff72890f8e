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
//! process once, to its first receiver, which passes it to the others there by reference. Flat tree,
//! binary tree and bidirectional ring are those of Kamburugamuve et al., "Towards High Performance
//! Processing of Streaming Data" (2016), section on broadcasting: their workers are our processes, and
//! their flat tree's one worker of each node is here one process of each other host.
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
    /// The origin sends to each process of its host and to one of each other host, which forwards to the
    /// processes there.
    FlatTree,
    /// Processes form a binary tree below the origin.
    BinaryTree,
    /// Processes form two lines that begin at the origin: a ring in both directions.
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
            // The origin's host first, and neighbors on the same host.
            let key = (place.host != origin.host, *place);
            processes.entry(key).or_default().push(receiver);
        }
        let own = processes.remove(&(false, origin)).unwrap_or_default();
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

/// For each process, the one whose first receiver sends to it; `None` for the origin.
fn parents(algorithm: Algorithm, origin: Place, groups: &[Group]) -> Vec<Option<usize>> {
    let numbers = 0..groups.len();
    match algorithm {
        Algorithm::Serial => unreachable!("it knows no processes"),
        Algorithm::FlatTree => {
            let head_of = |number: usize| {
                let host = groups[number].place.host;
                let head = groups.iter().position(|group| group.place.host == host);
                head.filter(|&head| host != origin.host && head != number)
            };
            numbers.map(head_of).collect()
        }
        // A heap whose first element is the origin.
        Algorithm::BinaryTree => numbers.map(|number| (number / 2).checked_sub(1)).collect(),
        Algorithm::Ring => {
            let second_line = groups.len().div_ceil(2);
            let before = |number: usize| {
                let begins = number == 0 || number == second_line;
                (!begins).then(|| number - 1)
            };
            numbers.map(before).collect()
        }
    }
}

#[cfg(test)]
mod tests;
