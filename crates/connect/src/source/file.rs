//! The file source: one file or all files of a glob, plain or gzip, as fast as possible or paced.
//!
//! Each file is a partition, numbered in the order of the names. An instance reads its files in
//! turn, a chunk each, so that their event times advance together; with a unit of work per file it
//! reads them one after the other. Files are read with `read`, never mapped: a file that is cut
//! short while it is read is an end, not a signal, and memory use is honest.
//!
//! What was read before an error (truncated gzip) is handed on first.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_schema::SchemaRef;
use flate2::read::MultiGzDecoder;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest, SourceRows,
};
use slackwater_engine::time::now_ns;

use super::source_rows;
use crate::block::{BlockPool, FILE_BLOCK_BYTES};
use crate::format::Format;
use crate::lines::RecordReader;
use crate::options::{OptionError, Options};
use crate::pacer::Pacer;
use crate::table::{TableDefinition, table_settings};

/// Options beside those of every source and of the format.
pub(crate) const OPTIONS: &[&str] = &["format", "path", "replay_rate"];

/// Files that one table may have: all are open at once, and the usual limit is 1,024 descriptors.
const FILES_MAX: usize = 1_000;

/// Memory for the blocks of all files of a table: with 1,000 files, 64 KiB each.
const BLOCKS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A file as it was found when the table was made.
#[derive(Debug, Clone)]
struct FoundFile {
    path: PathBuf,
    bytes: u64,
}

/// A table that is read from files.
#[derive(Debug)]
pub(crate) struct FileConnector {
    schema: SchemaRef,
    format: Format,
    files: Arc<[FoundFile]>,
    pacer: Option<Arc<Pacer>>,
    unit_of_work_file: bool,
}

impl FileConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<FileConnector, OptionError> {
        let pattern = options.required("path", "flights.csv")?;
        let rate = options.rate("replay_rate")?;
        Ok(FileConnector {
            schema: Arc::clone(&table.schema),
            format,
            files: find(pattern)?.into(),
            pacer: rate.map(|rate| Arc::new(Pacer::new(rate))),
            unit_of_work_file: table_settings(table)?.unit_of_work_file,
        })
    }
}

