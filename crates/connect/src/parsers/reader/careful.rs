//! Reading in order where blocks do not begin where records do: at line ends within quoted fields, at records
//! that are too long, and where a file can't be read.

use arrow_buffer::Buffer;

use super::{BlockReader, Input};
use crate::block::seal;
use crate::lines::RecordReader;

/// Blocks parsed in vain before the reader looks whether help is worth it.
const WASTED_MIN: u64 = 8;

/// Help is worth it as long as at most one block of so many is parsed in vain: those cost more than others,
/// because one thread reads them again.
const WASTED_SHARE: u64 = 4;

/// Reading in order, from the mark to the beginning of a block.
pub(in crate::parsers) struct Careful {
    pub(in crate::parsers) records: RecordReader,
    /// The offset of the next byte that it gets.
    pub(super) fed: u64,
    pub(super) bytes: Option<Unfed>,
    pub(super) ended: bool,
}

/// Bytes of a block that can't be read again, of which a reader gets those from `at` on.
pub(super) struct Unfed {
    pub(super) bytes: Buffer,
    pub(super) at: usize,
    /// Whether the file ends with them.
    pub(super) is_last: bool,
}

impl BlockReader {
    /// Whether too many blocks were parsed in vain: line ends in quoted fields. Then one thread reads on.
    pub(crate) fn has_given_up(&self) -> bool {
        self.wasted >= WASTED_MIN && self.wasted * WASTED_SHARE > self.kept + self.wasted
    }

    /// Whether what no block has is read by one thread.
    pub(super) fn goes_on_alone(&self) -> bool {
        match &self.input {
            Input::File(_) | Input::Unpacked(_) => self.has_given_up(),
            Input::Pushed => false,
        }
    }

    /// Gives the careful reader bytes that no block has.
    pub(super) fn feed_alone(&mut self) -> std::io::Result<()> {
        if self.careful.is_none() {
            self.read_carefully(None);
        }
        let Some(careful) = &mut self.careful else {
            return Ok(());
        };
        let Input::Unpacked(unpacked) = &mut self.input else {
            return self.feed();
        };
        match unpacked.next() {
            Some(filled) => {
                let bytes = seal(filled.bytes, filled.end, &self.shared.pool);
                careful.bytes = Some(Unfed {
                    bytes,
                    at: filled.start,
                    is_last: filled.ended,
                });
                self.feed_kept();
            }
            None => match unpacked.take_failure() {
                Some(error) => return Err(error),
                None => {
                    careful.ended = true;
                    careful.records.end();
                }
            },
        }
        Ok(())
    }

    /// Reads on from the mark in order.
    pub(super) fn read_carefully(&mut self, bytes: Option<Unfed>) {
        let decoder = self.shared.decoder();
        self.careful = Some(Careful {
            records: RecordReader::going_on(decoder, &self.shared.pool, self.mark),
            fed: self.mark.offset,
            bytes,
            ended: false,
        });
    }

    /// Gives the careful reader more bytes, up to the beginning of the block that was taken; there it ends
    /// if a record ends there, too. Without a block it reads on.
    pub(super) fn feed(&mut self) -> std::io::Result<()> {
        let Some(careful) = &mut self.careful else {
            return Ok(());
        };
        let limit = match &self.parsed {
            None => u64::MAX,
            Some(parsed) => match &parsed.span {
                Some(span) if span.start >= careful.fed => span.start,
                None if parsed.ended || parsed.failed => u64::MAX,
                span => {
                    self.wasted += u64::from(span.is_some());
                    self.parsed = None;
                    return Ok(());
                }
            },
        };
        if careful.fed == limit {
            let is_there = self.mark.offset == limit && !self.mark.skipping;
            let header = self.parsed.as_ref().map(|parsed| parsed.header);
            if is_there && header == Some(self.mark.header) {
                self.careful = None;
            } else {
                self.wasted += 1;
                self.parsed = None;
            }
            return Ok(());
        }
        let room = careful.records.room();
        let bytes = room
            .len()
            .min(usize::try_from(limit - careful.fed).unwrap_or(usize::MAX));
        let filled = self.shared.read_at(&mut room[..bytes], careful.fed)?;
        self.read_ns = slackwater_engine::time::now_ns();
        careful.fed += filled as u64;
        let uncounted = careful.fed.saturating_sub(self.counted_to);
        if self.parsed.is_none() && uncounted > 0 {
            self.shared.count(uncounted.min(filled as u64) as usize);
            self.counted_to = careful.fed;
        }
        careful.records.filled_uncounted(filled);
        if filled < bytes {
            careful.ended = true;
            careful.records.end();
        }
        Ok(())
    }

    /// The same where bytes can't be read again: whole blocks, which begin where the ones before have ended.
    /// It ends where a record ends with a block.
    pub(super) fn feed_kept(&mut self) {
        let Some(careful) = &mut self.careful else {
            return;
        };
        if careful.bytes.is_none()
            && let Some(parsed) = self.parsed.take()
        {
            // Parts of a record that is too long have no rows.
            let has_rows = parsed.pieces.iter().any(|piece| !piece.rows.is_empty());
            self.wasted += u64::from(has_rows);
            self.read_ns = parsed.read_ns;
            let unfed = |bytes| Unfed {
                bytes,
                at: 0,
                is_last: parsed.ended,
            };
            careful.bytes = parsed.bytes.map(unfed);
        }
        let Some(Unfed { bytes, at, is_last }) = &mut careful.bytes else {
            return;
        };
        if *at < bytes.len() {
            let room = careful.records.room();
            let length = room.len().min(bytes.len() - *at);
            room[..length].copy_from_slice(&bytes[*at..*at + length]);
            careful.records.filled_uncounted(length);
            careful.fed += length as u64;
            *at += length;
        } else if *is_last {
            careful.ended = true;
            careful.records.end();
        } else if self.mark.offset == careful.fed && !self.mark.skipping && !self.mark.header {
            self.careful = None;
        } else {
            careful.bytes = None;
        }
    }
}
