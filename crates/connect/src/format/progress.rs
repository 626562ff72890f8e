//! The output that every decoder collects while it reads a block: rows, their positions, and rejected
//! records.

use arrow_array::UInt64Array;
use slackwater_engine::chunk::Positions;
use slackwater_engine::format::RecordDecoder;
use slackwater_engine::source::{REJECTED_RECORD_BYTES_MAX, Rejected};

use super::cells::Records;

/// A longer record is rejected and skipped: 16 MiB is far beyond any sensible line, and bounds what
/// one partition can hold in memory while it looks for the end of a record.
pub(crate) const RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a decoder stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The decoder has as many rows as were requested.
    Full,
    /// The rest of the block is the beginning of a record, or empty.
    Incomplete,
    /// The next record is longer than [`RECORD_BYTES_MAX`].
    TooLong,
}

/// Rows and rejections so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) records: Records,
    pub(crate) rejected: Vec<Rejected>,
    /// Number of the line that comes next, from 1.
    pub(crate) line: u64,
    rows: usize,
    rows_max: usize,
    first: u64,
    /// The positions, once they are no longer consecutive.
    list: Option<Vec<u64>>,
    /// The header, once it was read.
    pub(crate) header: Option<Vec<u8>>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            line: 1,
            ..Progress::default()
        }
    }

    pub(crate) fn begin(&mut self, rows_max: usize) {
        debug_assert!(rows_max > 0);
        self.records.clear();
        self.rejected.clear();
        self.rows = 0;
        self.rows_max = rows_max;
        self.list = None;
    }

    /// Continues with a message of a queue, whose number is its position and which holds one record.
    pub(crate) fn begin_message(&mut self, number: u64) {
        self.line = number;
        self.rows_max = self.rows + self.rejected.len() + 1;
    }

    /// Rejected records count too, so that a block full of them is bounded.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.rows + self.rejected.len() >= self.rows_max
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The record at `start..end`, which began on the current line, is a row.
    #[inline(always)]
    pub(crate) fn accept(&mut self, start: usize, end: usize) {
        self.records.bounds.push((start as u32, end as u32));
        if self.rows == 0 {
            self.first = self.line;
        } else if self.list.is_some() || self.first + self.rows as u64 != self.line {
            self.accept_after_gap();
        }
        self.rows += 1;
    }

    /// Makes the positions a list: a line that was not a row interrupts the run.
    #[inline(never)]
    fn accept_after_gap(&mut self) {
        let run = self.first..self.first + self.rows as u64;
        self.list
            .get_or_insert_with(|| run.collect())
            .push(self.line);
    }

    /// The record that began on the current line is rejected.
    #[cold]
    pub(crate) fn reject(&mut self, record: &[u8], reason: impl Into<String>) {
        self.rejected
            .push(rejected(self.line, record, reason.into()));
    }

    /// Reads the record `block[start..end]`, which began on the current line, with a decoder that the program
    /// brings.
    pub(crate) fn decode_own(
        &mut self,
        decoder: &mut dyn RecordDecoder,
        block: &[u8],
        (start, end): (usize, usize),
    ) {
        match decoder.decode(&block[start..end]) {
            Ok(rows) => (0..rows).for_each(|_| self.accept(start, end)),
            Err(reason) => self.reject(&block[start..end], reason),
        }
    }

    /// The positions of the rows.
    pub(crate) fn positions(&mut self) -> Positions {
        match self.list.take() {
            None => Positions::Run { first: self.first },
            Some(list) => Positions::List(UInt64Array::from(list)),
        }
    }
}

/// A rejected record; its partition is filled in by the source.
pub(crate) fn rejected(position: u64, record: &[u8], reason: String) -> Rejected {
    let kept = &record[..record.len().min(REJECTED_RECORD_BYTES_MAX)];
    Rejected {
        partition: None,
        position: Some(position),
        reason,
        record: String::from_utf8_lossy(kept).into_owned(),
    }
}

/// The bounds of a line without its line end, and where the next one begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) next: usize,
}

impl Line {
    /// The line of `block` from `start` on, or why there is none.
    #[inline]
    pub(crate) fn find(block: &[u8], start: usize, last: bool) -> Result<Line, Stop> {
        match memchr::memchr(b'\n', &block[start..]) {
            Some(length) => Line::at(block, start, start + length),
            None if block.len() - start > RECORD_BYTES_MAX => Err(Stop::TooLong),
            None if last && start < block.len() => Line::at(block, start, block.len()),
            None => Err(Stop::Incomplete),
        }
    }

    /// The line from `start` to the line end at `newline`, which may be the end of the block.
    #[inline]
    pub(crate) fn at(block: &[u8], start: usize, newline: usize) -> Result<Line, Stop> {
        if newline - start > RECORD_BYTES_MAX {
            return Err(Stop::TooLong);
        }
        Ok(Line {
            start,
            end: without_return(block, start, newline),
            next: block.len().min(newline + 1),
        })
    }
}

/// Reads the lines of `block[from..]`, calling `record` with the bounds of each one that is not empty, until
/// there are enough rows. Returns where it stopped and why.
pub(crate) fn each_line(
    block: &[u8],
    from: usize,
    last: bool,
    progress: &mut Progress,
    mut record: impl FnMut(&mut Progress, usize, usize),
) -> (usize, Stop) {
    let mut start = from;
    loop {
        let line = match Line::find(block, start, last) {
            Ok(line) => line,
            Err(stop) => return (start, stop),
        };
        if line.end > start {
            record(progress, start, line.end);
        }
        progress.line += 1;
        start = line.next;
        if progress.is_full() {
            return (start, Stop::Full);
        }
    }
}

/// The end of a record without the carriage return before its line end.
#[inline]
pub(crate) fn without_return(block: &[u8], start: usize, end: usize) -> usize {
    if end > start && block[end - 1] == b'\r' {
        end - 1
    } else {
        end
    }
}
