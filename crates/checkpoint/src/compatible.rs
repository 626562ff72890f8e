//! Checks whether a query can resume from a checkpoint that another version of it has written.
//!
//! Nodes are matched by their keys, and the state of a node fits if its meaning is the same ([`Meaning`]):
//! group keys, aggregates, window, column types. Whatever only decides which rows arrive (a filter or
//! projection before it) is not part of the meaning, and may change. The caller, who knows the format of
//! meanings, finds the difference ([`Differs`]).
//!
//! | change | |
//! |---|---|
//! | parallelism, filters, computed columns, settings | fits: state is by bucket, and keeps its meaning |
//! | a node's state has another meaning, or the node another kind | refused |
//! | a node is missing | refused, unless its state may be lost or is empty (a sink that has committed all) |
//! | a new sink | starts with the rows that come next |
//! | a new source | is read from its beginning |
//! | a new stateful node | starts empty; refused if it has missed rows, unless it may miss them |
//! | another number of buckets | refused |
//!
//! [`compare`] says of each node what becomes of it, and changes nothing. A query resumes if there is no
//! reason against it ([`Comparison::reasons`]); each has a hint.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Kind};
use crate::manifest::{Identity, Manifest, Meaning, Node, NodeKind};

/// A node of the query that resumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The node's identity.
    pub identity: Identity,
    /// The keys of the sources whose rows reach it; empty for a source.
    pub sources: Vec<String>,
    /// Whether the node may start empty although rows that it should have seen were already read.
    pub may_begin_empty: bool,
}

/// Compares the meaning of a stored node's state with that of the node that resumes from it: returns the
/// difference, for users, or `None` if the meanings are the same.
pub type Differs<'a> = &'a dyn Fn(&Meaning, &Meaning) -> Option<String>;

/// [`Differs`] for meanings that are the same if they are equal.
pub fn unequal(stored: &Meaning, now: &Meaning) -> Option<String> {
    (stored != now).then(|| format!("its state was {stored:?}, and is {now:?}"))
}

/// What becomes of a node, and of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The node takes over the state of the old node with this index.
    Continues(usize),
    /// The node is new and has missed nothing, or may: it starts empty.
    Begins,
    /// The node is no longer in the query, and its state is empty or may be lost.
    Dropped,
    /// The state of the old node with this index has another meaning: the query can't resume.
    Changed(usize, Error),
    /// The node is new and has missed rows: the query can't resume.
    Missed(Error),
    /// The node is no longer in the query, and its state would be lost: the query can't resume.
    Lost(Error),
}

impl Fate {
    /// Why the query can't resume, if the node is the reason.
    pub fn refusal(&self) -> Option<&Error> {
        match self {
            Fate::Continues(_) | Fate::Begins | Fate::Dropped => None,
            Fate::Changed(_, error) | Fate::Missed(error) | Fate::Lost(error) => Some(error),
        }
    }
}

/// What becomes of each node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Why the query can't resume, apart from single nodes.
    pub refusals: Vec<Error>,
    /// What becomes of the new nodes, in order.
    pub nodes: Vec<Fate>,
    /// The old nodes that are no longer in the query, by index, and what becomes of them.
    pub gone: Vec<(usize, Fate)>,
}

impl Comparison {
    /// Every reason why the query can't resume.
    pub fn reasons(&self) -> impl Iterator<Item = &Error> {
        let gone = self.gone.iter().map(|(_, fate)| fate);
        let of_nodes = self.nodes.iter().chain(gone).filter_map(Fate::refusal);
        self.refusals.iter().chain(of_nodes)
    }
}

