//! Writing checkpoints, as one incarnation of a query.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;

use super::staged::Staged;
use super::{Found, Put, Store, record_name, sync};
use crate::error::{Error, Kind, Result};
use crate::manifest::record::{Claim, Record, checksum_text};
use crate::manifest::{Manifest, Part};
use crate::part::{Encoder, PartName};

/// How often to try to append a claim while others append records. Each failed attempt is another writer's
/// record, or a torn one of our own.
const CLAIMS_MAX: usize = 64;

/// How many numbers an incarnation skips to find a free one: they belong to its own records whose success was
/// not reported, or to torn ones.
const PASSED_MAX: usize = 64;

/// Writes the checkpoints of one incarnation, that is, of one run of a query from its start or restart to the
/// next. While it may store checkpoints, nobody else can.
#[derive(Debug)]
pub struct CheckpointWriter {
    pub(super) store: Store,
    pub(super) epoch: u64,
    /// The last record that is known to exist and to be this incarnation's or torn.
    pub(super) last: u64,
    /// The barrier of the last checkpoint that it stored.
    pub(super) barrier: u64,
}

/// Writes parts of one incarnation, in any process.
#[derive(Debug, Clone)]
pub struct PartWriter {
    store: Store,
    epoch: u64,
}

/// The description of a part to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRequest<'a> {
    /// The barrier.
    pub barrier: u64,
    /// The barrier since which it holds what changed; `None` for a base.
    pub since: Option<u64>,
    /// The node's key.
    pub node: &'a str,
    /// The instance.
    pub instance: u32,
    /// Distinguishes parts of one instance at one barrier.
    pub piece: u32,
    /// The first and the last bucket of which it may hold entries.
    pub buckets: (u32, u32),
    /// As [`Part::owners`].
    pub owners: Option<u32>,
    /// As [`Part::watermark`].
    pub watermark: Option<i64>,
}

