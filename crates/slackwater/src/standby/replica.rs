//! The state of a query as of a checkpoint, in operators that can go on from there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_checkpoint::chain::{Chain, ChainRule};
use slackwater_checkpoint::manifest::{Manifest, Node, NodeKind, Part};
use slackwater_checkpoint::part::PartName;
use slackwater_checkpoint::{Error, Kind, PartRequest, PartWriter, Result, Runner, Store};
use slackwater_engine::deploy::Catalog;
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::operator::{Operator, Stateful};
use slackwater_engine::state::{BucketSet, Mark, expire};

use super::kept::Kept;

use crate::catalog::{Held, HeldInstance, ProgramCatalog};
use crate::checkpoints::Members;

/// What a standby holds: an operator for each instance that the active has of each stateful node.
pub struct Replica {
    store: Store,
    runner: Runner,
    kept: Arc<Kept>,
    /// Nodes of the query graph, by key.
    nodes: HashMap<String, usize>,
    /// By node of the query graph and number of the active's instance.
    held: BTreeMap<(usize, u32), Followed>,
    /// The checkpoint that it is as of.
    number: Option<u64>,
    /// Nodes whose rows others read.
    read: HashSet<usize>,
    /// What was added to those.
    added: Vec<Added>,
}

/// What a checkpoint has added to a node whose rows others read.
pub struct Added {
    /// The node of the query graph.
    pub node: usize,
    /// Whether these are all of its rows, and not a change of those before.
    pub is_whole: bool,
    /// Snapshots of the node's state, in order.
    pub snapshots: Vec<RecordBatch>,
}

struct Followed {
    operator: Box<dyn Stateful>,
    /// The parts whose rows it has, in order.
    parts: Vec<Part>,
    /// A base of the same rows that this standby has stored, and that no checkpoint has yet.
    base: Vec<Part>,
    chain: Chain,
    /// How many instances of its node the active has.
    instances: u32,
}

/// The number of the first part of a base that a standby makes. The parts of the active at the same barrier
/// have smaller ones.
const BASE_PIECE: u32 = 1000;

/// The rows that are written before it is asked whether more are wanted: about a megabyte.
const ROWS_AT_ONCE: usize = 16_384;

impl Replica {
    /// A replica without state, of the query whose checkpoints are in `store`. Parts that are `kept` are not
    /// read from there.
    ///
    /// # Errors
    ///
    /// If no thread or timer is left to read with.
    pub fn new(store: Store, kept: Arc<Kept>) -> Result<Replica> {
        Ok(Replica {
            store,
            runner: Runner::new()?,
            kept,
            nodes: HashMap::new(),
            held: BTreeMap::new(),
            number: None,
            read: HashSet::new(),
            added: Vec::new(),
        })
    }

    /// From now on it keeps what is added to these nodes, for [`Replica::added`].
    pub fn read(&mut self, nodes: impl IntoIterator<Item = usize>) {
        self.read.extend(nodes);
    }

    /// What the last [`Replica::sync`] has added to the nodes that are read.
    pub fn added(&mut self) -> Vec<Added> {
        std::mem::take(&mut self.added)
    }

    /// The checkpoint that it is as of; `None` before the first.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// The checkpoint with this number.
    ///
    /// # Errors
    ///
    /// As [`Store::checkpoint`].
    pub fn checkpoint(&self, number: u64) -> Result<Manifest> {
        self.runner.run(self.store.checkpoint(number))
    }

    /// Whether its store has this record.
    ///
    /// # Errors
    ///
    /// As [`Store::newest`].
    pub fn has(&self, (number, time_ms): (u64, u64)) -> Result<bool> {
        Ok(self.runner.run(self.store.stamp(number))? == Some(time_ms))
    }

    /// The newest checkpoint, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Store::newest`].
    pub fn newest(&self) -> Result<Option<Manifest>> {
        Ok(self.runner.run(self.store.newest(None))?.manifest)
    }

