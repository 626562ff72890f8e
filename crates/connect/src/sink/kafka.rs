//! The kafka sink: each row is a message of a topic.
//!
//! librdkafka's producer takes rows into a bounded queue, sends them in batches, tries again what
//! was not acknowledged, and reports each row's delivery. While its queue is full the sink is not
//! ready, and a report wakes the worker. At the end everything is delivered, or the query fails: a
//! row is given up only when no broker has taken it for `delivery.timeout.ms`.
//!
//! The producer is idempotent: a retry neither doubles nor reorders rows. A query that is started
//! again writes its rows again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Sink, SinkConnector, SinkRequest};

use crate::encode::Encoder;
use crate::format::Format;
use crate::kafka::client::{Context, Producer};
use crate::kafka::partitions::{ANSWER_TIMEOUT, NoTopic, partitions_of};
use crate::kafka::presence::Presence;
use crate::kafka::queue::EventQueue;
use crate::kafka::settings::{Cluster, Keys, check_delivery};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// How long a broker may take to make a topic that is written for the first time.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the end looks at what is still to be delivered.
const FINISH_LOOK: Duration = Duration::from_millis(100);

/// A table that is written to a topic.
#[derive(Debug)]
pub(crate) struct KafkaConnector {
    schema: SchemaRef,
    format: Format,
    keys: Option<Keys>,
    cluster: Arc<Cluster>,
    presence: Arc<Presence>,
}

impl KafkaConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<KafkaConnector, OptionError> {
        let cluster = Cluster::read(table, options)?;
        if cluster.topics.len() > 1 {
            let mend = "use a table for each topic";
            return Err(OptionError::new(
                "topic",
                "a sink writes to one topic",
                mend,
            ));
        }
        check_delivery(options)?;
        Ok(KafkaConnector {
            schema: Arc::clone(&table.schema),
            format,
            keys: Keys::read(table, options)?,
            presence: Arc::new(Presence::new(&table.name, &cluster.servers)),
            cluster: Arc::new(cluster),
        })
    }
}

impl SinkConnector for KafkaConnector {
    fn max_instances(&self) -> usize {
        usize::MAX
    }

    fn describe(&self) -> String {
        format!("kafka {}", self.cluster.topics[0])
    }

    fn sink(&self, _request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let key = match &self.keys {
            None => None,
            Some(keys) => {
                let schema = Arc::new(self.schema.project(&keys.columns)?);
                let encoder = Encoder::new(&keys.format, &schema);
                Some((keys.columns.clone(), encoder))
            }
        };
        Ok(Box::new(KafkaSink {
            cluster: Arc::clone(&self.cluster),
            presence: Arc::clone(&self.presence),
            encoder: Encoder::new(&self.format, &self.schema),
            key,
            waiting: Waiting::default(),
            client: None,
        }))
    }
}

/// The queue goes before the producer that it belongs to.
struct Client {
    events: EventQueue,
    producer: Producer,
}

/// Rows that the producer has not taken yet: those of one chunk.
#[derive(Default)]
struct Waiting {
    values: Texts,
    keys: Texts,
    /// The first that the producer has not taken.
    next: usize,
}

/// Texts, each of which ends with a line end.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn get(&self, nth: usize) -> &[u8] {
        let start = if nth == 0 { 0 } else { self.ends[nth - 1] };
        &self.bytes[start..self.ends[nth] - 1]
    }
}

struct KafkaSink {
    cluster: Arc<Cluster>,
    presence: Arc<Presence>,
    encoder: Encoder,
    /// The columns of the key, and what writes them.
    key: Option<(Vec<usize>, Encoder)>,
    waiting: Waiting,
    client: Option<Client>,
}

impl KafkaSink {
    fn topic(&self) -> &str {
        &self.cluster.topics[0]
    }

