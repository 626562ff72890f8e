//! Removing checkpoints that are not kept, and parts that no kept one needs.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;

use super::{COPIES, CheckpointWriter, RECORDS, copy_name, number_of, record_name};
use crate::error::{Kind, Result};
use crate::manifest::record::Record;
use crate::part::{PARTS, PartName};

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Checkpoints and claims.
    pub records: usize,
    /// Parts.
    pub parts: usize,
}

impl CheckpointWriter {
    /// Removes all but the newest `keep` checkpoints (at least one), and parts to which none of those refers.
    ///
    /// - Records are removed first: an interruption leaves parts to which nothing refers, and the next call
    ///   removes those.
    /// - Nothing is removed unless everything that is kept could be read.
    /// - Parts of a later incarnation stay, as do those of this one after its last stored checkpoint: a
    ///   manifest in flight may name them. Earlier incarnations can't store one any more.
    ///
    /// # Errors
    ///
    /// [`Kind::Fenced`] if a later incarnation has started; nothing is removed then.
    pub async fn sweep(&mut self, keep: usize) -> Result<Swept> {
        self.sweep_before(u64::MAX, keep).await
    }

    /// The same, but keeps the checkpoint `committed` and later ones, because a sink's system may discard all
    /// pending commits of later ones ([`crate::recovery::Input::Lost`]).
    ///
    /// # Errors
    ///
    /// As [`CheckpointWriter::sweep`].
    pub async fn sweep_before(&mut self, committed: u64, keep: usize) -> Result<Swept> {
        self.check_latest().await?;
        let numbers = self.store.numbers().await?;
        let mut kept = 0;
        let mut oldest = None;
        let mut needed = HashSet::new();
        for &number in numbers.iter().rev() {
            if kept >= keep.max(1) && oldest.is_some_and(|oldest| oldest <= committed) {
                break;
            }
            match self.store.record(number).await {
                Ok(Record::Checkpoint(manifest)) => {
                    kept += 1;
                    oldest = Some(number);
                    needed.extend(manifest.objects().map(|part| part.object.clone()));
                }
                Ok(Record::Claim(_)) => {}
                Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Missing) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(oldest) = oldest else {
            return Ok(Swept::default());
        };
        let old = numbers.range(..oldest).copied();
        // A copy without its record would look like a damaged record.
        self.remove(old.clone().map(copy_name).collect()).await?;
        let records = self.remove(old.map(record_name).collect()).await?;
        let stored = PartName {
            epoch: self.epoch,
            barrier: self.barrier,
        };
        let listed = self.store.list(PARTS).await?.into_iter();
        let unneeded = listed.filter_map(|(object, _)| {
            let name = PartName::parse(&object)?;
            (name <= stored && !needed.contains(&object)).then_some(object)
        });
        let parts = self.remove(unneeded.collect()).await?;
        self.remove_staged();
        Ok(Swept { records, parts })
    }

    async fn remove(&self, objects: Vec<String>) -> Result<usize> {
        let count = objects.len();
        let paths = objects.into_iter().map(|name| Ok(Path::from(name)));
        let mut removed = self
            .store
            .objects
            .delete_stream(stream::iter(paths.collect::<Vec<_>>()).boxed());
        loop {
            match removed.try_next().await {
                Ok(Some(_)) | Err(object_store::Error::NotFound { .. }) => {}
                Ok(None) => return Ok(count),
                Err(error) => return Err(self.store.failed(RECORDS, &error)),
            }
        }
    }

    /// In a directory an object is written under a name with a number appended, and then renamed. A file left
    /// by a process that died in between is not an object, and would stay for ever.
    fn remove_staged(&self) {
        let Some(directory) = &self.store.directory else {
            return;
        };
        for folder in [RECORDS, COPIES, PARTS] {
            let entries = std::fs::read_dir(directory.join(folder));
            for entry in entries.into_iter().flatten().flatten() {
                let name = entry.file_name();
                let staged = name.to_str().and_then(|name| name.rsplit_once('#'));
                let is_old = staged.is_some_and(|(object, _)| self.is_old(folder, object));
                // A file that can't be removed is tried again the next time.
                if is_old {
                    drop(std::fs::remove_file(entry.path()));
                }
            }
        }
    }

    /// Whether no process that may still write can be writing this object.
    fn is_old(&self, folder: &str, object: &str) -> bool {
        let object = format!("{folder}/{object}");
        let number = number_of(folder, &object);
        let part = PartName::parse(&object);
        number.is_some_and(|number| number <= self.last)
            || part.is_some_and(|part| part.epoch < self.epoch)
    }
}
