//! Where checkpoints are stored, read and found again.
//!
//! ```text
//! checkpoints/00000000000000000012.json    records: each a claim or a manifest, numbered without gaps
//! copies/00000000000000000012.json         the same once more
//! parts/<epoch>-<barrier>-<node>-<instance>-<piece>.arrow
//! ```
//!
//! - A record is written only if none exists, with the number after the last one, and never changed. So the
//!   records are a log: of two writers only one can append the next record.
//! - An incarnation starts by appending a *claim* ([`Store::begin`]); the claim's number is its epoch. From
//!   then on an earlier incarnation finds the number after its last record taken, and is *fenced*.
//! - A checkpoint is valid if its manifest is intact and of a known format, and if all of its parts exist
//!   with the lengths in it. Checksums of parts are compared when they are read.
//! - Nothing here has a thread, or a clock on which a decision depends; futures run on any executor
//!   ([`crate::Runner`] is one).

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use futures_util::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use crate::error::{Error, Kind, Result};
use crate::location;
use crate::manifest::record::Record;
use crate::manifest::{Manifest, Part};
use crate::part;

mod records;
mod relayed;
mod staged;
mod sweep;
mod sync;
mod writer;

pub use sweep::Swept;
pub use sync::Beginning;
pub use writer::{CheckpointWriter, OpenPart, PartRequest, PartWriter};

/// The folder of records.
const RECORDS: &str = "checkpoints";

/// The folder of their copies.
const COPIES: &str = "copies";

/// How often records are listed again because one that was listed is removed before it is read: each time,
/// somebody has stored and removed some meanwhile.
const LISTS_MAX: usize = 64;

/// The most objects of one folder. A checkpoint of 4,096 instances with chains of 16 parts has 65,536, and a
/// few checkpoints are kept.
const OBJECTS_MAX: usize = 1 << 22;

/// A store of checkpoints, of one query.
#[derive(Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    directory: Option<PathBuf>,
    place: Arc<str>,
}

/// The newest valid checkpoint.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The newest valid checkpoint; `None` if there is none.
    pub manifest: Option<Manifest>,
    /// Newer checkpoints that are not valid, with the reason: one line each.
    pub warnings: Vec<String>,
    /// Records that were damaged and have been restored, with the reason: one line each.
    pub healed: Vec<String>,
}

/// The records of a store, as one of its writers finds them.
struct Behind {
    /// The numbers of all records.
    numbers: BTreeSet<u64>,
    /// How many whole ones are after the writer's last one.
    records: usize,
}

/// Whether an object could be created.
enum Put {
    Done,
    Taken,
}

impl Store {
    /// Opens a directory, which is created if it doesn't exist, or a URL: `file:///…`, `s3://bucket/folder`
    /// (feature `s3`; keys, region and endpoint come from `AWS_…` variables).
    ///
    /// # Errors
    ///
    /// If checkpoints can't be stored at that place, with a hint.
    pub fn open(location: &str) -> Result<Store> {
        let opened = location::open(location)?;
        Ok(Store {
            objects: opened.objects,
            directory: opened.directory,
            place: location.into(),
        })
    }

    /// A store over objects of any kind; `place` names it in messages. Objects must be written atomically,
    /// including [`PutMode::Create`], and lists must be up to date.
    pub fn new(objects: Arc<dyn ObjectStore>, place: &str) -> Store {
        Store {
            objects,
            directory: None,
            place: place.into(),
        }
    }

    /// Starts an incarnation: from now on no earlier one can store a checkpoint or learn that it may commit
    /// one. Also returns the newest valid checkpoint, or the newest one before the number `before`.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if the store can't be read or written, [`Kind::Invalid`] if a later version
    /// wrote there, [`Kind::Fenced`] if another incarnation has started at the same time.
    pub async fn begin(&self, before: Option<u64>) -> Result<(CheckpointWriter, Found)> {
        CheckpointWriter::begin(self, before, false).await
    }

    /// As [`Store::begin`], but abandons everything that is stored: neither this incarnation nor later ones
    /// resume from it.
    ///
    /// # Errors
    ///
    /// As [`Store::begin`].
    pub async fn begin_from_scratch(&self) -> Result<(CheckpointWriter, Found)> {
        CheckpointWriter::begin(self, None, true).await
    }

