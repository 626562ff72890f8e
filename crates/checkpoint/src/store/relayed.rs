//! Parts that one process has encoded and another one stores: a standby stores what the active sends it.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;

use super::staged::BLOCK_BYTES;
use super::writer::OpenPart;
use super::{Put, Store, record_name, sync};
use crate::error::{Error, Kind, Result};
use crate::manifest::record::{Record, checksum_text};
use crate::manifest::{Manifest, Part};
use crate::part;

impl Store {
    /// The checkpoint with this number. Its parts are not looked at.
    ///
    /// # Errors
    ///
    /// [`Kind::Missing`] if it was removed, or no checkpoint has this number; else as [`Store::newest`].
    pub async fn checkpoint(&self, number: u64) -> Result<Manifest> {
        match self.record(number).await? {
            Record::Checkpoint(manifest) => Ok(manifest),
            Record::Claim(_) => {
                let place = self.name(&record_name(number));
                Err(Error::new(Kind::Missing, place, "it is no checkpoint"))
            }
        }
    }

    /// The number of the newest record that can be read, and when it was stored, in milliseconds since 1970:
    /// by these, two runs find out whether they have the same store.
    ///
    /// # Errors
    ///
    /// As [`Store::newest`].
    pub async fn newest_stamp(&self) -> Result<Option<(u64, u64)>> {
        for number in self.numbers().await?.into_iter().rev() {
            if let Some(time_ms) = self.stamp(number).await? {
                return Ok(Some((number, time_ms)));
            }
        }
        Ok(None)
    }

    /// When the record with this number was stored; `None` if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Store::newest`].
    pub async fn stamp(&self, number: u64) -> Result<Option<u64>> {
        match self.record(number).await {
            Ok(Record::Checkpoint(manifest)) => Ok(Some(manifest.time_ms)),
            Ok(Record::Claim(claim)) => Ok(Some(claim.time_ms)),
            Err(error) if matches!(error.kind, Kind::Missing | Kind::Corrupt) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a part that was encoded elsewhere ([`OpenPart::encode`]), so that it survives a failure of
    /// the host. Storing the same part again is fine. In a directory it is given up between two blocks once
    /// `is_wanted` returns false: then slow storage is free for something else.
    ///
    /// # Errors
    ///
    /// [`Kind::Corrupt`] if the bytes are not those of the part, [`Kind::Unavailable`] if they can't be
    /// stored, are not wanted any more, or something else is stored there.
    pub async fn put_part(
        &self,
        part: &Part,
        bytes: &[u8],
        is_wanted: impl Fn() -> bool,
    ) -> Result<()> {
        if part::PartName::parse(&part.object).is_none() {
            let reason = "it is not a valid name of a part";
            return Err(Error::corrupt(&*part.object, reason));
        }
        self.check_bytes(part, bytes)?;
        let put = match &self.directory {
            None => self.put(&part.object, bytes.to_vec()).await?,
            Some(directory) => {
                let mut staged = sync::staged(directory, &part.object);
                for block in bytes.chunks(BLOCK_BYTES) {
                    if !is_wanted() {
                        let reason = "it is not wanted any more";
                        return Err(Error::new(
                            Kind::Unavailable,
                            self.name(&part.object),
                            reason,
                        ));
                    }
                    let written = staged.write_all(block);
                    written.map_err(|error| self.failed_io(&part.object, &error))?;
                }
                let published = sync::publish(directory.clone(), &part.object, staged).await;
                self.put_in(directory, &part.object, published)?
            }
        };
        match put {
            Put::Done => Ok(()),
            Put::Taken => match self.read_part(part).await {
                Ok(_) => Ok(()),
                Err(error) if error.kind == Kind::Corrupt => {
                    let reason = "something else is stored there";
                    Err(Error::new(
                        Kind::Unavailable,
                        self.name(&part.object),
                        reason,
                    ))
                }
                Err(error) => Err(error),
            },
        }
    }

    /// The state in the bytes of a part.
    ///
    /// # Errors
    ///
    /// [`Kind::Corrupt`] if they are not what was written.
    pub fn decode_part(&self, part: &Part, bytes: Vec<u8>) -> Result<Vec<RecordBatch>> {
        self.check_bytes(part, &bytes)?;
        let batches = part::decode(Buffer::from(bytes));
        let batches = batches.map_err(|error| error.at(self.name(&part.object)))?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        if rows as u64 != part.rows {
            let reason = format!("it has {rows} rows, but was written with {}", part.rows);
            return Err(Error::corrupt(self.name(&part.object), reason));
        }
        Ok(batches)
    }

    fn check_bytes(&self, part: &Part, bytes: &[u8]) -> Result<()> {
        let corrupt = |reason: String| Err(Error::corrupt(self.name(&part.object), reason));
        if bytes.len() as u64 != part.bytes {
            return corrupt(format!(
                "it has {} bytes, but was written with {}",
                bytes.len(),
                part.bytes
            ));
        }
        if checksum_text(crc32fast::hash(bytes)) != part.checksum {
            return corrupt("its checksum is wrong".to_string());
        }
        Ok(())
    }
}

impl OpenPart {
    /// Ends a part that is kept in memory ([`super::PartWriter::open_in_memory`]): its description, and
    /// what [`Store::put_part`] stores.
    ///
    /// # Errors
    ///
    /// [`Kind::Invalid`] if it has no batch, or is not in memory.
    pub fn encode(self) -> Result<(Part, Vec<u8>)> {
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;

    use super::*;
    use crate::{PartRequest, PartWriter, Runner};

    #[test]
    fn what_was_encoded_in_one_process_is_stored_and_read_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().display().to_string()).unwrap();
        let runner = Runner::new().unwrap();
        let request = PartRequest {
            barrier: 2,
            since: Some(1),
            node: "sums",
            instance: 0,
            piece: 0,
            buckets: (0, 4095),
            owners: Some(1),
            watermark: None,
        };
        let numbers = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers as _)]).unwrap();
        let mut open = PartWriter::new(store.clone(), 1).open_in_memory(&request, vec![1; 9]);
        open.write(&batch).unwrap();
        let (part, bytes) = open.encode().unwrap();
        let unwanted = runner.run(store.put_part(&part, &bytes, || false));
        assert_eq!(unwanted.unwrap_err().kind, Kind::Unavailable);
        assert!(runner.run(store.read_part(&part)).is_err(), "not yet");
        runner.run(store.put_part(&part, &bytes, || true)).unwrap();
        runner.run(store.put_part(&part, &bytes, || true)).unwrap();
        assert_eq!(
            runner.run(store.read_part(&part)).unwrap(),
            std::slice::from_ref(&batch)
        );
        assert_eq!(store.decode_part(&part, bytes.clone()).unwrap(), [batch]);
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            let error = store.decode_part(&part, torn.clone()).unwrap_err();
            assert_eq!(error.kind, Kind::Corrupt);
            assert!(runner.run(store.put_part(&part, &torn, || true)).is_err());
        }
        let outside = Part {
            object: "../outside".to_string(),
            ..part
        };
        assert!(
            runner
                .run(store.put_part(&outside, &bytes, || true))
                .is_err()
        );
    }
}
