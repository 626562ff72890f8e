//! The blocks of a pipe or socket: the source cuts them as they arrive, while the input is ahead of it.
//!
//! A partition's [`RecordReader`] collects the bytes, and reads them itself as long as nobody helps. A block
//! that [is full](RecordReader::is_block_full) is cut after its last line end and pushed. When all blocks
//! were handed out, the collecting reader continues from there; so what comes last is read by one thread,
//! like everything where there is no hurry.

use std::sync::Arc;

use super::Parsers;
use super::block::{Block, Bytes, Filled, Shared};
use super::reader::{BlockReader, Input};
use crate::block::BlockPool;
use crate::format::Decoder;
use crate::lines::{CutLines, Mark, RecordReader};

impl BlockReader {
    /// A reader of blocks that are pushed.
    pub(crate) fn pushed(
        pool: &Arc<BlockPool>,
        make_decoder: impl Fn() -> Decoder + Send + Sync + 'static,
    ) -> BlockReader {
        let shared = Shared::new(None, pool, Box::new(|_| ()), make_decoder);
        BlockReader::of(shared, Input::Pushed, None)
    }

    /// Begins at a position, after everything that was pushed before was handed out.
    pub(crate) fn begin(&mut self, mark: Mark) {
        debug_assert!(self.tasks.is_empty() && self.careful.is_none());
        self.mark = mark;
    }

    /// How many blocks are ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.tasks.len()
    }

    /// Takes the next lines of the partition, which arrived at `time_ns`.
    pub(crate) fn push(
        &mut self,
        parsers: &Parsers,
        lines: CutLines,
        time_ns: u64,
        rows_max: usize,
    ) {
        let header = self.mark.header && self.mark.offset == lines.offset;
        let filled = Filled {
            bytes: lines.bytes,
            offset: lines.offset,
            start: 0,
            end: lines.end,
            ended: false,
            read_ns: Some(time_ns),
        };
        let block = Block {
            shared: Arc::clone(&self.shared),
            bytes: Bytes::Read(filled),
            header,
            rows_max,
        };
        parsers.submit(block, &mut self.tasks);
    }

    /// Lets the collecting reader continue after everything that was pushed was handed out.
    pub(crate) fn finish(&mut self, collected: &mut RecordReader) {
        debug_assert!(self.tasks.is_empty());
        match self.careful.take() {
            None => collected.resume(self.mark),
            // The last block ended within a record.
            Some(careful) => {
                let tail = std::mem::replace(collected, careful.records);
                collected.resume_with(tail);
            }
        }
    }
}