    /// Keeps others from starting until it is dropped: used between checking whether another run has started
    /// there, and claiming. `None` if the store is not a directory.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if another run is about to start, and makes no progress.
    pub fn beginning(&self) -> Result<Option<Beginning>> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        match Beginning::of(directory) {
            Ok(beginning) => Ok(Some(beginning)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let reason = "another run is starting there, and makes no progress";
                let error = Error::new(Kind::Unavailable, self.place.as_ref(), reason);
                Err(error
                    .hint("is that process stopped? continue or end it, and start the query again"))
            }
            Err(error) => Err(self.failed_io("", &error)),
        }
    }

    /// Refuses to continue as incarnation `epoch` if another run has started since.
    ///
    /// # Errors
    ///
    /// [`Kind::Fenced`] if one has, [`Kind::Unavailable`] if the store can't be read.
    pub async fn check_latest(&self, epoch: u64) -> Result<()> {
        self.check_behind(epoch, epoch).await.map(drop)
    }

    /// Checks that no later incarnation than `epoch` has a record after the number `last`.
    async fn check_behind(&self, last: u64, epoch: u64) -> Result<Behind> {
        'listed: for _ in 0..LISTS_MAX {
            let numbers = self.numbers().await?;
            let mut records = 0;
            for &number in numbers.range(last.saturating_add(1)..) {
                match self.record(number).await {
                    Ok(record) if record.epoch() > epoch => {
                        return Err(self.fenced(epoch, record.epoch()));
                    }
                    Ok(_) => records += 1,
                    // Whoever removed it since has stored later ones, which this list doesn't have.
                    Err(error) if error.kind == Kind::Missing => continue 'listed,
                    Err(error) if error.kind == Kind::Corrupt => {}
                    Err(error) => return Err(error),
                }
            }
            return Ok(Behind { numbers, records });
        }
        let reason = "records are removed there faster than they can be read";
        Err(Error::new(Kind::Unavailable, self.name(RECORDS), reason))
    }

    fn fenced(&self, epoch: u64, by: u64) -> Error {
        let reason = format!("incarnation {by} has taken over from {epoch}, which must end");
        Error::new(Kind::Fenced, self.place.as_ref(), reason)
    }

    /// Whether no incarnation has ever started there.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] when the store can't be read.
    pub async fn is_fresh(&self) -> Result<bool> {
        Ok(self.numbers().await?.is_empty())
    }

    /// The checkpoints that are kept, the oldest first: each with its number and, if it can't be used, the
    /// reason.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] when the store can't be read, [`Kind::Invalid`] when a later version wrote
    /// there.
    pub async fn kept(&self) -> Result<Vec<(u64, std::result::Result<Manifest, Error>)>> {
        let lengths = self.lengths().await?;
        let mut kept = Vec::new();
        for number in self.numbers().await? {
            match self.record(number).await {
                Ok(Record::Claim(_)) => {}
                Ok(Record::Checkpoint(manifest)) => {
                    let checked = self.check_parts(&manifest, &lengths);
                    kept.push((number, checked.map(|()| manifest)));
                }
                Err(error) if error.kind == Kind::Missing => {}
                Err(error) if error.kind == Kind::Corrupt => kept.push((number, Err(error))),
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// The newest valid checkpoint, or the newest one before the number `before`. Does not start an
    /// incarnation.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if the store can't be read, [`Kind::Invalid`] if a later version wrote there:
    /// skipping what can't be read would resume from before what was committed.
    pub async fn newest(&self, before: Option<u64>) -> Result<Found> {
        let numbers = self.numbers().await?;
        self.newest_of(&numbers, before).await
    }

    async fn newest_of(&self, numbers: &BTreeSet<u64>, before: Option<u64>) -> Result<Found> {
        let mut found = Found::default();
        let mut lengths = None;
        let mut end = before;
        for &number in numbers.iter().rev() {
            if end.is_some_and(|end| number >= end) {
                continue;
            }
            let mut warn = |error: Error| found.warnings.push(error.to_string());
            match self.record(number).await {
                // Everything before it was abandoned.
                Ok(Record::Claim(claim)) if claim.from_scratch => return Ok(found),
                // The records in between were skipped by that incarnation, which has written their rows again
                // since.
                Ok(Record::Claim(claim)) => {
                    end = claim
                        .restored
                        .map(|restored| restored.saturating_add(1))
                        .or(end);
                }
                Ok(Record::Checkpoint(manifest)) => {
                    let lengths = match &lengths {
                        Some(lengths) => lengths,
                        None => lengths.insert(self.lengths().await?),
                    };
                    match self.check_parts(&manifest, lengths) {
                        Ok(()) => {
                            found.manifest = Some(manifest);
                            return Ok(found);
                        }
                        Err(error) => warn(error),
                    }
                }
                // Removed since it was listed: there are newer ones, which have been checked.
                Err(error) if error.kind == Kind::Missing => {}
                Err(error) if error.kind == Kind::Corrupt => warn(error),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Whether a checkpoint is certainly the first one of its query: back to the query's start there is no
    /// other one, none was removed, and none is corrupt.
    ///
    /// # Errors
    ///
    /// As [`Store::newest`].
    pub async fn is_first(&self, number: u64) -> Result<bool> {
        let numbers = self.numbers().await?;
        for number in (1..number).rev() {
            if !numbers.contains(&number) {
                return Ok(false);
            }
            match self.record(number).await {
                Ok(Record::Claim(claim)) if claim.from_scratch => return Ok(true),
                Ok(Record::Claim(_)) => {}
                Ok(Record::Checkpoint(_)) => return Ok(false),
                Err(error) if matches!(error.kind, Kind::Missing | Kind::Corrupt) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The state in a part.
    ///
    /// # Errors
    ///
    /// [`Kind::Missing`] or [`Kind::Corrupt`] if it is not what was written: the checkpoint can't be used,
    /// but the one before it may be ([`Store::begin`] with its number). Otherwise [`Kind::Unavailable`].
    pub async fn read_part(&self, part: &Part) -> Result<Vec<RecordBatch>> {
        if part.bytes > part::PART_BYTES_MAX {
            let reason = "it is longer than a part can be";
            return Err(Error::corrupt(self.name(&part.object), reason));
        }
        let bytes = self.get(&part.object, part.bytes).await?;
        self.decode_part(part, bytes)
    }

    /// Checks that all parts exist with their lengths.
    async fn lengths(&self) -> Result<HashMap<String, u64>> {
        Ok(self.list(part::PARTS).await?.into_iter().collect())
    }

    fn check_parts(&self, manifest: &Manifest, lengths: &HashMap<String, u64>) -> Result<()> {
        for part in manifest.objects() {
            let wrong = match lengths.get(&part.object) {
                Some(length) if *length == part.bytes => continue,
                Some(length) => format!("has {length} bytes instead of {}", part.bytes),
                None => "is not there".to_string(),
            };
            let place = match manifest.number {
                0 => self.name("a new checkpoint"),
                number => self.name(&record_name(number)),
            };
            let reason = format!("its part '{}' {wrong}", part.object);
            return Err(Error::corrupt(place, reason));
        }
        Ok(())
    }

    /// The names of a folder's objects, and their lengths.
    async fn list(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let prefix = ObjectPath::from(folder);
        let mut stream = self.objects.list(Some(&prefix));
        let mut objects = Vec::new();
        loop {
            match stream.try_next().await {
                Ok(Some(meta)) if objects.len() < OBJECTS_MAX => {
                    objects.push((meta.location.to_string(), meta.size));
                }
                Ok(Some(_)) => {
                    let reason = format!("it has more than {OBJECTS_MAX} objects");
                    let error = Error::new(Kind::Unavailable, self.name(folder), reason);
                    return Err(error.hint("name a folder that nothing else uses"));
                }
                Ok(None) => return Ok(objects),
                // Nothing was written to the directory yet, or an object was removed during the listing.
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(folder, &error)),
            }
        }
    }

    /// An object's bytes; if it is longer than `most`, the first `most` + 1 bytes.
    async fn get(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let result = async {
            let got = self.objects.get(&ObjectPath::from(name)).await?;
            if got.meta.size > most {
                return Ok(vec![0; most as usize + 1]);
            }
            Ok(got.bytes().await?.to_vec())
        };
        result
            .await
            .map_err(|error: object_store::Error| self.failed(name, &error))
    }

    /// Writes an object if none exists, so that it survives a failure of the host.
    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<Put> {
        if let Some(directory) = &self.directory {
            let put = sync::put(directory.clone(), name, bytes).await;
            return self.put_in(directory, name, put);
        }
        let options = PutOptions::from(PutMode::Create);
        let path = ObjectPath::from(name);
        let put = self
            .objects
            .put_opts(&path, PutPayload::from(bytes), options);
        match put.await {
            Ok(_) => Ok(Put::Done),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(Put::Taken),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Writes an object, replacing a damaged one.
    async fn replace(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        if let Some(directory) = &self.directory {
            let replaced = sync::replace(directory.clone(), name, bytes).await;
            return replaced.map_err(|error| self.failed_io(name, &error));
        }
        let put = self
            .objects
            .put(&ObjectPath::from(name), bytes.into())
            .await;
        put.map(drop).map_err(|error| self.failed(name, &error))
    }

    /// On a file system an object that another process has written may not be on the disk yet; this syncs it.
    async fn sync(&self, name: &str) -> Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        sync::file(directory.clone(), name)
            .await
            .map_err(|error| self.failed_io(name, &error))
    }

    /// The name of an object in messages.
    fn name(&self, object: &str) -> String {
        format!("{}/{object}", self.place.trim_end_matches('/'))
    }

    fn failed_io(&self, name: &str, error: &std::io::Error) -> Error {
        Error::new(Kind::Unavailable, self.name(name), error.to_string())
            .hint(location::hint(error.kind()))
    }

    fn failed(&self, name: &str, error: &object_store::Error) -> Error {
        // The innermost cause says what happened; those around it repeat the path.
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let io = cause.downcast_ref::<std::io::Error>();
        match (error, io) {
            (object_store::Error::NotFound { .. }, _) => {
                Error::new(Kind::Missing, self.name(name), "it is not there")
            }
            (_, Some(error)) => self.failed_io(name, error),
            (error, None) => {
                let hint = match error {
                    object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. } => {
                        "the keys must allow reading, writing, listing and removing there"
                    }
                    _ => "",
                };
                Error::new(Kind::Unavailable, self.name(name), cause.to_string()).hint(hint)
            }
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.place)
    }
}

/// The object name of a record.
fn record_name(number: u64) -> String {
    format!("{RECORDS}/{number:020}.json")
}

/// The object name of its copy.
fn copy_name(number: u64) -> String {
    format!("{COPIES}/{number:020}.json")
}

fn number_of(folder: &str, name: &str) -> Option<u64> {
    let digits = name.strip_prefix(folder)?.strip_prefix('/')?;
    let digits = digits.strip_suffix(".json")?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
