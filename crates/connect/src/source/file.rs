//! The file source: one file or all files of a glob, plain or compressed, as fast as possible or paced.
//!
//! Each file is a partition, numbered in the order of the names. An instance reads its files in turn, one
//! chunk each, so that their event times advance together; if each file is a unit of work, it reads them one
//! after the other. Files are read with `read`, never mapped: a file that is truncated while it is read ends
//! early instead of causing a signal, and memory use is visible.
//!
//! Rows that were read before an error (truncated gzip) are passed on first.
//!
//! Its bookmarks are [`Mark`]s as JSON: a restored query seeks in plain files. A compressed file does not
//! support seeking: it is read again from its beginning, at full speed as far as it was read before. A file
//! of columns needs no bookmark: it is opened at the number of the first row that was not read.

mod contents;
pub(crate) mod found;
mod opening;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Helped, Resume, Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
    SourceRows,
};
use slackwater_engine::time::now_ns;

use super::source_rows;
use crate::block::{BlockPool, FILE_BLOCK_BYTES};
use crate::file_format::FileFormat;
use crate::lines::Mark;
use crate::options::{OptionError, Options, Rate};
use crate::pacer::Pacer;
use crate::packing::Packing;
use crate::parsers::Parsers;
use crate::table::{Findings, TableDefinition, settings};
use contents::Contents;
use found::{FILES_MAX, FoundFile};

/// Memory for the blocks of all files of a table: with 1,000 files, 64 KiB each.
const BLOCKS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A table that is read from files.
#[derive(Debug)]
pub(crate) struct FileConnector {
    schema: SchemaRef,
    format: FileFormat,
    files: Arc<[FoundFile]>,
    /// Whether the files were found by others, so that each is read up to the length that it had there.
    is_told: bool,
    /// Whether the files will be found later.
    is_later: bool,
    /// Whether each host reads its own files.
    per_host: bool,
    rate: Option<Rate>,
    /// Shared by the instances of this process.
    pacer: OnceLock<Arc<Pacer>>,
    unit_of_work_file: bool,
}

impl FileConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: FileFormat,
    ) -> std::result::Result<FileConnector, OptionError> {
        let pattern = options.required("path", "flights.csv")?;
        let rate = options.rate("replay_rate")?;
        let settings = settings(options)?;
        let files = match &table.findings {
            Findings::Told(findings) => found::told(findings)?,
            Findings::Look => found::here(pattern)?,
            Findings::Later => Vec::new(),
        };
        if let FileFormat::Columns(_) = &format
            && let Some(packed) = files.iter().find(|file| Packing::of(&file.path).is_some())
        {
            let reason = format!("{} is compressed as a whole", packed.path.display());
            let hint = "a file of columns is compressed inside: unpack it, or name other files";
            return Err(OptionError::new("path", reason, hint));
        }
        Ok(FileConnector {
            schema: Arc::clone(&table.schema),
            format,
            files: files.into(),
            is_told: matches!(table.findings, Findings::Told(_)),
            is_later: table.findings == Findings::Later,
            per_host: settings.per_host,
            rate,
            pacer: OnceLock::new(),
            unit_of_work_file: settings.unit_of_work_file,
        })
    }

    /// The files of an instance.
    fn files_of(&self, instance: usize, instances: usize) -> Result<Vec<u32>> {
        let spread = found::spread(&self.files);
        if !spread.is_empty() {
            let own = spread.partitions_of(instance, instances);
            let own = own.ok_or_else(|| {
                let reason = format!("{instances} instances can't read the files of more hosts");
                Error::new("file", reason).final_one()
            })?;
            return Ok(own.into_iter().map(|file| file as u32).collect());
        }
        let all = 0..self.files.len();
        let own = all.filter(|file| file % instances.max(1) == instance);
        Ok(own.map(|file| file as u32).collect())
    }

    /// What paces the instances of this process: they get the share of the rate that their files have of the
    /// bytes of all files that were not read to their end.
    fn pacer(&self, request: &SourceRequest) -> Result<Option<Arc<Pacer>>> {
        let Some(rate) = self.rate else {
            return Ok(None);
        };
        let ended = request.resume.iter().filter(|known| known.ended);
        let ended = ended.map(|known| &known.name);
        let ended = ended.collect::<std::collections::HashSet<&String>>();
        let bytes = |files: Vec<u32>| {
            let files = files.iter().map(|&file| &self.files[file as usize]);
            let open = files.filter(|file| !ended.contains(&file.name()));
            open.map(|file| file.bytes).sum::<u64>()
        };
        let (mut own, mut all) = (0, 0);
        for instance in 0..request.instances.max(1) {
            let read = bytes(self.files_of(instance, request.instances)?);
            all += read;
            if request.here.contains(&instance) {
                own += read;
            }
        }
        let pacer = || Arc::new(Pacer::new(rate.share(own, all)));
        Ok(Some(Arc::clone(self.pacer.get_or_init(pacer))))
    }
}

