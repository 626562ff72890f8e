//! Whether a query can go on from a checkpoint that another version of it has written.
//!
//! Nodes are found again by their keys, and the state of a node fits where it means the same ([`Meaning`]):
//! group keys, aggregates, window, types of columns. What only decides which rows come (a filter, a
//! projection before it) is no part of that, and may change. What differs is found by whoever knows the
//! format ([`Differs`]).
//!
//! | change | |
//! |---|---|
//! | parallelism, filters, computed columns, settings | fits: state is by bucket, and the rows behind it stay what they were |
//! | a node's state means something else, another kind of node | refused |
//! | a node is gone | refused, unless it may be lost, or has nothing (a sink that has committed all) |
//! | a new sink | begins with the rows that come next |
//! | a new source | is read from its beginning |
//! | a new stateful node | begins empty; refused when rows that it should have seen have been read, unless it may miss them |
//! | another number of buckets | refused |
//!
//! All reasons are given at once, each with its mend.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Kind};
use crate::manifest::{Identity, Manifest, Meaning, Node, NodeKind};

/// A node of the query that is to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What it is.
    pub identity: Identity,
    /// The keys of the sources whose rows reach it; for a source none.
    pub sources: Vec<String>,
    /// It may begin empty although rows that it should have seen have been read.
    pub may_begin_empty: bool,
}

/// How the new query goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// For each new node the index of the old one that it goes on from; none for those that begin empty.
    pub from: Vec<Option<usize>>,
    /// Keys of old nodes whose state is given up.
    pub dropped: Vec<String>,
}

/// What the state of a stored node means otherwise than that of the node that is to resume from it: the
/// reason, for users, or `None` where it means the same.
pub type Differs<'a> = &'a dyn Fn(&Meaning, &Meaning) -> Option<String>;

/// [`Differs`] where meanings are the same if they are equal.
pub fn unequal(stored: &Meaning, now: &Meaning) -> Option<String> {
    (stored != now).then(|| format!("its state was {stored:?}, and is {now:?}"))
}

/// What of the old query goes on as what of the new one. `droppable` are keys of old nodes whose state
/// may be lost.
///
/// # Errors
///
/// Every reason why it can't, one error each; the place is the node.
pub fn map(
    manifest: &Manifest,
    buckets: u32,
    nodes: &[Wanted],
    droppable: &[String],
    differs: Differs<'_>,
) -> Result<Mapping, Vec<Error>> {
    let mut reasons = Vec::new();
    if manifest.buckets != buckets {
        let reason = format!(
            "its keys fall into {} buckets, and this version has {buckets}",
            manifest.buckets
        );
        let place = format!("checkpoint {}", manifest.number);
        reasons.push(Error::new(Kind::Invalid, place, reason));
    }
    let old = manifest.nodes.iter().enumerate();
    let old = old.map(|(index, node)| (node.identity.key.as_str(), index));
    let old = old.collect::<HashMap<&str, usize>>();
    let mut mapping = Mapping::default();
    let mut keys = HashSet::new();
    for wanted in nodes {
        let key = wanted.identity.key.as_str();
        if !keys.insert(key) {
            reasons.push(refused(key, "two nodes of the query have this key", ""));
        }
        let from = old.get(key).copied();
        let checked = match from {
            Some(index) => same(&manifest.nodes[index].identity, &wanted.identity, differs),
            None => may_begin(manifest, wanted),
        };
        reasons.extend(checked.err());
        mapping.from.push(from);
    }
    for node in &manifest.nodes {
        let key = &node.identity.key;
        if keys.contains(key.as_str()) {
            continue;
        }
        if droppable.contains(key) {
            mapping.dropped.push(key.clone());
        } else if let Some(reason) = loss(node) {
            let mend = "keep it in the query, or begin anew";
            reasons.push(refused(key, &reason, mend));
        }
    }
    if reasons.is_empty() {
        Ok(mapping)
    } else {
        Err(reasons)
    }
}

/// The old node's state is the new one's.
fn same(old: &Identity, new: &Identity, differs: Differs<'_>) -> Result<(), Error> {
    let mend = "go back to what it was, or begin anew";
    if old.kind != new.kind {
        let reason = format!("it was a {}, and is a {}", name(old.kind), name(new.kind));
        return Err(refused(&new.key, &reason, mend));
    }
    match differs(&old.meaning, &new.meaning) {
        Some(reason) => Err(refused(&new.key, &reason, mend)),
        None => Ok(()),
    }
}

/// A node that the old query didn't have.
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
            let mend = "leave it out, or begin anew";
            Err(refused(&wanted.identity.key, &reason, mend))
        }
    }
}

/// What would be lost with an old node.
fn loss(node: &Node) -> Option<String> {
    let partitions = || node.partitions.iter();
    match node.identity.kind {
        NodeKind::Stateful if node.parts.is_empty() => None,
        NodeKind::Stateful => Some("it is gone from the query, and has state".to_string()),
        NodeKind::Source if partitions().all(|p| p.position == 0 && !p.ended) => None,
        NodeKind::Source => {
            Some("it is gone from the query, and its positions would be forgotten".to_string())
        }
        NodeKind::Sink if node.pending.is_empty() => None,
        NodeKind::Sink => Some("it is gone from the query, and rows wait to be committed".into()),
    }
}

fn refused(key: &str, reason: &str, mend: &str) -> Error {
    Error::new(Kind::Invalid, format!("'{key}'"), reason).mend(mend)
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