/// Matches the nodes of the old query with the new `nodes`, and says what becomes of each. `droppable` are
/// keys of old nodes whose state may be lost.
pub fn compare(
    manifest: &Manifest,
    buckets: u32,
    nodes: &[Wanted],
    droppable: &[String],
    differs: Differs<'_>,
) -> Comparison {
    let mut compared = Comparison::default();
    if manifest.buckets != buckets {
        let reason = format!(
            "its keys fall into {} buckets, and this version has {buckets}",
            manifest.buckets
        );
        let place = format!("checkpoint {}", manifest.number);
        compared
            .refusals
            .push(Error::new(Kind::Invalid, place, reason));
    }
    let old = manifest.nodes.iter().enumerate();
    let old = old.map(|(index, node)| (node.identity.key.as_str(), index));
    let old = old.collect::<HashMap<&str, usize>>();
    let mut keys = HashSet::new();
    for wanted in nodes {
        let key = wanted.identity.key.as_str();
        if !keys.insert(key) {
            let twice = refused(key, "two nodes of the query have this key", "");
            compared.refusals.push(twice);
        }
        compared.nodes.push(match old.get(key).copied() {
            Some(index) => match same(&manifest.nodes[index].identity, &wanted.identity, differs) {
                Ok(()) => Fate::Continues(index),
                Err(error) => Fate::Changed(index, error),
            },
            None => match may_begin(manifest, wanted) {
                Ok(()) => Fate::Begins,
                Err(error) => Fate::Missed(error),
            },
        });
    }
    for (index, node) in manifest.nodes.iter().enumerate() {
        let key = &node.identity.key;
        if keys.contains(key.as_str()) {
            continue;
        }
        let loss = loss(node).filter(|_| !droppable.contains(key));
        let fate = match loss {
            None => Fate::Dropped,
            Some(reason) => {
                Fate::Lost(refused(key, &reason, "keep it in the query, or start over"))
            }
        };
        compared.gone.push((index, fate));
    }
    compared
}

/// Checks that the old node's state fits the new node.
fn same(old: &Identity, new: &Identity, differs: Differs<'_>) -> Result<(), Error> {
    let hint = "undo the change, or start over";
    if old.kind != new.kind {
        let reason = format!("it was a {}, and is a {}", name(old.kind), name(new.kind));
        return Err(refused(&new.key, &reason, hint));
    }
    match differs(&old.meaning, &new.meaning) {
        Some(reason) => Err(refused(&new.key, &reason, hint)),
        None => Ok(()),
    }
}

/// Checks a node that the old query didn't have.
fn may_begin(manifest: &Manifest, wanted: &Wanted) -> Result<(), Error> {
    if wanted.identity.kind != NodeKind::Stateful || wanted.may_begin_empty {
        return Ok(());
    }
    let read = wanted.sources.iter().find(|source| {
        let partitions = manifest.node(source).map(|node| &node.partitions);
        partitions.is_some_and(|all| all.iter().any(|p| p.position > 0 || p.ended))
    });
    match read {
        None => Ok(()),
        Some(source) => {
            let reason = format!("it is new, and rows of '{source}' that belong to it were read");
            let hint = "leave it out, or start over";
            Err(refused(&wanted.identity.key, &reason, hint))
        }
    }
}

/// What would be lost if an old node is dropped.
fn loss(node: &Node) -> Option<String> {
    let partitions = || node.partitions.iter();
    match node.identity.kind {
        NodeKind::Stateful if node.parts.is_empty() => None,
        NodeKind::Stateful => Some("it is no longer in the query, and has state".to_string()),
        NodeKind::Source if partitions().all(|p| p.position == 0 && !p.ended) => None,
        NodeKind::Source => {
            Some("it is no longer in the query, and its positions would be lost".to_string())
        }
        NodeKind::Sink if node.pending.is_empty() => None,
        NodeKind::Sink => {
            Some("it is no longer in the query, and rows wait to be committed".into())
        }
    }
}

fn refused(key: &str, reason: &str, hint: &str) -> Error {
    Error::new(Kind::Invalid, format!("'{key}'"), reason).hint(hint)
}

fn name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Source => "source",
        NodeKind::Stateful => "stateful operator",
        NodeKind::Sink => "sink",
    }
}

#[cfg(test)]
mod tests;
