//! One block of a file: it is read, cut at line ends, and parsed, by whoever takes it. (What can only be read
//! in order is read and cut by the source.)
//!
//! A block of a plain file is a range of bytes. Its records are those of the lines that *begin* in it. So
//! two threads that read neighboring blocks agree on where the first one ends without asking each other.
//! What they can't know is whether that line end lies within a quoted field: the reader checks it when it
//! knows where the records of the block before have ended.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use arrow_buffer::Buffer;
use memchr::memchr;
use slackwater_engine::time::now_ns;

use super::team::Work;
use crate::block::{BlockPool, seal};
use crate::format::{DecodedRows, Decoder, Stop};
use crate::lines::BOM;

/// A line that takes so many blocks is left to the reader in order, so that a thread holds at most twice as
/// much.
pub(super) const LONG_LINE_BLOCKS: usize = 4;

/// Counts bytes that were read.
pub(crate) type Count = Box<dyn Fn(usize) + Send + Sync>;

/// What the blocks of a file share.
pub(crate) struct Shared {
    /// A plain file, and where reading it ends at the latest.
    file: Option<(File, u64)>,
    pub(super) pool: Arc<BlockPool>,
    /// Counts bytes that were read.
    count: Count,
    make_decoder: Box<dyn Fn() -> Decoder + Send + Sync>,
    /// Decoders that nobody uses: at most one for each thread, and one for the source.
    decoders: Mutex<Vec<Decoder>>,
}

impl Shared {
    pub(super) fn new(
        file: Option<(File, u64)>,
        pool: &Arc<BlockPool>,
        count: Count,
        make_decoder: impl Fn() -> Decoder + Send + Sync + 'static,
    ) -> Shared {
        Shared {
            file,
            pool: Arc::clone(pool),
            count,
            make_decoder: Box::new(make_decoder),
            decoders: Mutex::default(),
        }
    }

    pub(super) fn decoder(&self) -> Decoder {
        let mut decoders = self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        let decoder = decoders.pop();
        drop(decoders);
        decoder.unwrap_or_else(|| (self.make_decoder)())
    }

    fn give_back(&self, decoder: Decoder) {
        let mut decoders = self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        decoders.push(decoder);
    }

    /// Counts bytes that were read.
    pub(super) fn count(&self, bytes: usize) {
        (self.count)(bytes);
    }

    /// Bytes of a block's range. The rest of the memory is for the line that ends after the range.
    pub(super) fn range_bytes(&self) -> u64 {
        let bytes = self.pool.block_bytes();
        (bytes - bytes / 32).saturating_sub(1).max(1) as u64
    }

