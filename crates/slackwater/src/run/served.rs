//! Serves the views of a run over Redis' protocol.

use std::sync::Arc;

use slackwater_serve::redis::SplitCores;
use slackwater_sql::program::Program;

use super::Failure;
use super::standing_by::opened_by;
use crate::redis::Served;
use crate::standby::Serving;
use crate::views::Views;

/// How views are served.
pub(super) struct Serve<'a> {
    place: &'a str,
    views: &'a Arc<Views>,
    serving: Arc<Serving>,
    cores: SplitCores,
}

impl Serve<'_> {
    /// As the program says; `None` if its views are not served.
    pub fn of<'a>(
        program: &'a Program,
        views: &'a Arc<Views>,
        serving: &Arc<Serving>,
    ) -> Option<Serve<'a>> {
        let cores = program.settings.serve_cores;
        let cores = cores.map(|[main, handler]| SplitCores {
            main: Some(main),
            handler: Some(handler),
        });
        Some(Serve {
            place: program.settings.serve.as_deref()?,
            views,
            serving: Arc::clone(serving),
            cores: cores.unwrap_or_default(),
        })
    }

    /// Opens the door of a run that stands by; `None` if the one that it follows has the address.
    pub fn beside(&self) -> Result<Option<Served>, Failure> {
        match Served::open(self.place, self.views, &self.serving, self.cores) {
            Ok(served) => Ok(Some(served)),
            Err(error) if error.is_taken => {
                eprintln!(
                    "warning: {}: what this standby holds can't be read until it continues\n  \
                     = to read it now, give it an address of its own: \
                     --set serve=redis://127.0.0.1:PORT",
                    error.reason
                );
                Ok(None)
            }
            Err(error) => Err(Failure::Usage(error.reason)),
        }
    }

    /// From now on the rows are those of the query, which this run runs.
    pub fn lead(&self, served: &mut Option<Served>, is_heir: bool) -> Result<(), Failure> {
        if served.is_none() {
            let open = || {
                let opened = Served::open(self.place, self.views, &self.serving, self.cores);
                opened.map_err(|error| error.reason)
            };
            *served = opened_by(is_heir, open).map_err(Failure::Usage)?;
        }
        match served {
            Some(served) => served.lead(self.views).map_err(Failure::Usage),
            None => Ok(()),
        }
    }
}
