//! One instance's sink, on its worker.

use std::sync::Arc;
use std::time::Instant;

use rdkafka::producer::{Producer as _, PurgeConfig};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::Sink;

use super::client::{Client, LOOK, find_topic};
use super::rows::Rows;
use super::token::Token;
use super::transactions::{Transactions, abort};
use crate::kafka::presence::Presence;
use crate::kafka::settings::Cluster;

/// The hint for a row that could not be delivered.
const TWICE: &str = "what was written before may be there: read the topic before writing it again";

/// How rows are delivered.
pub(super) enum Mode {
    /// Rows are delivered; the query takes no checkpoints.
    Once,
    /// Rows are delivered before a checkpoint is stored.
    AtLeastOnce,
    /// Rows are committed with the checkpoint.
    ExactlyOnce {
        transactions: Arc<Transactions>,
        /// The last transaction that was prepared, and this incarnation.
        last: Token,
    },
}

pub(super) struct KafkaSink {
    cluster: Arc<Cluster>,
    presence: Arc<Presence>,
    rows: Rows,
    mode: Mode,
    /// The producer that takes rows; `None` while there is no transaction.
    client: Option<Arc<Client>>,
    /// When its transaction began.
    begun: Instant,
    /// The previous producer, until its rows are delivered: rows keep their order.
    before: Option<Arc<Client>>,
}

impl KafkaSink {
    pub(super) fn new(
        cluster: Arc<Cluster>,
        presence: Arc<Presence>,
        rows: Rows,
        mode: Mode,
    ) -> KafkaSink {
        KafkaSink {
            cluster,
            presence,
            rows,
            mode,
            client: None,
            begun: Instant::now(),
            before: None,
        }
    }

    fn hear(&self) -> Result<()> {
        let mut clients = self.client.iter().chain(&self.before);
        clients.try_for_each(|client| client.hear())
    }

    /// Passes on the rows that the producer accepts; returns whether these were all.
    fn send(&mut self) -> Result<bool> {
        if self.rows.is_empty() {
            return Ok(true);
        }
        if let Some(before) = &self.before {
            if !before.is_delivered() {
                return Ok(false);
            }
            self.before = None;
        }
        if self.client.is_none()
            && let Mode::ExactlyOnce { transactions, .. } = &self.mode
        {
            self.client = transactions.take()?;
            self.begun = Instant::now();
        }
        match &self.client {
            Some(client) => self.rows.send(&client.producer, &self.cluster.servers),
            None => Ok(false),
        }
    }

    /// Passes on all rows, which may wait for brokers, or for the commit of an earlier transaction.
    fn send_all(&mut self) -> Result<()> {
        loop {
            self.hear()?;
            if self.send()? {
                return Ok(());
            }
            self.wait();
        }
    }

    /// Waits until everything is delivered, or until a row is given up.
    fn deliver_all(&mut self) -> Result<()> {
        loop {
            self.send_all()?;
            let Some(client) = &self.client else {
                return Ok(());
            };
            if client.is_delivered() {
                return client.check();
            }
            self.wait();
        }
    }

    fn wait(&self) {
        match self.before.as_ref().or(self.client.as_ref()) {
            Some(client) => client.producer.poll(LOOK),
            None => std::thread::sleep(LOOK),
        }
    }
}

impl Sink for KafkaSink {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        let waker = waiter.waker();
        if let Mode::ExactlyOnce { transactions, last } = &self.mode {
            return transactions.open(last.epoch, &waker);
        }
        let producer = self.cluster.producer(&self.presence)?;
        find_topic(&self.cluster, &self.presence, &producer)?;
        self.client = Some(Arc::new(Client::new(&self.cluster, producer, waker, TWICE)));
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        self.hear()?;
        self.send()
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        self.rows.take(chunk)?;
        self.send()?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.hear()?;
        self.send()?;
        Ok(())
    }

    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        match &self.mode {
            Mode::Once => return Ok(None),
            Mode::AtLeastOnce => {
                self.deliver_all()?;
                return Ok(None);
            }
            Mode::ExactlyOnce { .. } => self.send_all()?,
        }
        let Mode::ExactlyOnce { transactions, last } = &mut self.mode else {
            return Ok(None);
        };
        let Some(client) = self.client.take() else {
            return Ok(None);
        };
        last.number += 1;
        transactions.prepare(*last, Arc::clone(&client), self.begun)?;
        self.before = Some(client);
        Ok(Some(last.to_string()))
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        let delivered = match (&self.mode, complete) {
            (_, false) => Ok(()),
            (Mode::ExactlyOnce { .. }, true) if self.client.is_none() && self.rows.is_empty() => {
                Ok(())
            }
            (Mode::ExactlyOnce { transactions, .. }, true) => Err(Error::new(
                transactions.place(),
                "rows were written after the last checkpoint",
            )),
            (_, true) => self.deliver_all(),
        };
        let failed = !complete || delivered.is_err();
        if let Mode::ExactlyOnce { transactions, .. } = &self.mode
            && failed
        {
            transactions.give_up();
        }
        if let Some(client) = self.client.take()
            && failed
        {
            // The query has failed: rows that were not sent yet are dropped.
            match &self.mode {
                Mode::ExactlyOnce { .. } => abort(&client.producer),
                _ => client
                    .producer
                    .purge(PurgeConfig::default().queue().inflight()),
            }
        }
        self.before = None;
        delivered
    }
}
