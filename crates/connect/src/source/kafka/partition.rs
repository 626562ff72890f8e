//! One partition: its queue, and the messages that were taken from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::TopicPartitionList;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;
use slackwater_engine::source::SourceRequest;
use slackwater_engine::time::now_ns;

use super::bookmark::Bookmark;
use super::messages::{MessageBlock, Messages};
use super::metadata::Columns;
use crate::block::BlockPool;
use crate::format::{DecodedRows, Format};
use crate::kafka::client::{Consumer, Context};
use crate::kafka::partitions::{Place, Range};
use crate::kafka::queue::EventQueue;
use crate::parsers::{Parsers, Task};
use crate::source::arrivals::Arrivals;
use crate::source::stream::{Collected, Shared};

/// The parameters for reading a partition.
pub(super) struct Spec {
    pub(super) columns: Columns,
    pub(super) format: Format,
    pub(super) pool: Arc<BlockPool>,
    pub(super) request: SourceRequest,
}

/// Woken by librdkafka when the partition's queue is no longer empty.
#[derive(Default)]
struct Bell {
    woken: AtomicBool,
    /// When the queue woke it.
    time_ns: AtomicU64,
}

/// One partition.
pub(super) struct Partition {
    place: Place,
    /// The same queue, for its length; dropped before the consumer that `queue` holds.
    waiting: EventQueue,
    queue: PartitionQueue<Context>,
    bell: Arc<Bell>,
    /// Whether there may be messages in the queue.
    readable: bool,
    /// The offset of the next message.
    next: u64,
    /// Whether `next` is a known offset, and not a first offset that was not requested yet.
    placed: bool,
    /// After the last offset that is read.
    end: Option<u64>,
    ended: bool,
    messages: Messages,
    /// The earliest time at which messages in the queue can have arrived.
    arrivals: Arrivals,
    /// When the waker was woken last.
    woken_ns: u64,
    /// When the first message of the batch had arrived.
    ingest_ns: Option<u64>,
    /// Batches that other threads parse, which come before the one that is collected, and the offset of the
    /// first message of each.
    ahead: VecDeque<Arc<Task<MessageBlock>>>,
    firsts: VecDeque<u64>,
    /// The most messages of a batch.
    rows_max: usize,
    helped_ns: u64,
}

impl Partition {
    pub(super) fn new(
        spec: &Spec,
        place: &Place,
        range: &Range,
        consumer: &Arc<Consumer>,
        waker: &Waker,
    ) -> Result<Partition> {
        let queue = consumer.split_partition_queue(&place.topic, place.partition);
        let mut queue = queue.ok_or_else(|| Error::new(place.name(), "can't be given a queue"))?;
        let bell = Arc::new(Bell::default());
        let (rings, waker) = (Arc::clone(&bell), waker.clone());
        queue.set_nonempty_callback(move || {
            rings.time_ns.store(now_ns(), Ordering::Relaxed);
            // Release: pairs with the swap in `look`, which then sees the time.
            rings.woken.store(true, Ordering::Release);
            waker.wake();
        });
        let begin = range
            .begin
            .to_raw()
            .and_then(|begin| u64::try_from(begin).ok());
        let end = range.end.map(|end| end.max(0) as u64);
        let client = consumer.client().native_ptr();
        // SAFETY: the consumer is alive as long as `queue`, which goes after it.
        let waiting = unsafe { EventQueue::partition(client, &place.topic, place.partition) };
        let (of_value, beside) = spec.columns.read(&spec.request.projection);
        let make_decoder = {
            let (format, values) = (spec.format.clone(), Arc::clone(&spec.columns.values));
            let tuning = Arc::clone(&spec.request.tuning);
            move || format.decoder(&values, &of_value).naming_fields(&tuning)
        };
        Ok(Partition {
            place: place.clone(),
            waiting,
            queue,
            bell,
            readable: true,
            next: begin.unwrap_or(0),
            placed: begin.is_some(),
            end,
            ended: end.is_some_and(|end| begin.unwrap_or(0) >= end),
            messages: Messages::new(make_decoder, beside, place, &spec.pool),
            arrivals: Arrivals::new(now_ns()),
            woken_ns: 0,
            ingest_ns: None,
            ahead: VecDeque::new(),
            firsts: VecDeque::new(),
            rows_max: usize::MAX,
            helped_ns: 0,
        })
    }

    pub(super) fn name(&self) -> String {
        self.place.name()
    }

    pub(super) fn is(&self, topic: &str, partition: i32) -> bool {
        self.place.partition == partition && self.place.topic == topic
    }

