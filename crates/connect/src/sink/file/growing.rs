//! One file over the whole life of a query that takes checkpoints.
//!
//! It grows under a hidden name. A checkpoint has its length, to which a restored query truncates it before
//! it continues to write. The last one gives the file its own name.
//!
//! **Who may write.** The hidden name has the number of the incarnation, and a file with a number in its
//! name is written by that incarnation alone (I9). A later one never writes to it: it takes the file
//! over, in [`Growing::recover`], before anything of it runs.
//!
//! - A writer holds a lock, and has checked *with* the lock that the file still has its name. An incarnation
//!   that takes the file over holds the lock while it truncates and renames it. So an earlier incarnation
//!   that is late finds that there is no file of its name, or that the one it has opened has been renamed.
//! - If an earlier one doesn't release the lock, because it is slow, stopped or stuck, the part of the file
//!   that the checkpoint covers is copied instead. It may continue to write its own file, which nobody reads.
//! - A file gets a number only when it is complete: it is renamed, or copied under another name first. So the
//!   part that a checkpoint of incarnation 5 covers is the beginning of the file with the number 5 or, if
//!   that one has been taken over, of any file with a later number.
//!
//! A query may be restored to a checkpoint after which this file gets no more rows, because one of several
//! sinks ends first. Then there is a finished file and no hidden one, and its sink leaves it alone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::Sink;

use super::output::{Output, failed, folder_of, remove, sync_file, sync_folder};
use super::{HINT_GONE, unreadable};
use crate::encode::Encoder;
use crate::format::Format;
use crate::packing::Packing;

/// How often to look again for a file that others take over at the same time: once for each incarnation that
/// starts meanwhile.
const LOOKS_MAX: usize = 16;

/// How long to wait for another writer of the file: workers whose parent has died end within a second.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How often to check whether it has ended.
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// What a checkpoint stores about the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Prepared {
    /// The file's name.
    file: String,
    /// The file's length.
    bytes: u64,
    /// The incarnation, and the number of its checkpoint, from 0.
    epoch: u64,
    number: u64,
    /// Whether this belongs to the last checkpoint.
    is_last: bool,
}

/// The paths of the file and its hidden variants.
#[derive(Debug, Clone)]
pub(super) struct Growing {
    path: PathBuf,
    name: String,
}

/// An unfinished file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Unfinished {
    /// The incarnation that writes it; `None` for files of versions that did not number them.
    epoch: Option<u64>,
    path: PathBuf,
}

impl Growing {
    pub(super) fn new(path: &Path) -> Growing {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Growing {
            path: path.to_path_buf(),
            name: name.into_owned(),
        }
    }

    fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// The file that an incarnation writes.
    fn hidden(&self, epoch: u64) -> PathBuf {
        let name = &self.name;
        self.folder()
            .join(format!(".{name}.{epoch:010}.unfinished"))
    }

    /// The name of a copy while it is being made.
    fn copied(&self, epoch: u64) -> PathBuf {
        let name = &self.name;
        self.folder().join(format!(".{name}.{epoch:010}.copy"))
    }

    /// Unfinished files of this name, in the order of their incarnations.
    pub(super) fn unfinished(&self) -> Result<Vec<PathBuf>> {
        let found = self.look(".unfinished")?.into_iter();
        Ok(found.map(|found| found.path).collect())
    }