impl SourceConnector for FileConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "file".into(),
            max_instances: match (self.unit_of_work_file, self.is_later) {
                (true, _) => 1,
                (false, true) => FILES_MAX,
                (false, false) => self.files.len(),
            },
            partitions: (!self.is_later).then(|| self.files.iter().map(FoundFile::name).collect()),
            spread: found::spread(&self.files),
            bounded: true,
            parsers: matches!(self.format, FileFormat::Lines(_)),
            redelivers: false,
            keeps_positions: false,
            ends_with_peer: false,
            transient_partitions: false,
            replayable: true,
            total_bytes: (!self.is_later).then(|| self.files.iter().map(|file| file.bytes).sum()),
            rows_per_s: self.rate.map(|rate| rate.rows_per_s()),
        }
    }

    fn files(&self) -> Option<Vec<(PathBuf, u64)>> {
        let files = self.files.iter();
        let is_here = !self.is_told && !self.is_later;
        is_here.then(|| files.map(|file| (file.path.clone(), file.bytes)).collect())
    }

    fn findings(&self) -> Option<String> {
        // Paths that are not UTF-8 can't be written; then each process looks.
        found::text(&self.files)
    }

    fn check_resume(&self, resume: &[Resume]) -> Result<()> {
        opening::check_hosts(&self.files, self.per_host, resume)?;
        opening::check_all_there(&self.files, resume, self.format.unit())
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        if self.is_later {
            return Err(Error::new("file", "no host was asked for its files").final_one());
        }
        self.check_resume(&request.resume)?;
        let share = BLOCKS_BYTES_MAX / self.files.len();
        let block_bytes = share.min(FILE_BLOCK_BYTES);
        let parsers = match request.parsers {
            0 | 1 => None,
            parsers => Some(Parsers::new(parsers - 1)),
        };
        Ok(Box::new(FileSource {
            schema: Arc::clone(&self.schema),
            format: self.format.clone(),
            files: Arc::clone(&self.files),
            is_told: self.is_told,
            own: self.files_of(request.instance, request.instances)?,
            pacer: self.pacer(&request)?,
            pool: BlockPool::new(block_bytes),
            parsers,
            request,
            waiting: vec![],
            reading: vec![],
            turn: 0,
            held: None,
            events: VecDeque::new(),
        }))
    }
}

/// A file that is being read.
struct OpenFile {
    partition: u32,
    /// The partition's name.
    name: String,
    path: PathBuf,
    contents: Contents,
    /// Rows before this position were read before the query was restored.
    first_new: u64,
    /// The position after the rows that were read.
    next: u64,
    /// When the bytes were read that the next rows come from.
    ingest_ns: u64,
}

struct FileSource {
    schema: SchemaRef,
    format: FileFormat,
    files: Arc<[FoundFile]>,
    /// Whether each file is read up to the length with which it was found.
    is_told: bool,
    /// The files of this instance.
    own: Vec<u32>,
    pacer: Option<Arc<Pacer>>,
    pool: Arc<BlockPool>,
    /// Threads that help to parse lines.
    parsers: Option<Parsers>,
    request: SourceRequest,
    /// Files that are read later, the next one last (if each file is a unit of work).
    waiting: Vec<u32>,
    reading: Vec<OpenFile>,
    turn: usize,
    /// Paced rows that are not due yet.
    held: Option<Held>,
    /// Events that are reported before the next rows.
    events: VecDeque<SourcePoll>,
}

/// Paced rows that are not due yet.
struct Held {
    due_ns: u64,
    rows: SourceRows,
    /// The position in their file before them.
    before: Mark,
}

impl FileSource {
    fn rows_max(&self) -> usize {
        let chunk_rows = self.request.tuning.chunk_rows();
        let file = &self.reading[self.turn];
        let next = file.next.max(file.contents.mark().line);
        let known = file.first_new.saturating_sub(next);
        match &self.pacer {
            // Each record takes at least one line: so a chunk has either known rows or rows to pace, unless
            // records have several lines.
            Some(_) if known > 0 => chunk_rows.min(usize::try_from(known).unwrap_or(usize::MAX)),
            Some(pacer) => pacer.rows_max(self.request.tuning.linger_ns(), chunk_rows, now_ns()),
            None => chunk_rows,
        }
    }

