//! Parts that a standby has stored, kept until their checkpoint is complete.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use slackwater_checkpoint::manifest::{Manifest, Part};
use slackwater_checkpoint::part::PartName;

/// The most bytes of parts that are kept until their checkpoint is stored. What is not kept is read from the
/// store.
const KEPT_BYTES_MAX: usize = 1 << 30;

/// Parts that were stored for checkpoints to come, so that they need not be read.
#[derive(Default)]
pub struct Kept {
    parts: Mutex<HashMap<String, Vec<u8>>>,
}

impl Kept {
    fn parts(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.parts.lock().expect("no thread panics under it")
    }

    /// Keeps the bytes of a part, if there is room.
    pub fn put(&self, part: &Part, bytes: Vec<u8>) {
        let mut parts = self.parts();
        let kept = parts.values().map(Vec::len).sum::<usize>();
        if kept + bytes.len() <= KEPT_BYTES_MAX {
            parts.insert(part.object.clone(), bytes);
        }
    }

    /// The bytes of a part, which are needed once.
    pub fn take(&self, part: &Part) -> Option<Vec<u8>> {
        self.parts().remove(&part.object)
    }

    /// Drops what no checkpoint after this one has.
    pub fn forget_before(&self, manifest: &Manifest) {
        let last = PartName {
            epoch: manifest.epoch,
            barrier: manifest.barrier,
        };
        self.parts()
            .retain(|object, _| PartName::parse(object).is_some_and(|name| name > last));
    }
}