    /// Reads at `offset` until the room is full or the file ends; returns the bytes read.
    pub(super) fn read_at(&self, room: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let mut filled = 0;
        let (file, end) = self
            .file
            .as_ref()
            .expect("ranges are those of a plain file");
        let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = room.len().min(left);
        let room = &mut room[..length];
        while filled < room.len() {
            match file.read_at(&mut room[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// A block that is to be read and parsed.
pub(crate) struct Block {
    pub(super) shared: Arc<Shared>,
    pub(super) bytes: Bytes,
    /// Whether the header is still to come.
    pub(super) header: bool,
    /// The most rows of a chunk.
    pub(super) rows_max: usize,
}

/// The bytes of a block.
pub(crate) enum Bytes {
    /// They are to be read.
    Range(Range),
    /// They were read, and end with a line or the file.
    Read(Filled),
}

/// A range of a plain file.
pub(super) struct Range {
    /// Records that begin from here on
    pub(super) from: u64,
    /// … and before this offset.
    pub(super) to: u64,
    /// Whether a record begins exactly at `from`; otherwise one begins after the first line end.
    pub(super) begins: bool,
}

/// A block that was read and parsed, as if its first line were the first of the file.
#[derive(Default)]
pub(crate) struct Parsed {
    /// The bytes of the file that were parsed; `None` if no line begins in the range.
    pub(super) span: Option<std::ops::Range<u64>>,
    /// The bytes, if they can't be read again.
    pub(super) bytes: Option<Buffer>,
    /// Whether the header was expected to be still to come.
    pub(super) header: bool,
    pub(super) pieces: std::collections::VecDeque<Piece>,
    /// Whether the file ends with the block.
    pub(super) ended: bool,
    /// Whether the file could not be read there.
    pub(super) failed: bool,
    /// Whether its last line takes [`LONG_LINE_BLOCKS`].
    pub(super) too_long: bool,
    /// When the bytes were read.
    pub(super) read_ns: u64,
    /// The thread that did it, and how long it took.
    pub(super) spent: Option<(ThreadId, u64)>,
}

/// Rows of a block, and the place after them.
pub(super) struct Piece {
    pub(super) rows: DecodedRows,
    pub(super) offset: u64,
    /// Lines of the block before the place.
    pub(super) lines: u64,
    /// Whether the header is still to come there.
    pub(super) header: bool,
}

/// Bytes of a file, with the part of them that a block has to parse.
pub(super) struct Filled {
    pub(super) bytes: Vec<u8>,
    /// Where in the file they begin.
    pub(super) offset: u64,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether the file ends with them.
    pub(super) ended: bool,
    /// When they arrived; `None`: when they are parsed.
    pub(super) read_ns: Option<u64>,
}

impl Work for Block {
    type Done = Parsed;

    fn work(self) -> Parsed {
        let begin_ns = now_ns();
        let mut parsed = Parsed {
            header: self.header,
            read_ns: begin_ns,
            ..Parsed::default()
        };
        let Block {
            shared,
            bytes,
            header,
            rows_max,
        } = self;
        match bytes {
            Bytes::Range(range) => match range.fill(&shared, &mut parsed) {
                Ok(Some(filled)) => drop(shared.parse(filled, header, rows_max, &mut parsed)),
                Ok(None) => {}
                // The source reads it again, and reports the error after the rows before it.
                Err(_) => parsed.failed = true,
            },
            Bytes::Read(filled) => {
                parsed.ended = filled.ended;
                parsed.read_ns = filled.read_ns.unwrap_or(begin_ns);
                let bytes = shared.parse(filled, header, rows_max, &mut parsed);
                parsed.bytes = Some(bytes);
            }
        }
        let spent_ns = now_ns() - begin_ns;
        parsed.spent = Some((std::thread::current().id(), spent_ns));
        parsed
    }
}

impl Range {
    /// Reads the range and the rest of its last line; `None` if there is nothing to parse.
    fn fill(&self, shared: &Shared, parsed: &mut Parsed) -> std::io::Result<Option<Filled>> {
        // The line end before the first line may be the last byte before the range.
        let offset = if self.begins {
            self.from
        } else {
            self.from - 1
        };
        let in_range = (self.to - offset) as usize;
        let mut bytes = shared.pool.take(0);
        let mut filled = shared.read_at(&mut bytes, offset)?;
        let mut is_all = filled < bytes.len();
        let begin = match self.begins {
            true => Some(0),
            false => memchr(b'\n', &bytes[..filled.min(in_range - 1)]).map(|at| at + 1),
        };
        let Some(start) = begin.filter(|&start| start < filled) else {
            // Bytes after the range belong to the next block.
            parsed.ended = is_all && filled <= in_range;
            shared.pool.give_back(bytes);
            return Ok(None);
        };
        let mut looked = in_range - 1;
        let end = loop {
            let rest = bytes[..filled].get(looked..).unwrap_or_default();
            if let Some(length) = memchr(b'\n', rest) {
                break looked + length + 1;
            }
            looked = looked.max(filled);
            if is_all {
                parsed.ended = true;
                break filled;
            }
            if filled >= LONG_LINE_BLOCKS * shared.pool.block_bytes() {
                parsed.too_long = true;
                return Ok(None);
            }
            let mut more = vec![0; filled * 2];
            more[..filled].copy_from_slice(&bytes[..filled]);
            shared.pool.give_back(std::mem::replace(&mut bytes, more));
            let room = bytes.len() - filled;
            let read = shared.read_at(&mut bytes[filled..], offset + filled as u64)?;
            filled += read;
            is_all = read < room;
        };
        shared.count(end - start);
        Ok(Some(Filled {
            bytes,
            offset,
            start,
            end,
            ended: parsed.ended,
            read_ns: None,
        }))
    }
}

impl Shared {
    /// Parses a block; returns its bytes.
    fn parse(&self, filled: Filled, header: bool, rows_max: usize, parsed: &mut Parsed) -> Buffer {
        let Filled {
            bytes,
            offset,
            start,
            end,
            ended,
            ..
        } = filled;
        parsed.span = Some(offset + start as u64..offset + end as u64);
        let mut at = start;
        if offset == 0 && bytes[start..end].starts_with(BOM) {
            at += BOM.len();
        }
        let buffer = self.buffer(bytes, end);
        let mut decoder = self.decoder();
        decoder.go_on(1, header);
        loop {
            let (rows, next, stop) = decoder.decode(&buffer, at, ended, rows_max);
            at = next;
            parsed.pieces.push_back(Piece {
                rows,
                offset: offset + at as u64,
                lines: decoder.line() - 1,
                header: decoder.is_header_pending(),
            });
            match stop {
                Stop::Full => {}
                // A line that is too long is left to the source.
                Stop::Incomplete | Stop::TooLong => break,
            }
        }
        self.give_back(decoder);
        buffer
    }

    /// The bytes for arrays to share. A few lines in a big block are copied: a chunk that is kept downstream
    /// then holds only the bytes of its rows, not the block.
    fn buffer(&self, bytes: Vec<u8>, end: usize) -> Buffer {
        const COPIED_SHARE: usize = 8;
        if end * COPIED_SHARE < bytes.len() {
            let few = Buffer::from(&bytes[..end]);
            self.pool.give_back(bytes);
            return few;
        }
        seal(bytes, end, &self.pool)
    }
}
