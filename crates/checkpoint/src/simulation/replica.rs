//! What a standby holds: the sums of each instance as of a stored checkpoint. The rules are those of the
//! program's replica.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::data::Sums;
use super::mutation::Mutation;
use super::pipeline;
use super::supervisor::SUMS;
use crate::Result;
use crate::chain::{Chain, ChainRule};
use crate::manifest::{Manifest, Part};
use crate::part::PartName;
use crate::store::{PartRequest, PartWriter, Store};

/// The number of the first part of a base that a standby makes.
const BASE_PIECE: u32 = 1_000;

/// Bytes of parts that a standby has stored, until their checkpoint is.
pub type Kept = Rc<RefCell<HashMap<String, Vec<u8>>>>;

/// The state of a query as of a checkpoint.
#[derive(Default)]
pub struct Replica {
    pub number: Option<u64>,
    pub kept: Kept,
    /// When a base is due.
    rule: ChainRule,
    mutation: Option<Mutation>,
    held: BTreeMap<u32, Followed>,
    /// How many parts it has read from the store.
    pub read: u64,
    /// How many instances got only what was added.
    pub partial: u64,
}

#[derive(Default)]
struct Followed {
    sums: Sums,
    /// The parts whose rows it has, in order.
    parts: Vec<Part>,
    /// A base of the same rows that this standby has stored, and that no checkpoint has yet.
    base: Vec<Part>,
    chain: Chain,
}

impl Replica {
    pub fn new(rule: ChainRule, mutation: Option<Mutation>) -> Replica {
        Replica {
            rule,
            mutation,
            ..Replica::default()
        }
    }

    /// All sums.
    pub fn sums(&self) -> Sums {
        let all = self.held.values().flat_map(|followed| &followed.sums);
        all.map(|(&key, &sum)| (key, sum)).collect()
    }

    /// Comes to a checkpoint: instances whose parts it has get those that were added, and all others are
    /// read anew.
    pub async fn sync(&mut self, store: &Store, manifest: &Manifest) -> Result<()> {
        self.number = None;
        let mut before = std::mem::take(&mut self.held);
        let mut parts = BTreeMap::<u32, Vec<&Part>>::new();
        let node = manifest.node(SUMS);
        for part in node.into_iter().flat_map(|node| &node.parts) {
            parts.entry(part.instance).or_default().push(part);
        }
        for (instance, parts) in parts {
            let known = before.remove(&instance);
            let mut followed = match known.and_then(|known| known.on_the_way_to(&parts)) {
                Some(followed) => {
                    self.partial += u64::from(followed.parts.len() < parts.len());
                    followed
                }
                None => Followed::default(),
            };
            self.extend(&mut followed, store, &parts).await?;
            self.held.insert(instance, followed);
        }
        let last = PartName {
            epoch: manifest.epoch,
            barrier: manifest.barrier,
        };
        let is_later = |object: &String| PartName::parse(object).is_some_and(|name| name > last);
        self.kept.borrow_mut().retain(|object, _| is_later(object));
        self.number = Some(manifest.number);
        Ok(())
    }

    async fn extend(
        &mut self,
        followed: &mut Followed,
        store: &Store,
        parts: &[&Part],
    ) -> Result<()> {
        let is_known = !followed.parts.is_empty();
        let added = &parts[followed.parts.len()..];
        for part in added {
            let kept = self.kept.borrow_mut().remove(&part.object);
            let batches = match kept {
                Some(bytes) => store.decode_part(part, bytes)?,
                None => {
                    self.read += 1;
                    store.read_part(part).await?
                }
            };
            let is_last = Some(part.barrier) == added.last().map(|last| last.barrier);
            let skips = self.mutation == Some(Mutation::SkipsAGap) && is_known;
            if is_last || !skips {
                followed.sums.append(&mut pipeline::sums(&batches));
            }
            followed.parts.push((*part).clone());
        }
        if !added.is_empty() {
            followed.measure();
        }
        Ok(())
    }

    /// Stores a base of an instance, if one is due and `parts` follow what is held. Returns its parts, or
    /// none. A standby that is `confused` does not look whether they follow.
    pub async fn base(
        &mut self,
        store: &Store,
        epoch: u64,
        parts: &[Part],
        confused: bool,
    ) -> Result<Vec<Part>> {
        let Some(first) = parts.first() else {
            return Ok(Vec::new());
        };
        let Some(followed) = self.held.get_mut(&first.instance) else {
            return Ok(Vec::new());
        };
        let last = followed.parts.last();
        let follows = last.filter(|last| {
            let name = PartName::parse(&last.object);
            let is_own = name.is_some_and(|name| name.epoch == epoch);
            let is_own = is_own || self.mutation == Some(Mutation::MixesIncarnations);
            is_own && (confused || first.since == Some(last.barrier))
        });
        let Some(last) = follows.cloned() else {
            return Ok(Vec::new());
        };
        if self.mutation == Some(Mutation::AppliesBeforeItIsStored) {
            for part in parts {
                let kept = self.kept.borrow().get(&part.object).cloned();
                if let Some(bytes) = kept {
                    let batches = store.decode_part(part, bytes)?;
                    followed.sums.append(&mut pipeline::sums(&batches));
                }
            }
        }
        if followed.base.is_empty() && (confused || followed.chain.needs_base(&self.rule)) {
            // The name is of the checkpoint to come, or the active could remove it before that.
            let name = PartName {
                epoch,
                barrier: match self.mutation {
                    Some(Mutation::NamesABaseByItsState) => last.barrier,
                    _ => first.barrier,
                },
            };
            followed.base = followed.write(store, name, last).await?;
        }
        Ok(followed.base.clone())
    }
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
        let (base_bytes, memory) = (bytes_of(true), self.sums.len() as u64 * 16);
        let is_new = base_bytes != self.chain.base_bytes;
        self.chain = Chain {
            base_bytes,
            increment_bytes: bytes_of(false),
            last_bytes: last.map(|part| part.bytes).sum(),
            parts: self.parts.len(),
            base_memory: match is_new {
                true => memory,
                false => self.chain.base_memory,
            },
            memory,
        };
    }

    /// Writes all of its state, which is as of its `last` part, into one part or two.
    async fn write(&self, store: &Store, name: PartName, last: Part) -> Result<Vec<Part>> {
        let writer = PartWriter::new(store.clone(), name.epoch);
        let mut base = Vec::new();
        for (piece, (buckets, rows)) in pipeline::pieces(&self.sums).into_iter().enumerate() {
            let request = PartRequest {
                barrier: name.barrier,
                since: None,
                node: SUMS,
                instance: last.instance,
                piece: BASE_PIECE + piece as u32,
                buckets,
                owners: None,
                watermark: None,
            };
            let part = writer.put(&request, &[rows]).await?;
            base.push(Part {
                barrier: last.barrier,
                ..part
            });
        }
        Ok(base)
    }
}

/// Whether `parts` begin with what is known. A part is the same if its name, length and checksum are.
fn is_prefix(known: &[Part], parts: &[&Part]) -> bool {
    known.len() <= parts.len() && known.iter().zip(parts).all(|(known, part)| known == *part)
}
