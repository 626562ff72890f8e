//! The http source: rows that other threads push ([`crate::push`]), one partition.
//!
//! The threads that push parse the rows; the worker takes them in turn, a chunk at a time and without a
//! linger: whoever pushes has collected them already. Positions count the lines of all pushes, and continue
//! in the next incarnation.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
};

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::file_format::Formats;
use crate::format::Format;
use crate::options::{OptionError, Options, option};
use crate::push::{Acknowledge, Desk, Inbox, PUSH_BYTES_MAX, Terms};
use crate::table::TableDefinition;

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "http",
    aliases: &[],
    source: Some(|table, options| Ok(Arc::new(HttpConnector::new(table, options)?))),
    sink: None,
    lookup: None,
    formats: Formats::Lines,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: true,
    at_home: AtHome::Always,
    options: &[],
    source_options: &[
        option(
            "acknowledge",
            "`accepted`",
            "when a push is answered: `accepted`, when the query has read its rows; `checkpoint`, when a \
             stored checkpoint has them (only with `--state`)",
        ),
        option(
            "bad_rows",
            "`refuse`",
            "what to do with a push that contains a bad row: `refuse` reads nothing of it and answers with \
             the line and the reason; `skip` reads the other rows, and treats bad ones as `on_error` says",
        ),
        option(
            "buffer_bytes",
            "`16777216`",
            "the bytes of pushes that wait for the query, from 65536 to 1073741824; when they are reached, \
             further pushes wait",
        ),
        option(
            "timeout",
            "`20 s`",
            "how long a push may wait, at most 25 s; it is then answered with an error",
        ),
    ],
    sink_options: &[],
    lookup_options: &[],
};

/// The name of the only partition.
const PARTITION: &str = "push";

/// Two of the largest pushes: one is read while the next one is parsed.
const BUFFER_BYTES: u64 = 4 * PUSH_BYTES_MAX as u64;

/// How long a push waits. HTTP servers close a request after 30 s.
const TIMEOUT_NS: u64 = 20_000_000_000;
const TIMEOUT_MAX_NS: u64 = 25_000_000_000;

/// A table into which rows are pushed.
pub(crate) struct HttpConnector {
    schema: SchemaRef,
    format: Format,
    terms: Terms,
    name: String,
    desk: Arc<Desk>,
}

impl HttpConnector {
    /// Checks the options.
    fn new(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<HttpConnector, OptionError> {
        let choices = [
            ("accepted", Acknowledge::Accepted),
            ("checkpoint", Acknowledge::Checkpoint),
        ];
        let buffer_bytes =
            options.number("buffer_bytes", Some(BUFFER_BYTES), 65_536..=1_073_741_824)?;
        let timeout_ns = options.duration_ns("timeout")?.unwrap_or(TIMEOUT_NS);
        if !(1..=TIMEOUT_MAX_NS).contains(&timeout_ns) {
            return Err(OptionError::new(
                "timeout",
                "a push can wait for at most 25 s, and not for 0 s",
                "write a duration such as '20 s'; a push that was not answered in time can be repeated",
            ));
        }
        Ok(HttpConnector {
            schema: Arc::clone(&table.schema),
            format: Format::of_source(options, &table.schema)?,
            terms: Terms {
                acknowledge: options.choice("acknowledge", &choices, Acknowledge::Accepted)?,
                skips_bad_rows: options.choice(
                    "bad_rows",
                    &[("refuse", false), ("skip", true)],
                    false,
                )?,
                buffer_bytes: buffer_bytes.unwrap_or(BUFFER_BYTES) as usize,
                timeout: Duration::from_nanos(timeout_ns),
            },
            name: table.name.clone(),
            desk: Desk::new(&table.name),
        })
    }

    fn place(&self) -> String {
        format!("table '{}'", self.name)
    }
}

impl SourceConnector for HttpConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "http".into(),
            // The threads that push do the work.
            max_instances: 1,
            redelivers: self.terms.acknowledge == Acknowledge::Checkpoint,
            keeps_positions: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        if self.terms.acknowledge == Acknowledge::Checkpoint && !request.saved {
            let reason = "'acknowledge' = 'checkpoint', but the query takes no checkpoints";
            return Err(Error::new(self.place(), reason)
                .hint("run it with --state DIR, or use 'acknowledge' = 'accepted'"));
        }
        Ok(Box::new(HttpSource {
            desk: Arc::clone(&self.desk),
            place: self.place(),
            schema: Arc::clone(&self.schema),
            format: self.format.clone(),
            terms: self.terms.clone(),
            request,
            inbox: None,
        }))
    }

    fn stored(&self, _partition: &str, position: u64) {
        self.desk.stored(position);
    }
}

struct HttpSource {
    desk: Arc<Desk>,
    place: String,
    schema: SchemaRef,
    format: Format,
    terms: Terms,
    request: SourceRequest,
    /// The pushes, once it is open; `None` in all instances but the first.
    inbox: Option<Arc<Inbox>>,
}

impl Source for HttpSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.request.instance > 0 {
            return Ok(vec![]);
        }
        let resume = self.request.resume.iter();
        let resume = resume
            .into_iter()
            .find(|partition| partition.name == PARTITION);
        let from = resume.map_or((0, None), |resume| {
            (resume.position, resume.bookmark.as_deref())
        });
        let inbox = Inbox::new(
            (&self.schema, &self.format),
            &self.terms,
            &self.request,
            waiter.waker(),
            from,
        );
        let inbox = inbox.ok_or_else(|| {
            let reason = format!("the checkpoint's producers can't be read: {resume:?}");
            Error::new(self.place.clone(), reason).hint("resume from an earlier checkpoint")
        })?;
        self.desk.open(&inbox)?;
        self.inbox = Some(inbox);
        Ok(vec![(0, PARTITION.into())])
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        let Some(inbox) = &self.inbox else {
            return Ok(SourcePoll::End);
        };
        Ok(match inbox.take() {
            Some((rows, bytes)) => {
                super::count_bytes(&self.request, bytes);
                SourcePoll::Rows(rows)
            }
            None => SourcePoll::Pending,
        })
    }

    fn bookmark(&mut self, _partition: u32) -> Option<String> {
        self.inbox.as_ref().and_then(|inbox| inbox.bookmark())
    }

    fn close(&mut self) {
        if let Some(inbox) = self.inbox.take() {
            inbox.close();
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