impl CheckpointWriter {
    pub(super) async fn begin(
        store: &Store,
        before: Option<u64>,
        from_scratch: bool,
    ) -> Result<(CheckpointWriter, Found)> {
        for _ in 0..CLAIMS_MAX {
            let numbers = store.numbers().await?;
            let found = match from_scratch {
                true => Found::default(),
                false => store.newest_of(&numbers, before).await?,
            };
            let number = numbers.last().map_or(Some(1), |last| last.checked_add(1));
            let number = number.ok_or_else(|| exhausted(store))?;
            let claim = Record::Claim(Claim {
                number,
                time_ms: now_ms(),
                owner: owner(),
                from_scratch,
                restored: found.manifest.as_ref().map(|manifest| manifest.number),
            });
            let bytes = claim.encode()?;
            let is_ours = match store.put(&record_name(number), bytes).await? {
                Put::Done => true,
                Put::Taken => match store.record(number).await {
                    Ok(record) => record == claim,
                    Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Missing) => false,
                    Err(error) => return Err(error),
                },
            };
            if !is_ours {
                continue;
            }
            if let Put::Taken = store.put_copy(&claim).await? {
                continue;
            }
            let incarnation = CheckpointWriter {
                store: store.clone(),
                epoch: number,
                last: number,
                barrier: 0,
            };
            // Another incarnation may have started after it already. Trying again would only fence that one
            // in turn.
            if !incarnation.check_first().await? {
                continue;
            }
            let mut found = found;
            let first = found
                .manifest
                .as_ref()
                .map_or(0, |manifest| manifest.number);
            found.healed = store.heal(numbers.range(first..).copied()).await?;
            return Ok((incarnation, found));
        }
        let reason = format!("others have written there {CLAIMS_MAX} times meanwhile");
        Err(
            Error::new(Kind::Unavailable, store.name(super::RECORDS), reason)
                .hint("let one query use it"),
        )
    }

    /// The incarnation's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The writer of its parts.
    pub fn parts(&self) -> PartWriter {
        PartWriter::new(self.store.clone(), self.epoch)
    }

    /// Stores a checkpoint: once this succeeds it is valid, and may be committed. Returns its number. After
    /// an error other than [`Kind::Fenced`] it may exist or not; both are fine, as long as its pending
    /// commits stay pending in the next one.
    ///
    /// # Errors
    ///
    /// [`Kind::Fenced`] if a later incarnation has started: then nothing of this one counts any more.
    /// [`Kind::Missing`] or [`Kind::Corrupt`] if a part or an earlier record was removed or changed by
    /// somebody else.
    pub async fn put_manifest(&mut self, mut manifest: Manifest) -> Result<u64> {
        // Later records may be its own: their storing may have seemed to fail.
        let numbers = self.store.numbers().await?;
        self.check_present(&numbers)?;
        let lengths = self.store.lengths().await?;
        self.store.check_parts(&manifest, &lengths)?;
        manifest.epoch = self.epoch;
        manifest.time_ms = now_ms();
        let barrier = manifest.barrier;
        let mut record = Record::Checkpoint(manifest);
        let mut number = self.last;
        for _ in 0..PASSED_MAX {
            number = number
                .checked_add(1)
                .ok_or_else(|| exhausted(&self.store))?;
            if let Record::Checkpoint(manifest) = &mut record {
                manifest.number = number;
            }
            let name = record_name(number);
            let is_ours = match self.store.put(&name, record.encode()?).await? {
                Put::Done => true,
                Put::Taken => match self.store.record(number).await {
                    // The record of a request whose response was lost.
                    Ok(found) if found == record => {
                        self.store.sync(&name).await?;
                        true
                    }
                    // A record of its own that seemed to fail.
                    Ok(found) if found.epoch() == self.epoch => false,
                    Ok(found) => return Err(self.fenced(found.epoch())),
                    // Its writer was told that it failed, and continues after it as this one does.
                    Err(error) if error.kind == Kind::Corrupt => false,
                    // It was removed, hence there are later ones.
                    Err(error) if error.kind == Kind::Missing => return Err(self.fenced(number)),
                    Err(error) => return Err(error),
                },
            };
            if is_ours {
                // Nothing may build upon it before it exists twice.
                if let Put::Taken = self.store.put_copy(&record).await? {
                    return Err(self.fenced(number));
                }
                self.last = number;
                self.barrier = barrier;
                // A number that was removed is free again, but not the last one.
                self.check_latest().await?;
                return Ok(number);
            }
            self.last = number;
        }
        let reason = format!("{PASSED_MAX} numbers are taken by torn manifests");
        Err(Error::new(
            Kind::Unavailable,
            self.store.name(super::RECORDS),
            reason,
        ))
    }

    /// Checks that it may still store checkpoints.
    ///
    /// # Errors
    ///
    /// [`Kind::Fenced`] if a later incarnation has started, [`Kind::Missing`] if its last record was removed
    /// by somebody else, [`Kind::Unavailable`] if the store can't be read.
    pub async fn check(&self) -> Result<()> {
        self.check_latest().await
    }

    /// As [`CheckpointWriter::check_latest`], before it has stored anything but its claim. A number that was
    /// removed is free again:
    ///
    /// - The claim may have got a number whose previous owner has stored checkpoints after it, as the same
    ///   incarnation: an error.
    /// - It may have got the number of a record of an earlier incarnation, which has stored later ones since.
    ///   That one is not fenced by it, and there is a later checkpoint to resume from: returns false, as the
    ///   claim doesn't count.
    async fn check_first(&self) -> Result<bool> {
        let earlier = self.epoch - 1;
        let behind = self.store.check_behind(self.last, earlier).await?;
        self.check_present(&behind.numbers)?;
        Ok(behind.records == 0)
    }

    /// Checks that its last record exists, and that no record of a later incarnation follows it. One of its
    /// own may follow: a record whose copy could not be written.
    pub(super) async fn check_latest(&self) -> Result<()> {
        let behind = self.store.check_behind(self.last, self.epoch).await?;
        self.check_present(&behind.numbers)
    }

    /// Checks that its last record exists, or was removed because there are later ones.
    fn check_present(&self, numbers: &BTreeSet<u64>) -> Result<()> {
        if numbers.last().is_some_and(|&last| last >= self.last) {
            return Ok(());
        }
        let place = self.store.name(&record_name(self.last));
        let error = Error::new(Kind::Missing, place, "it was removed by somebody else");
        Err(error.hint("make sure that nobody else removes files there, and start the query again"))
    }

    pub(super) fn fenced(&self, by: u64) -> Error {
        self.store.fenced(self.epoch, by)
    }
}

impl PartWriter {
    /// A writer for parts of incarnation `epoch`, which another process has started.
    pub fn new(store: Store, epoch: u64) -> PartWriter {
        PartWriter { store, epoch }
    }

    /// Stores the batches as one part, and returns its description for the manifest. Writing the same part
    /// again is fine.
    ///
    /// # Errors
    ///
    /// [`Kind::Invalid`] if the batches can't be stored, otherwise [`Kind::Unavailable`]; the checkpoint
    /// can't be completed then.
    pub async fn put(&self, request: &PartRequest<'_>, batches: &[RecordBatch]) -> Result<Part> {
        let mut part = self.open(request);
        batches.iter().try_for_each(|batch| part.write(batch))?;
        part.finish().await
    }

    /// Begins a part, whose batches come one after the other. Nobody sees it before
    /// [`OpenPart::finish`].
    pub fn open(&self, request: &PartRequest<'_>) -> OpenPart {
        self.begin(request, None)
    }

