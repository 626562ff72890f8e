//! The mqtt source: topic filters whose messages are rows.
//!
//! A thread (`mqtt/connection.rs`) puts messages into a bounded inbox and wakes the worker; while the worker
//! does not read, it stays full and nothing is read from the broker. Each filter is a partition. A message is
//! acknowledged when its row was passed on or, in a query that takes checkpoints, when the checkpoint that
//! contains it is stored: messages that were not acknowledged are sent again after a crash.
//!
//! Positions count the messages of a filter in this incarnation, so a checkpoint's positions mean nothing to
//! the next one.

mod columns;
mod partition;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_schema::SchemaRef;
use slackwater_engine::error::Result;
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
};

use super::stream::Linger;
use crate::format::Format;
use crate::mqtt::connection::{Bell, Client};
use crate::mqtt::packet::Qos;
use crate::mqtt::settings::{Broker, Subscription};
use crate::mqtt::subscriber::{Reading, Subscriber};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;
use columns::Columns;
use partition::Partition;

/// A table that is read from a broker.
pub(crate) struct MqttConnector {
    columns: Columns,
    format: Format,
    broker: Arc<Broker>,
    subscription: Arc<Subscription>,
    /// What the source of this process reads, for acknowledging saved messages.
    reading: Mutex<Option<Arc<Reading>>>,
}

impl MqttConnector {
    /// Checks the options; doesn't connect.
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<MqttConnector, OptionError> {
        let columns = Columns::new(table)?;
        let broker = Broker::read(table, options)?;
        Ok(MqttConnector {
            format: Format::of_source(options, &columns.values)?,
            columns,
            subscription: Arc::new(Subscription::read(options, broker.version)?),
            broker: Arc::new(broker),
            reading: Mutex::new(None),
        })
    }

    fn reading(&self) -> MutexGuard<'_, Option<Arc<Reading>>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceConnector for MqttConnector {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }

    fn describe(&self) -> SourceDescription {
        let Subscription {
            qos, is_persistent, ..
        } = &*self.subscription;
        SourceDescription {
            connector: "mqtt".into(),
            // A session has one client.
            max_instances: 1,
            bounded: false,
            replayable: false,
            redelivers: *is_persistent && *qos != Qos::AtMostOnce,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        let bell = Bell::new(&self.broker)?;
        let filters = &self.subscription.filters;
        let reading = Reading::new(filters.len(), bell);
        let partitions = (0..filters.len())
            .map(|filter| Partition::new(filter, &self.columns, &self.format, &request, &reading));
        let partitions = match request.instance {
            0 => partitions.collect(),
            _ => vec![],
        };
        if request.instance == 0 {
            *self.reading() = Some(Arc::clone(&reading));
        }
        Ok(Box::new(MqttSource {
            broker: Arc::clone(&self.broker),
            subscription: Arc::clone(&self.subscription),
            reading,
            partitions,
            request,
            linger: Linger::default(),
            client: None,
        }))
    }

    fn stored(&self, partition: &str, position: u64) {
        let filters = &self.subscription.filters;
        let filter = filters.iter().position(|filter| filter == partition);
        if let (Some(filter), Some(reading)) = (filter, &*self.reading()) {
            reading.acknowledge(filter, position);
        }
    }
}

struct MqttSource {
    broker: Arc<Broker>,
    subscription: Arc<Subscription>,
    reading: Arc<Reading>,
    partitions: Vec<Partition>,
    request: SourceRequest,
    linger: Linger,
    client: Option<Client>,
}

impl Source for MqttSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.partitions.is_empty() {
            return Ok(vec![]);
        }
        let subscriber = Subscriber::new(
            Arc::clone(&self.broker),
            Arc::clone(&self.subscription),
            Arc::clone(&self.reading),
            waiter.waker(),
        );
        let bell = Arc::clone(&self.reading.bell);
        let client = Client::start(Arc::clone(&self.broker), subscriber, bell, waiter.waker())?;
        self.client = Some(client);
        let filters = self.subscription.filters.iter().enumerate();
        Ok(filters
            .map(|(nth, filter)| (nth as u32, filter.clone()))
            .collect())
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        if self.partitions.is_empty() {
            return Ok(SourcePoll::End);
        }
        if !self.linger.is_handing_out() {
            self.reading.bell.check()?;
            for partition in &mut self.partitions {
                let bytes = partition.fetch();
                super::count_bytes(&self.request, bytes);
            }
        }
        let poll = self.linger.poll(&mut self.partitions, &self.request);
        // A batch that has just ended may have left something in the inbox.
        Ok(match poll {
            Some(poll) => poll,
            None if self
                .partitions
                .iter_mut()
                .any(|partition| partition.fetch() > 0) =>
            {
                SourcePoll::NotBefore { time_ns: 0 }
            }
            None => SourcePoll::Pending,
        })
    }

    fn close(&mut self) {
        self.client = None;
        self.partitions.clear();
    }
}