    /// Comes to a checkpoint: operators whose parts it has get the ones that were added, and all others are
    /// made anew. Returns how many were. After an error it holds nothing.
    ///
    /// # Errors
    ///
    /// If a part can't be read or is damaged, or an operator does not take it.
    pub fn sync(
        &mut self,
        catalog: &ProgramCatalog<'_>,
        members: &Members,
        manifest: &Manifest,
    ) -> Result<usize> {
        self.number = None;
        self.added.clear();
        let mut before = std::mem::take(&mut self.held);
        let mut anew = 0;
        self.nodes.clear();
        for (identity, &graph_node) in members.nodes.iter().zip(&members.graph_nodes) {
            let Some(node) = manifest.node(&identity.key) else {
                continue;
            };
            if identity.kind != NodeKind::Stateful || !catalog.can_be_held(graph_node) {
                continue;
            }
            self.nodes.insert(identity.key.clone(), graph_node);
            let parts = parts_by_instance(node);
            if self.read.contains(&graph_node) {
                let is_whole = !is_on_the_way(&before, graph_node, &parts);
                if is_whole {
                    // A row may have moved from one instance to another.
                    before.retain(|&(node, _), _| node != graph_node);
                }
                self.added.push(Added {
                    node: graph_node,
                    is_whole,
                    snapshots: Vec::new(),
                });
            }
            for (instance, parts) in parts {
                let known = before.remove(&(graph_node, instance));
                let mut followed = match known.and_then(|known| known.on_the_way_to(&parts)) {
                    Some(followed) => followed,
                    None => {
                        anew += 1;
                        Followed {
                            operator: operator(catalog, graph_node)?,
                            parts: Vec::new(),
                            base: Vec::new(),
                            chain: Chain::default(),
                            instances: 0,
                        }
                    }
                };
                followed.instances = node.instances;
                let mut added = self.added.pop_if(|added| added.node == graph_node);
                let snapshots = added.as_mut().map(|added| &mut added.snapshots);
                self.extend(&mut followed, &parts, snapshots)?;
                self.added.extend(added);
                self.held.insert((graph_node, instance), followed);
            }
        }
        self.kept.forget_before(manifest);
        self.number = Some(manifest.number);
        Ok(anew)
    }

    /// Restores those of `parts` that an operator does not have yet, and adds them to `snapshots`. Each
    /// snapshot is followed by what its instance had dropped by then.
    fn extend(
        &self,
        followed: &mut Followed,
        parts: &[&Part],
        mut snapshots: Option<&mut Vec<RecordBatch>>,
    ) -> Result<()> {
        let added = &parts[followed.parts.len()..];
        for (at, part) in added.iter().enumerate() {
            let batches = match self.kept.take(part) {
                Some(bytes) => self.store.decode_part(part, bytes)?,
                None => self.runner.run(self.store.read_part(part))?,
            };
            let place = || part.object.clone();
            let Some(state) = followed.operator.state() else {
                return Err(Error::new(
                    Kind::Invalid,
                    place(),
                    "its operator has no state",
                ));
            };
            let taken = batches.iter().filter(|batch| batch.num_rows() > 0);
            let taken = taken.map(|batch| state.restore(batch));
            let taken = taken.collect::<slackwater_engine::Result<()>>();
            // Pieces of one snapshot have one barrier.
            let is_last = added
                .get(at + 1)
                .is_none_or(|next| next.barrier != part.barrier);
            let taken = taken.and_then(|()| match part.watermark.filter(|_| is_last) {
                Some(watermark) => expire(state, watermark),
                None => Ok(()),
            });
            taken.map_err(|error| Error::new(Kind::Corrupt, place(), error.to_string()))?;
            followed.parts.push((*part).clone());
            if let Some(snapshots) = &mut snapshots {
                snapshots.extend(batches);
            }
        }
        if !added.is_empty() {
            followed.measure();
        }
        Ok(())
    }

    /// Stores a base of an instance, if one is due by the rule of checkpoints and `parts` follow what is
    /// held: then it replaces the parts before them, and the active never has to make one. Returns its parts,
    /// or none.
    ///
    /// # Errors
    ///
    /// If it can't be stored.
    pub fn base(
        &mut self,
        runner: &Runner,
        epoch: u64,
        node: &str,
        parts: &[Part],
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<Part>> {
        let first = parts.first().zip(self.nodes.get(node));
        let Some((first, &graph_node)) = first else {
            return Ok(Vec::new());
        };
        let Some(followed) = self.held.get_mut(&(graph_node, first.instance)) else {
            return Ok(Vec::new());
        };
        let last = followed.parts.last();
        let follows = last.filter(|last| {
            let name = PartName::parse(&last.object);
            first.since == Some(last.barrier) && name.is_some_and(|name| name.epoch == epoch)
        });
        let Some(last) = follows.cloned() else {
            return Ok(Vec::new());
        };
        if followed.base.is_empty() && followed.chain.needs_base(&ChainRule::default()) {
            let request = PartRequest {
                // The name is of the checkpoint to come, or the active could remove it before that.
                barrier: first.barrier,
                since: None,
                node,
                instance: first.instance,
                piece: 0,
                buckets: (0, BUCKETS as u32 - 1),
                owners: first.owners,
                watermark: last.watermark,
            };
            let writer = PartWriter::new(self.store.clone(), epoch);
            followed.base = followed.write(runner, &writer, request, is_wanted)?;
            for part in &mut followed.base {
                part.barrier = last.barrier;
            }
        }
        Ok(followed.base.clone())
    }

    /// Gives its operators away, for instances that go on with them.
    pub fn into_held(self) -> Held {
        let held = self.held.into_iter().map(|((node, instance), followed)| {
            let Followed {
                operator,
                parts,
                instances,
                ..
            } = followed;
            let held = HeldInstance {
                watermark: parts.last().and_then(|part| part.watermark),
                instances,
                // Otherwise it has buckets that an instance of this number does not begin with, or not
                // all that it needs.
                is_alone: !operator.facts().is_replicated
                    && parts.iter().all(|part| part.owners == Some(instances)),
                operator,
            };
            ((node, instance), held)
        });
        Held::new(held.collect())
    }
}

/// Whether all instances of a node, and no others, have come some of the way to these parts.
fn is_on_the_way(
    held: &BTreeMap<(usize, u32), Followed>,
    node: usize,
    parts: &BTreeMap<u32, Vec<&Part>>,
) -> bool {
    let of_node = held.range((node, 0)..=(node, u32::MAX));
    of_node.clone().count() == parts.len()
        && of_node.into_iter().all(|(&(_, instance), followed)| {
            let parts = parts.get(&instance);
            parts.is_some_and(|parts| {
                let begins = |known: &[Part]| !known.is_empty() && is_prefix(known, parts);
                begins(&followed.base) || begins(&followed.parts)
            })
        })
}

impl Followed {
    /// The same, if it has some of these parts; they may begin with the base that this standby has made.
    fn on_the_way_to(mut self, parts: &[&Part]) -> Option<Followed> {
        if !self.base.is_empty() && is_prefix(&self.base, parts) {
            self.parts = std::mem::take(&mut self.base);
            self.measure();
        }
        (!self.parts.is_empty() && is_prefix(&self.parts, parts)).then_some(self)
    }

