//! Reads the blocks of a partition in order, whoever has parsed them.

mod careful;

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::task::Poll;

use arrow_array::UInt64Array;
use arrow_buffer::Buffer;
use slackwater_engine::chunk::Positions;

use super::Parsers;
use super::block::{Block, Bytes, Count, Parsed, Piece, Range, Shared};
use super::team::Task;
use super::unpacked::Unpacked;
use crate::block::BlockPool;
use crate::format::{DecodedRows, Decoder};
use crate::lines::Mark;
use careful::{Careful, Unfed};

/// Reads the records of a partition, with the help of [`Parsers`].
pub(crate) struct BlockReader {
    pub(super) shared: Arc<Shared>,
    input: Input,
    /// Blocks ahead, in the order of the partition.
    pub(super) tasks: VecDeque<Arc<Task<Block>>>,
    /// Where the range of the next block begins; `None` if it begins with the record at the mark.
    next: Option<u64>,
    /// The block after the tasks that were taken.
    parsed: Option<Parsed>,
    /// The block that is being handed out.
    head: Option<Head>,
    /// Rows of it that were too many, and the position after them.
    rest: Option<(DecodedRows, Mark)>,
    /// The position after all that was handed out, or before it if there is a rest.
    pub(super) mark: Mark,
    pub(super) careful: Option<Careful>,
    /// When the bytes were read that the last rows come from.
    read_ns: u64,
    /// Time that other threads have spent on blocks, until it is taken.
    helped_ns: u64,
    /// The blocks that were handed out, and those that were parsed in vain, because none of their lines began
    /// a record where the block had guessed.
    kept: u64,
    wasted: u64,
    /// Where the last block that was taken ends: bytes up to there were counted.
    counted_to: u64,
    ended: bool,
}

/// Where blocks come from.
pub(super) enum Input {
    /// A plain file, and its length when it was opened.
    File(u64),
    /// A compressed file.
    Unpacked(Unpacked),
    /// The source [pushes](BlockReader::push) them.
    Pushed,
}

/// A block whose turn has come.
struct Head {
    pieces: VecDeque<Piece>,
    /// The number of its first line.
    first_line: u64,
    span: std::ops::Range<u64>,
    /// The bytes, if they can't be read again.
    bytes: Option<Buffer>,
    ended: bool,
}

impl BlockReader {
    /// Reads a plain file from `mark` on, to `end` if it is longer.
    pub(crate) fn new(
        (file, end): (File, u64),
        pool: &Arc<BlockPool>,
        count: Count,
        mark: Option<Mark>,
        make_decoder: impl Fn() -> Decoder + Send + Sync + 'static,
    ) -> BlockReader {
        let length = file.metadata().map_or(u64::MAX, |file| file.len());
        let length = length.min(end);
        let shared = Shared::new(Some((file, end)), pool, count, make_decoder);
        BlockReader::of(shared, Input::File(length), mark)
    }

    /// Reads what `input` unpacks.
    pub(crate) fn unpacking(
        input: Box<dyn Read + Send>,
        pool: &Arc<BlockPool>,
        make_decoder: impl Fn() -> Decoder + Send + Sync + 'static,
    ) -> BlockReader {
        let shared = Shared::new(None, pool, Box::new(|_| ()), make_decoder);
        BlockReader::of(shared, Input::Unpacked(Unpacked::new(input, pool)), None)
    }

    pub(super) fn of(shared: Shared, input: Input, mark: Option<Mark>) -> BlockReader {
        let shared = Arc::new(shared);
        let mark = mark.unwrap_or_else(|| Mark {
            offset: 0,
            line: 1,
            header: shared.decoder().is_header_pending(),
            skipping: false,
        });
        let mut reader = BlockReader {
            shared,
            input,
            tasks: VecDeque::new(),
            next: None,
            parsed: None,
            head: None,
            rest: None,
            mark,
            careful: None,
            read_ns: 0,
            helped_ns: 0,
            kept: 0,
            wasted: 0,
            counted_to: 0,
            ended: false,
        };
        if mark.skipping {
            reader.read_carefully(None);
        }
        reader
    }

    /// A position after which everything is still to come, and before which nothing is; at most a chunk
    /// after it was handed out already.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// When the bytes were read that the last rows come from.
    pub(crate) fn read_ns(&self) -> u64 {
        self.read_ns
    }

    /// The time that other threads have spent on blocks that were taken since the last call.
    pub(crate) fn take_helped_ns(&mut self) -> u64 {
        std::mem::take(&mut self.helped_ns)
    }

    /// The next rows, at most `rows_max`; `None` at the end. If it is pending, the parsers' waker is
    /// woken when there is something. `files` are read at the same time.
    pub(crate) fn rows(
        &mut self,
        parsers: &Parsers,
        files: usize,
        rows_max: usize,
    ) -> std::io::Result<Poll<Option<DecodedRows>>> {
        loop {
            let rows = match &mut self.careful {
                Some(careful) => careful.records.rows(rows_max),
                None => self.piece(rows_max),
            };
            if let Some(careful) = &self.careful {
                self.mark = careful.records.mark();
            }
            if let Some(rows) = rows {
                return Ok(Poll::Ready(Some(rows)));
            }
            if self.ended || self.careful.as_ref().is_some_and(|careful| careful.ended) {
                return Ok(Poll::Ready(None));
            }
            if self.head.is_none() && self.careful.is_none() && self.parsed.is_some() {
                self.begin_block();
                continue;
            }
            let has_bytes = |careful: &Careful| careful.bytes.is_some();
            if self.parsed.is_none() && !self.careful.as_ref().is_some_and(has_bytes) {
                self.keep_ahead(parsers, files, rows_max);
                if self.tasks.is_empty() && self.goes_on_alone() {
                    self.feed_alone()?;
                    continue;
                }
                if self.tasks.is_empty() {
                    let failure = match &mut self.input {
                        Input::Unpacked(unpacked) => unpacked.take_failure(),
                        Input::File(_) | Input::Pushed => None,
                    };
                    return failure.map_or(Ok(Poll::Ready(None)), Err);
                }
                if !self.take_next(parsers) {
                    return Ok(Poll::Pending);
                }
            }
            if self.careful.is_some() {
                match self.input {
                    Input::File(_) => self.feed()?,
                    Input::Unpacked(_) | Input::Pushed => self.feed_kept(),
                }
            }
        }
    }

