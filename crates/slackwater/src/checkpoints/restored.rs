//! What instances resume from: the state in a checkpoint.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use arrow_array::RecordBatch;
use slackwater_checkpoint::manifest::{Manifest, Node, Part, Partition};
use slackwater_checkpoint::{Kind, Runner, Store};
use slackwater_engine::checkpoint::{Chain, PartitionState};
use slackwater_engine::source::Resume;
use slackwater_engine::time::MAX_WATERMARK;
use slackwater_engine::{Error, Result};

/// A checkpoint that this process restores.
pub struct Restored {
    store: Store,
    runner: Runner,
    manifest: Manifest,
    /// Keys by node of the query graph.
    keys: HashMap<usize, String>,
    /// Parts that have been read; at least one instance needs each.
    read: Mutex<HashMap<String, Vec<RecordBatch>>>,
}

impl Restored {
    /// A checkpoint of the store at `place`, for a query whose nodes have these `keys`.
    ///
    /// # Errors
    ///
    /// If the store can't be opened.
    pub fn new(
        place: &str,
        manifest: Manifest,
        keys: HashMap<usize, String>,
    ) -> slackwater_checkpoint::Result<Restored> {
        Ok(Restored {
            store: Store::open(place)?,
            runner: Runner::new()?,
            manifest,
            keys,
            read: Mutex::new(HashMap::new()),
        })
    }

    /// Reads and keeps what [`Restored::chains`] will need, so that damage is found before anything is
    /// committed.
    ///
    /// # Errors
    ///
    /// The first part that can't be read or is damaged.
    pub fn read_chains(
        &self,
        graph_node: usize,
        share: Option<(usize, usize)>,
    ) -> slackwater_checkpoint::Result<()> {
        let Some(node) = self.node(graph_node) else {
            return Ok(());
        };
        for part in parts(node, share).into_values().flatten() {
            let read = || self.read.lock().expect("no thread panics under it");
            // Another instance of this process may have read it.
            if !read().contains_key(&part.object) {
                let batches = self.runner.run(self.store.read_part(part))?;
                read().insert(part.object.clone(), batches);
            }
        }
        Ok(())
    }

    /// Drops what was read, because every instance has its state.
    pub fn let_go(&self) {
        self.read.lock().expect("no thread panics under it").clear();
    }

    fn node(&self, graph_node: usize) -> Option<&Node> {
        self.manifest.node(self.keys.get(&graph_node)?)
    }

    /// The positions of a source's partitions.
    pub fn partitions(&self, graph_node: usize) -> Vec<PartitionState> {
        let node = self.node(graph_node);
        node.map(|node| node.partitions.iter().map(partition_state).collect())
            .unwrap_or_default()
    }

    /// The state of a node: with `Some((instance, instances))` what that instance needs, else all of it.
    ///
    /// # Errors
    ///
    /// When a part can't be read.
    pub fn chains(&self, graph_node: usize, share: Option<(usize, usize)>) -> Result<Vec<Chain>> {
        let Some(node) = self.node(graph_node) else {
            return Ok(Vec::new());
        };
        if node.watermark == Some(MAX_WATERMARK) && node.parts.is_empty() {
            // The node had ended: its inputs end at once, and it has nothing to emit again. (Views still have
            // rows.)
            return Ok(vec![Chain {
                watermark: node.watermark,
                ..Chain::default()
            }]);
        }
        let parts_of = parts(node, share);
        let share = numbers(share);
        let chains = parts_of.into_iter().map(|(owner, parts)| {
            let mut chain = Chain {
                watermark: parts.last().and_then(|part| part.watermark),
                is_shared: share.is_none_or(|(instance, instances)| {
                    let mut parts = parts.iter();
                    owner != instance || parts.any(|part| part.owners != Some(instances))
                }),
                ..Chain::default()
            };
            let mut last = None;
            for part in parts {
                let mut batches = self.read(part)?;
                batches.retain(|batch| batch.num_rows() > 0);
                // Pieces of one snapshot have one barrier.
                match chain
                    .snapshots
                    .last_mut()
                    .filter(|_| last == Some(part.barrier))
                {
                    Some(snapshot) => snapshot.extend(batches),
                    None => chain.snapshots.push(batches),
                }
                last = Some(part.barrier);
            }
            Ok(chain)
        });
        chains.collect()
    }

