//! A folder of parts, one for each checkpoint and instance that had rows.
//!
//! A part is written under a hidden name. At a checkpoint it is ended, then synced, and gets its own name
//! when the checkpoint is stored. Its name contains the incarnation, so two incarnations that are alive at
//! the same time never write the same file; and an incarnation removes what earlier ones have left, never
//! what later ones write.

use std::fmt;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::Sink;

use super::output::{Output, failed, folder_of, remove, sync_file, sync_folder};
use super::{HINT_GONE, unreadable};
use crate::file_encoder::FileEncoder;
use crate::file_format::{EXTENSIONS, FileFormat};

/// A part's name. As text, names of one instance sort in the order in which the parts were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartName {
    pub(super) instance: usize,
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) extension: &'static str,
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartName {
            instance,
            epoch,
            number,
            extension,
        } = self;
        // Wide enough for an epoch each second over 300 years.
        write!(f, "part-{instance:05}-{epoch:010}-{number:010}.{extension}")
    }
}

impl PartName {
    fn parse(name: &str) -> Option<PartName> {
        let (numbers, extension) = name.strip_prefix("part-")?.split_once('.')?;
        let extension = EXTENSIONS.iter().find(|known| **known == extension)?;
        let mut numbers = numbers.split('-');
        let part = PartName {
            instance: numbers.next()?.parse().ok()?,
            epoch: numbers.next()?.parse().ok()?,
            number: numbers.next()?.parse().ok()?,
            extension,
        };
        // Names that only resemble ours are not ours.
        (part.to_string() == name).then_some(part)
    }
}

/// The name of a part that is not committed.
fn hidden(name: &str) -> String {
    format!(".{name}.tmp")
}

/// Whether a checkpoint has committed a file with this name.
pub(super) fn is_part(name: &str) -> bool {
    PartName::parse(name).is_some()
}

/// Whether a file with this name is a part that is not committed.
pub(super) fn is_hidden_part(name: &str) -> bool {
    hidden_part(name).is_some()
}

/// The part that a hidden file will become.
fn hidden_part(name: &str) -> Option<PartName> {
    PartName::parse(name.strip_prefix('.')?.strip_suffix(".tmp")?)
}

/// The number of a part of a query without checkpoints.
pub(super) fn plain_part(name: &str) -> Option<usize> {
    let (number, extension) = name.strip_prefix("part-")?.split_once('.')?;
    let is_ours = EXTENSIONS.contains(&extension);
    is_ours.then(|| number.parse::<usize>().ok())?
}

/// Removes the matching files of a folder. A missing folder is not an error.
pub(super) fn remove_where(folder: &Path, is_meant: impl Fn(&Path, &str) -> bool) -> Result<()> {
    let look = |error: std::io::Error| failed(folder, "look for old parts", &error);
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(look)?,
    };
    for entry in entries {
        let path = entry.map_err(look)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| is_meant(&path, name)) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// What a checkpoint stores about a part.
#[derive(Debug, Serialize, Deserialize)]
struct Prepared {
    hidden: String,
    name: String,
    /// The part's length; earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Prepared {
    fn parse(folder: &Path, text: &str) -> Result<Prepared> {
        let prepared = serde_json::from_str::<Prepared>(text).ok();
        // Only a part may be renamed, whatever the checkpoint says.
        prepared
            .filter(|part| is_part(&part.name) && part.hidden == hidden(&part.name))
            .ok_or_else(|| unreadable(folder, text))
    }

    /// Rejects a part whose length has changed.
    fn check_length(&self, path: &Path) -> Result<()> {
        let (Some(bytes), Ok(metadata)) = (self.bytes, path.metadata()) else {
            return Ok(());
        };
        if metadata.len() == bytes {
            return Ok(());
        }
        let reason = format!("has {} bytes, but {bytes} were written", metadata.len());
        Err(Error::new(path.display().to_string(), reason)
            .hint(HINT_GONE)
            .final_one())
    }
}

/// Makes a prepared part durable.
pub(super) fn secure(folder: &Path, prepared: &str) -> Result<()> {
    let part = Prepared::parse(folder, prepared)?;
    let named = folder.join(&part.name);
    match named.exists() {
        // Committed meanwhile.
        true => sync_file(&named)?,
        false => sync_file(&folder.join(&part.hidden))?,
    }
    sync_folder(folder)
}

/// Gives a prepared part its name. Does nothing if it already has it.
pub(super) fn commit(folder: &Path, prepared: &str) -> Result<()> {
    let part = Prepared::parse(folder, prepared)?;
    let (from, to) = (folder.join(&part.hidden), folder.join(&part.name));
    part.check_length(&from)?;
    match std::fs::rename(&from, &to) {
        Ok(()) => sync_folder(folder),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if to.exists() {
                // The process that renamed it may have died before syncing.
                return sync_folder(folder);
            }
            let reason = format!("neither it nor {} exists any longer", part.hidden);
            Err(Error::new(to.display().to_string(), reason)
                .hint(HINT_GONE)
                .final_one())
        }
        Err(error) => Err(failed(&to, "give the part its name", &error)),
    }
}

