//! Clients of librdkafka, and what their errors mean for a query.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, ProducerContext};
use slackwater_engine::error::{Error, Result};

use super::presence::Presence;
use super::settings::Cluster;

/// Messages that a partition's queue may hold before librdkafka stops fetching, in bytes over all partitions
/// of an instance. A fetch in progress may exceed it, by 1 MiB per partition.
const FETCHED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The minimum for one partition.
const FETCHED_BYTES_MIN: usize = 64 * 1024;

/// How long librdkafka stops fetching a partition whose queue was full: 64 MiB take longer to read. Its own
/// default of 1 s would starve a fast reader.
const FULL_QUEUE_PAUSE_MS: usize = 20;

/// Rows and bytes that an instance's producer holds until they are acknowledged.
const UNSENT_ROWS_MAX: usize = 100_000;
const UNSENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long a producer with transactions waits for an answer: librdkafka's default for producers without
/// transactions.
const ANSWER_MAX_MS: u128 = 60_000;

/// A consumer.
pub(crate) type Consumer = BaseConsumer<Context>;

/// A producer.
pub(crate) type Producer = BaseProducer<Context>;

/// Receives a client's events other than messages.
pub(crate) struct Context {
    presence: Arc<Presence>,
    /// The text of the last error; the code alone comes with the event.
    reason: Mutex<String>,
    /// Why a row could not be delivered: the first one's reason.
    undelivered: Mutex<Option<String>>,
}

impl Context {
    pub(crate) fn new(presence: &Arc<Presence>) -> Context {
        Context {
            presence: Arc::clone(presence),
            reason: Mutex::default(),
            undelivered: Mutex::default(),
        }
    }

    /// The text of the last error.
    fn reason(&self) -> String {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Why a row could not be delivered; `None` if all rows were.
    pub(crate) fn undelivered(&self) -> Option<String> {
        self.undelivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What an error of a consumer means.
    pub(crate) fn judge(&self, place: &str, error: &KafkaError) -> Verdict {
        let Some(code) = error.rdkafka_error_code() else {
            return Verdict::Fails(Error::new(place, error.to_string()));
        };
        if !matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            if code == Code::AllBrokersDown {
                return Verdict::Away;
            }
            if is_passing(code) {
                return Verdict::Passes;
            }
        }
        match code {
            Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
                Verdict::TopicMissing
            }
            Code::AutoOffsetReset | Code::OffsetOutOfRange => {
                let hint = "the topic keeps its rows for too short a time, or was created again: \
                            begin with 'scan.startup.mode' = 'earliest-offset'";
                Verdict::Fails(Error::new(place, self.reason()).hint(hint))
            }
            Code::TopicAuthorizationFailed => {
                let hint = "let this user read the topic";
                Verdict::Fails(Error::new(place, self.reason()).hint(hint))
            }
            Code::NotImplemented => {
                let hint = "for Zstandard build with: cargo build --release --features kafka-zstd";
                Verdict::Fails(Error::new(place, self.reason()).hint(hint))
            }
            _ => Verdict::Fails(Error::new(place, self.reason())),
        }
    }
}

/// What an error of a consumer means for the query.
pub(crate) enum Verdict {
    /// librdkafka retries automatically.
    Passes,
    /// No broker is reachable; librdkafka keeps reconnecting, less and less often.
    Away,
    /// A broker does not know the topic; that may be because it has just started.
    TopicMissing,
    /// The query can't go on.
    Fails(Error),
}

fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::TimedOutQueue
            | Code::SSL
            | Code::Authentication
            | Code::Retry
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::RequestTimedOut
            | Code::BrokerNotAvailable
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::KafkaStorageError
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::OffsetNotAvailable
            // The group has a name and nothing else.
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::WaitingForCoordinator
            | Code::GroupAuthorizationFailed
    )
}

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => self.presence.lost(),
            Some(
                Code::BrokerTransportFailure | Code::Resolve | Code::SSL | Code::Authentication,
            ) => self.presence.note(reason),
            _ => {}
        }
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.to_string();
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => self.presence.back(),
            Err((error, _)) => {
                let reason = match error.rdkafka_error_code() {
                    Some(Code::MessageTimedOut) => {
                        format!("no broker has taken it{}", self.presence.reason())
                    }
                    _ => error.to_string(),
                };
                let mut first = self
                    .undelivered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(reason);
            }
        }
    }
}