/// The files that a path or pattern names, sorted.
fn find(pattern: &str) -> std::result::Result<Vec<FoundFile>, OptionError> {
    let literal = Path::new(pattern);
    let is_pattern = pattern.contains(['*', '?', '[']);
    if !is_pattern || literal.exists() {
        return Ok(vec![look(literal)?]);
    }
    let paths = glob::glob(pattern).map_err(|error| {
        let reason = format!("'{pattern}' is no pattern: {}", error.msg);
        OptionError::new(
            "path",
            reason,
            "write * for any characters, ? for one, [ab] for a choice",
        )
    })?;
    let mut files = vec![];
    for path in paths {
        let path = path.map_err(|error| {
            let reason = format!(
                "can't read folder {}: {}",
                error.path().display(),
                error.error()
            );
            OptionError::new("path", reason, "check its permissions")
        })?;
        if !path.is_dir() {
            files.push(look(&path)?);
        }
        if files.len() > FILES_MAX {
            let reason = format!("'{pattern}' matches more than {FILES_MAX} files");
            let mend = "each file is a partition that is open all the time; join the files, or read fewer at a time";
            return Err(OptionError::new("path", reason, mend));
        }
    }
    if files.is_empty() {
        let folder = std::env::current_dir().unwrap_or_default();
        let reason = format!("no file matches '{pattern}'");
        let mend = format!("relative paths begin in {}", folder.display());
        return Err(OptionError::new("path", reason, mend));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn look(path: &Path) -> std::result::Result<FoundFile, OptionError> {
    let shown = path.display();
    let metadata = path.metadata().map_err(|error| {
        let mend = if error.kind() == ErrorKind::NotFound && path.is_relative() {
            let folder = std::env::current_dir().unwrap_or_default();
            format!("relative paths begin in {}", folder.display())
        } else {
            "check the path and its permissions".to_string()
        };
        OptionError::new("path", format!("can't find {shown}: {error}"), mend)
    })?;
    if metadata.is_dir() {
        let mend = format!(
            "write '{}/*' to read all files in it",
            shown.to_string().trim_end_matches('/')
        );
        return Err(OptionError::new(
            "path",
            format!("{shown} is a folder"),
            mend,
        ));
    }
    if !metadata.is_file() {
        return Err(OptionError::new(
            "path",
            format!("{shown} is no regular file"),
            "read pipes with 'connector' = 'stdin'",
        ));
    }
    Ok(FoundFile {
        path: path.to_path_buf(),
        bytes: metadata.len(),
    })
}

impl SourceConnector for FileConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "file".into(),
            max_instances: if self.unit_of_work_file {
                1
            } else {
                self.files.len()
            },
            bounded: true,
            replayable: true,
            total_bytes: Some(self.files.iter().map(|file| file.bytes).sum()),
            rows_per_s: self.pacer.as_ref().map(|pacer| pacer.rows_per_s()),
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        let share = BLOCKS_BYTES_MAX / self.files.len();
        let block_bytes = share.min(FILE_BLOCK_BYTES);
        Ok(Box::new(FileSource {
            schema: Arc::clone(&self.schema),
            format: self.format.clone(),
            files: Arc::clone(&self.files),
            pacer: self.pacer.clone(),
            pool: BlockPool::new(block_bytes),
            request,
            waiting: vec![],
            reading: vec![],
            turn: 0,
            held: None,
            events: std::collections::VecDeque::new(),
        }))
    }
}

/// A file that is being read.
struct OpenFile {
    partition: u32,
    path: PathBuf,
    input: Box<dyn Read + Send>,
    records: RecordReader,
    /// When the bytes were read that the next rows come from.
    ingest_ns: u64,
    ended: bool,
    /// Reading failed; told after the rows that came before.
    failure: Option<std::io::Error>,
}

struct FileSource {
    schema: SchemaRef,
    format: Format,
    files: Arc<[FoundFile]>,
    pacer: Option<Arc<Pacer>>,
    pool: Arc<BlockPool>,
    request: SourceRequest,
    /// Files that are read later, the next one last (a unit of work per file).
    waiting: Vec<u32>,
    reading: Vec<OpenFile>,
    turn: usize,
    /// Paced rows and when they are due.
    held: Option<(u64, SourceRows)>,
    /// What else is to be told before the next rows.
    events: std::collections::VecDeque<SourcePoll>,
}

/// Counts what is read from the file itself, before it is unpacked.
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

fn name_of(path: &Path) -> String {
    path.display().to_string()
}

impl FileSource {
    fn open_file(&self, partition: u32) -> Result<OpenFile> {
        let path = self.files[partition as usize].path.clone();
        let file = File::open(&path).map_err(|error| {
            Error::new(name_of(&path), format!("can't open the file: {error}"))
                .mend("check the path and its permissions")
        })?;
        let counted = Counted {
            file,
            bytes_read: Arc::clone(&self.request.bytes_read),
        };
        let is_gzip = path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let input: Box<dyn Read + Send> = if is_gzip {
            Box::new(MultiGzDecoder::new(counted))
        } else {
            Box::new(counted)
        };
        let decoder = self.format.decoder(&self.schema, &self.request.projection);
        Ok(OpenFile {
            partition,
            path,
            input,
            records: RecordReader::new(decoder, &self.pool),
            ingest_ns: 0,
            ended: false,
            failure: None,
        })
    }

    fn rows_max(&self) -> usize {
        let chunk_rows = self.request.tuning.chunk_rows();
        match &self.pacer {
            None => chunk_rows,
            Some(pacer) => pacer.rows_max(self.request.tuning.linger_ns(), chunk_rows, now_ns()),
        }
    }

