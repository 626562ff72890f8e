//! Rows as messages, until the producer accepts them.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::BaseRecord;
use slackwater_engine::chunk::{Chunk, RowKind};
use slackwater_engine::error::{Error, Result};

use crate::encode::Encoder;
use crate::format::Format;
use crate::kafka::client::Producer;
use crate::kafka::settings::Keys;

/// The rows of one chunk that the producer has not accepted yet.
pub(super) struct Rows {
    topic: String,
    encoder: Encoder,
    /// The columns of the key, and their encoder.
    key: Option<(Vec<usize>, Encoder)>,
    values: Lines,
    keys: Lines,
    /// Whether a message replaces the last one of its key: then a removed row is a message without a value.
    replaces: bool,
    /// The removed rows, if there are any.
    gone: Vec<bool>,
    /// The first row that the producer has not accepted.
    next: usize,
}

/// Strings, each of which ends with a line end.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn get(&self, nth: usize) -> &[u8] {
        let start = if nth == 0 { 0 } else { self.ends[nth - 1] };
        &self.bytes[start..self.ends[nth] - 1]
    }
}

impl Rows {
    pub(super) fn new(
        topic: &str,
        schema: &SchemaRef,
        format: &Format,
        keys: Option<&Keys>,
        replaces: bool,
    ) -> Result<Rows> {
        let key = match keys {
            None => None,
            Some(keys) => {
                let schema = Arc::new(schema.project(&keys.columns)?);
                let encoder = Encoder::new(&keys.format, &schema);
                Some((keys.columns.clone(), encoder))
            }
        };
        Ok(Rows {
            topic: topic.to_string(),
            encoder: Encoder::new(format, schema),
            key,
            values: Lines::default(),
            keys: Lines::default(),
            replaces,
            gone: Vec::new(),
            next: 0,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.ends.is_empty()
    }

    /// Takes a chunk's rows.
    pub(super) fn take(&mut self, chunk: &Chunk) -> Result<()> {
        let mut chunk = chunk.clone();
        if let (true, Some(kinds)) = (self.replaces, &chunk.kinds) {
            // The old value of a row is not needed if the new one replaces it.
            let stays = kinds
                .values()
                .iter()
                .map(|&kind| kind != RowKind::UpdateBefore as i8);
            chunk = chunk.filter(&stays.map(Some).collect())?;
        }
        if self.replaces {
            let kind = |row: usize| chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
            let gone = (0..chunk.rows()).map(|row| kind(row) == RowKind::Delete as i8);
            self.gone.extend(gone);
        }
        let Rows { values, keys, .. } = self;
        let place = format!("topic {}", self.topic);
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
        Ok(())
    }

    /// Passes on the rows that the producer accepts; returns whether these were all.
    pub(super) fn send(&mut self, producer: &Producer, servers: &str) -> Result<bool> {
        while self.next < self.values.ends.len() {
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&self.topic);
            if !self.gone.get(self.next).is_some_and(|&gone| gone) {
                record = record.payload(self.values.get(self.next));
            }
            if self.key.is_some() {
                record = record.key(self.keys.get(self.next));
            }
            match producer.send(record) {
                Ok(()) => self.next += 1,
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) => return Ok(false),
                Err((error, _)) => {
                    let bytes = self.values.get(self.next).len();
                    let reason = format!("a row of {bytes} bytes can't be sent: {error}");
                    let place = format!("{servers} topic {}", self.topic);
                    return Err(Error::new(place, reason));
                }
            }
        }
        self.values.clear();
        self.keys.clear();
        self.gone.clear();
        self.next = 0;
        Ok(true)
    }
}
