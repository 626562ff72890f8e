//! The messages of a partition that were taken from its queue, and their rows.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use arrow_buffer::Buffer;
use rdkafka::message::{BorrowedMessage, Message as _};
use slackwater_engine::source::Rejected;
use slackwater_engine::time::now_ns;

use super::metadata::{Beside, Notes};
use crate::block::{BlockPool, seal};
use crate::format::{DecodedRows, Decoder, Message, RECORD_BYTES_MAX, rejected};
use crate::kafka::partitions::Place;
use crate::parsers::Work;

/// The bytes of messages in a block, and the place of each.
pub(super) struct Messages {
    shared: Arc<Shared>,
    /// Prepares messages, and reads those that nobody else does.
    decoder: Decoder,
    notes: Notes,
    pool: Arc<BlockPool>,
    block: Vec<u8>,
    filled: usize,
    places: Vec<Message>,
    /// Messages that are rejected without being read.
    refused: Vec<Rejected>,
    /// The bytes of all messages so far.
    pub(super) bytes: usize,
}

/// What the batches of a partition share.
struct Shared {
    beside: Beside,
    place: Place,
    make_decoder: Box<dyn Fn() -> Decoder + Send + Sync>,
    /// Decoders that nobody uses: at most one for each thread.
    decoders: Mutex<Vec<Decoder>>,
}

/// A batch of messages that is to be parsed.
pub(super) struct MessageBlock {
    shared: Arc<Shared>,
    block: Buffer,
    places: Vec<Message>,
    notes: Notes,
    refused: Vec<Rejected>,
    ingest_ns: u64,
}

/// A batch that was parsed.
pub(super) struct ParsedMessages {
    pub(super) rows: DecodedRows,
    /// When its first message had arrived.
    pub(super) ingest_ns: u64,
    thread: ThreadId,
    spent_ns: u64,
}

impl ParsedMessages {
    /// The time that another thread has spent on it.
    pub(super) fn helped_ns(&self) -> u64 {
        match self.thread == std::thread::current().id() {
            true => 0,
            false => self.spent_ns,
        }
    }
}

impl Work for MessageBlock {
    type Done = ParsedMessages;

    fn work(self) -> ParsedMessages {
        let begin_ns = now_ns();
        let decoders = || {
            let decoders = self.shared.decoders.lock();
            decoders.unwrap_or_else(PoisonError::into_inner)
        };
        let known = decoders().pop();
        let mut decoder = known.unwrap_or_else(|| (self.shared.make_decoder)());
        let rows = self
            .shared
            .rows(&mut decoder, &self.block, &self.places, &self.notes);
        decoders().push(decoder);
        ParsedMessages {
            rows: with_refused(rows, self.refused),
            ingest_ns: self.ingest_ns,
            thread: std::thread::current().id(),
            spent_ns: now_ns() - begin_ns,
        }
    }
}

impl Shared {
    fn rows(
        &self,
        decoder: &mut Decoder,
        block: &Buffer,
        places: &[Message],
        notes: &Notes,
    ) -> DecodedRows {
        let rows = decoder.decode_messages(block, places);
        self.beside.complete(rows, &self.place, places, notes)
    }
}

fn with_refused(mut rows: DecodedRows, mut refused: Vec<Rejected>) -> DecodedRows {
    rows.rejected.append(&mut refused);
    rows
}

impl Messages {
    pub(super) fn new(
        make_decoder: impl Fn() -> Decoder + Send + Sync + 'static,
        beside: Beside,
        place: &Place,
        pool: &Arc<BlockPool>,
    ) -> Messages {
        Messages {
            decoder: make_decoder(),
            shared: Arc::new(Shared {
                beside,
                place: place.clone(),
                make_decoder: Box::new(make_decoder),
                decoders: Mutex::default(),
            }),
            notes: Notes::default(),
            pool: Arc::clone(pool),
            block: vec![],
            filled: 0,
            places: vec![],
            refused: vec![],
            bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.refused.is_empty()
    }

    /// The offset of the first message that waits to be passed on.
    pub(super) fn first(&self) -> Option<u64> {
        let refused = self.refused.first().and_then(|refused| refused.position);
        let place = self.places.first().map(|message| message.number);
        place.into_iter().chain(refused).min()
    }

    /// Whether there is room for another message: one may exceed the block, which then grows.
    pub(super) fn has_room(&self, rows_max: usize) -> bool {
        self.places.len() + self.refused.len() < rows_max && self.filled < self.pool.block_bytes()
    }

    /// Takes a message's value; returns whether it is a record.
    pub(super) fn push(
        &mut self,
        payload: &[u8],
        message: &BorrowedMessage<'_>,
        offset: u64,
    ) -> bool {
        self.bytes += payload.len();
        let record = self.decoder.trim_message(payload);
        if record.is_empty() {
            return false;
        }
        if record.len() > RECORD_BYTES_MAX {
            self.refused
                .push(self.decoder.reject_message(record, offset));
            return true;
        }
        let timestamp_ms = message.timestamp().to_millis();
        let noted = self
            .shared
            .beside
            .note(&mut self.notes, message.key(), timestamp_ms);
        if let Err(reason) = noted {
            self.refused.push(rejected(offset, record, reason.into()));
            return true;
        }
        let (start, end) = (self.filled, self.filled + record.len());
        if self.block.len() < end {
            let mut larger = self.pool.take(end);
            larger[..start].copy_from_slice(&self.block[..start]);
            self.pool
                .give_back(std::mem::replace(&mut self.block, larger));
        }
        self.block[start..end].copy_from_slice(record);
        self.decoder.prepare_message(&mut self.block[start..end]);
        self.filled = end;
        self.places.push(Message {
            start: start as u32,
            end: end as u32,
            number: offset,
        });
        true
    }

    /// Messages that wait to be read.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// The bytes of the block for arrays to share.
    fn seal(&mut self) -> Buffer {
        // As for lines: few bytes in a big block are copied, so that rows that are kept don't hold the block.
        const COPIED_SHARE: usize = 8;
        let filled = std::mem::take(&mut self.filled);
        if filled * COPIED_SHARE < self.block.len() {
            Buffer::from(&self.block[..filled])
        } else {
            seal(std::mem::take(&mut self.block), filled, &self.pool)
        }
    }

    /// All messages of the block, for another thread, and the offset of the first one.
    pub(super) fn take(&mut self, ingest_ns: u64) -> Option<(u64, MessageBlock)> {
        let first = self.first()?;
        let block = MessageBlock {
            shared: Arc::clone(&self.shared),
            block: self.seal(),
            places: std::mem::take(&mut self.places),
            notes: std::mem::take(&mut self.notes),
            refused: std::mem::take(&mut self.refused),
            ingest_ns,
        };
        Some((first, block))
    }

    /// All rows of the block.
    pub(super) fn rows(&mut self) -> Option<DecodedRows> {
        if self.is_empty() {
            return None;
        }
        let block = self.seal();
        let rows = self
            .shared
            .rows(&mut self.decoder, &block, &self.places, &self.notes);
        self.places.clear();
        self.notes.clear();
        Some(with_refused(rows, std::mem::take(&mut self.refused)))
    }
}
