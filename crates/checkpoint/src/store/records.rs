//! Records: claims and manifests, each of which is stored twice.
//!
//! - The *record* decides: it is written only if none exists, and exists or not ([`Store::put`]). Its *copy*
//!   follows, before the record is reported as stored. So every acknowledged record exists twice, and nothing
//!   builds upon one without a copy.
//! - If one of the two is damaged or missing, the other is read. A starting incarnation writes the damaged
//!   one again, of the records that it reads.

use std::collections::BTreeSet;

use super::{COPIES, Put, RECORDS, Store, copy_name, number_of, record_name};
use crate::error::{Error, Kind, Result};
use crate::manifest::record::{RECORD_BYTES_MAX, Record};

/// Neither is one to read.
fn is_damaged(error: &Error) -> bool {
    matches!(error.kind, Kind::Corrupt | Kind::Missing)
}

impl Store {
    /// The numbers of all records; either the record or its copy is enough.
    pub(super) async fn numbers(&self) -> Result<BTreeSet<u64>> {
        let mut numbers = BTreeSet::new();
        for folder in [RECORDS, COPIES] {
            let listed = self.list(folder).await?;
            let number = |(name, _): &(String, u64)| number_of(folder, name);
            numbers.extend(listed.iter().filter_map(number));
        }
        Ok(numbers)
    }

    /// The record of a number, or its copy.
    pub(super) async fn record(&self, number: u64) -> Result<Record> {
        let error = match self.record_at(&record_name(number), number).await {
            Err(error) if is_damaged(&error) => error,
            read => return read,
        };
        match self.record_at(&copy_name(number), number).await {
            // Removed: old records are removed together with their copies.
            Err(copy) if copy.kind == Kind::Missing => Err(error),
            Err(copy) if copy.kind == Kind::Corrupt => {
                let reason = format!("{}, and of its copy: {}", error.reason, copy.reason);
                Err(Error::corrupt(error.place, reason))
            }
            read => read,
        }
    }

    async fn record_at(&self, name: &str, number: u64) -> Result<Record> {
        let bytes = self.get(name, RECORD_BYTES_MAX).await?;
        let corrupt = |reason: &str| Error::corrupt(self.name(name), reason);
        if bytes.len() as u64 > RECORD_BYTES_MAX {
            return Err(corrupt("it is longer than a manifest can be"));
        }
        let record = Record::decode(&bytes).map_err(|error| error.at(self.name(name)))?;
        if record.number() != number {
            return Err(corrupt("it has another number than its name"));
        }
        Ok(record)
    }

    /// Writes the copy of a record that is stored.
    ///
    /// [`Put::Taken`] if the copy of another record has this number: that record was removed, but not its
    /// copy.
    pub(super) async fn put_copy(&self, record: &Record) -> Result<Put> {
        let number = record.number();
        let name = copy_name(number);
        let bytes = record.encode()?;
        if let Put::Done = self.put(&name, bytes.clone()).await? {
            return Ok(Put::Done);
        }
        match self.record_at(&name, number).await {
            Ok(found) if found == *record => self.sync(&name).await?,
            Ok(_) => return Ok(Put::Taken),
            Err(error) if is_damaged(&error) => self.replace(&name, bytes).await?,
            Err(error) => return Err(error),
        }
        Ok(Put::Done)
    }

    /// Restores records with these numbers from their copies, and copies from their records, if one of the
    /// two is damaged; reports what was restored.
    pub(super) async fn heal(&self, numbers: impl Iterator<Item = u64>) -> Result<Vec<String>> {
        let mut healed = Vec::new();
        for number in numbers {
            let (name, copy) = (record_name(number), copy_name(number));
            let of_name = self.record_at(&name, number).await;
            let of_copy = self.record_at(&copy, number).await;
            let (damaged, error, whole) = match (of_name, of_copy) {
                (Ok(record), Err(error)) if is_damaged(&error) => (copy, error, record),
                (Err(error), Ok(record)) if is_damaged(&error) => (name, error, record),
                _ => continue,
            };
            self.replace(&damaged, whole.encode()?).await?;
            // An earlier version wrote no copy, or the writer died before writing it.
            if !(damaged.starts_with(COPIES) && error.kind == Kind::Missing) {
                healed.push(error.to_string());
            }
        }
        Ok(healed)
    }
}