    /// The partition, as a list for librdkafka.
    pub(super) fn as_list(&self) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition(&self.place.topic, self.place.partition);
        list
    }

    /// The bytes of messages taken so far.
    pub(super) fn bytes(&self) -> usize {
        self.messages.bytes
    }

    /// Whether there may be messages to read.
    pub(super) fn look(&mut self) -> bool {
        // Acquire: pairs with the store in the callback. A later wake-up is seen next time.
        if self.bell.woken.swap(false, Ordering::Acquire) {
            self.readable = true;
            self.woken_ns = self.bell.time_ns.load(Ordering::Relaxed);
        }
        self.is_readable()
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable && !self.ended
    }

    /// Whether everything was passed on and no more will come.
    pub(super) fn is_finished(&self) -> bool {
        let is_empty = self.messages.is_empty() && self.ahead.is_empty();
        self.ended && is_empty && self.ingest_ns.is_none()
    }

    /// Takes messages from the queue, which was checked from `time_ns` on.
    pub(super) fn read(
        &mut self,
        rows_max: usize,
        bytes_max: usize,
        time_ns: u64,
    ) -> std::result::Result<(), KafkaError> {
        self.rows_max = rows_max;
        let until = self.messages.bytes + bytes_max;
        while !self.ended && self.messages.has_room(rows_max) && self.messages.bytes < until {
            match self.queue.poll(Duration::ZERO) {
                None => {
                    self.readable = false;
                    self.arrivals.emptied(time_ns);
                    return Ok(());
                }
                Some(Ok(message)) => {
                    // Messages in a queue that was empty arrived at the wake-up.
                    let since_ns = self.arrivals.read(1, self.woken_ns);
                    self.placed = true;
                    if take(&mut self.messages, &mut self.next, self.end, &message) {
                        self.ingest_ns.get_or_insert(since_ns);
                    }
                    self.ended = self.end.is_some_and(|end| self.next >= end);
                }
                // Said only of a source that has an end, and the log is at least that long.
                Some(Err(KafkaError::PartitionEOF(_))) => self.ended = self.end.is_some(),
                Some(Err(error)) => return Err(error),
            }
        }
        if self.arrivals.wants_mark() {
            self.arrivals.left(self.waiting.length() as u64, now_ns());
        }
        Ok(())
    }

    /// Takes a message that did not arrive through the queue.
    pub(super) fn push(&mut self, message: &BorrowedMessage<'_>) {
        if self.ended {
            return;
        }
        self.placed = true;
        if take(&mut self.messages, &mut self.next, self.end, message) {
            self.ingest_ns.get_or_insert(self.woken_ns);
        }
    }

    /// Where to resume after the rows that were passed on.
    pub(super) fn bookmark(&self) -> Bookmark {
        let waiting = self.firsts.front().copied().or(self.messages.first());
        Bookmark {
            next: self.placed.then(|| waiting.unwrap_or(self.next)),
            end: self.end,
        }
    }
}

/// Takes a message; returns whether it is a record.
fn take(
    messages: &mut Messages,
    next: &mut u64,
    end: Option<u64>,
    message: &BorrowedMessage<'_>,
) -> bool {
    // Offsets are never negative in a message that was fetched.
    let offset = message.offset().max(0) as u64;
    let is_beyond = end.is_some_and(|end| offset >= end);
    // Reading a message again would give a row twice.
    let is_again = offset < *next;
    *next = (*next).max(offset + 1);
    match message.payload() {
        Some(payload) if !is_beyond && !is_again => messages.push(payload, message, offset),
        _ => false,
    }
}

impl Collected for Partition {
    fn number(&self) -> u32 {
        self.place.number
    }

    fn ingest_ns(&self) -> Option<u64> {
        // What was collected after batches ahead waits for them.
        self.ingest_ns.filter(|_| self.ahead.is_empty())
    }

    fn records(&self) -> usize {
        self.messages.places()
    }

    fn is_full(&mut self) -> bool {
        self.ingest_ns().is_some() && (self.ended || !self.messages.has_room(usize::MAX))
    }

    fn take_rows(&mut self, _rows_max: usize) -> Option<DecodedRows> {
        // No more messages were taken than fit a chunk.
        let rows = self.messages.rows();
        if rows.is_none() {
            self.ingest_ns = None;
        }
        rows
    }
}

impl Shared for Partition {
    type Work = MessageBlock;

    fn is_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    fn is_block_full(&self) -> bool {
        !self.messages.has_room(self.rows_max)
    }

    fn hand_over(
        &mut self,
        parsers: &Parsers<MessageBlock>,
        ahead_max: usize,
        _rows_max: usize,
    ) -> bool {
        if self.ahead.len() >= ahead_max {
            return false;
        }
        let ingest_ns = self.ingest_ns.take().unwrap_or_else(now_ns);
        let Some((first, block)) = self.messages.take(ingest_ns) else {
            return false;
        };
        parsers.submit(block, &mut self.ahead);
        self.firsts.push_back(first);
        true
    }

    fn shared_rows(
        &mut self,
        parsers: &Parsers<MessageBlock>,
        _rows_max: usize,
    ) -> Poll<Option<(DecodedRows, u64)>> {
        match parsers.take(&mut self.ahead) {
            Some(parsed) => {
                self.firsts.pop_front();
                self.helped_ns += parsed.helped_ns();
                Poll::Ready(Some((parsed.rows, parsed.ingest_ns)))
            }
            None if self.ahead.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn take_helped_ns(&mut self) -> u64 {
        std::mem::take(&mut self.helped_ns)
    }
}