    /// As [`PartWriter::open`], but its bytes are kept in `memory` and not stored ([`OpenPart::encode`]).
    /// Memory that was used before costs no page faults; what was in it is lost.
    pub fn open_in_memory(&self, request: &PartRequest<'_>, mut memory: Vec<u8>) -> OpenPart {
        memory.clear();
        self.begin(request, Some(memory))
    }

    fn begin(&self, request: &PartRequest<'_>, memory: Option<Vec<u8>>) -> OpenPart {
        let name = PartName {
            epoch: self.epoch,
            barrier: request.barrier,
        };
        let object = name.object(request.node, request.instance, request.piece);
        OpenPart {
            store: self.store.clone(),
            place: self.store.name(&object),
            part: Part {
                instance: request.instance,
                barrier: request.barrier,
                since: request.since,
                buckets: request.buckets,
                owners: request.owners,
                watermark: request.watermark,
                object,
                bytes: 0,
                rows: 0,
                checksum: String::new(),
            },
            encoder: None,
            memory,
        }
    }
}

/// A part that is being written. In a directory its bytes are written as they come, to a file that gets its
/// name at the end; for an object store they are kept in memory until then.
pub struct OpenPart {
    store: Store,
    place: String,
    /// What is known of the part.
    part: Part,
    encoder: Option<Encoder<Target>>,
    /// Where its bytes go, if they are not stored.
    memory: Option<Vec<u8>>,
}

enum Target {
    Memory(Vec<u8>),
    File(Box<Staged>),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Target::Memory(memory) => memory.write(bytes),
            Target::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl OpenPart {
    /// Adds a batch.
    ///
    /// # Errors
    ///
    /// As [`PartWriter::put`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = match &mut self.encoder {
            Some(encoder) => encoder.write(batch),
            None => self.begin(batch),
        };
        written.map_err(|error| error.at(&self.place))
    }

    fn begin(&mut self, first: &RecordBatch) -> Result<()> {
        let target = match (self.memory.take(), &self.store.directory) {
            (None, Some(directory)) => {
                Target::File(Box::new(sync::staged(directory, &self.part.object)))
            }
            (memory, _) => Target::Memory(memory.unwrap_or_default()),
        };
        let encoder = self.encoder.insert(Encoder::new(first.schema(), target)?);
        encoder.write(first)
    }

    /// Stores the part, and returns its description for the manifest.
    ///
    /// # Errors
    ///
    /// As [`PartWriter::put`].
    pub async fn finish(self) -> Result<Part> {
        let (store, place) = (self.store.clone(), self.place.clone());
        let (part, target) = self.complete()?;
        let put = match (target, &store.directory) {
            (Target::File(staged), Some(directory)) => {
                let published = sync::publish(directory.clone(), &part.object, *staged).await;
                store.put_in(directory, &part.object, published)?
            }
            (Target::Memory(bytes), _) => store.put(&part.object, bytes).await?,
            (Target::File(_), None) => unreachable!("only a directory has files"),
        };
        if let Put::Taken = put {
            let other = "something else is stored there";
            match store.read_part(&part).await {
                Ok(_) => {}
                Err(error) if error.kind == Kind::Corrupt => {
                    return Err(Error::new(Kind::Unavailable, place, other));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(part)
    }

    /// The whole part, which has to be in memory.
    pub(super) fn end(self) -> Result<(Part, Vec<u8>)> {
        let place = self.place.clone();
        match self.complete()? {
            (part, Target::Memory(bytes)) => Ok((part, bytes)),
            (_, Target::File(_)) => {
                let reason = "it is being written to a file";
                Err(Error::new(Kind::Invalid, place, reason))
            }
        }
    }

    fn complete(self) -> Result<(Part, Target)> {
        let OpenPart {
            place,
            mut part,
            encoder,
            ..
        } = self;
        let Some(encoder) = encoder else {
            return Err(Error::new(Kind::Invalid, place, "it has no batch"));
        };
        let encoded = encoder.finish().map_err(|error| error.at(&place))?;
        part.bytes = encoded.bytes;
        part.rows = encoded.rows;
        part.checksum = checksum_text(encoded.checksum);
        Ok((part, encoded.to))
    }
}

fn exhausted(store: &Store) -> Error {
    let reason = "there is no number left for a record";
    Error::new(Kind::Invalid, store.name(super::RECORDS), reason).hint("start in an empty place")
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// A different string each time.
fn owner() -> String {
    // The standard library seeds its hash maps from the operating system.
    let random = RandomState::new().hash_one(std::process::id());
    format!("{}-{random:016x}", std::process::id())
}
