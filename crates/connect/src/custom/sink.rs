//! A table that a writer of the process writes.
//!
//! One instance writes, so that the writer sees rows in their order. Its calls exclude each other: rows are
//! written on a worker's thread, and checkpoints are committed on another one. A writer that is not exactly
//! once has written out its rows before a checkpoint contains them.

use std::sync::{Arc, PoisonError};

use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{
    Accepts, Delivery, Recovered, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector,
    SinkDescription, SinkRequest,
};

use super::{Custom, Sink as Offered, named};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// The bytes of a text to commit by. Checkpoints contain it.
const PREPARED_BYTES_MAX: usize = 64 * 1024;

/// A table that is written.
pub(crate) struct CustomSink {
    name: String,
    custom: Arc<Custom>,
}

impl CustomSink {
    pub(super) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<CustomSink, OptionError> {
        let custom = named(options)?;
        if matches!(*custom, Custom::Source(_)) {
            return Err(OptionError::new(
                "name",
                format!("'{}' is a source, and can't be written", table.name),
                "read it with SELECT",
            ));
        }
        Ok(CustomSink {
            name: table.name.clone(),
            custom,
        })
    }

    fn place(&self) -> String {
        format!("table '{}'", self.name)
    }
}

fn offered(custom: &Custom) -> &Offered {
    match custom {
        Custom::Sink(sink) => sink,
        Custom::Source(_) => unreachable!("it was checked when the connector was made"),
    }
}

impl SinkConnector for CustomSink {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("custom", self.name.clone())
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: 1,
            max_instances_saved: 1,
            uses_waiter: false,
            accepts: Accepts::Rows,
            delivery: match offered(&self.custom).is_exactly_once {
                true => Delivery::ExactlyOnce,
                false => Delivery::AtLeastOnce,
            },
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Writing {
            place: self.place(),
            custom: Arc::clone(&self.custom),
            epoch: request.epoch,
            prepared: 0,
            has_rows: false,
            is_open: false,
        }))
    }

    fn begin(&self, saved: bool) -> Result<()> {
        if offered(&self.custom).is_exactly_once && !saved {
            let reason = "it is written exactly once, but the query takes no checkpoints";
            let hint = "give the session a folder for them: Session(state=\"DIR\")";
            return Err(Error::new(self.place(), reason).hint(hint));
        }
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        let is_exactly_once = offered(&self.custom).is_exactly_once;
        is_exactly_once.then_some(self)
    }
}

impl SinkCheckpoints for CustomSink {
    /// What was prepared is durable.
    fn secure(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    fn commit(&self, prepared: &str) -> Result<()> {
        let committed = offered(&self.custom).writer().commit(prepared);
        committed.map_err(|error| error.at(&self.place()))
    }

    /// Rows of earlier incarnations that are in no checkpoint are left to the writer, which begins next.
    fn recover(&self, _epoch: u64, prepared: Option<&[String]>) -> Result<Recovered> {
        for prepared in prepared.unwrap_or_default() {
            // It was tried before: what fails twice is not tried again.
            self.commit(prepared).map_err(Error::final_one)?;
        }
        Ok(Recovered::Committed)
    }
}

struct Writing {
    place: String,
    custom: Arc<Custom>,
    epoch: Option<u64>,
    /// How often it has prepared.
    prepared: u64,
    /// Whether rows were written since.
    has_rows: bool,
    is_open: bool,
}

impl Writing {
    fn offered(&self) -> &Offered {
        offered(&self.custom)
    }

    fn checked<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.at(&self.place).final_one())
    }
}

impl Sink for Writing {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        {
            let mut is_written =
                (self.offered().is_written.lock()).unwrap_or_else(PoisonError::into_inner);
            if *is_written {
                let error = Error::new("", "another query of this process writes to it")
                    .hint("wait for its end, or declare a table for each query");
                return self.checked(Err(error));
            }
            *is_written = true;
        }
        self.is_open = true;
        self.checked(self.offered().writer().begin())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        self.has_rows = true;
        self.checked(self.offered().writer().write(&chunk.batch))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        if !std::mem::take(&mut self.has_rows) {
            return Ok(None);
        }
        if !self.offered().is_exactly_once {
            self.checked(self.offered().writer().flush())?;
            return Ok(None);
        }
        self.prepared += 1;
        let checkpoint = format!("{}-{}", self.epoch.unwrap_or(0), self.prepared);
        let text = self.checked(self.offered().writer().prepare(&checkpoint))?;
        if text.len() > PREPARED_BYTES_MAX {
            let reason = format!(
                "what is to be stored to commit by has {} bytes, and at most {PREPARED_BYTES_MAX} are stored",
                text.len()
            );
            let hint = "keep the rows elsewhere, such as in a file, and return its name";
            return self.checked(Err(Error::new("", reason).hint(hint)));
        }
        Ok(Some(text))
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let sink = self.offered();
        let writes_out = complete && self.has_rows && !sink.is_exactly_once;
        let flushed = match writes_out {
            true => sink.writer().flush(),
            false => Ok(()),
        };
        sink.writer().close();
        *sink
            .is_written
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = false;
        self.checked(flushed)
    }
}
