//! A producer with its events, and what can go wrong with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::Producer as _;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;

use crate::kafka::client::{Context, Producer};
use crate::kafka::partitions::{ANSWER_TIMEOUT, NoTopic, partitions_of};
use crate::kafka::presence::Presence;
use crate::kafka::queue::EventQueue;
use crate::kafka::settings::Cluster;

/// How long a broker may take to create a topic that is written for the first time.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to poll for something that is awaited.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Events that are handled in one go: more than there are batches under way.
const EVENTS_MAX: usize = 10_000;

/// The hint if another producer has taken the id.
pub(super) const FENCED: &str = "the query was started again elsewhere; or another one has the same \
                                 'transactional.id.prefix': give each its own";

/// A producer and the queue of its events, which is dropped first.
pub(super) struct Client {
    events: EventQueue,
    waker: Waker,
    pub(super) producer: Producer,
    place: String,
    /// The hint for a row that could not be delivered.
    hint: &'static str,
}

impl Client {
    /// A producer that wakes the worker when rows are delivered.
    pub(super) fn new(
        cluster: &Cluster,
        producer: Producer,
        waker: Waker,
        hint: &'static str,
    ) -> Client {
        // SAFETY: `Client` drops the queue before the producer.
        let mut events = unsafe { EventQueue::main(producer.client().native_ptr()) };
        events.ring(waker.clone());
        Client {
            events,
            waker,
            producer,
            place: format!("{} topic {}", cluster.servers, cluster.topics[0]),
            hint,
        }
    }

    /// Handles delivery reports; fails if a row could not be delivered.
    pub(super) fn hear(&self) -> Result<()> {
        let mut heard = 0;
        // One poll takes one event. The queue only wakes the worker if it was empty, so it must be emptied.
        while self.events.length() > 0 {
            if heard == EVENTS_MAX {
                self.waker.wake();
                break;
            }
            self.producer.poll(Duration::ZERO);
            heard += 1;
        }
        if heard == 0 { Ok(()) } else { self.check() }
    }

    /// Fails if a row could not be delivered, or if the producer has failed.
    pub(super) fn check(&self) -> Result<()> {
        let context: &Context = self.producer.context();
        if let Some((code, reason)) = self.producer.client().fatal_error() {
            let error = Error::new(&self.place, format!("{code}: {reason}"));
            return Err(match code {
                Code::Fenced => error.hint(FENCED),
                _ => error.hint(self.hint),
            });
        }
        match context.undelivered() {
            None => Ok(()),
            Some(reason) => {
                let reason = format!("a row could not be delivered: {reason}");
                Err(Error::new(&self.place, reason).hint(self.hint))
            }
        }
    }

    /// Whether all rows that the producer has accepted are delivered.
    pub(super) fn is_delivered(&self) -> bool {
        self.producer.in_flight_count() == 0
    }
}

/// Checks that the topic exists, so that missing permissions are reported before any work is done.
pub(super) fn find_topic(
    cluster: &Cluster,
    presence: &Arc<Presence>,
    producer: &Producer,
) -> Result<()> {
    let topic = &cluster.topics[0];
    let begin = Instant::now();
    loop {
        let error = match partitions_of(producer, topic, ANSWER_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        // The request has created it, if brokers create topics automatically.
        if matches!(error, NoTopic::Missing) && begin.elapsed() < CREATION_TIMEOUT {
            std::thread::sleep(LOOK);
            continue;
        }
        producer.poll(LOOK);
        return Err(cluster.no_topic(topic, error, &presence.reason()));
    }
}

/// The code of an error, including errors of transactions.
pub(super) fn code_of(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::Transaction(error) => Some(error.code()),
        error => error.rdkafka_error_code(),
    }
}
