//! Records that arrive at any time: code that the stdin, tcp and kafka sources share.
//!
//! After the first complete record of a batch, bytes are collected until the linger has passed or there are
//! enough records; then the rows of every partition are passed on, one chunk at a time. Nothing is decoded in
//! between, and without input there is no timer. Where input is ahead of one thread, others parse full blocks
//! (`helpers.rs`).

use std::sync::Arc;
use std::task::Poll;

use arrow_schema::SchemaRef;
use slackwater_engine::source::{SourcePoll, SourceRequest};
use slackwater_engine::time::now_ns;

use super::source_rows;
use crate::block::{BlockPool, STREAM_BLOCK_BYTES};
use crate::format::{DecodedRows, Decoder, Format};
use crate::lines::RecordReader;
use crate::parsers::{Block, BlockReader, Parsers, Work};

/// The parameters for reading a partition.
#[derive(Clone)]
pub(crate) struct StreamSpec {
    pub(crate) schema: SchemaRef,
    pub(crate) format: Format,
    pub(crate) request: SourceRequest,
    pub(crate) pool: Arc<BlockPool>,
}

impl StreamSpec {
    pub(crate) fn new(schema: &SchemaRef, format: &Format, request: SourceRequest) -> StreamSpec {
        StreamSpec {
            schema: Arc::clone(schema),
            format: format.clone(),
            request,
            pool: BlockPool::new(STREAM_BLOCK_BYTES),
        }
    }

    fn decoder(&self) -> Decoder {
        let decoder = self.format.decoder(&self.schema, &self.request.projection);
        decoder.naming_fields(&self.request.tuning)
    }

    pub(crate) fn partition(&self, number: u32) -> StreamPartition {
        let spec = self.clone();
        StreamPartition {
            number,
            records: RecordReader::new(self.decoder(), &self.pool),
            blocks: (self.request.parsers > 1)
                .then(|| Box::new(BlockReader::pushed(&self.pool, move || spec.decoder()))),
            is_ahead: false,
            ingest_ns: None,
            ended: false,
        }
    }
}

/// One connection's lines.
pub(crate) struct StreamPartition {
    pub(crate) number: u32,
    /// Collects the bytes, and reads them unless blocks are ahead of them.
    records: RecordReader,
    /// Reads the blocks that other threads parse.
    blocks: Option<Box<BlockReader>>,
    /// Whether there are such blocks.
    is_ahead: bool,
    /// When the first complete line of the batch had arrived.
    ingest_ns: Option<u64>,
    ended: bool,
}

impl StreamPartition {
    /// Room for bytes; empty while rows wait.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.records.room()
    }

    pub(crate) fn filled(&mut self, bytes: usize, time_ns: u64) {
        self.records.filled(bytes);
        if self.records.has_rows() {
            self.ingest_ns.get_or_insert(time_ns);
        }
    }

    pub(crate) fn end(&mut self, time_ns: u64) {
        self.ended = true;
        self.records.end();
        if self.records.has_rows() {
            self.ingest_ns.get_or_insert(time_ns);
        }
    }

    /// Ends the partition in the middle of a record: an unfinished record is rejected.
    pub(crate) fn break_off(&mut self, reason: String, time_ns: u64) {
        self.ended = true;
        self.records.break_off(reason);
        if self.records.has_rows() {
            self.ingest_ns.get_or_insert(time_ns);
        }
    }

    /// Whether everything was passed on and no more will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.ended && !self.is_ahead && !self.records.has_rows()
    }
}

/// The collected records of a partition, as the linger sees them.
pub(crate) trait Collected {
    /// The partition's number.
    fn number(&self) -> u32;

    /// When the first complete record of the batch had arrived, until all of the batch is taken.
    fn ingest_ns(&self) -> Option<u64>;

    /// The number of records that wait, or a little more.
    fn records(&self) -> usize;

    /// Whether there are records, and no more can be collected.
    fn is_full(&mut self) -> bool;

    /// At most `rows_max` rows; `None` ends the batch.
    fn take_rows(&mut self, rows_max: usize) -> Option<DecodedRows>;
}

impl Collected for StreamPartition {
    fn number(&self) -> u32 {
        self.number
    }

    fn ingest_ns(&self) -> Option<u64> {
        // What was collected after blocks waits for them.
        self.ingest_ns.filter(|_| !self.is_ahead)
    }

    fn records(&self) -> usize {
        self.records.line_ends()
    }

    fn is_full(&mut self) -> bool {
        self.ingest_ns().is_some() && (self.ended || self.room().is_empty())
    }

    fn take_rows(&mut self, rows_max: usize) -> Option<DecodedRows> {
        let rows = self.records.rows(rows_max);
        if rows.is_none() {
            self.ingest_ns = None;
        }
        rows
    }
}

/// A partition whose full blocks several threads can parse.
pub(crate) trait Shared: Collected {
    /// What a thread does with a block.
    type Work: Work;

