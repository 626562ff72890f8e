//! Reads the rows of a partition from its bytes, however these are split into pieces.
//!
//! A [`RecordReader`] owns the block that is being filled. When there may be a complete record in it, the
//! block is sealed and decoded as far as possible, and the rest (the beginning of a record) is carried into
//! the next block. Memory: one block, or at most [`RECORD_BYTES_MAX`] and a block while a long record is
//! collected.

use std::sync::Arc;

use arrow_buffer::Buffer;
use memchr::{memchr, memchr_iter, memrchr};
use serde::{Deserialize, Serialize};
use slackwater_engine::source::Rejected;

use crate::block::{BlockPool, seal};
use crate::format::{DecodedRows, Decoder, RECORD_BYTES_MAX, Stop};

/// How far a partition was read, which is where a new reader resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Bytes of the partition before it.
    pub(crate) offset: u64,
    /// Number of the line that comes next.
    pub(crate) line: u64,
    /// The header is still to come.
    #[serde(default)]
    pub(crate) header: bool,
    /// The mark lies within a record that was rejected because it is too long.
    #[serde(default)]
    pub(crate) skipping: bool,
}

/// Whole lines, for another reader.
pub(crate) struct CutLines {
    /// The lines, and bytes that don't count.
    pub(crate) bytes: Vec<u8>,
    /// The end of the lines.
    pub(crate) end: usize,
    /// Bytes of the partition before them.
    pub(crate) offset: u64,
}

/// Reads the records of one partition.
#[derive(Debug)]
pub(crate) struct RecordReader {
    decoder: Decoder,
    pool: Arc<BlockPool>,
    /// The block that is being filled.
    block: Vec<u8>,
    filled: usize,
    /// Bytes of the partition before the block that is filled or sealed.
    base: u64,
    /// The sealed block, and how far it was read.
    sealed: Option<(Buffer, usize)>,
    /// Line ends in the bytes that arrived since the last rows.
    line_ends: usize,
    /// Whether no more bytes will come.
    ended: bool,
    /// Why no more bytes will come although the partition was not complete. An unfinished record is rejected.
    broken: Option<String>,
    /// A record that is too long is being skipped up to its line end.
    skipping: bool,
    refused: Vec<Rejected>,
}

impl RecordReader {
    pub(crate) fn new(decoder: Decoder, pool: &Arc<BlockPool>) -> RecordReader {
        RecordReader {
            decoder,
            block: pool.take(0),
            pool: Arc::clone(pool),
            filled: 0,
            base: 0,
            sealed: None,
            line_ends: 0,
            ended: false,
            broken: None,
            skipping: false,
            refused: vec![],
        }
    }

    /// A reader that resumes at `mark`: its first byte is the one there.
    pub(crate) fn going_on(
        mut decoder: Decoder,
        pool: &Arc<BlockPool>,
        mark: Mark,
    ) -> RecordReader {
        decoder.go_on(mark.line, mark.header);
        let mut reader = RecordReader::new(decoder, pool);
        reader.base = mark.offset;
        reader.skipping = mark.skipping;
        reader
    }

    /// The position after all that [`RecordReader::rows`] has given.
    pub(crate) fn mark(&self) -> Mark {
        let in_block = self.sealed.as_ref().map_or(0, |(_, at)| *at);
        Mark {
            offset: self.base + in_block as u64,
            line: self.decoder.line(),
            header: self.decoder.is_header_pending(),
            skipping: self.skipping,
        }
    }

