//! The messages of one filter, on the worker.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::Buffer;
use slackwater_engine::source::{Rejected, SourceRequest};

use super::columns::{Beside, Columns};
use crate::format::{DecodedRows, Decoder, Format, Message, RECORD_BYTES_MAX};
use crate::mqtt::subscriber::{Batch, MessageInfo, Reading};
use crate::source::stream::Collected;

/// Bytes that are collected before they are passed on, however long the linger is.
const COLLECTED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The messages that were taken at once.
struct Fetched {
    block: Buffer,
    messages: Vec<Message>,
    notes: Vec<MessageInfo>,
    /// Messages that are rejected without being read.
    refused: Vec<Rejected>,
    /// How many of them were passed on.
    at: usize,
    since_ns: u64,
}

/// One filter.
pub(super) struct Partition {
    filter: usize,
    decoder: Decoder,
    beside: Beside,
    reading: Arc<Reading>,
    /// Whether messages are acknowledged when they are passed on.
    acknowledges: bool,
    fetched: VecDeque<Fetched>,
    bytes: usize,
}

impl Partition {
    pub(super) fn new(
        filter: usize,
        columns: &Columns,
        format: &Format,
        request: &SourceRequest,
        reading: &Arc<Reading>,
    ) -> Partition {
        let (of_value, beside) = columns.read(&request.projection);
        Partition {
            filter,
            decoder: format
                .decoder(&columns.values, &of_value)
                .naming_fields(&request.tuning),
            beside,
            reading: Arc::clone(reading),
            acknowledges: !request.saved,
            fetched: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Takes the messages that have arrived; returns their size in bytes.
    pub(super) fn fetch(&mut self) -> usize {
        if self.bytes >= COLLECTED_BYTES_MAX {
            return 0;
        }
        let Some(batch) = self.reading.take(self.filter, Batch::default()) else {
            return 0;
        };
        let bytes = batch.bytes.len().max(1);
        self.bytes += bytes;
        let fetched = self.prepare(batch);
        self.fetched.push_back(fetched);
        bytes
    }

    /// Finds the records in the messages.
    fn prepare(&mut self, batch: Batch) -> Fetched {
        let Batch {
            mut bytes,
            messages: ends,
            notes: all,
            since_ns,
        } = batch;
        let mut messages = Vec::with_capacity(ends.len());
        let mut notes = Vec::with_capacity(ends.len());
        let mut refused = vec![];
        let mut start = 0;
        for ((end, number), note) in ends.into_iter().zip(all) {
            let record = self.decoder.trim_message(&bytes[start..end]);
            let (length, before) = (
                record.len(),
                record.as_ptr() as usize - bytes[start..].as_ptr() as usize,
            );
            if length > RECORD_BYTES_MAX {
                refused.push(self.decoder.reject_message(record, number));
            } else {
                let from = start + before;
                self.decoder
                    .prepare_message(&mut bytes[from..from + length]);
                messages.push(Message {
                    start: from as u32,
                    end: (from + length) as u32,
                    number,
                });
                notes.push(note);
            }
            start = end;
        }
        Fetched {
            block: Buffer::from(bytes),
            messages,
            notes,
            refused,
            at: 0,
            since_ns,
        }
    }
}

impl Collected for Partition {
    fn number(&self) -> u32 {
        self.filter as u32
    }

    fn ingest_ns(&self) -> Option<u64> {
        self.fetched.front().map(|fetched| fetched.since_ns)
    }

    fn records(&self) -> usize {
        let fetched = self.fetched.iter();
        fetched
            .map(|batch| batch.messages.len() - batch.at + batch.refused.len())
            .sum()
    }

    fn is_full(&mut self) -> bool {
        self.bytes >= COLLECTED_BYTES_MAX
    }

    fn take_rows(&mut self, rows_max: usize) -> Option<DecodedRows> {
        let fetched = self.fetched.front_mut()?;
        let until = fetched.messages.len().min(fetched.at + rows_max);
        let (from, is_last) = (fetched.at, until == fetched.messages.len());
        fetched.at = until;
        let messages = &fetched.messages[from..until];
        let rows = self.decoder.decode_messages(&fetched.block, messages);
        let notes = &fetched.notes[from..until];
        let mut rows = self.beside.complete(rows, messages, notes);
        let last = messages.last().map_or(0, |message| message.number);
        let is_due = |refused: &Rejected| is_last || refused.position <= Some(last);
        let due = fetched
            .refused
            .iter()
            .take_while(|refused| is_due(refused))
            .count();
        rows.rejected.extend(fetched.refused.drain(..due));
        rows.rejected.sort_by_key(|refused| refused.position);
        let refused = rows.rejected.last().and_then(|refused| refused.position);
        let done = last.max(refused.unwrap_or(0)) + 1;
        if is_last && let Some(fetched) = self.fetched.pop_front() {
            self.bytes -= fetched.block.len().max(1);
        }
        if self.acknowledges {
            self.reading.acknowledge(self.filter, done);
        }
        Some(rows)
    }
}
