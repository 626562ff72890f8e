//! The blocks of a file that can only be read in order, because it is compressed.
//!
//! The source unpacks, and cuts after the last line end of a block; the rest begins the next one.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use memchr::memrchr;

use super::block::{Filled, LONG_LINE_BLOCKS};
use crate::block::BlockPool;

/// A file that is unpacked.
pub(super) struct Unpacked {
    input: Box<dyn Read + Send>,
    pool: Arc<BlockPool>,
    /// The block that is filled next, with the beginning of a line.
    block: Vec<u8>,
    filled: usize,
    /// The offset of the block in the file.
    offset: u64,
    ended: bool,
    /// Why nothing more can be read.
    failure: Option<std::io::Error>,
}

impl Unpacked {
    pub(super) fn new(input: Box<dyn Read + Send>, pool: &Arc<BlockPool>) -> Unpacked {
        Unpacked {
            input,
            block: pool.take(0),
            pool: Arc::clone(pool),
            filled: 0,
            offset: 0,
            ended: false,
            failure: None,
        }
    }

    /// Why nothing more can be read; for when everything before it was handed out.
    pub(super) fn take_failure(&mut self) -> Option<std::io::Error> {
        self.failure.take()
    }

    /// The next block; `None` after the last one, or if nothing more can be read.
    pub(super) fn next(&mut self) -> Option<Filled> {
        loop {
            if self.ended || self.failure.is_some() {
                return None;
            }
            self.fill();
            let end = match memrchr(b'\n', &self.block[..self.filled]) {
                _ if self.ended => self.filled,
                Some(at) => at + 1,
                None if self.failure.is_some() => return None,
                // The reader in order is given it in parts.
                None if self.filled >= LONG_LINE_BLOCKS * self.pool.block_bytes() => self.filled,
                None => {
                    let mut larger = vec![0; self.block.len() * 2];
                    larger[..self.filled].copy_from_slice(&self.block[..self.filled]);
                    self.pool
                        .give_back(std::mem::replace(&mut self.block, larger));
                    continue;
                }
            };
            return Some(self.cut(end));
        }
    }

    /// Unpacks until the block is full.
    fn fill(&mut self) {
        while self.filled < self.block.len() && !self.ended && self.failure.is_none() {
            match self.input.read(&mut self.block[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.failure = Some(error),
            }
        }
    }

    /// Takes the first `end` bytes of the block, and begins the next one with the others.
    fn cut(&mut self, end: usize) -> Filled {
        let rest = self.filled - end;
        let mut next = self.pool.take(rest);
        next[..rest].copy_from_slice(&self.block[end..self.filled]);
        let filled = Filled {
            bytes: std::mem::replace(&mut self.block, next),
            offset: self.offset,
            start: 0,
            end,
            ended: self.ended,
            read_ns: None,
        };
        self.filled = rest;
        self.offset += end as u64;
        filled
    }
}
