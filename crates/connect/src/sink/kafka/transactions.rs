//! The transactions of one sink: the rows between two checkpoints form one.
//!
//! A broker has one transaction per transactional id, so producers take turns: while one waits for its
//! checkpoint, the next one takes rows. The sink prepares transactions on its worker, the connector commits
//! them on another thread, in the order in which they were prepared; this module is what they share.
//!
//! librdkafka can't continue another process's transaction. So a prepared transaction is lost with its
//! process, and the query then resumes from the checkpoint before; see [`super::recovery`].
//!
//! Shutdown: producers go with the connector. A transaction that is not committed by then is aborted
//! by the next owner of the name, or by the broker when it times out.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{Producer as _, PurgeConfig};
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;

use super::client::{Client, FENCED, LOOK, code_of, find_topic};
use super::marker::{self, Marker};
use super::token::Token;
use crate::kafka::client::Producer;
use crate::kafka::presence::Presence;
use crate::kafka::settings::Cluster;

/// Producers of one sink: one takes rows, one is being committed, and one waits for a checkpoint that is
/// being stored. A query that resumes fences all of them.
pub(super) const PRODUCERS_MAX: usize = 3;

/// The producers that take turns if nothing fails.
const PRODUCERS_AT_FIRST: usize = 2;

/// How long a broker may take to fence the previous owner of the id, and end its transaction.
const FENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long one attempt may take before deciding whether to try again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// How long a failed query waits for the end of its transaction, for which readers wait, too.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// What happens when a failed query is restarted, for messages.
const BEFORE: &str = "when it is started again, the query resumes from the last checkpoint whose \
                      transaction is committed";

/// The transactions of a sink.
pub(super) struct Transactions {
    pub(super) cluster: Arc<Cluster>,
    pub(super) presence: Arc<Presence>,
    pub(super) prefix: String,
    state: Mutex<State>,
    /// Held while something is committed: one after the other.
    committing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Producers without a transaction.
    free: Vec<Arc<Client>>,
    made: usize,
    /// In the order in which they were prepared.
    prepared: VecDeque<Prepared>,
    /// The last that was committed in this process.
    committed: Option<Token>,
    group: Option<Arc<ConsumerGroupMetadata>>,
    /// Wakes the sink, which may wait for a producer.
    waker: Option<Waker>,
    given_up: bool,
}

#[derive(Clone)]
struct Prepared {
    token: Token,
    client: Arc<Client>,
    begun: Instant,
    /// Whether its checkpoint is stored.
    is_asked: bool,
}

