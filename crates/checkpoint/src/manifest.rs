//! What makes a checkpoint: plain data, written last.
//!
//! A manifest names every object that the checkpoint consists of, with length and checksum, and holds
//! what is small itself: positions of sources, and commits that sinks have prepared. Nothing that it
//! doesn't name belongs to the checkpoint. How it lies in storage: [`record`].

use std::collections::{HashMap, HashSet};
use std::result::Result;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub mod record;

/// Nodes of a query, instances of a node, parts of a checkpoint and the like: 2^20 of each. A part
/// takes about 250 bytes in a manifest, so that so many would fill it ([`record::RECORD_BYTES_MAX`]).
pub const ENTRIES_MAX: usize = 1 << 20;

/// A valid checkpoint, as it is restored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Its number, given when it is stored: checkpoints of one store are numbered upwards, whatever
    /// incarnation writes them.
    pub number: u64,
    /// The incarnation that wrote it, given when it is stored.
    pub epoch: u64,
    /// The barrier at which it was taken; barriers are numbered upwards within an incarnation.
    pub barrier: u64,
    /// When it was stored, in milliseconds since 1970, for people.
    pub time_ms: u64,
    /// Buckets that keys fall into.
    pub buckets: u32,
    /// The query had come to its end: there is nothing to go on with.
    #[serde(default)]
    pub finished: bool,
    /// Nodes of the query that have state, positions or commits.
    pub nodes: Vec<Node>,
}

/// What a node of the query does with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Has positions.
    Source,
    /// Has keyed state.
    Stateful,
    /// May have commits.
    Sink,
}

/// What a node is, as far as its state goes: see [`crate::compatible`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What the node is found again by in another version of the query; each has its own.
    pub key: String,
    /// What it does with a checkpoint.
    pub kind: NodeKind,
    /// What its state means.
    #[serde(flatten)]
    pub meaning: Meaning,
}

/// What the state of a node means: it fits where that is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meaning {
    /// In a format of whoever made it, as plain data.
    #[serde(rename = "state")]
    State(Value),
    /// In words under names, as format 1 had it. It is read, and no longer written.
    #[serde(rename = "aspects")]
    Aspects(Vec<(String, String)>),
}

/// One node of the query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it is.
    pub identity: Identity,
    /// Instances that it ran with.
    pub instances: u32,
    /// The least watermark of its instances, in the unit of the engine; none before the first of any of them.
    /// The largest number there is: all of them had ended.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// Its state, in the order in which it is restored.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// How far a source was read.
    #[serde(default)]
    pub partitions: Vec<Partition>,
    /// What a sink has prepared and not committed.
    #[serde(default)]
    pub pending: Vec<Pending>,
}

/// One object of state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The instance that wrote it.
    pub instance: u32,
    /// The barrier at which it was written.
    pub barrier: u64,
    /// The barrier since which it holds what changed; none for a base, which holds everything.
    #[serde(default)]
    pub since: Option<u64>,
    /// The first and the last bucket that it may hold entries of.
    pub buckets: (u32, u32),
    /// It holds entries of those buckets only whose numbers, divided by this, leave the instance's
    /// number; none where buckets had moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<u32>,
    /// The instance's watermark, in the unit of the engine; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark: Option<i64>,
    /// The object's name in the store.
    pub object: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Rows in it.
    pub rows: u64,
    /// The algorithm and the checksum of its bytes (`crc32:0d4a1185`).
    pub checksum: String,
}

/// How far a partition of a source was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name (`flights.csv`), by which it is found again.
    pub name: String,
    /// The position of the first row that was not read.
    pub position: u64,
    /// What else the connector needs to go on from there.
    #[serde(default)]
    pub extra: Option<String>,
    /// Its own watermark, in the unit of the engine.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// It was read to its end.
    #[serde(default)]
    pub ended: bool,
}

/// What one instance of a sink has prepared and not committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The instance that prepared it.
    pub instance: u32,
    /// What the connector needs to commit it, in its own form.
    pub commit: Value,
}

impl Manifest {
    /// The node with this key.
    pub fn node(&self, key: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.identity.key == key)
    }

    /// Objects that it consists of, beside itself.
    pub fn objects(&self) -> impl Iterator<Item = &Part> {
        self.nodes.iter().flat_map(|node| &node.parts)
    }

    /// Bytes that restoring it reads.
    pub fn bytes(&self) -> u64 {
        self.objects().map(|part| part.bytes).sum()
    }

    /// Whether it makes sense in itself; the reason why not.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if self.buckets == 0 {
            return Err("there are no buckets".to_string());
        }
        let mut keys = HashSet::new();
        for node in &self.nodes {
            let key = &node.identity.key;
            if !keys.insert(key) {
                return Err(format!("node '{key}' is there twice"));
            }
            let lists = [node.parts.len(), node.partitions.len(), node.pending.len()];
            if lists.iter().any(|&length| length > ENTRIES_MAX) {
                return Err(format!("node '{key}' has more than {ENTRIES_MAX} entries"));
            }
            node.check_chains(self.buckets)
                .map_err(|reason| format!("node '{key}': {reason}"))?;
        }
        Ok(())
    }
}

impl Node {
    /// The parts that hold entries of the buckets from `first` to `last`, in the order in which they are
    /// restored. They may hold entries of other buckets too, which the reader leaves out.
    pub fn parts_of(&self, first: u32, last: u32) -> impl Iterator<Item = &Part> {
        let meets = move |part: &&Part| part.buckets.0 <= last && part.buckets.1 >= first;
        self.parts.iter().filter(meets)
    }

    /// Each instance's parts are a base and increments upon it, in order.
    fn check_chains(&self, buckets: u32) -> Result<(), String> {
        let mut latest = HashMap::<u32, u64>::new();
        for part in &self.parts {
            if part.buckets.0 > part.buckets.1 || part.buckets.1 >= buckets {
                return Err(format!("'{}' has buckets that don't exist", part.object));
            }
            if crate::part::PartName::parse(&part.object).is_none() {
                return Err(format!("'{}' is no name of a part", part.object));
            }
            let before = latest.insert(part.instance, part.barrier);
            let fits = match (before, part.since) {
                // Pieces of one snapshot have one barrier.
                (Some(before), None) => before == part.barrier,
                (Some(before), Some(since)) => before == part.barrier || since >= before,
                (None, since) => since.is_none(),
            };
            if !fits || part.since.is_some_and(|since| since >= part.barrier) {
                return Err(format!(
                    "'{}' does not follow what is before it",
                    part.object
                ));
            }
        }
        Ok(())
    }
}