impl Cluster {
    /// A consumer that is only used to list partitions.
    pub(crate) fn asker(&self, presence: &Arc<Presence>) -> Result<Consumer> {
        let config = self.config();
        Consumer::from_config_and_context(&config, Context::new(presence))
            .map_err(|error| self.unusable(&error))
    }

    /// A consumer of this many partitions, which wakes `ring` when it has events.
    pub(crate) fn consumer(
        &self,
        presence: &Arc<Presence>,
        partitions: usize,
        says_ends: bool,
        ring: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Consumer>> {
        let mut config = self.config();
        let share = (FETCHED_BYTES_MAX / partitions.max(1)).max(FETCHED_BYTES_MIN) / 1024;
        let mut set = |property: &str, value: String| {
            if !self.sets(property) {
                config.set(property, value);
            }
        };
        set("queued.max.messages.kbytes", share.to_string());
        set("fetch.queue.backoff.ms", FULL_QUEUE_PAUSE_MS.to_string());
        // librdkafka assigns partitions only to members of a group, so the group has a name. Nobody joins it,
        // and no offset is committed.
        config.set("group.id", "slackwater");
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        // Rows that were deleted must not be skipped silently.
        config.set("auto.offset.reset", "error");
        config.set("enable.partition.eof", says_ends.to_string());
        let mut consumer = Consumer::from_config_and_context(&config, Context::new(presence))
            .map_err(|error| self.unusable(&error))?;
        consumer.set_nonempty_callback(ring);
        Ok(Arc::new(consumer))
    }

    /// A consumer that is only used to read what a group has committed finally.
    pub(crate) fn reader_of_group(
        &self,
        presence: &Arc<Presence>,
        group: &str,
    ) -> Result<Consumer> {
        let mut config = self.config();
        config.set("group.id", group);
        config.set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed");
        Consumer::from_config_and_context(&config, Context::new(presence))
            .map_err(|error| self.unusable(&error))
    }

    /// A producer without transactions.
    pub(crate) fn producer(&self, presence: &Arc<Presence>) -> Result<Producer> {
        self.idempotent(self.config(), presence)
    }

    /// A producer with transactions, the only one with this transactional id.
    pub(crate) fn transactional(&self, presence: &Arc<Presence>, id: &str) -> Result<Producer> {
        let mut config = self.config();
        config.set("transactional.id", id);
        let timeout_ms = self.transaction_timeout().as_millis();
        config.set("transaction.timeout.ms", timeout_ms.to_string());
        // By default librdkafka would wait for an answer as long as for a transaction.
        if !self.sets("socket.timeout.ms") {
            let timeout_ms = timeout_ms.min(ANSWER_MAX_MS);
            config.set("socket.timeout.ms", timeout_ms.to_string());
        }
        self.idempotent(config, presence)
    }

    fn idempotent(&self, mut config: ClientConfig, presence: &Arc<Presence>) -> Result<Producer> {
        let mut set = |property: &str, value: usize| {
            if !self.sets(property) {
                config.set(property, value.to_string());
            }
        };
        set("queue.buffering.max.messages", UNSENT_ROWS_MAX);
        set("queue.buffering.max.kbytes", UNSENT_BYTES_MAX / 1024);
        config.set("enable.idempotence", "true");
        Producer::from_config_and_context(&config, Context::new(presence))
            .map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &KafkaError) -> Error {
        Error::new(self.servers.clone(), error.to_string()).hint("correct the 'properties.…'")
    }
}
