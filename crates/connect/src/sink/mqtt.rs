//! The mqtt sink: each row is a message.
//!
//! The worker puts rows into a bounded outbox; a thread (`mqtt/connection.rs`) sends them and keeps them
//! until the broker has acknowledged them. While the outbox is full the sink is not ready, and is woken when
//! there is room: a slow broker holds the query back. A checkpoint is stored when all rows before it are
//! acknowledged; the thread of checkpoints waits for that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::{DataType, SchemaRef};
use serde::{Deserialize, Serialize};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{
    Accepts, Delivery, Recovered, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector,
    SinkDescription, SinkRequest,
};

use crate::encode::{Cell, Encoder};
use crate::format::Format;
use crate::mqtt::connection::{Bell, Client};
use crate::mqtt::packet::Qos;
use crate::mqtt::publisher::{Outgoing, Publisher, Writing};
use crate::mqtt::refusals::place;
use crate::mqtt::settings::{Broker, check_topic, qos_of_sink};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// How long a broker may acknowledge nothing before a checkpoint, or the end of the query, fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// The topic of a row's message.
#[derive(Debug, Clone)]
enum Topic {
    Fixed(String),
    /// To the topic in this column.
    Column(usize),
}

/// A table that is written to a broker.
pub(crate) struct MqttConnector {
    schema: SchemaRef,
    format: Format,
    broker: Broker,
    topic: Topic,
    qos: Qos,
    retain: bool,
    /// The outboxes of the sinks of this process, by instance.
    writing: Mutex<HashMap<usize, Arc<Writing>>>,
}

/// The messages that a checkpoint waits for.
#[derive(Serialize, Deserialize)]
struct Prepared {
    instance: usize,
    messages: u64,
}

impl MqttConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<MqttConnector, OptionError> {
        let broker = Broker::read(table, options)?;
        Ok(MqttConnector {
            schema: Arc::clone(&table.schema),
            format,
            topic: topic(table, options)?,
            qos: qos_of_sink(options, broker.version)?,
            broker,
            retain: options.flag("retain", false)?,
            writing: Mutex::default(),
        })
    }
}

fn topic(
    table: &TableDefinition,
    options: &Options<'_>,
) -> std::result::Result<Topic, OptionError> {
    let Some(column) = options.text("topic_column") else {
        let topic = options.required("topic", "sensors/hall/temperature")?;
        return match check_topic(topic) {
            Ok(()) => Ok(Topic::Fixed(topic.to_string())),
            Err(why) => {
                let reason = format!("nothing can be written to '{topic}': {why}");
                Err(OptionError::new(
                    "topic",
                    reason,
                    "write a topic without wildcards",
                ))
            }
        };
    };
    if options.text("topic").is_some() {
        let hint = "leave one of them out";
        return Err(OptionError::new(
            "topic_column",
            "can't be combined with 'topic'",
            hint,
        ));
    }
    let fields = table.schema.fields();
    let names = fields.iter().map(|field| field.name().as_str());
    let names = names.collect::<Vec<&str>>();
    let Some(index) = names.iter().position(|name| *name == column) else {
        let hint = match crate::options::nearest(column, &names) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("its columns are {}", names.join(", ")),
        };
        let reason = format!("table '{}' has no column '{column}'", table.name);
        return Err(OptionError::new("topic_column", reason, hint));
    };
    if fields[index].data_type() != &DataType::Utf8View {
        let reason = format!("column '{column}' is not a STRING");
        return Err(OptionError::new(
            "topic_column",
            reason,
            "name a column of text",
        ));
    }
    Ok(Topic::Column(index))
}

impl SinkConnector for MqttConnector {
    fn describe(&self) -> SinkDescription {
        match &self.topic {
            Topic::Fixed(topic) => SinkDescription::new("mqtt", topic.to_string()),
            Topic::Column(index) => SinkDescription {
                connector: "mqtt",
                column: Some(self.schema.field(*index).name().clone()),
                ..SinkDescription::default()
            },
        }
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved: usize::MAX,
            uses_waiter: true,
            accepts: Accepts::Rows,
            delivery: Delivery::AtLeastOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let mut broker = self.broker.clone();
        if request.instance > 0 {
            // A broker allows one client per identifier.
            broker.client_id = format!("{}-{}", broker.client_id, request.instance);
        }
        let writing = Writing::new(&broker, Bell::new(&broker)?);
        let mut known = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(request.instance, Arc::clone(&writing));
        Ok(Box::new(MqttSink {
            place: place(&broker),
            broker: Arc::new(broker),
            topic: self.topic.clone(),
            encoder: Encoder::new(&self.format, &self.schema),
            kind: (self.qos, self.retain),
            writing,
            instance: request.instance,
            prepared: 0,
            values: vec![],
            ends: vec![],
            outgoing: Outgoing::default(),
            client: None,
        }))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        Some(self)
    }
}