/// Commits the prepared parts, and removes the other uncommitted parts of earlier incarnations. If the query
/// starts from nothing (`prepared` is `None`), their committed parts are removed too.
pub(super) fn recover(
    folder: &Path,
    epoch: u64,
    prepared: Option<&[String]>,
    overwrites: bool,
) -> Result<()> {
    for prepared in prepared.unwrap_or_default() {
        commit(folder, prepared)?;
    }
    let is_old = |part: Option<PartName>| part.is_some_and(|part| part.epoch < epoch);
    // This comes first: a part without its hidden file can't be committed any more.
    remove_where(folder, |_, name| is_old(hidden_part(name)))?;
    if prepared.is_none() && overwrites {
        remove_where(folder, |_, name| is_old(PartName::parse(name)))?;
    }
    Ok(())
}

/// Writes the parts of one instance.
pub(super) struct PartSink {
    format: FileFormat,
    schema: SchemaRef,
    folder: PathBuf,
    /// The name of the part that is being written, or will be next.
    name: PartName,
    /// Whether this sink removes the parts of earlier queries without checkpoints.
    clears: bool,
    part: Option<Part>,
}

/// The part that is being written.
struct Part {
    encoder: FileEncoder,
    output: Output,
}

impl PartSink {
    pub(super) fn new(
        format: &FileFormat,
        schema: &SchemaRef,
        folder: &Path,
        name: PartName,
        clears: bool,
    ) -> PartSink {
        PartSink {
            format: format.clone(),
            schema: schema.clone(),
            folder: folder.to_path_buf(),
            name,
            clears,
            part: None,
        }
    }

    fn begin_part(&self) -> Result<Part> {
        let path = self.folder.join(hidden(&self.name.to_string()));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(|error| failed(&path, "create the part", &error))?;
        Ok(Part {
            encoder: FileEncoder::new(&self.format, &self.schema),
            output: Output::new(file, 0, &path, None),
        })
    }
}

impl Sink for PartSink {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| failed(&self.folder, "create the folder", &error))?;
        sync_folder(folder_of(&self.folder))?;
        if self.clears {
            remove_where(&self.folder, |_, name| plain_part(name).is_some())?;
        }
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        let mut part = match self.part.take() {
            Some(part) => part,
            None => self.begin_part()?,
        };
        let place = self.folder.display().to_string();
        part.encoder
            .encode(chunk, &mut part.output.buffer)
            .map_err(|error| error.at(&place))?;
        let written = part.output.write_full();
        self.part = Some(part);
        written
    }

    fn flush(&mut self) -> Result<()> {
        let part = self.part.as_mut();
        part.map_or(Ok(()), |part| part.output.write_out())
    }

    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        let Some(mut part) = self.part.take() else {
            return Ok(None);
        };
        let place = self.folder.display().to_string();
        let ended = part.encoder.finish(&mut part.output.buffer);
        ended.map_err(|error| error.at(&place))?;
        part.output.end()?;
        let name = self.name.to_string();
        self.name.number += 1;
        let prepared = Prepared {
            hidden: hidden(&name),
            name,
            bytes: Some(part.output.length()),
        };
        let text = serde_json::to_string(&prepared);
        let text = text.map_err(|error| Error::new(prepared.name, error.to_string()))?;
        Ok(Some(text))
    }

    /// Rows that were not prepared are written again by the incarnation that resumes from the last
    /// checkpoint.
    fn finish(&mut self, _complete: bool) -> Result<()> {
        let left = self.part.take();
        if left.is_some() {
            // Prepared parts stay: a stored checkpoint may contain them.
            let path = self.folder.join(hidden(&self.name.to_string()));
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ours_or_others() {
        let name = PartName {
            instance: 3,
            epoch: 12,
            number: 0,
            extension: "json",
        };
        let text = name.to_string();
        assert_eq!(text, "part-00003-0000000012-0000000000.json");
        assert_eq!(PartName::parse(&text), Some(name));
        assert!(is_hidden_part(&hidden(&text)) && !is_hidden_part(&text));
        let next = PartName { number: 10, ..name };
        assert!(text < next.to_string());
        for other in [
            "part-3-12-0.json",
            "part-00003-0000000012-0000000000.txt",
            "part-00003-0000000012.json",
            "part-0.csv",
            ".part-0.csv.tmp",
            "part-00003-0000000012-0000000000-1.json",
        ] {
            assert!(!is_part(other) && !is_hidden_part(other), "{other}");
        }
        assert_eq!(plain_part("part-7.csv"), Some(7));
        assert_eq!(plain_part(&text), None);
    }
}
