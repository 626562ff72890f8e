//! What a checkpoint must hold: the sums of the rows before its positions, which anybody can compute.

use std::collections::HashMap;

use super::data::{Data, Sums};
use super::pipeline;
use super::supervisor::SUMS;
use super::world::{World, positions, ready};
use crate::manifest::{Manifest, Part};
use crate::store::Store;

/// What a restore of each checkpoint gives, by number, epoch and barrier.
pub type Restores = HashMap<(u64, u64, u64), Sums>;

fn name(manifest: &Manifest) -> (u64, u64, u64) {
    (manifest.number, manifest.epoch, manifest.barrier)
}

impl World {
    /// The state that a checkpoint's parts give.
    fn restore_now(&self, manifest: &Manifest) -> crate::Result<Sums> {
        let store = Store::new(self.disk.objects(), "memory");
        let parts = manifest.node(SUMS).into_iter().flat_map(|node| &node.parts);
        let mut sums = Sums::new();
        for part in parts {
            sums.append(&mut pipeline::sums(&ready(store.read_part(part))?));
        }
        Ok(sums)
    }

    /// Checks the manifests that were just stored.
    pub fn check_manifests(&mut self) {
        let new = std::mem::take(&mut self.requests.lock().unwrap().manifests);
        for manifest in new {
            if self.restores.contains_key(&name(&manifest)) {
                continue;
            }
            match self.restore_now(&manifest) {
                Ok(sums) => {
                    if let Err(reason) = self.compare(&manifest, &sums) {
                        self.ledger.complain(reason);
                    }
                    self.restores.insert(name(&manifest), sums);
                }
                // A successor may have removed its parts: then its writer finds that it is fenced.
                Err(_) if manifest.epoch < self.latest_claim() => {}
                Err(error) => self.ledger.complain(error.to_string()),
            }
        }
    }

    /// Sums that have ended are in the ledger, and no longer in the state; that happens only after all rows
    /// were read.
    fn compare(&self, manifest: &Manifest, sums: &Sums) -> Result<(), String> {
        let positions = positions(Some(manifest));
        let rows = self.data.0.iter().enumerate();
        let rows = rows.map(|(partition, &rows)| (partition as u32, rows));
        let read = rows.map(|(partition, rows)| {
            let position = positions.get(&partition).copied().unwrap_or(0);
            (partition, position, position == rows)
        });
        let read = read.collect::<Vec<(u32, u64, bool)>>();
        let all_read = read.iter().all(|(.., is_read)| *is_read);
        let mut wanted = Data::sums(read.iter().map(|&(one, at, _)| (one, at)));
        if all_read {
            wanted.retain(|key, _| sums.contains_key(key));
        }
        match wanted == *sums {
            true => Ok(()),
            false => Err(format!(
                "checkpoint {:?} gives other sums than the rows before its positions: {}",
                name(manifest),
                difference(&wanted, sums)
            )),
        }
    }

    /// What a standby holds as of a checkpoint must be what a restore of it gives.
    pub fn check_held(&mut self, manifest: &Manifest, held: &Sums) {
        if let Some(restored) = self.restores.get(&name(manifest))
            && restored != held
        {
            let reason = format!(
                "a standby holds something else than checkpoint {:?}: {}",
                name(manifest),
                difference(restored, held)
            );
            self.ledger.complain(reason);
        }
    }

    /// Once a manifest may be stored, its parts must be.
    pub fn check_announced(&mut self, manifest: &Manifest, epoch: u64) {
        // A successor may have removed them.
        if epoch < self.latest_claim() {
            return;
        }
        let store = Store::new(self.disk.objects(), "memory");
        let parts = manifest.objects().cloned().collect::<Vec<Part>>();
        for part in parts {
            if let Err(error) = ready(store.read_part(&part)) {
                let reason = format!("it was reported as stored: {error}");
                self.ledger.complain(reason);
            }
        }
    }
}

fn difference(wanted: &Sums, found: &Sums) -> String {
    let mut keys = wanted.keys().chain(found.keys());
    let key = keys.find(|key| wanted.get(key) != found.get(key));
    key.map_or(String::new(), |key| {
        let (wanted, found) = (wanted.get(key), found.get(key));
        format!("key {key} has {found:?} instead of {wanted:?}")
    })
}
