//! What follows a view if nothing else does: its changes have reached the view's readers already.

use crate::chunk::Chunk;
use crate::error::Result;
use crate::link::Waiter;
use crate::sink::{
    Accepts, Delivery, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector, SinkDescription,
    SinkRequest,
};

/// The sink of a materialized view. It measures the latency of the rows, and drops them.
pub struct ViewSink;

impl SinkConnector for ViewSink {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("materialized view", "")
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved: usize::MAX,
            uses_waiter: false,
            accepts: Accepts::Changes,
            delivery: Delivery::ExactlyOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, _: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Nowhere))
    }

    fn begin(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        None
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn open(&mut self, _: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, _: &Chunk) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}