    /// The next chunk of the file whose turn it is; `None` when the file has ended.
    fn next_rows(&mut self) -> Result<Option<SourceRows>> {
        let rows_max = self.rows_max();
        let file = &mut self.reading[self.turn];
        loop {
            if let Some(rows) = file.records.rows(rows_max) {
                return Ok(Some(source_rows(rows, file.partition, file.ingest_ns)));
            }
            if let Some(failure) = file.failure.take() {
                return Err(file.read_error(&failure));
            }
            if file.ended {
                return Ok(None);
            }
            file.read();
        }
    }

    /// Rows go out now, or are held until they are due.
    fn hand_out(&mut self, mut rows: SourceRows) -> SourcePoll {
        let Some(pacer) = self.pacer.as_ref().filter(|_| rows.batch.num_rows() > 0) else {
            return SourcePoll::Rows(rows);
        };
        let now_ns = now_ns();
        let due = pacer.take(rows.batch.num_rows(), now_ns);
        rows.ingest_ns = due.first_ns;
        if due.last_ns <= now_ns {
            return SourcePoll::Rows(rows);
        }
        self.held = Some((due.last_ns, rows));
        SourcePoll::NotBefore {
            time_ns: due.last_ns,
        }
    }

    /// The file whose turn it is has ended.
    fn end_file(&mut self) -> Result<SourcePoll> {
        let file = self.reading.remove(self.turn);
        if self.turn >= self.reading.len() {
            self.turn = 0;
        }
        if self.request.unit_per_partition {
            self.events.push_back(SourcePoll::EndOfWork);
            if let Some(next) = self.waiting.pop() {
                let next = self.open_file(next)?;
                let name = name_of(&next.path);
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

impl OpenFile {
    fn read(&mut self) {
        match self.input.read(self.records.room()) {
            Ok(0) => {
                self.ended = true;
                self.records.end();
            }
            Ok(bytes) => self.records.filled_uncounted(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.failure = Some(error),
        }
        self.ingest_ns = now_ns();
    }

    fn read_error(&self, failure: &std::io::Error) -> Error {
        let lines = self.records.lines_read();
        let place = format!("{}:{lines}", self.path.display());
        if failure.kind() == ErrorKind::UnexpectedEof {
            return Error::new(
                place,
                format!("the gzip data breaks off after line {lines}"),
            )
            .mend("the file was truncated: fetch it again");
        }
        Error::new(
            place,
            format!("can't read on after line {lines}: {failure}"),
        )
    }
}

impl Source for FileSource {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        let (instance, instances) = (self.request.instance, self.request.instances.max(1));
        let mut mine = (0..self.files.len() as u32)
            .filter(|partition| *partition as usize % instances == instance)
            .collect::<Vec<_>>();
        if self.request.unit_per_partition {
            mine.reverse();
            self.waiting = mine;
            mine = self.waiting.pop().into_iter().collect();
        }
        for partition in mine {
            let file = self.open_file(partition)?;
            self.reading.push(file);
        }
        Ok(self
            .reading
            .iter()
            .map(|file| (file.partition, name_of(&file.path)))
            .collect())
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        if let Some((due_ns, rows)) = self.held.take() {
            if now_ns() < due_ns {
                self.held = Some((due_ns, rows));
                return Ok(SourcePoll::NotBefore { time_ns: due_ns });
            }
            return Ok(SourcePoll::Rows(rows));
        }
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        if self.reading.is_empty() {
            return Ok(SourcePoll::End);
        }
        match self.next_rows()? {
            None => self.end_file(),
            Some(rows) => {
                self.turn = (self.turn + 1) % self.reading.len();
                Ok(self.hand_out(rows))
            }
        }
    }

    fn close(&mut self) {
        self.reading.clear();
        self.held = None;
    }
}
