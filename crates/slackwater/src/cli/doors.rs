//! The options for those who look at a running query.

use clap::{ArgGroup, Args};

use crate::run::Doors;

/// The environment variable of the token, which others can't read from the list of processes.
const TOKEN: &str = "SLACKWATER_TOKEN";

#[derive(Args)]
#[command(group(ArgGroup::new("doors").args(["metrics", "page"]).multiple(true)))]
pub(super) struct DoorArguments {
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9464, at /metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Serve a page that shows the query while it runs, and changes its latency target; without an address
    /// at any free port of this machine
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
          default_missing_value = "127.0.0.1:0")]
    page: Option<String>,
    /// With --metrics or --page: answer only requests that show this token (Authorization: Bearer TOKEN);
    /// needed where other machines can reach the address [default: $SLACKWATER_TOKEN]
    #[arg(long, requires = "doors")]
    token: Option<String>,
}

impl DoorArguments {
    /// The doors to open.
    pub(super) fn doors(self) -> Option<Doors> {
        if self.metrics.is_none() && self.page.is_none() {
            return None;
        }
        Some(Doors {
            metrics: self.metrics,
            page: self.page,
            opens_browser: false,
            token: token(self.token),
        })
    }
}

/// The token of the command line, else of the environment.
pub(super) fn token(given: Option<String>) -> Option<String> {
    given.or_else(|| std::env::var(TOKEN).ok().filter(|token| !token.is_empty()))
}
