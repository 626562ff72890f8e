//! One file over the whole life of a query that takes checkpoints.
//!
//! It grows under a hidden name. A checkpoint has its length, to which a restored query cuts it before
//! it writes on. The last one gives the file its own name.
//!
//! A query may be restored to a cut behind which this file has nothing to come: one of several ends
//! first. Then there is a finished file and no hidden one, and its sink leaves it alone. A finished file
//! that is to be overwritten therefore has a hidden one beside it from the beginning.
//!
//! Who writes it holds a lock, so that an incarnation that was thought dead is found before the file is
//! cut. The kernel lets go of the lock when its process dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::Sink;

use super::output::{Output, failed, folder_of, remove, sync_file, sync_folder};
use super::{MEND_GONE, unreadable};
use crate::encode::Encoder;
use crate::format::Format;
use crate::packing::Packing;

/// How long it is waited for whoever writes the file: workers whose parent has died end within a second.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How often it is looked whether they have.
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// What a checkpoint has of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Prepared {
    /// Its name.
    file: String,
    /// Its length.
    bytes: u64,
    /// The incarnation, and the number of its checkpoint, from 0.
    epoch: u64,
    number: u64,
    /// Nothing follows.
    is_last: bool,
}

/// Where the file and what belongs to it are.
#[derive(Debug, Clone)]
pub(super) struct Growing {
    path: PathBuf,
    name: String,
    /// While it grows.
    pub(super) hidden: PathBuf,
}

impl Growing {
    pub(super) fn new(path: &Path) -> Growing {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = folder_of(path);
        Growing {
            path: path.to_path_buf(),
            hidden: folder.join(format!(".{name}.unfinished")),
            name: name.into_owned(),
        }
    }

    fn parse(&self, text: &str) -> Result<Prepared> {
        let prepared = serde_json::from_str::<Prepared>(text);
        let prepared = prepared.map_err(|_| unreadable(&self.path, text))?;
        if prepared.file == self.name {
            return Ok(prepared);
        }
        let reason = format!("the checkpoint is of a file '{}'", prepared.file);
        Err(Error::new(self.path.display().to_string(), reason)
            .mend("name the same path as before, or begin again without the checkpoints"))
    }

    /// Opens the hidden file, which nobody else may write.
    fn open(&self, creates: bool) -> Result<File> {
        let file = OpenOptions::new()
            .write(true)
            .create(creates)
            .truncate(false)
            .open(&self.hidden)
            .map_err(|error| {
                let folder = folder_of(&self.path).display();
                let reason = format!("can't write in {folder}: {error}");
                Error::new(self.path.display().to_string(), reason)
                    .mend("make the folder, or check its permissions")
            })?;
        // A process of an earlier incarnation may take a moment to end.
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(LOCK_LOOK);
                }
                Err(TryLockError::WouldBlock) => {
                    let place = self.hidden.display().to_string();
                    return Err(Error::new(place, "is being written by somebody else")
                        .mend("wait until that process has ended, or end it"));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(failed(&self.hidden, "lock", &error));
                }
            }
        }
    }

    /// Whether an earlier run has left it without its end.
    pub(super) fn is_unfinished(&self) -> bool {
        self.hidden.symlink_metadata().is_ok()
    }

    /// Removes what an earlier run has left, unless it is still there.
    pub(super) fn begin(&self) -> Result<()> {
        if self.is_unfinished() {
            let _locked = self.open(false)?;
            remove(&self.hidden)?;
        }
        if self.path.exists() {
            self.open(true)?;
        }
        Ok(())
    }

    /// Gives the file its name.
    fn settle(&self) -> Result<()> {
        std::fs::rename(&self.hidden, &self.path)
            .map_err(|error| failed(&self.path, "give the file its name", &error))?;
        sync_folder(folder_of(&self.path))
    }

    fn finished_bytes(&self) -> Option<u64> {
        self.path.metadata().ok().map(|metadata| metadata.len())
    }

    fn gone(&self) -> Error {
        let reason = format!(
            "neither it nor {} is there with what was written",
            self.hidden.display()
        );
        Error::new(self.path.display().to_string(), reason)
            .mend(MEND_GONE)
            .final_one()
    }

    /// Makes what is prepared durable.
    pub(super) fn secure(&self) -> Result<()> {
        match self.is_unfinished() {
            true => sync_file(&self.hidden),
            // Committed meanwhile.
            false => sync_file(&self.path),
        }
    }

    /// Commits what was prepared: gives the file its name if that was the end.
    pub(super) fn commit(&self, prepared: &str) -> Result<()> {
        let prepared = self.parse(prepared)?;
        if !self.is_unfinished() {
            let is_finished = self.finished_bytes() >= Some(prepared.bytes);
            return if is_finished {
                Ok(())
            } else {
                Err(self.gone())
            };
        }
        match prepared.is_last {
            true => self.settle(),
            false => Ok(()),
        }
    }

    /// Cuts the file to what the newest of these says, or gives it its name if that was the end.
    pub(super) fn recover(&self, prepared: &[String]) -> Result<()> {
        let prepared = prepared.iter().map(|text| self.parse(text));
        let prepared = prepared.collect::<Result<Vec<Prepared>>>()?;
        let newest = prepared.iter().max_by_key(|of| (of.epoch, of.number));
        if !self.is_unfinished() {
            let bytes = newest.map(|newest| newest.bytes);
            if bytes.is_some() && self.finished_bytes() != bytes {
                return Err(self.gone());
            }
            return Ok(());
        }
        let file = self.open(false)?;
        self.cut(&file, newest.map_or(0, |newest| newest.bytes))?;
        match newest.is_some_and(|newest| newest.is_last) {
            true => self.settle(),
            false => Ok(()),
        }
    }

    fn cut(&self, file: &File, bytes: u64) -> Result<()> {
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| failed(&self.hidden, "look at it", &error))?;
        if metadata.len() < bytes {
            let (place, found) = (self.hidden.display().to_string(), metadata.len());
            let reason = format!("has {found} bytes, but {bytes} were written");
            return Err(Error::new(place, reason).mend(MEND_GONE).final_one());
        }
        let cut = file.set_len(bytes).and_then(|()| file.sync_all());
        cut.map_err(|error| failed(&self.hidden, "cut", &error))
    }
}

