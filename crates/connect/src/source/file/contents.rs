//! The contents of a file: lines of text, or columns.
//!
//! Where there are several threads, lines are read in blocks.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::task::Poll;

use slackwater_engine::error::{Error, Result};
use slackwater_engine::time::now_ns;

use crate::columns::ColumnReader;
use crate::format::DecodedRows;
use crate::lines::{Mark, RecordReader};
use crate::packing::{self, Packing};
use crate::parsers::{BlockReader, Parsers};

/// The contents of a file, as far as they were read.
// One for each open file: a box for the usual kind would save nothing.
#[allow(clippy::large_enum_variant)]
pub(super) enum Contents {
    Lines(Lines),
    Blocks(BlockReader, Option<Packing>),
    Columns(Box<ColumnReader>),
}

impl Contents {
    /// The position after all that was read.
    pub(super) fn mark(&self) -> Mark {
        match self {
            Contents::Lines(lines) => lines.records.mark(),
            Contents::Blocks(blocks, _) => blocks.mark(),
            Contents::Columns(columns) => Mark {
                offset: 0,
                line: columns.next(),
                header: false,
                skipping: false,
            },
        }
    }

    /// Whether a mark is needed to resume.
    pub(super) fn is_sought_by_mark(&self) -> bool {
        match self {
            Contents::Lines(lines) => lines.packing.is_none(),
            Contents::Blocks(_, packing) => packing.is_none(),
            Contents::Columns(_) => false,
        }
    }

    /// At most `rows_max` rows, and when they were read; `None` at the end. It is pending while `parsers`
    /// are at it, which parse for `files` files.
    pub(super) fn rows(
        &mut self,
        rows_max: usize,
        path: &Path,
        ingest_ns: &mut u64,
        (parsers, files): (Option<&Parsers>, usize),
    ) -> Result<Poll<Option<DecodedRows>>> {
        match (self, parsers) {
            (Contents::Lines(lines), _) => lines.rows(rows_max, path, ingest_ns).map(Poll::Ready),
            (Contents::Blocks(blocks, packing), Some(parsers)) => {
                let rows = blocks.rows(parsers, files, rows_max);
                *ingest_ns = blocks.read_ns();
                rows.map_err(|failure| read_error(path, blocks.mark().line - 1, *packing, &failure))
            }
            (Contents::Blocks(..), None) => unreachable!("blocks are read by parsers"),
            (Contents::Columns(columns), _) => {
                *ingest_ns = now_ns();
                columns.rows(rows_max).map(Poll::Ready)
            }
        }
    }
}

/// Lines of text.
pub(super) struct Lines {
    input: Box<dyn Read + Send>,
    /// Whether the file is compressed, so that seeking is not supported.
    packing: Option<Packing>,
    records: RecordReader,
    ended: bool,
    /// The error, reported after the rows before it.
    failure: Option<std::io::Error>,
}

impl Lines {
    pub(super) fn new(
        input: Box<dyn Read + Send>,
        packing: Option<Packing>,
        records: RecordReader,
    ) -> Lines {
        Lines {
            input,
            packing,
            records,
            ended: false,
            failure: None,
        }
    }

    /// An empty compressed file: zstd would accept it as complete.
    pub(super) fn cut_to_nothing(mut self) -> Lines {
        self.failure = Some(ErrorKind::UnexpectedEof.into());
        self
    }

    fn rows(
        &mut self,
        rows_max: usize,
        path: &Path,
        ingest_ns: &mut u64,
    ) -> Result<Option<DecodedRows>> {
        loop {
            if let Some(rows) = self.records.rows(rows_max) {
                return Ok(Some(rows));
            }
            if let Some(failure) = self.failure.take() {
                let lines = self.records.lines_read();
                return Err(read_error(path, lines, self.packing, &failure));
            }
            if self.ended {
                return Ok(None);
            }
            self.read();
            *ingest_ns = now_ns();
        }
    }

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
    }
}

/// The error of a file that can't be read on after `lines` lines.
fn read_error(
    path: &Path,
    lines: u64,
    packing: Option<Packing>,
    failure: &std::io::Error,
) -> Error {
    let place = format!("{}:{lines}", path.display());
    if let Some(packing) = packing
        && failure.kind() == ErrorKind::UnexpectedEof
    {
        let name = packing.name();
        let reason = format!("the {name} data ends early, after line {lines}");
        return Error::new(place, reason)
            .hint("the file was truncated: fetch it again")
            .final_one();
    }
    if packing::is_behind_the_end(failure) {
        let reason =
            format!("the gzip data ends after line {lines}, and something else follows it");
        return Error::new(place, reason).hint("cut it off: what precedes it is complete");
    }
    let reason = format!("can't read on after line {lines}: {failure}");
    let error = Error::new(place, reason);
    // An error of the system may pass; the contents of the file won't change.
    match packing.filter(|_| failure.raw_os_error().is_none()) {
        None => error.hint("check the file and its disk"),
        Some(packing) => {
            let name = packing.name();
            let hint =
                format!("the file may be damaged, or not {name}: fetch it again, or rename it");
            error.hint(hint).final_one()
        }
    }
}
