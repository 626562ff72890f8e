//! The options for those who look at a running query.

use clap::Args;

use crate::run::Doors;

/// The environment variable of the token, which others can't read from the list of processes.
const TOKEN: &str = "SLACKWATER_TOKEN";

#[derive(Args)]
pub(super) struct DoorArguments {
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9464, at /metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// With --metrics: answer only requests that show this token (Authorization: Bearer TOKEN); needed
    /// where other machines can reach the address [default: $SLACKWATER_TOKEN]
    #[arg(long, requires = "metrics")]
    token: Option<String>,
}

impl DoorArguments {
    /// The doors to open.
    pub(super) fn doors(self) -> Option<Doors> {
        let (address, token) = (self.metrics?, self.token);
        let from_environment = || std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        Some(Doors {
            address,
            token: token.or_else(from_environment),
        })
    }
}