impl Transactions {
    pub(super) fn new(
        cluster: &Arc<Cluster>,
        presence: &Arc<Presence>,
        prefix: &str,
    ) -> Transactions {
        Transactions {
            cluster: Arc::clone(cluster),
            presence: Arc::clone(presence),
            prefix: prefix.to_string(),
            state: Mutex::default(),
            committing: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn place(&self) -> String {
        let (servers, topic) = (&self.cluster.servers, &self.cluster.topics[0]);
        format!("{servers} topic {topic}, transactions of '{}'", self.prefix)
    }

    /// Producers with these numbers in their names, which no other process has any longer: their previous
    /// owners are fenced, and the transactions of these aborted.
    pub(super) fn fence(&self, numbers: Range<usize>) -> Result<Vec<Producer>> {
        let mut producers = vec![];
        for nth in numbers {
            let id = format!("{}-{nth}", self.prefix);
            producers.push(self.cluster.transactional(&self.presence, &id)?);
        }
        if let Some(first) = producers.first() {
            find_topic(&self.cluster, &self.presence, first)?;
        }
        // In parallel, since most of the time is waiting, during which a restored query does nothing.
        std::thread::scope(|scope| {
            let fencing = producers
                .iter()
                .map(|one| scope.spawn(|| self.take_over(one)));
            let fencing = fencing.collect::<Vec<_>>();
            let mut fenced = fencing.into_iter().map(|fencing| match fencing.join() {
                Ok(fenced) => fenced,
                Err(panic) => Err(Error::of_panic(self.place(), panic.as_ref())),
            });
            fenced.try_for_each(|fenced| fenced)
        })?;
        Ok(producers)
    }

    fn take_over(&self, producer: &Producer) -> Result<()> {
        let until = Instant::now() + FENCE_TIMEOUT;
        let ends = || Instant::now() > until;
        again(ends, || {
            producer.poll(Duration::ZERO);
            producer.init_transactions(ATTEMPT)
        })
        .map_err(|error| self.no_producer(&error))
    }

    fn no_producer(&self, error: &KafkaError) -> Error {
        let hint = match code_of(error) {
            Some(Code::InvalidTransactionTimeout) => {
                "the broker's transaction.max.timeout.ms is less: set \
                 'properties.transaction.timeout.ms' to that"
            }
            Some(Code::TransactionalIdAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
                "let this user write with transactional ids that begin so"
            }
            _ => "start the broker, or correct 'properties.bootstrap.servers'",
        };
        let reason = format!("can't have transactions: {error}{}", self.presence.reason());
        Error::new(self.place(), reason).hint(hint)
    }

    /// Makes the producers that take turns. `epoch` is the incarnation that begins.
    pub(super) fn open(&self, epoch: u64, waker: &Waker) -> Result<()> {
        let producers = self.fence(0..PRODUCERS_AT_FIRST)?;
        let marker = Marker::read(&self.cluster, &self.presence, &self.prefix)?;
        if let Some(last) = marker.last.filter(|last| last.epoch > epoch) {
            let reason = format!("transaction {last} was committed, and this is epoch {epoch}");
            return Err(Error::new(self.place(), reason).hint(FENCED));
        }
        let made = producers.len();
        let producers = producers.into_iter().rev();
        // Transactions that an earlier sink of this connector has prepared were aborted by fencing it.
        *self.state() = State {
            free: producers.map(|one| self.client(one, waker)).collect(),
            made,
            group: Some(Arc::new(marker.group)),
            waker: Some(waker.clone()),
            ..State::default()
        };
        Ok(())
    }

    fn client(&self, producer: Producer, waker: &Waker) -> Arc<Client> {
        let waker = waker.clone();
        Arc::new(Client::new(&self.cluster, producer, waker, BEFORE))
    }

    /// A producer with a transaction that has just begun; `None` while all have one. The sink is woken
    /// when one is free again.
    pub(super) fn take(&self) -> Result<Option<Arc<Client>>> {
        let (free, waker, made) = {
            let mut state = self.state();
            (state.free.pop(), state.waker.clone(), state.made)
        };
        let client = match (free, waker) {
            (Some(client), _) => client,
            (None, Some(waker)) if made < PRODUCERS_MAX => {
                let Some(producer) = self.fence(made..made + 1)?.pop() else {
                    return Ok(None);
                };
                self.state().made += 1;
                self.client(producer, &waker)
            }
            _ => return Ok(None),
        };
        let begun = client.producer.begin_transaction();
        begun.map_err(|error| self.broken(&error, "begin", Duration::ZERO))?;
        Ok(Some(client))
    }

    /// The transaction takes no more rows.
    pub(super) fn prepare(&self, token: Token, client: Arc<Client>, begun: Instant) -> Result<()> {
        let mut state = self.state();
        if let Some(oldest) = state.prepared.front()
            && !oldest.is_asked
            && state.prepared.len() + 1 == PRODUCERS_MAX
        {
            let reason = format!(
                "two checkpoints were not stored, and {} waits",
                oldest.token
            );
            return Err(Error::new(self.place(), reason).hint(BEFORE));
        }
        state.prepared.push_back(Prepared {
            token,
            client,
            begun,
            is_asked: false,
        });
        Ok(())
    }

    /// Commits everything that was prepared up to the token.
    pub(super) fn commit(&self, token: Token) -> Result<()> {
        let _one = self
            .committing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.state();
            if state.committed.is_some_and(|committed| token <= committed) {
                return Ok(());
            }
            let mut prepared = state.prepared.iter_mut();
            if !prepared.any(|prepared| prepared.token == token) {
                let reason = format!("transaction {token} was not prepared here");
                return Err(Error::new(self.place(), reason));
            }
            let asked = state.prepared.iter_mut();
            let asked = asked.filter(|prepared| prepared.token <= token);
            asked.for_each(|prepared| prepared.is_asked = true);
        }
        loop {
            let next = self.state().prepared.front().cloned();
            let Some(next) = next.filter(|next| next.token <= token) else {
                return Ok(());
            };
            self.commit_one(&next)?;
            let mut state = self.state();
            state.prepared.pop_front();
            state.committed = Some(next.token);
            state.free.push(next.client);
            if let Some(waker) = &state.waker {
                waker.wake();
            }
        }
    }

    fn commit_one(&self, prepared: &Prepared) -> Result<()> {
        let group = self.state().group.clone();
        let group = group.ok_or_else(|| Error::new(self.place(), "no sink is open"))?;
        let producer = &prepared.client.producer;
        let until = prepared.begun + self.cluster.transaction_timeout();
        let ends = || self.state().given_up || Instant::now() > until;
        commit(
            producer,
            prepared.token,
            &self.cluster.topics[0],
            &group,
            ends,
        )
        .map_err(|error| self.broken(&error, "commit", prepared.begun.elapsed()))
    }

    /// The error for a transaction that can't continue.
    fn broken(&self, error: &KafkaError, what: &str, age: Duration) -> Error {
        let timeout = self.cluster.transaction_timeout();
        let has_ended = matches!(
            code_of(error),
            Some(
                Code::Fenced
                    | Code::ProducerFenced
                    | Code::InvalidProducerEpoch
                    | Code::InvalidProducerIdMapping
                    | Code::InvalidTransactionalState
                    | Code::UnknownProducerId
            )
        );
        let (reason, hint) = if age >= timeout {
            (
                format!(
                    "a transaction took {} s and may take {} s: the broker has aborted it, unless \
                     it was committed before",
                    age.as_secs(),
                    timeout.as_secs()
                ),
                "take checkpoints more often, or set 'properties.transaction.timeout.ms' and the \
                 broker's transaction.max.timeout.ms; the query resumes from the checkpoint before",
            )
        } else if has_ended {
            (
                format!("the broker has ended this sink's transactions: {error}"),
                FENCED,
            )
        } else {
            (format!("can't {what} a transaction: {error}"), BEFORE)
        };
        Error::new(self.place(), reason).hint(hint)
    }

    /// The query has failed: transactions that are not being committed are not committed any more.
    pub(super) fn give_up(&self) {
        self.state().given_up = true;
    }
}

/// Aborts a transaction, as far as that can be done quickly.
pub(super) fn abort(producer: &Producer) {
    producer.purge(PurgeConfig::default().queue().inflight());
    // Purged rows are reported: without reading the reports, the transaction would wait for them.
    let _ = producer.flush(ABORT_TIMEOUT);
    // Nothing depends on it: the next owner of the id does the same.
    let _ = producer.abort_transaction(ABORT_TIMEOUT);
}

/// Delivers what a transaction holds, and commits it with its marker.
pub(super) fn commit(
    producer: &Producer,
    token: Token,
    topic: &str,
    group: &ConsumerGroupMetadata,
    ends: impl Fn() -> bool,
) -> std::result::Result<(), KafkaError> {
    let marker = marker::offsets(topic, token);
    again(&ends, || {
        producer.send_offsets_to_transaction(&marker, group, ATTEMPT)
    })?;
    again(&ends, || producer.commit_transaction(ATTEMPT))
}

/// Repeats an attempt that may succeed, until it no longer makes sense. librdkafka continues where
/// it was.
fn again(
    ends: impl Fn() -> bool,
    attempt: impl Fn() -> std::result::Result<(), KafkaError>,
) -> std::result::Result<(), KafkaError> {
    loop {
        let error = match attempt() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let passes = match &error {
            KafkaError::Transaction(error) => error.is_retriable(),
            KafkaError::Flush(code) => *code == Code::OperationTimedOut,
            _ => false,
        };
        if !passes || ends() {
            return Err(error);
        }
        std::thread::sleep(LOOK);
    }
}
