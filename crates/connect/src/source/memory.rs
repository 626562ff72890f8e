//! The memory source: rows that this process has in memory ([`crate::feed`]), one partition.
//!
//! Batches are divided into chunks without copying them. A feed that is kept is read again from its beginning
//! when the query resumes; pushed rows that no checkpoint has are lost then, with the process that had them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_engine::chunk::Positions;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest, SourceRows,
};
use slackwater_engine::time::now_ns;

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::feed::{self, Feed};
use crate::file_format::Formats;
use crate::options::{OptionError, Options, option};
use crate::table::TableDefinition;

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "memory",
    aliases: &[],
    source: Some(|table, options| Ok(Arc::new(MemoryConnector::new(table, options)?))),
    sink: None,
    lookup: None,
    formats: Formats::None,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Always,
    options: &[],
    source_options: &[option(
        "feed",
        "required",
        "the name under which the process offers the rows",
    )],
    sink_options: &[],
    lookup_options: &[],
};

/// The name of the only partition.
const PARTITION: &str = "memory";

/// A table of rows that the process has.
#[derive(Debug)]
struct MemoryConnector {
    schema: SchemaRef,
    name: String,
    feed: Arc<Feed>,
}

impl MemoryConnector {
    fn new(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<MemoryConnector, OptionError> {
        let name = options.required("feed", "orders")?;
        let Some(feed) = feed::named(name) else {
            return Err(OptionError::new(
                "feed",
                format!("this process offers no rows as '{name}'"),
                "the connector is for programs that embed the engine: Session.table and \
                 Session.register of the Python package declare such tables",
            ));
        };
        let mut columns = table.schema.fields().iter();
        let missing = columns.find(|field| feed.schema().column_with_name(field.name()).is_none());
        if let Some(missing) = missing {
            return Err(OptionError::new(
                "feed",
                format!("the rows of '{name}' have no column '{}'", missing.name()),
                "declare the table as it was when the feed was offered",
            ));
        }
        Ok(MemoryConnector {
            schema: Arc::clone(&table.schema),
            name: table.name.clone(),
            feed,
        })
    }
}

impl SourceConnector for MemoryConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        let is_kept = self.feed.rows().is_some();
        SourceDescription {
            connector: "memory".into(),
            max_instances: 1,
            bounded: is_kept,
            replayable: is_kept,
            // Who pushes the rows says when they end.
            ends_with_peer: !is_kept,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(MemorySource {
            feed: Arc::clone(&self.feed),
            table: self.name.clone(),
            schema: Arc::new(self.schema.project(&request.projection)?),
            request,
            batch: 0,
            read: 0,
            rest: None,
            since_ns: 0,
            is_open: false,
        }))
    }
}

struct MemorySource {
    feed: Arc<Feed>,
    table: String,
    /// The columns that are read, with those fields of ROWs that are used.
    schema: SchemaRef,
    request: SourceRequest,
    /// The rows that were read.
    read: u64,
    /// The number of the next batch that is kept.
    batch: usize,
    /// What is left of a batch that is larger than a chunk.
    rest: Option<RecordBatch>,
    /// When the batch was pushed.
    since_ns: u64,
    /// Whether this instance is the one that reads.
    is_open: bool,
}

impl MemorySource {
    /// What is left of the batch that is read now, or the next one; `None` in the end.
    fn next(&mut self) -> Option<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take() {
            return Some(Some(rest));
        }
        let Some(kept) = self.feed.rows() else {
            let taken = self.feed.take().ok()?;
            return Some(taken.map(|waiting| {
                self.since_ns = waiting.since_ns;
                waiting.batch
            }));
        };
        let batch = kept.get(self.batch)?.clone();
        self.batch += 1;
        Some(Some(batch))
    }
}

impl Source for MemorySource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.request.instance > 0 {
            return Ok(vec![]);
        }
        let is_kept = self.feed.rows().is_some();
        if !is_kept && !self.feed.open(waiter.waker()) {
            let place = format!("table '{}'", self.table);
            return Err(Error::new(place, "its pushed rows are already being read")
                .hint("read it once, and use the table in several queries")
                .final_one());
        }
        self.is_open = true;
        Ok(vec![(0, PARTITION.into())])
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        if !self.is_open {
            return Ok(SourcePoll::End);
        }
        let batch = loop {
            match self.next() {
                None => return Ok(SourcePoll::End),
                Some(None) => return Ok(SourcePoll::Pending),
                Some(Some(batch)) if batch.num_rows() == 0 => {}
                Some(Some(batch)) => break batch,
            }
        };
        let rows = batch.num_rows().min(self.request.tuning.chunk_rows());
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let is_kept = self.feed.rows().is_some();
        let first = match is_kept {
            true => self.read + 1,
            false => self.feed.place(rows),
        };
        self.read += rows as u64;
        let batch = feed::fitted(&batch.slice(0, rows), &self.schema);
        Ok(SourcePoll::Rows(SourceRows {
            batch: batch.map_err(|reason| Error::new(self.table.clone(), reason))?,
            partition: 0,
            positions: Positions::Run { first },
            ingest_ns: if is_kept { now_ns() } else { self.since_ns },
            rejected: Vec::new(),
        }))
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) && self.feed.rows().is_none() {
            self.feed.leave();
        }
    }
}
