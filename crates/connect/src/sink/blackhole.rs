//! The blackhole sink: rows are evaluated and counted, and go nowhere.

use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Accepts, Delivery, Sink, SinkConnector, SinkRequest};

/// Options beside `connector`.
pub(crate) const OPTIONS: &[&str] = &["connector", "latency_target"];

/// Takes everything.
#[derive(Debug)]
pub(crate) struct BlackholeConnector;

impl SinkConnector for BlackholeConnector {
    fn accepts(&self) -> Accepts {
        Accepts::Changes
    }

    fn uses_waiter(&self) -> bool {
        false
    }

    fn max_instances(&self) -> usize {
        usize::MAX
    }

    fn describe(&self) -> String {
        "blackhole".into()
    }

    fn sink(&self, _request: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Blackhole))
    }

    fn delivery(&self) -> Delivery {
        // Nothing is there, so nothing is there twice.
        Delivery::ExactlyOnce
    }
}

struct Blackhole;

impl Sink for Blackhole {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        // The columns are there already; looking at them keeps an optimiser from guessing that
        // nobody does.
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
