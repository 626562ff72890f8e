//! Opening files, at their beginning or where a restored query resumes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::source::Resume;

use super::super::count_bytes;
use super::contents::{Contents, Lines};
use super::{FileSource, FoundFile, OpenFile};
use crate::file_format::FileFormat;
use crate::format::{Format, RECORD_BYTES_MAX};
use crate::lines::{Mark, RecordReader};
use crate::packing::Packing;
use crate::parsers::BlockReader;

/// The hint for a file that is not the one that was read before.
const HINT: &str = "put the file back as it was, or start over without the checkpoints";

/// How much is read at once to find the end of a line.
const LOOK_BYTES: usize = 4 << 10;

/// Counts what is read from the file itself, before it is decompressed.
struct Counted {
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// Refuses to resume without a file that was read partially.
pub(super) fn check_all_there(files: &[FoundFile], resume: &[Resume], unit: &str) -> Result<()> {
    let names = files.iter().map(FoundFile::name);
    let names = names.collect::<std::collections::HashSet<String>>();
    match resume
        .iter()
        .find(|known| !known.ended && !names.contains(&known.name))
    {
        None => Ok(()),
        Some(gone) => {
            let read = gone.position.saturating_sub(1);
            let reason = format!("was read up to {unit} {read} and is no longer among the files");
            Err(Error::new(gone.name.clone(), reason).hint(HINT).final_one())
        }
    }
}

/// Refuses to resume without the files of a host, if each host has its own: also if what it had was read to
/// its end, because the query can't know what else it has now.
pub(super) fn check_hosts(files: &[FoundFile], per_host: bool, resume: &[Resume]) -> Result<()> {
    if !per_host {
        return Ok(());
    }
    let hosts = files.iter().filter_map(|file| file.host.as_deref());
    let hosts = hosts.collect::<std::collections::BTreeSet<&str>>();
    let paths = files.iter().filter(|file| file.host.is_none());
    let paths = paths.map(FoundFile::name);
    let paths = paths.collect::<std::collections::HashSet<String>>();
    for known in resume {
        let host = known.name.split_once(':');
        let host = host.filter(|(host, _)| !host.is_empty() && !host.contains('/'));
        let (reason, hint) = match host {
            Some((host, _)) if hosts.contains(host) => continue,
            _ if paths.contains(&known.name) => continue,
            Some((host, path)) => (
                format!("{path} was read on host {host}, and the query has no files of it now"),
                format!(
                    "start its agent again before the query (slackwater worker --name {host}), or wait \
                     longer for it: SET 'host_patience'; if this is {host}, add --here; a query that ran on \
                     several hosts needs --listen and --hosts again; or start over without the checkpoints"
                ),
            ),
            None if hosts.is_empty() => continue,
            None => (
                "was read by a query on one host, and now each host has its own files".to_string(),
                "resume on one host, without --listen, or start over without the checkpoints"
                    .to_string(),
            ),
        };
        return Err(Error::new(known.name.clone(), reason)
            .hint(hint)
            .final_one());
    }
    Ok(())
}

/// Where reading a plain file of `bytes` ends that was found with a length of `limit`: there, or after the
/// line that had begun.
fn end_of(file: &File, bytes: u64, limit: u64) -> std::io::Result<u64> {
    let mut last = [0];
    if bytes <= limit || limit == 0 {
        return Ok(limit);
    }
    file.read_exact_at(&mut last, limit - 1)?;
    if last == *b"\n" {
        return Ok(limit);
    }
    let mut block = vec![0; LOOK_BYTES];
    let mut end = limit;
    while end - limit < RECORD_BYTES_MAX as u64 {
        let length = file.read_at(&mut block, end)?;
        match memchr::memchr(b'\n', &block[..length]) {
            Some(at) => return Ok(end + at as u64 + 1),
            None if length == 0 => break,
            None => end += length as u64,
        }
    }
    Ok(end)
}

/// The mark that a bookmark holds.
fn parse(bookmark: &str) -> Option<Mark> {
    let mark = serde_json::from_str::<Mark>(bookmark).ok()?;
    // A line has at least one byte: its end.
    let is_possible = mark.line > 0 && mark.line - 1 <= mark.offset;
    is_possible.then_some(mark)
}

/// Whether a line ends right before the mark, or none needs to.
fn is_line_end(file: &File, mark: &Mark, bytes: u64) -> std::io::Result<bool> {
    if mark.line == 1 || mark.skipping || mark.offset == bytes {
        return Ok(true);
    }
    let mut before = [0];
    file.read_exact_at(&mut before, mark.offset - 1)?;
    Ok(before == *b"\n")
}

/// Seeks in a plain file.
fn seek(file: &mut File, name: &str, bookmark: &str) -> Result<Mark> {
    let place = name.to_string();
    let Some(mark) = parse(bookmark) else {
        let reason = format!("the checkpoint's bookmark of it can't be read: {bookmark}");
        return Err(Error::new(place, reason).hint("restore from another checkpoint"));
    };
    let failed = |error| Error::new(name, format!("can't seek: {error}")).hint("check the file");
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes < mark.offset {
        let reason = format!(
            "has {bytes} bytes, but {} of it were read before",
            mark.offset
        );
        return Err(Error::new(place, reason).hint(HINT).final_one());
    }
    if !is_line_end(file, &mark, bytes).map_err(failed)? {
        let reason = format!(
            "is not the file that was read before: no line ends at byte {}",
            mark.offset
        );
        return Err(Error::new(place, reason).hint(HINT).final_one());
    }
    file.seek(SeekFrom::Start(mark.offset)).map_err(failed)?;
    Ok(mark)
}

impl FileSource {
    /// The next of the waiting files, except those that were read to their end before.
    pub(super) fn open_next(&mut self) -> Result<Option<OpenFile>> {
        while let Some(next) = self.waiting.pop() {
            if let Some(file) = self.open_file(next)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// The file, at the place where reading resumes; `None` when it was read to its end before.
    pub(super) fn open_file(&self, partition: u32) -> Result<Option<OpenFile>> {
        let found = self.files[partition as usize].clone();
        let name = found.name();
        let FoundFile { path, bytes, .. } = found;
        let known = self.request.resume.iter().find(|known| known.name == name);
        let bytes_read = Arc::clone(&self.request.bytes_read);
        if known.is_some_and(|known| known.ended) {
            // Relaxed, here and below: only a statistic, which orders nothing.
            bytes_read.fetch_add(bytes, Ordering::Relaxed);
            return Ok(None);
        }
        if self.is_told {
            self.check_length(&name, &path, bytes)?;
        }
        let contents = match &self.format {
            FileFormat::Lines(format) => {
                let bookmark = known.and_then(|known| known.bookmark.as_deref());
                let limit = self.is_told.then_some(bytes);
                self.open_lines((&name, &path), limit, format, bookmark)?
            }
            FileFormat::Columns(format) => {
                let read = Arc::new(self.schema.project(&self.request.projection)?);
                let first = known.map_or(1, |known| known.position.max(1));
                Contents::Columns(Box::new(format.open(&path, &read, first, bytes_read)?))
            }
        };
        Ok(Some(OpenFile {
            partition,
            first_new: known.map_or(0, |known| known.position),
            name,
            path,
            contents,
            next: 0,
            ingest_ns: 0,
        }))
    }

    /// Rejects a file that is not the one that was found, as far as its length shows.
    fn check_length(&self, name: &str, path: &Path, bytes: u64) -> Result<()> {
        // One that can't be opened says so itself.
        let found = path.metadata().map_or(bytes, |file| file.len());
        let is_same = match self.format {
            FileFormat::Lines(_) => found >= bytes,
            // What describes its columns is at its end.
            FileFormat::Columns(_) => found == bytes,
        };
        if is_same {
            return Ok(());
        }
        let reason = format!("has {found} bytes here, and had {bytes} when the query was started");
        Err(Error::new(name, reason)
            .hint("share the folder with all hosts, or start the query again")
            .final_one())
    }

    /// Lines of text, up to `limit` bytes of the file.
    fn open_lines(
        &self,
        (name, path): (&str, &Path),
        limit: Option<u64>,
        format: &Format,
        bookmark: Option<&str>,
    ) -> Result<Contents> {
        let failed = |error: std::io::Error| {
            Error::new(name, format!("can't open the file: {error}"))
                .hint("check the path and its permissions")
        };
        let mut file = File::open(path).map_err(failed)?;
        let packing = Packing::of(path);
        let bytes_read = Arc::clone(&self.request.bytes_read);
        let make_decoder = {
            let (format, schema) = (format.clone(), Arc::clone(&self.schema));
            let (projection, tuning) = (self.request.projection.clone(), &self.request.tuning);
            let tuning = Arc::clone(tuning);
            move || format.decoder(&schema, &projection).naming_fields(&tuning)
        };
        let mark = match bookmark.filter(|_| packing.is_none()) {
            None => None,
            Some(bookmark) => Some(seek(&mut file, name, bookmark)?),
        };
        let before = mark.map_or(0, |mark| mark.offset);
        bytes_read.fetch_add(before, Ordering::Relaxed);
        let length = file.metadata().map_err(failed)?.len();
        let end = match limit {
            None => u64::MAX,
            Some(limit) if packing.is_some() => limit,
            Some(limit) => end_of(&file, length, limit).map_err(failed)?,
        };
        if packing.is_none() && self.parsers.is_some() {
            let request = self.request.clone();
            let count = Box::new(move |bytes| count_bytes(&request, bytes));
            let blocks = BlockReader::new((file, end), &self.pool, count, mark, make_decoder);
            return Ok(Contents::Blocks(blocks, None));
        }
        let is_nothing = length.min(end) == 0;
        let counted = Counted { file, bytes_read }.take(end.saturating_sub(before));
        let input: Box<dyn Read + Send> = match packing {
            Some(packing) => packing.unpack(counted).map_err(failed)?,
            None => Box::new(counted),
        };
        if self.parsers.is_some() && packing.is_some() && !is_nothing {
            let blocks = BlockReader::unpacking(input, &self.pool, make_decoder);
            return Ok(Contents::Blocks(blocks, packing));
        }
        let records = match mark {
            None => RecordReader::new(make_decoder(), &self.pool),
            Some(mark) => RecordReader::going_on(make_decoder(), &self.pool, mark),
        };
        let lines = Lines::new(input, packing, records);
        Ok(Contents::Lines(match packing.is_some() && is_nothing {
            true => lines.cut_to_nothing(),
            false => lines,
        }))
    }
}

impl OpenFile {
    /// Rejects a file that was read again and is shorter than what was read of it the first time.
    pub(super) fn check_was_whole(&self, unit: &str) -> Result<()> {
        let mark = self.contents.mark();
        // The end of a record that was too long is not a line end.
        let line = mark.line + u64::from(mark.skipping);
        if line >= self.first_new {
            return Ok(());
        }
        let (lines, read) = (line - 1, self.first_new - 1);
        let reason = format!("ends after {unit} {lines}, but was read up to {unit} {read} before");
        Err(Error::new(self.name.clone(), reason).hint(HINT).final_one())
    }
}