    /// Measures the chain of its parts, as the coordinator does.
    fn measure(&mut self) {
        self.base.clear();
        let bytes_of = |is_base: bool| {
            let parts = self.parts.iter();
            let parts = parts.filter(move |part| part.since.is_none() == is_base);
            parts.map(|part| part.bytes).sum::<u64>()
        };
        let last = self.parts.last().map_or(0, |part| part.barrier);
        let last = self.parts.iter().filter(|part| part.barrier == last);
        let (base_bytes, memory) = (bytes_of(true), self.operator.bytes() as u64);
        let is_new = base_bytes != self.chain.base_bytes;
        self.chain = Chain {
            base_bytes,
            increment_bytes: bytes_of(false),
            last_bytes: last.map(|part| part.bytes).sum(),
            parts: self.parts.len(),
            base_memory: if is_new {
                memory
            } else {
                self.chain.base_memory
            },
            memory,
        };
    }

    /// Writes all of its state into parts by their columns.
    fn write(
        &mut self,
        runner: &Runner,
        writer: &PartWriter,
        request: PartRequest<'_>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<Part>> {
        let invalid = |error: slackwater_engine::Error| {
            Error::new(Kind::Invalid, request.node, error.to_string())
        };
        let Some(state) = self.operator.state() else {
            return Ok(Vec::new());
        };
        let snapshot = state.snapshot(&BucketSet::all(), Mark::default());
        let mut by_columns = Vec::<(SchemaRef, Vec<RecordBatch>)>::new();
        for batch in snapshot.map_err(invalid)? {
            match by_columns
                .iter_mut()
                .find(|(schema, _)| *schema == batch.schema())
            {
                Some((_, batches)) => batches.push(batch),
                None => by_columns.push((batch.schema(), vec![batch])),
            }
        }
        if by_columns.is_empty() {
            let empty = RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()));
            by_columns.push((empty.schema(), vec![empty]));
        }
        let unwanted = || Error::new(Kind::Unavailable, request.node, "it is not wanted any more");
        let parts = by_columns.iter().enumerate().map(|(number, (_, batches))| {
            let piece = BASE_PIECE + number as u32;
            let mut part = writer.open(&PartRequest { piece, ..request });
            for batch in batches {
                // One without rows is written, too.
                for at in (0..batch.num_rows().max(1)).step_by(ROWS_AT_ONCE) {
                    let rows = ROWS_AT_ONCE.min(batch.num_rows() - at);
                    let rows = Some(batch.slice(at, rows)).filter(|_| is_wanted());
                    part.write(&rows.ok_or_else(unwanted)?)?;
                }
            }
            runner.run(part.finish())
        });
        parts.collect()
    }
}

fn operator(catalog: &ProgramCatalog<'_>, node: usize) -> Result<Box<dyn Stateful>> {
    let invalid = |reason: String| Error::new(Kind::Invalid, format!("node {node}"), reason);
    match catalog.operator(node) {
        Ok(Operator::Stateful(operator)) => Ok(operator),
        Ok(Operator::Stateless(_)) => Err(invalid("it keeps no state".to_string())),
        Err(error) => Err(invalid(error.to_string())),
    }
}

fn parts_by_instance(node: &Node) -> BTreeMap<u32, Vec<&Part>> {
    let mut parts: BTreeMap<u32, Vec<&Part>> = BTreeMap::new();
    for part in &node.parts {
        parts.entry(part.instance).or_default().push(part);
    }
    parts
}

/// Whether `parts` begin with what is known. A part is the same if its name, length and checksum are.
fn is_prefix(known: &[Part], parts: &[&Part]) -> bool {
    known.len() <= parts.len() && known.iter().zip(parts).all(|(known, part)| known == *part)
}