    fn read(&self, part: &Part) -> Result<Vec<RecordBatch>> {
        let known = self.read.lock().expect("no thread panics under it");
        if let Some(batches) = known.get(&part.object) {
            return Ok(batches.clone());
        }
        drop(known);
        let batches = self.runner.run(self.store.read_part(part));
        batches.map_err(|error| {
            let hint = match error.kind {
                Kind::Corrupt | Kind::Missing => "it was intact a moment ago: check the disk",
                _ => &error.hint,
            };
            Error::new(error.place.clone(), error.reason.clone()).hint(hint)
        })
    }
}

fn numbers(share: Option<(usize, usize)>) -> Option<(u32, u32)> {
    share.map(|(instance, instances)| (instance as u32, instances as u32))
}

/// The parts of a node by instance, in order: with `Some((instance, instances))` those that it needs.
fn parts(node: &Node, share: Option<(usize, usize)>) -> BTreeMap<u32, Vec<&Part>> {
    let mut parts_of: BTreeMap<u32, Vec<&Part>> = BTreeMap::new();
    for part in &node.parts {
        parts_of.entry(part.instance).or_default().push(part);
    }
    let share = numbers(share);
    parts_of.retain(|_, parts| {
        let mut parts = parts.iter();
        let needs = |(instance, instances)| parts.any(|part| meets(part, instance, instances));
        share.is_none_or(needs)
    });
    parts_of
}

/// Whether a part may hold keys of instance `instance` of `instances`. Buckets are assigned in turn, so a
/// bucket of both has the remainder `part.instance` by the part's number of instances, and `instance` by the
/// other.
fn meets(part: &Part, instance: u32, instances: u32) -> bool {
    let Some(owners) = part.owners.filter(|&owners| owners > 0) else {
        return true;
    };
    let divisor = greatest_common_divisor(owners, instances.max(1));
    part.instance % divisor == instance % divisor
}

fn greatest_common_divisor(mut one: u32, mut other: u32) -> u32 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

fn partition_state(partition: &Partition) -> PartitionState {
    PartitionState {
        resume: Resume {
            name: partition.name.clone(),
            position: partition.position,
            bookmark: partition.extra.clone(),
            ended: partition.ended,
        },
        watermark: partition.watermark,
        // Counts of a version that this one does not know begin again.
        counted: (partition.counted.as_ref())
            .and_then(|counted| serde_json::from_value(counted.clone()).ok()),
    }
}

/// How far partitions of a manifest were read.
pub fn resumes(partitions: &[Partition]) -> Vec<Resume> {
    let states = partitions.iter().map(partition_state);
    states.map(|state| state.resume).collect()
}

/// Partitions as a manifest has them.
pub fn partitions_of(states: &[PartitionState]) -> Vec<Partition> {
    let states = states.iter().map(|state| Partition {
        name: state.resume.name.clone(),
        position: state.resume.position,
        extra: state.resume.bookmark.clone(),
        watermark: state.watermark,
        ended: state.resume.ended,
        counted: (state.counted.as_ref()).and_then(|counted| serde_json::to_value(counted).ok()),
    });
    states.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use slackwater_engine::balancer::first_owners;

    #[test]
    fn a_part_meets_an_instance_if_a_bucket_is_of_both() {
        for (owners, instances) in [(1, 1), (1, 3), (3, 1), (2, 4), (4, 6), (5, 7), (6, 4)] {
            let (before, now) = (first_owners(owners), first_owners(instances));
            for owner in 0..owners {
                for instance in 0..instances {
                    let part = Part {
                        instance: owner as u32,
                        barrier: 1,
                        since: None,
                        buckets: (0, 4095),
                        owners: Some(owners as u32),
                        watermark: None,
                        object: String::new(),
                        bytes: 0,
                        rows: 0,
                        checksum: String::new(),
                    };
                    let mut owned = before.iter().zip(&now);
                    let both = owned.any(|(&one, &other)| {
                        (usize::from(one), usize::from(other)) == (owner, instance)
                    });
                    let found = meets(&part, instance as u32, instances as u32);
                    assert_eq!(
                        found, both,
                        "{owner} of {owners}, {instance} of {instances}"
                    );
                }
            }
        }
    }
}