    /// The next rows of the block that is being handed out.
    fn piece(&mut self, rows_max: usize) -> Option<DecodedRows> {
        loop {
            if let Some((rows, mark)) = self.rest.take() {
                let (rows, rest) = rows.split(rows_max);
                match rest {
                    Some(rest) => self.rest = Some((rest, mark)),
                    None => self.mark = mark,
                }
                return Some(rows);
            }
            let head = self.head.as_mut()?;
            let Some(piece) = head.pieces.pop_front() else {
                let (span, is_last) = (head.span.clone(), head.ended);
                let at = (self.mark.offset - span.start) as usize;
                let bytes = head.bytes.take();
                let unfed = bytes.map(|bytes| Unfed { bytes, at, is_last });
                self.head = None;
                match self.mark.offset == span.end {
                    true => self.ended = is_last,
                    // The block ends within a record.
                    false => self.read_carefully(unfed),
                }
                return None;
            };
            let mark = Mark {
                offset: piece.offset,
                line: head.first_line + piece.lines,
                header: piece.header,
                skipping: false,
            };
            match piece.rows.is_empty() {
                true => self.mark = mark,
                false => self.rest = Some((moved(piece.rows, head.first_line - 1), mark)),
            }
        }
    }

    /// Submits blocks, as far as they may be ahead.
    fn keep_ahead(&mut self, parsers: &Parsers, files: usize, rows_max: usize) {
        while self.tasks.len() < parsers.ahead(files) && !self.has_given_up() {
            let Some(block) = self.next_block(rows_max) else {
                return;
            };
            parsers.submit(block, &mut self.tasks);
        }
    }

    /// Takes the next block, unless a thread is still at it.
    fn take_next(&mut self, parsers: &Parsers) -> bool {
        let Some(parsed) = parsers.take(&mut self.tasks) else {
            return false;
        };
        if let Some((thread, spent_ns)) = parsed.spent
            && thread != std::thread::current().id()
        {
            self.helped_ns += spent_ns;
        }
        if let Some(span) = &parsed.span {
            self.counted_to = span.end;
        }
        self.parsed = Some(parsed);
        true
    }

    /// The next block; `None` if there is none.
    fn next_block(&mut self, rows_max: usize) -> Option<Block> {
        let (bytes, header) = match &mut self.input {
            Input::File(length) => {
                let length = *length;
                self.next_range(length)?
            }
            Input::Unpacked(unpacked) => {
                let filled = unpacked.next()?;
                let header = filled.offset == 0 && self.mark.header;
                (Bytes::Read(filled), header)
            }
            Input::Pushed => return None,
        };
        Some(Block {
            shared: Arc::clone(&self.shared),
            bytes,
            header,
            rows_max,
        })
    }

    /// The next range of a plain file, and whether its header is still to come.
    fn next_range(&mut self, length: u64) -> Option<(Bytes, bool)> {
        let fed = self.careful.as_ref().map(|careful| careful.fed);
        let (from, begins) = match (self.next, fed) {
            (Some(next), fed) => (next.max(fed.unwrap_or(0)), false),
            (None, Some(fed)) => (fed.max(1), false),
            (None, None) => (self.mark.offset, true),
        };
        // Where the file has ended it may have grown; one block finds out.
        if from >= length && !self.tasks.is_empty() {
            return None;
        }
        let to = from + self.shared.range_bytes();
        self.next = Some(to);
        let range = Range { from, to, begins };
        Some((Bytes::Range(range), begins && self.mark.header))
    }

    /// Begins with the block that was taken, if it begins where the records before have ended.
    fn begin_block(&mut self) {
        let Some(parsed) = self.parsed.take() else {
            return;
        };
        match &parsed.span {
            None if parsed.failed || parsed.too_long => self.read_carefully(None),
            None => self.ended = parsed.ended,
            Some(span) if span.start == self.mark.offset && parsed.header == self.mark.header => {
                self.kept += 1;
                self.read_ns = parsed.read_ns;
                self.head = Some(Head {
                    span: span.clone(),
                    bytes: parsed.bytes,
                    pieces: parsed.pieces,
                    first_line: self.mark.line,
                    ended: parsed.ended,
                });
            }
            Some(_) => {
                self.wasted += 1;
                let (bytes, is_last) = (parsed.bytes, parsed.ended);
                let unfed = |bytes| Unfed {
                    bytes,
                    at: 0,
                    is_last,
                };
                self.read_carefully(bytes.map(unfed));
            }
        }
    }
}

/// Rows whose lines were counted from 1, after `lines` others.
fn moved(mut rows: DecodedRows, lines: u64) -> DecodedRows {
    if lines == 0 {
        return rows;
    }
    rows.positions = match rows.positions {
        Positions::Run { first } => Positions::Run {
            first: first + lines,
        },
        Positions::List(list) => {
            let list = list.values().iter().map(|position| position + lines);
            Positions::List(UInt64Array::from_iter_values(list))
        }
    };
    for rejected in &mut rows.rejected {
        rejected.position = rejected.position.map(|position| position + lines);
    }
    rows
}