    /// Whether blocks were handed over that were not handed out yet.
    fn is_ahead(&self) -> bool;

    /// Whether nothing more can be collected, because a block is full and nothing of it was read.
    fn is_block_full(&self) -> bool;

    /// Hands a full block over, if fewer than `ahead_max` are ahead; returns whether it did.
    fn hand_over(
        &mut self,
        parsers: &Parsers<Self::Work>,
        ahead_max: usize,
        rows_max: usize,
    ) -> bool;

    /// At most `rows_max` rows of the blocks ahead, and when the first of them arrived; `None` if there are
    /// no blocks ahead any longer.
    fn shared_rows(
        &mut self,
        parsers: &Parsers<Self::Work>,
        rows_max: usize,
    ) -> Poll<Option<(DecodedRows, u64)>>;

    /// The time that other threads have spent on its blocks since the last call.
    fn take_helped_ns(&mut self) -> u64;
}

impl Shared for StreamPartition {
    type Work = Block;

    fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    fn is_block_full(&self) -> bool {
        self.records.is_block_full()
    }

    fn hand_over(&mut self, parsers: &Parsers, ahead_max: usize, rows_max: usize) -> bool {
        let mark = self.records.mark();
        let blocks = self.blocks.as_mut();
        let Some(blocks) =
            blocks.filter(|blocks| blocks.ahead() < ahead_max && !blocks.has_given_up())
        else {
            return false;
        };
        let Some(lines) = self.records.cut() else {
            return false;
        };
        if !self.is_ahead {
            blocks.begin(mark);
            self.is_ahead = true;
        }
        let ingest_ns = self.ingest_ns.take().unwrap_or_else(now_ns);
        blocks.push(parsers, lines, ingest_ns, rows_max);
        true
    }

    fn shared_rows(
        &mut self,
        parsers: &Parsers,
        rows_max: usize,
    ) -> Poll<Option<(DecodedRows, u64)>> {
        let Some(blocks) = self.blocks.as_mut().filter(|_| self.is_ahead) else {
            return Poll::Ready(None);
        };
        let rows = match blocks.rows(parsers, 1, rows_max) {
            Ok(rows) => rows,
            Err(_) => unreachable!("only files can fail"),
        };
        if let Poll::Ready(None) = rows {
            blocks.finish(&mut self.records);
            self.is_ahead = false;
            if self.records.has_rows() {
                self.ingest_ns.get_or_insert(blocks.read_ns());
            }
        }
        rows.map(|rows| rows.map(|rows| (rows, blocks.read_ns())))
    }

    fn take_helped_ns(&mut self) -> u64 {
        let blocks = self.blocks.as_mut();
        blocks.map_or(0, |blocks| blocks.take_helped_ns())
    }
}

/// Collects a batch and passes it on.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// When the batch that is being collected will be passed on.
    deadline_ns: Option<u64>,
    /// Whether the batch is being passed on.
    handing_out: bool,
    turn: usize,
}

impl Linger {
    /// Rows to pass on, or the time before which there are none, or nothing. The caller has read whatever
    /// there was to read.
    pub(crate) fn poll<P: Collected>(
        &mut self,
        partitions: &mut [P],
        request: &SourceRequest,
    ) -> Option<SourcePoll> {
        if !self.handing_out {
            let first_ns = partitions.iter().filter_map(P::ingest_ns).min()?;
            let linger_ns = request.tuning.linger_ns();
            let deadline_ns = *self.deadline_ns.get_or_insert(first_ns + linger_ns);
            if linger_ns > 0 && !is_due(partitions, request, deadline_ns) {
                return Some(SourcePoll::NotBefore {
                    time_ns: deadline_ns,
                });
            }
            self.handing_out = true;
        }
        // One chunk per poll, each partition in turn.
        for _ in 0..partitions.len() {
            self.turn = (self.turn + 1) % partitions.len();
            let partition = &mut partitions[self.turn];
            let Some(ingest_ns) = partition.ingest_ns() else {
                continue;
            };
            if let Some(rows) = partition.take_rows(request.tuning.chunk_rows()) {
                let rows = source_rows(rows, partition.number(), ingest_ns);
                return Some(SourcePoll::Rows(rows));
            }
        }
        self.handing_out = false;
        self.deadline_ns = None;
        None
    }

    /// Whether rows are being passed on; nothing is read meanwhile.
    pub(crate) fn is_handing_out(&self) -> bool {
        self.handing_out
    }
}

/// Whether a batch is passed on now: there are enough records, the time is over, or a full block or an ended
/// partition has nothing left to wait for.
fn is_due<P: Collected>(partitions: &mut [P], request: &SourceRequest, deadline_ns: u64) -> bool {
    let records: usize = partitions.iter().map(P::records).sum();
    records >= request.tuning.chunk_rows()
        || partitions.iter_mut().any(P::is_full)
        || now_ns() >= deadline_ns
}