    /// The hidden files with this ending.
    fn look(&self, ending: &str) -> Result<Vec<Unfinished>> {
        let folder = self.folder();
        let look = |error: std::io::Error| failed(folder, "look for unfinished files", &error);
        let entries = match folder.read_dir() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(look)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(look)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| {
                let name = name.strip_prefix('.')?.strip_prefix(&*self.name)?;
                name.strip_suffix(ending)
            });
            let epoch = match number {
                None => continue,
                Some("") => None,
                Some(number) => {
                    let digits = number.strip_prefix('.').unwrap_or_default();
                    match digits.parse::<u64>() {
                        // Names that only resemble ours are not ours.
                        Ok(epoch) if format!("{epoch:010}") == digits => Some(epoch),
                        _ => continue,
                    }
                }
            };
            found.push(Unfinished { epoch, path });
        }
        found.sort();
        Ok(found)
    }

    fn parse(&self, text: &str) -> Result<Prepared> {
        let prepared = serde_json::from_str::<Prepared>(text);
        let prepared = prepared.map_err(|_| unreadable(&self.path, text))?;
        if prepared.file == self.name {
            return Ok(prepared);
        }
        let reason = format!("the checkpoint is of a file '{}'", prepared.file);
        Err(Error::new(self.path.display().to_string(), reason)
            .hint("name the same path as before, or start over without the checkpoints"))
    }

    /// A query begins from nothing: removes what an earlier one has left, unless it is still there.
    pub(super) fn begin(&self) -> Result<()> {
        for path in self.unfinished()? {
            let Some(file) = open(&path)? else { continue };
            if !locked(&file, &path)? {
                return Err(busy(&path));
            }
            remove(&path)?;
        }
        Ok(())
    }

    /// Gives a file its name.
    fn settle(&self, hidden: &Path) -> Result<()> {
        match std::fs::rename(hidden, &self.path) {
            // Another process resumes from the same checkpoint, and was faster.
            Err(error) if error.kind() == ErrorKind::NotFound && self.path.exists() => {}
            renamed => {
                renamed.map_err(|error| failed(&self.path, "give the file its name", &error))?;
            }
        }
        sync_folder(self.folder())
    }

    fn finished_bytes(&self) -> Option<u64> {
        self.path.metadata().ok().map(|metadata| metadata.len())
    }

    fn gone(&self, epoch: u64) -> Error {
        let reason = format!(
            "neither it nor {} exists with what was written",
            self.hidden(epoch).display()
        );
        Error::new(self.path.display().to_string(), reason)
            .hint(HINT_GONE)
            .final_one()
    }

    /// Makes the prepared file durable.
    pub(super) fn secure(&self, prepared: &str) -> Result<()> {
        let hidden = self.hidden(self.parse(prepared)?.epoch);
        match hidden.exists() {
            true => sync_file(&hidden),
            // Committed meanwhile.
            false if self.path.exists() => sync_file(&self.path),
            false => Err(taken_over(&hidden)),
        }
    }

    /// Commits the prepared file: gives it its name if that was the end.
    pub(super) fn commit(&self, prepared: &str) -> Result<()> {
        let prepared = self.parse(prepared)?;
        let hidden = self.hidden(prepared.epoch);
        if !hidden.exists() {
            let is_finished = self.finished_bytes() >= Some(prepared.bytes);
            return if is_finished {
                Ok(())
            } else {
                Err(self.gone(prepared.epoch))
            };
        }
        match prepared.is_last {
            true => self.settle(&hidden),
            false => Ok(()),
        }
    }

    /// Gives incarnation `epoch` its own file, with the contents that the newest of these covers; or, if that
    /// was the end, gives the file its name. `None` if the query starts from nothing.
    pub(super) fn recover(&self, epoch: u64, prepared: Option<&[String]>) -> Result<()> {
        let prepared = prepared.map(|all| all.iter().map(|text| self.parse(text)));
        let prepared = prepared.map(|all| all.collect::<Result<Vec<Prepared>>>());
        let prepared = prepared.transpose()?;
        let newest = prepared.as_ref().and_then(|all| {
            let newest = all.iter().max_by_key(|file| (file.epoch, file.number));
            newest.cloned()
        });
        let own = self.hidden(epoch);
        match newest {
            Some(newest) => {
                if self.take_over(epoch, &newest)? && newest.is_last {
                    self.settle(&own)?;
                }
            }
            // The file was finished, and that was committed.
            None if prepared.is_some() && self.path.exists() => {}
            None => {
                File::create(&own).map_err(|error| self.not_made(&error))?;
                sync_folder(self.folder())?;
            }
        }
        self.clear_away(epoch)
    }

    fn not_made(&self, error: &std::io::Error) -> Error {
        let reason = format!("can't write in {}: {error}", self.folder().display());
        Error::new(self.path.display().to_string(), reason)
            .hint("create the folder, or check its permissions")
    }

    /// Removes what earlier incarnations have left. Whatever they still write is removed with it.
    fn clear_away(&self, epoch: u64) -> Result<()> {
        let left = [self.look(".unfinished")?, self.look(".copy")?].concat();
        let mut old = left.into_iter();
        old.try_for_each(|file| match file.epoch < Some(epoch) {
            true => remove(&file.path),
            false => Ok(()),
        })
    }

    /// Takes the file over; returns false if it is finished.
    fn take_over(&self, epoch: u64, newest: &Prepared) -> Result<bool> {
        for _ in 0..LOOKS_MAX {
            let files = self.look(".unfinished")?;
            let has_it =
                |file: &&Unfinished| (Some(newest.epoch)..=Some(epoch)).contains(&file.epoch);
            let is_unnumbered = |file: &&Unfinished| file.epoch.is_none();
            let file = files.iter().find(has_it);
            let Some(file) = file.or_else(|| files.iter().find(is_unnumbered)) else {
                if files.iter().any(|file| file.epoch > Some(epoch)) {
                    return Err(taken_over(&self.hidden(epoch)));
                }
                if self.finished_bytes() != Some(newest.bytes) {
                    return Err(self.gone(newest.epoch));
                }
                return Ok(false);
            };
            if self.take(&file.path, epoch, newest.bytes)? {
                return Ok(true);
            }
        }
        Err(taken_over(&self.hidden(epoch)))
    }

    /// Takes over the first `bytes` bytes of this file; returns false if it no longer exists.
    fn take(&self, from: &Path, epoch: u64, bytes: u64) -> Result<bool> {
        let Some(mut file) = open(from)? else {
            return Ok(false);
        };
        let own = self.hidden(epoch);
        let is_locked = locked(&file, from)?;
        if !is_at(&file, from) {
            return Ok(false);
        }
        let metadata = file.metadata();
        let length = metadata.map_err(|error| failed(from, "look at it", &error))?;
        if length.len() < bytes {
            let (place, found) = (from.display().to_string(), length.len());
            let reason = format!("has {found} bytes, but {bytes} were written");
            return Err(Error::new(place, reason).hint(HINT_GONE).final_one());
        }
        let renamed = match is_locked {
            true => {
                let cut = file.set_len(bytes).and_then(|()| file.sync_all());
                cut.map_err(|error| failed(from, "cut", &error))?;
                from.to_path_buf()
            }
            false => {
                let copy = self.copied(epoch);
                let copied = self.copy(&mut file, bytes, &copy);
                copied.map_err(|error| failed(&copy, "copy what was written", &error))?;
                copy
            }
        };
        match std::fs::rename(&renamed, &own) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            renamed => {
                renamed.map_err(|error| failed(&own, "give the file its name", &error))?;
            }
        }
        sync_folder(self.folder())?;
        Ok(true)
    }

    fn copy(&self, file: &mut File, bytes: u64, to: &Path) -> std::io::Result<()> {
        let mut copy = File::create(to)?;
        // The kernel shares the blocks if the file system supports it.
        let copied = std::io::copy(&mut file.take(bytes), &mut copy)?;
        if copied != bytes {
            return Err(std::io::Error::other("it was cut meanwhile"));
        }
        copy.sync_all()
    }
}