    /// The next chunk of the file whose turn it is, and the position before it; `None` at the end of the
    /// file.
    fn next_rows(&mut self) -> Result<Poll<Option<(SourceRows, Mark)>>> {
        let rows_max = self.rows_max();
        let parsers = (self.parsers.as_ref(), self.reading.len());
        let file = &mut self.reading[self.turn];
        let before = file.contents.mark();
        let ingest_ns = &mut file.ingest_ns;
        let rows = file
            .contents
            .rows(rows_max, &file.path, ingest_ns, parsers)?;
        Ok(rows.map(|rows| {
            let rows = source_rows(rows?, file.partition, *ingest_ns);
            file.next = rows.end().unwrap_or(file.next);
            Some((rows, before))
        }))
    }

    /// Passes rows on now, or holds them until they are due.
    fn hand_out(&mut self, mut rows: SourceRows, before: Mark, first_new: u64) -> SourcePoll {
        let positions = (0..rows.batch.num_rows()).rev();
        let new_rows = positions.take_while(|&row| rows.positions.at(row) >= first_new);
        let new_rows = new_rows.count();
        let Some(pacer) = self.pacer.as_ref().filter(|_| new_rows > 0) else {
            return SourcePoll::Rows(rows);
        };
        let now_ns = now_ns();
        let due = pacer.take(new_rows, now_ns);
        rows.ingest_ns = due.first_ns;
        if due.last_ns <= now_ns {
            return SourcePoll::Rows(rows);
        }
        self.held = Some(Held {
            due_ns: due.last_ns,
            rows,
            before,
        });
        SourcePoll::NotBefore {
            time_ns: due.last_ns,
        }
    }

    /// The file whose turn it is has ended.
    fn end_file(&mut self) -> Result<SourcePoll> {
        let file = self.reading.remove(self.turn);
        file.check_was_whole(self.format.unit())?;
        if self.turn >= self.reading.len() {
            self.turn = 0;
        }
        if self.request.unit_per_partition {
            self.events.push_back(SourcePoll::EndOfWork);
            if let Some(next) = self.open_next()? {
                let name = next.name.clone();
                self.events.push_back(SourcePoll::PartitionStarted {
                    partition: next.partition,
                    name,
                });
                self.reading.push(next);
            }
        }
        Ok(SourcePoll::PartitionEnded {
            partition: file.partition,
        })
    }
}

impl Source for FileSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if let Some(parsers) = &mut self.parsers {
            parsers.wakes(waiter.waker());
        }
        let mine = std::mem::take(&mut self.own);
        let files = Arc::clone(&self.files);
        let name = |partition: u32| files[partition as usize].name();
        if self.request.unit_per_partition {
            self.waiting = mine.into_iter().rev().collect();
            let first = self.open_next()?;
            self.reading.extend(first);
            let opened = self.reading.iter().map(|file| file.partition);
            return Ok(opened.map(|file| (file, name(file))).collect());
        }
        let named = mine.iter().map(|&file| (file, name(file))).collect();
        for partition in mine {
            match self.open_file(partition)? {
                Some(file) => self.reading.push(file),
                None => self
                    .events
                    .push_back(SourcePoll::PartitionEnded { partition }),
            }
        }
        Ok(named)
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        if let Some(held) = self.held.take() {
            let due_ns = held.due_ns;
            if now_ns() < due_ns {
                self.held = Some(held);
                return Ok(SourcePoll::NotBefore { time_ns: due_ns });
            }
            return Ok(SourcePoll::Rows(held.rows));
        }
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        if self.reading.is_empty() {
            return Ok(SourcePoll::End);
        }
        let first_new = self.reading[self.turn].first_new;
        match self.next_rows()? {
            Poll::Pending => Ok(SourcePoll::Pending),
            Poll::Ready(None) => self.end_file(),
            Poll::Ready(Some((rows, before))) => {
                self.turn = (self.turn + 1) % self.reading.len();
                Ok(self.hand_out(rows, before, first_new))
            }
        }
    }

    fn bookmark(&mut self, partition: u32) -> Option<String> {
        let mut files = self.reading.iter();
        let file =
            files.find(|file| file.partition == partition && file.contents.is_sought_by_mark())?;
        let mark = match &self.held {
            Some(held) if held.rows.partition == partition => held.before,
            _ => file.contents.mark(),
        };
        serde_json::to_string(&mark).ok()
    }

    fn take_helped(&mut self) -> Helped {
        let taken = self.reading.iter_mut();
        let helped_ns = taken.map(|file| match &mut file.contents {
            Contents::Blocks(blocks, _) => blocks.take_helped_ns(),
            Contents::Lines(_) | Contents::Columns(_) => 0,
        });
        Helped {
            threads: self.parsers.as_ref().map_or(0, Parsers::started),
            busy_ns: helped_ns.sum(),
        }
    }

    fn close(&mut self) {
        self.reading.clear();
        self.held = None;
        self.parsers = None;
    }
}