    /// Hears of deliveries; fails when a row could not be delivered.
    fn hear(&self) -> Result<()> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        let events = client.events.length();
        if events == 0 {
            return Ok(());
        }
        // Each event is taken out by one poll, and reports come in batches.
        for _ in 0..events {
            client.producer.poll(Duration::ZERO);
        }
        self.check(&client.producer)
    }

    fn check(&self, producer: &Producer) -> Result<()> {
        let context: &Context = producer.context();
        if let Some((code, reason)) = producer.client().fatal_error() {
            return Err(Error::new(self.place(), format!("{code}: {reason}")));
        }
        match context.undelivered() {
            None => Ok(()),
            Some(reason) => {
                let mend =
                    "what was written before may be there: read the topic before writing it again";
                let reason = format!("a row could not be delivered: {reason}");
                Err(Error::new(self.place(), reason).mend(mend))
            }
        }
    }

    fn place(&self) -> String {
        format!("{} topic {}", self.cluster.servers, self.topic())
    }

    /// Hands over what the producer takes; whether that was all.
    fn send(&mut self) -> Result<bool> {
        let Some(client) = &self.client else {
            return Ok(true);
        };
        let waiting = &mut self.waiting;
        while waiting.next < waiting.values.ends.len() {
            let mut record: BaseRecord<'_, [u8], [u8]> =
                BaseRecord::to(&self.cluster.topics[0]).payload(waiting.values.get(waiting.next));
            if self.key.is_some() {
                record = record.key(waiting.keys.get(waiting.next));
            }
            match client.producer.send(record) {
                Ok(()) => waiting.next += 1,
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) => return Ok(false),
                Err((error, _)) => {
                    let bytes = waiting.values.get(waiting.next).len();
                    let reason = format!("a row of {bytes} bytes can't be sent: {error}");
                    return Err(Error::new(self.place(), reason));
                }
            }
        }
        waiting.values.clear();
        waiting.keys.clear();
        waiting.next = 0;
        Ok(true)
    }

    /// Waits until everything is delivered, or until a row is given up.
    fn wait_until_delivered(&mut self) -> Result<()> {
        loop {
            self.hear()?;
            let all_sent = self.send()?;
            let Some(client) = &self.client else {
                return Ok(());
            };
            if all_sent && client.producer.in_flight_count() == 0 {
                return self.check(&client.producer);
            }
            client.producer.poll(FINISH_LOOK);
        }
    }

    /// Sees to it that the topic is there: what can't be written is said before any work is done.
    fn find_topic(&self, producer: &Producer) -> Result<()> {
        let begin = Instant::now();
        loop {
            let error = match partitions_of(producer, self.topic(), ANSWER_TIMEOUT) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            // Asking has made it, where brokers make topics by themselves.
            if matches!(error, NoTopic::Missing) && begin.elapsed() < CREATION_TIMEOUT {
                std::thread::sleep(FINISH_LOOK);
                continue;
            }
            producer.poll(FINISH_LOOK);
            let reason = self.presence.reason();
            return Err(self.cluster.no_topic(self.topic(), error, &reason));
        }
    }
}

impl Sink for KafkaSink {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        let producer = self.cluster.producer(&self.presence)?;
        self.find_topic(&producer)?;
        // SAFETY: `Client` drops the queue before the producer.
        let mut events = unsafe { EventQueue::main(producer.client().native_ptr()) };
        events.ring(waiter.waker());
        self.client = Some(Client { events, producer });
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        self.hear()?;
        self.send()
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let Waiting { values, keys, .. } = &mut self.waiting;
        let place = format!("topic {}", self.cluster.topics[0]);
        let ends = &mut values.ends;
        self.encoder
            .encode_each(&chunk.batch, &mut values.bytes, |end| ends.push(end))
            .map_err(|error| error.at(&place))?;
        if let Some((columns, encoder)) = &mut self.key {
            let batch = chunk.batch.project(columns)?;
            let ends = &mut keys.ends;
            encoder
                .encode_each(&batch, &mut keys.bytes, |end| ends.push(end))
                .map_err(|error| error.at(&place))?;
        }
        self.send()?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.hear()?;
        self.send()?;
        Ok(())
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        let delivered = if complete {
            self.wait_until_delivered()
        } else {
            Ok(())
        };
        if let Some(client) = &self.client
            && (!complete || delivered.is_err())
        {
            // The query has failed: what is not out yet stays here.
            client
                .producer
                .purge(PurgeConfig::default().queue().inflight());
        }
        self.client = None;
        delivered
    }
}
