//! The blackhole sink: rows are evaluated, counted and discarded.

use std::sync::Arc;

use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{
    Accepts, Delivery, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector, SinkDescription,
    SinkRequest,
};

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::file_format::Formats;

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "blackhole",
    aliases: &[],
    source: None,
    sink: Some(|_, _| Ok(Arc::new(BlackholeConnector))),
    lookup: None,
    formats: Formats::None,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Never,
    options: &[],
    source_options: &[],
    sink_options: &[],
    lookup_options: &[],
};

/// Accepts all rows.
#[derive(Debug)]
pub(crate) struct BlackholeConnector;

impl SinkConnector for BlackholeConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("blackhole", "")
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved: usize::MAX,
            uses_waiter: false,
            accepts: Accepts::Changes,
            // Nothing is written, so nothing is written twice.
            delivery: Delivery::ExactlyOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, _request: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Blackhole))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        None
    }
}

struct Blackhole;

impl Sink for Blackhole {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        // The columns are computed already; this keeps an optimizer from removing unused work.
        std::hint::black_box(chunk);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _complete: bool) -> Result<()> {
        Ok(())
    }
}