/// Opens a file for writing or taking over; `None` if it doesn't exist.
fn open(path: &Path) -> Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, "open", &error)),
    }
}

/// Returns whether the file could be locked. The process that holds the lock may take a moment to end.
fn locked(file: &File, path: &Path) -> Result<bool> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(LOCK_LOOK);
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(failed(path, "lock", &error)),
        }
    }
}

/// Whether this file still has that name.
fn is_at(file: &File, path: &Path) -> bool {
    let inode_of = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let open = file.metadata().map(inode_of).ok();
    let named = path.metadata().map(inode_of).ok();
    open.is_some() && open == named
}

fn busy(path: &Path) -> Error {
    Error::new(
        path.display().to_string(),
        "is being written by somebody else",
    )
    .hint("wait until that process has ended, or end it")
}

/// The error if there is no file of this incarnation.
fn taken_over(hidden: &Path) -> Error {
    let reason = "is gone: a later run has taken over, or somebody has removed it";
    Error::new(hidden.display().to_string(), reason).hint("let one run write the file")
}

/// Writes the file.
pub(super) struct GrowingSink {
    format: Format,
    schema: SchemaRef,
    file: Growing,
    epoch: u64,
    /// `None` for a file that was finished before.
    output: Option<(Encoder, Output)>,
    /// The number of checkpoints of this incarnation.
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
        let hidden = self.file.hidden(self.epoch);
        let Some(mut file) = open(&hidden)? else {
            if self.file.path.exists() {
                return Ok(());
            }
            return Err(taken_over(&hidden));
        };
        if !locked(&file, &hidden)? {
            return Err(busy(&hidden));
        }
        // From here on nobody takes it over without noticing the lock.
        if !is_at(&file, &hidden) {
            return Err(taken_over(&hidden));
        }
        let length = file.seek(SeekFrom::End(0));
        let length = length.map_err(|error| failed(&hidden, "seek", &error))?;
        let mut format = self.format.clone();
        if let Format::Csv(options) = &mut format
            && length > 0
        {
            options.header = false;
        }
        let path = &self.file.path;
        let output = Output::new(file, length, &hidden, Packing::of(path));
        self.output = Some((Encoder::new(&format, &self.schema), output));
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let Some((encoder, output)) = &mut self.output else {
            let place = self.file.path.display().to_string();
            return Err(Error::new(place, "is finished, but there are more rows")
                .hint("start over without the checkpoints"));
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

    /// The incarnation that resumes from the last checkpoint cuts off what was not prepared.
    fn finish(&mut self, _complete: bool) -> Result<()> {
        self.output = None;
        Ok(())
    }
}