/// Writes the file.
pub(super) struct GrowingSink {
    format: Format,
    schema: SchemaRef,
    file: Growing,
    epoch: u64,
    /// None for a file that was finished before.
    output: Option<(Encoder, Output)>,
    /// Checkpoints of this incarnation.
    prepared: u64,
}

impl GrowingSink {
    pub(super) fn new(
        format: &Format,
        schema: &SchemaRef,
        file: &Growing,
        epoch: u64,
    ) -> GrowingSink {
        GrowingSink {
            format: format.clone(),
            schema: schema.clone(),
            file: file.clone(),
            epoch,
            output: None,
            prepared: 0,
        }
    }
}

impl Sink for GrowingSink {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        if !self.file.is_unfinished() && self.file.path.exists() {
            return Ok(());
        }
        let mut file = self.file.open(true)?;
        let length = file.seek(SeekFrom::End(0));
        let length = length.map_err(|error| failed(&self.file.hidden, "seek", &error))?;
        sync_folder(folder_of(&self.file.path))?;
        let mut format = self.format.clone();
        if let Format::Csv(options) = &mut format
            && length > 0
        {
            options.header = false;
        }
        let path = &self.file.path;
        let output = Output::new(file, length, &self.file.hidden, Packing::of(path));
        self.output = Some((Encoder::new(&format, &self.schema), output));
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let Some((encoder, output)) = &mut self.output else {
            let place = self.file.path.display().to_string();
            return Err(Error::new(place, "is finished, but there are more rows")
                .mend("begin again without the checkpoints"));
        };
        let encoded = encoder.encode(chunk, &mut output.buffer);
        encoded.map_err(|error| error.at(&self.file.path.display().to_string()))?;
        output.write_full()
    }

    fn flush(&mut self) -> Result<()> {
        let output = self.output.as_mut();
        output.map_or(Ok(()), |(_, output)| output.write_out())
    }

    fn prepare(&mut self, is_last: bool) -> Result<Option<String>> {
        let Some((encoder, output)) = &mut self.output else {
            return Ok(None);
        };
        // The header of a file that never gets a row.
        encoder.finish(&mut output.buffer);
        output.end()?;
        let prepared = Prepared {
            file: self.file.name.clone(),
            bytes: output.length(),
            epoch: self.epoch,
            number: self.prepared,
            is_last,
        };
        let text = serde_json::to_string(&prepared);
        let text = text.map_err(|error| Error::new(&self.file.name, error.to_string()))?;
        self.prepared += 1;
        Ok(Some(text))
    }

    /// What was not prepared is cut off by who goes on from the last checkpoint.
    fn finish(&mut self, _complete: bool) -> Result<()> {
        self.output = None;
        Ok(())
    }
}
