//! The kafka sink: each row is a message of a topic.
//!
//! ```text
//! rows          a chunk's rows as messages client        librdkafka's producer, which takes them sink
//! both, on the worker transactions  the producers of a sink that is checkpointed token, marker which
//! transaction was committed last, for the incarnation after a crash
//! ```
//!
//! librdkafka's producer takes rows into a bounded queue, sends them in batches, tries again what was not
//! acknowledged, and reports each row's delivery. While its queue is full the sink is not ready, and a report
//! wakes the worker. At the end everything is delivered, or the query fails: a row is only given up if no
//! broker has accepted it for `delivery.timeout.ms`.
//!
//! The producer is idempotent: a retry neither duplicates nor reorders rows. Without checkpoints, a query
//! that is started again writes its rows again. With them, the rows between two checkpoints form one
//! transaction, which is committed when the checkpoint is stored.

mod client;
mod marker;
mod recovery;
mod rows;
mod sink;
mod token;
mod transactions;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::sink::{
    Accepts, Delivery, Recovered, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector,
    SinkDescription, SinkRequest,
};

use crate::format::Format;
use crate::kafka::presence::Presence;
use crate::kafka::settings::{Cluster, Delivering, Keys};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;
use rows::Rows;
use sink::{KafkaSink, Mode};
use token::Token;
use transactions::Transactions;

/// A table that is written to a topic.
pub(crate) struct KafkaConnector {
    schema: SchemaRef,
    format: Format,
    keys: Option<Keys>,
    /// It has a PRIMARY KEY: messages replace the last one of the same key.
    replaces: bool,
    cluster: Arc<Cluster>,
    presence: Arc<Presence>,
    delivering: Delivering,
    /// The transactions that sinks prepare and the connector commits; both are in one process.
    transactions: Arc<Transactions>,
}

impl KafkaConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<KafkaConnector, OptionError> {
        let cluster = Cluster::read(options)?;
        if cluster.topics.len() > 1 {
            let hint = "use a table for each topic";
            return Err(OptionError::new(
                "topic",
                "a sink writes to one topic",
                hint,
            ));
        }
        let delivering = Delivering::read(table, options)?;
        let cluster = Arc::new(cluster);
        let presence = Arc::new(Presence::new(&table.name, &cluster.servers));
        let transactions = Transactions::new(&cluster, &presence, &delivering.prefix);
        Ok(KafkaConnector {
            schema: Arc::clone(&table.schema),
            format,
            keys: Keys::read(table, options)?,
            replaces: !table.primary_key.is_empty(),
            presence,
            cluster,
            delivering,
            transactions: Arc::new(transactions),
        })
    }

    fn mode(&self, request: &SinkRequest) -> Result<Mode> {
        let fails = |reason: &str, hint: &str| {
            let place = format!("topic {}", self.cluster.topics[0]);
            Err(Error::new(place, reason).hint(hint))
        };
        match request.epoch {
            Some(_) if !self.delivering.exactly_once => Ok(Mode::AtLeastOnce),
            Some(epoch) if request.instances == 1 => {
                let transactions = Arc::clone(&self.transactions);
                Ok(Mode::ExactlyOnce {
                    transactions,
                    last: Token { epoch, number: 0 },
                })
            }
            Some(_) => fails(
                "several instances can't write in one transaction",
                "write with one, or with 'delivery' = 'at_least_once'",
            ),
            None if self.delivering.is_asked => fails(
                "'delivery' = 'exactly_once' needs checkpoints, and this query takes none",
                "let it take some, or leave 'delivery' out",
            ),
            None => Ok(Mode::Once),
        }
    }
}

impl SinkConnector for KafkaConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("kafka", self.cluster.topics[0].clone())
    }

    fn capabilities(&self) -> SinkCapabilities {
        let (max_instances_saved, delivery) = match self.delivering.exactly_once {
            // Several transactions can't be committed atomically: after a crash some would be committed, and
            // some not.
            true => (1, Delivery::ExactlyOnce),
            false => (usize::MAX, Delivery::AtLeastOnce),
        };
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved,
            uses_waiter: true,
            accepts: match self.replaces {
                true => Accepts::Changes,
                false => Accepts::Rows,
            },
            delivery,
            may_lose_prepared: self.delivering.exactly_once,
            client_waits_ms: &["properties.linger.ms", "properties.queue.buffering.max.ms"],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let topic = &self.cluster.topics[0];
        Ok(Box::new(KafkaSink::new(
            Arc::clone(&self.cluster),
            Arc::clone(&self.presence),
            Rows::new(
                topic,
                &self.schema,
                &self.format,
                self.keys.as_ref(),
                self.replaces,
            )?,
            self.mode(request)?,
        )))
    }

    fn begin(&self, saved: bool) -> Result<()> {
        match saved && self.delivering.exactly_once {
            true => recovery::begin(&self.transactions),
            false => Ok(()),
        }
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        Some(self)
    }
}

impl SinkCheckpoints for KafkaConnector {
    /// Rows were flushed to the broker when they were prepared.
    fn secure(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    fn commit(&self, prepared: &str) -> Result<()> {
        self.transactions.commit(Token::parse(prepared)?)
    }

    fn recover(&self, _epoch: u64, prepared: Option<&[String]>) -> Result<Recovered> {
        let prepared = prepared
            .unwrap_or_default()
            .iter()
            .map(|prepared| Token::parse(prepared));
        let newest = prepared.collect::<Result<Vec<_>>>()?.into_iter().max();
        recovery::recover(&self.transactions, newest, self.delivering.exactly_once)
    }
}