    /// Room for more bytes; empty if [`RecordReader::rows`] must be called first.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.sealed.is_some() {
            return &mut [];
        }
        &mut self.block[self.filled..]
    }

    /// Marks the first `bytes` of the room as filled.
    pub(crate) fn filled(&mut self, bytes: usize) {
        let new = &self.block[self.filled..self.filled + bytes];
        self.line_ends += memchr_iter(b'\n', new).count();
        self.filled += bytes;
    }

    /// Marks `bytes` as filled without counting their lines, for a reader that fills whole
    /// blocks and never asks for [`RecordReader::line_ends`].
    pub(crate) fn filled_uncounted(&mut self, bytes: usize) {
        self.filled += bytes;
        self.line_ends = 1;
    }

    /// Line ends that arrived since the last rows: an upper bound for the rows that wait.
    pub(crate) fn line_ends(&self) -> usize {
        self.line_ends
    }

    /// Whether rows may be available without more bytes.
    pub(crate) fn has_rows(&self) -> bool {
        self.has_records() || (self.broken.is_some() && self.filled > 0)
    }

    fn has_records(&self) -> bool {
        self.sealed.is_some()
            || self.line_ends > 0
            || self.filled == self.block.len()
            || (self.ended && self.filled > 0)
    }

    /// The number of lines that were read to their end.
    pub(crate) fn lines_read(&self) -> u64 {
        self.decoder.line() - 1
    }

    /// Whether the block is full and nothing of it was read.
    pub(crate) fn is_block_full(&self) -> bool {
        let is_whole = self.sealed.is_none() && !self.skipping && self.broken.is_none();
        is_whole && self.filled == self.block.len()
    }

    /// Takes the lines out of a block that [is full](RecordReader::is_block_full), for another reader;
    /// `None` if no line ends in it. From now on only bytes are collected, until
    /// [`RecordReader::resume`].
    pub(crate) fn cut(&mut self) -> Option<CutLines> {
        let end = memrchr(b'\n', &self.block[..self.filled])? + 1;
        let rest = self.filled - end;
        let mut next = self.pool.take(rest);
        next[..rest].copy_from_slice(&self.block[end..self.filled]);
        let offset = self.base;
        self.filled = rest;
        self.base += end as u64;
        self.line_ends = 0;
        Some(CutLines {
            bytes: std::mem::replace(&mut self.block, next),
            end,
            offset,
        })
    }

    /// Continues with the bytes that were collected since blocks were cut, which begin at `mark`.
    pub(crate) fn resume(&mut self, mark: Mark) {
        debug_assert_eq!(self.base, mark.offset);
        self.decoder.go_on(mark.line, mark.header);
    }

    /// Continues with the bytes that `tail` has collected, which follow those of this reader.
    pub(crate) fn resume_with(&mut self, tail: RecordReader) {
        debug_assert!(self.sealed.is_none());
        debug_assert_eq!(self.base + self.filled as u64, tail.base);
        let needed = self.filled + tail.filled;
        if self.block.len() < needed {
            let mut larger = self.pool.take(needed);
            larger[..self.filled].copy_from_slice(&self.block[..self.filled]);
            self.pool
                .give_back(std::mem::replace(&mut self.block, larger));
        }
        self.block[self.filled..needed].copy_from_slice(&tail.block[..tail.filled]);
        self.filled = needed;
        self.line_ends += tail.line_ends;
        self.ended = tail.ended;
        self.broken = tail.broken;
        self.pool.give_back(tail.block);
    }

    /// Marks the end of the bytes.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Marks the end of the bytes in the middle of a record: an unfinished record is rejected.
    pub(crate) fn break_off(&mut self, reason: String) {
        self.broken = Some(reason);
    }

    /// At most `rows_max` rows; `None` when more bytes are needed (or, after the end, when nothing
    /// is left).
    pub(crate) fn rows(&mut self, rows_max: usize) -> Option<DecodedRows> {
        while self.has_records() {
            if self.skipping && !self.skip() {
                return self.take_refused(rows_max);
            }
            let (block, from) = self.sealed.take().unwrap_or_else(|| self.seal_block());
            // Nothing is filled while a sealed block is read, so after the end it is the last one.
            let (mut rows, at, stop) = self.decoder.decode(&block, from, self.ended, rows_max);
            match stop {
                Stop::Full => self.sealed = Some((block, at)),
                Stop::Incomplete => self.carry(&block, at),
                Stop::TooLong => {
                    let record = &block[at..];
                    self.refused.push(self.decoder.reject_too_long(record));
                    let inside = memchr_iter(b'\n', &record[..RECORD_BYTES_MAX]).count();
                    self.decoder.skip_lines(inside as u64);
                    self.skipping = true;
                    self.carry(&block, at + RECORD_BYTES_MAX);
                    self.line_ends =
                        usize::from(memchr(b'\n', &self.block[..self.filled]).is_some());
                }
            }
            rows.rejected.append(&mut self.refused);
            if !rows.is_empty() {
                return Some(rows);
            }
        }
        self.refuse_unfinished();
        self.take_refused(rows_max)
    }

    /// The rest of a partition that broke off is rejected, unless it is being skipped (and was rejected
    /// already).
    fn refuse_unfinished(&mut self) {
        if let Some(reason) = &self.broken {
            let record = &self.block[self.mark_length()..self.filled];
            if !record.is_empty() && !self.skipping {
                let rejected = self.decoder.reject_unfinished(record, reason.clone());
                self.refused.push(rejected);
            }
            self.filled = 0;
        }
    }

    /// The bytes of a byte order mark at the beginning of the block: only a partition begins with one.
    fn mark_length(&self) -> usize {
        match self.base == 0 && self.block[..self.filled].starts_with(BOM) {
            true => BOM.len(),
            false => 0,
        }
    }

    /// Rejected records without rows.
    fn take_refused(&mut self, rows_max: usize) -> Option<DecodedRows> {
        if self.refused.is_empty() {
            return None;
        }
        let (mut rows, _, _) = self
            .decoder
            .decode(&Buffer::from(&[][..]), 0, false, rows_max);
        rows.rejected.append(&mut self.refused);
        Some(rows)
    }

    /// Seals the block for arrays to share.
    fn seal_block(&mut self) -> (Buffer, usize) {
        self.line_ends = 0;
        let from = self.mark_length();
        // A few lines in a big block are copied: a chunk that is kept downstream then holds only the bytes of
        // its rows, not the block.
        const COPIED_SHARE: usize = 8;
        let filled = std::mem::take(&mut self.filled);
        if filled * COPIED_SHARE < self.block.len() {
            return (Buffer::from(&self.block[..filled]), from);
        }
        let block = std::mem::take(&mut self.block);
        (seal(block, filled, &self.pool), from)
    }

    /// Begins the next block with the rest of the last one, from `at` on.
    fn carry(&mut self, last: &[u8], at: usize) {
        debug_assert!(self.filled == 0 && self.sealed.is_none());
        let rest = &last[at..];
        self.base += at as u64;
        if self.block.len() <= rest.len() {
            // A record that fills half of the block needs a larger one: twice the size, but no more than is
            // needed to see that the record is too long.
            let larger = (rest.len() * 2).min(RECORD_BYTES_MAX + self.pool.block_bytes());
            let needed = if rest.len() * 2 > self.pool.block_bytes() {
                larger
            } else {
                0
            };
            let full = std::mem::replace(&mut self.block, self.pool.take(needed));
            self.pool.give_back(full);
        }
        self.block[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.line_ends = 0;
    }

    /// Drops bytes up to the next line end; returns whether it was found.
    fn skip(&mut self) -> bool {
        let (skipped, found) = match memchr(b'\n', &self.block[..self.filled]) {
            Some(length) => (length + 1, true),
            None => (self.filled, self.ended),
        };
        self.block.copy_within(skipped..self.filled, 0);
        self.filled -= skipped;
        self.base += skipped as u64;
        self.line_ends = memchr_iter(b'\n', &self.block[..self.filled]).count();
        if found {
            self.skipping = false;
            self.decoder.skip_lines(1);
        }
        found && self.has_records()
    }
}

/// The byte order mark, with which some editors begin a UTF-8 file.
pub(crate) const BOM: &[u8] = b"\xEF\xBB\xBF";

#[cfg(test)]
#[path = "lines_tests.rs"]
pub(crate) mod tests;