impl SinkCheckpoints for MqttConnector {
    fn secure(&self, prepared: &str) -> Result<()> {
        let unreadable = || {
            let reason = format!("what the checkpoint waits for can't be read: {prepared}");
            Error::new(place(&self.broker), reason)
        };
        let prepared = serde_json::from_str::<Prepared>(prepared).map_err(|_| unreadable())?;
        let known = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let writing = known
            .get(&prepared.instance)
            .cloned()
            .ok_or_else(unreadable)?;
        drop(known);
        writing.wait_delivered(prepared.messages, PATIENCE)
    }

    /// Acknowledged messages need no commit.
    fn commit(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    fn recover(&self, _epoch: u64, _prepared: Option<&[String]>) -> Result<Recovered> {
        Ok(Recovered::Committed)
    }
}

struct MqttSink {
    place: String,
    broker: Arc<Broker>,
    topic: Topic,
    encoder: Encoder,
    kind: (Qos, bool),
    writing: Arc<Writing>,
    instance: usize,
    /// The number of messages before the last checkpoint.
    prepared: u64,
    /// Rows as text and the end of each, until they are messages.
    values: Vec<u8>,
    ends: Vec<usize>,
    outgoing: Outgoing,
    client: Option<Client>,
}

impl MqttSink {
    /// Makes messages of the rows, each of which ends with a line end.
    fn address(&mut self, chunk: &Chunk) -> Result<()> {
        let column = match &self.topic {
            Topic::Fixed(_) => None,
            Topic::Column(index) => Some(chunk.batch.column(*index)),
        };
        let cell = column.map(|column| Cell::new(column)).transpose()?;
        let mut start = 0;
        for (row, &end) in self.ends.iter().enumerate() {
            let topic = match (&self.topic, &cell, column) {
                (Topic::Column(_), Some(cell), Some(column)) if column.is_valid(row) => {
                    cell.text(row).unwrap_or("")
                }
                (Topic::Fixed(topic), ..) => topic,
                _ => "",
            };
            check_topic(topic).map_err(|why| {
                let reason = format!("a row can't be written to topic '{topic}': {why}");
                Error::new(&self.place, reason).hint("leave such rows out with WHERE")
            })?;
            self.outgoing.bytes.extend_from_slice(topic.as_bytes());
            let middle = self.outgoing.bytes.len();
            self.outgoing
                .bytes
                .extend_from_slice(&self.values[start..end - 1]);
            self.outgoing.ends.push((middle, self.outgoing.bytes.len()));
            start = end;
        }
        Ok(())
    }
}

impl Sink for MqttSink {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        let publisher = Publisher::new(
            Arc::clone(&self.broker),
            Arc::clone(&self.writing),
            waiter.waker(),
            self.kind,
        );
        let bell = Arc::clone(&self.writing.bell);
        let client = Client::start(Arc::clone(&self.broker), publisher, bell, waiter.waker())?;
        self.client = Some(client);
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        self.writing.bell.check()?;
        Ok(self.writing.has_room())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        self.values.clear();
        self.ends.clear();
        let ends = &mut self.ends;
        self.encoder
            .encode_each(&chunk.batch, &mut self.values, |end| ends.push(end))
            .map_err(|error| error.at(&self.place))?;
        self.address(chunk)?;
        self.writing.put(&mut self.outgoing);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.writing.bell.check()
    }

    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        let messages = self.writing.count();
        if messages == self.prepared {
            return Ok(None);
        }
        self.prepared = messages;
        let prepared = Prepared {
            instance: self.instance,
            messages,
        };
        let text = serde_json::to_string(&prepared);
        text.map(Some)
            .map_err(|error| Error::new(&self.place, error.to_string()))
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        let delivered = match complete && self.client.is_some() {
            true => self.writing.wait_delivered(self.writing.count(), PATIENCE),
            false => Ok(()),
        };
        self.client = None;
        delivered
    }
}
