//! The description of a checkpoint: plain data, written last.
//!
//! A manifest names every object that the checkpoint consists of, with length and checksum, and contains
//! small things itself: the positions of sources, and commits that sinks have prepared. Objects that it
//! doesn't name don't belong to the checkpoint. [`record`] describes the stored form.

use std::collections::{HashMap, HashSet};
use std::result::Result;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub mod record;

/// The most nodes of a query, instances of a node, parts of a checkpoint and so on: 2^20 of each. A part
/// takes about 250 bytes in a manifest, so that this many would fill it ([`record::RECORD_BYTES_MAX`]).
pub const ENTRIES_MAX: usize = 1 << 20;

/// A valid checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The checkpoint's number, set when it is stored. The numbers in one store increase, whichever
    /// incarnation writes.
    pub number: u64,
    /// The incarnation that wrote it, set when it is stored.
    pub epoch: u64,
    /// The barrier at which it was taken. The numbers of barriers increase within an incarnation.
    pub barrier: u64,
    /// When it was stored, in milliseconds since 1970. Only for display.
    pub time_ms: u64,
    /// Buckets that keys fall into.
    pub buckets: u32,
    /// Whether the query had finished: there is nothing to resume.
    #[serde(default)]
    pub finished: bool,
    /// Nodes of the query that have state, positions or commits.
    pub nodes: Vec<Node>,
}

/// The kind of a node, as far as checkpoints are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A node with positions.
    Source,
    /// A node with keyed state.
    Stateful,
    /// A node that may have commits.
    Sink,
}

/// The identity of a node's state: see [`crate::compatible`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The key by which the node is found in another version of the query. Keys are unique.
    pub key: String,
    /// The node's kind.
    pub kind: NodeKind,
    /// The meaning of its state.
    #[serde(flatten)]
    pub meaning: Meaning,
}

/// The meaning of a node's state: the state fits a node with the same meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meaning {
    /// Plain data, in a format of the caller.
    #[serde(rename = "state")]
    State(Value),
    /// Named strings, as in format 1. They are read, and no longer written.
    #[serde(rename = "aspects")]
    Aspects(Vec<(String, String)>),
}

/// One node of the query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it is.
    pub identity: Identity,
    /// How many instances it had.
    pub instances: u32,
    /// The least watermark of its instances, in the unit of the engine; `None` if one of them had none yet.
    /// The largest number means that all of them had ended.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// The parts of its state, in the order in which they are restored.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// How far a source was read.
    #[serde(default)]
    pub partitions: Vec<Partition>,
    /// The commits that a sink has prepared and not made.
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
    /// The barrier since which it holds what changed; `None` for a base, which holds everything.
    #[serde(default)]
    pub since: Option<u64>,
    /// The first and the last bucket of which it may hold entries.
    pub buckets: (u32, u32),
    /// The number of instances, if the part only holds entries of buckets whose number modulo this is the
    /// instance's number; `None` if buckets had moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<u32>,
    /// The instance's watermark, in the unit of the engine; `None` before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark: Option<i64>,
    /// The object's name in the store.
    pub object: String,
    /// The object's length in bytes.
    pub bytes: u64,
    /// The number of rows.
    pub rows: u64,
    /// The algorithm and the checksum of its bytes (`crc32:0d4a1185`).
    pub checksum: String,
}

/// How far a partition of a source was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// The partition's name (`flights.csv`), by which it is found again.
    pub name: String,
    /// The position of the first row that was not read.
    pub position: u64,
    /// Whatever else the connector needs to resume from there.
    #[serde(default)]
    pub extra: Option<String>,
    /// The partition's watermark, in the unit of the engine.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// Whether it was read to its end.
    #[serde(default)]
    pub ended: bool,
    /// What was counted of its rows, in a format of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Value>,
}

/// A commit that one instance of a sink has prepared and not made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The instance that prepared it.
    pub instance: u32,
    /// The connector's data for the commit, in its own format.
    pub commit: Value,
}

impl Manifest {
    /// The node with this key.
    pub fn node(&self, key: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.identity.key == key)
    }

    /// The objects of the checkpoint, besides the manifest.
    pub fn objects(&self) -> impl Iterator<Item = &Part> {
        self.nodes.iter().flat_map(|node| &node.parts)
    }

    /// How many bytes a restore reads.
    pub fn bytes(&self) -> u64 {
        self.objects().map(|part| part.bytes).sum()
    }

    /// Checks that the manifest is consistent.
    ///
    /// # Errors
    ///
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), String> {
        if self.buckets == 0 {
            return Err("there are no buckets".to_string());
        }
        let mut keys = HashSet::new();
        for node in &self.nodes {
            let key = &node.identity.key;
            if !keys.insert(key) {
                return Err(format!("node '{key}' occurs twice"));
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
    /// restored. They may also hold entries of other buckets, which the reader ignores.
    pub fn parts_of(&self, first: u32, last: u32) -> impl Iterator<Item = &Part> {
        let meets = move |part: &&Part| part.buckets.0 <= last && part.buckets.1 >= first;
        self.parts.iter().filter(meets)
    }

    /// Each instance's parts are a base and its increments, in order.
    fn check_chains(&self, buckets: u32) -> Result<(), String> {
        let mut latest = HashMap::<u32, u64>::new();
        for part in &self.parts {
            if part.buckets.0 > part.buckets.1 || part.buckets.1 >= buckets {
                return Err(format!("'{}' has buckets that don't exist", part.object));
            }
            if crate::part::PartName::parse(&part.object).is_none() {
                return Err(format!("'{}' is not a valid name of a part", part.object));
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
