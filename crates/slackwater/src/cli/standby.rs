//! Standbys: the options of `run`, and `slackwater promote`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use slackwater_sql::settings::STANDBY_TIMEOUT_MIN_NS;

use super::hosts::{HostArguments, secret};
use crate::address::resolve;
use crate::run::StandbyOptions;
use crate::standby::{Place, Remote, promote};
use crate::terminal::{FAILED, USAGE, print, say};

/// What an address looks like.
const ADDRESS: &str = "host:port, such as 10.0.0.1:7071";

const PROMOTE_HELP: &str = "\
The active saves what it has read and ends, and its standby continues from there. If nobody runs the query, a
standby that waits continues. It is the way to another version of Slackwater or of the query:

  slackwater run query.sql --state state
  slackwater run query.sql --state state --standby        (the new version; once it follows:)
  slackwater promote state";

/// The options of a run that stands by, or is followed.
#[derive(Args)]
pub(super) struct StandbyArguments {
    /// With --state: stand by. Hold the state of the query that runs there, and continue when that run is
    /// gone
    #[arg(long, requires = "state", conflicts_with_all = ["from_scratch", "listen"])]
    standby: bool,
    /// With --standby: run the query if nobody does for 3 s ('standby_timeout'), so that all units of a
    /// service can be started alike
    #[arg(long, requires = "standby")]
    or_run: bool,
    /// With --standby: the run to follow is on another host, at its --standby-at
    #[arg(long, value_name = "ADDRESS", requires = "standby")]
    join: Option<String>,
    /// With --state: where a standby on another host reaches this run (beyond loopback with --secret)
    #[arg(long, value_name = "ADDRESS", requires = "state")]
    standby_at: Option<String>,
}

impl StandbyArguments {
    /// How the run stands by, or is followed.
    ///
    /// # Errors
    ///
    /// If an address can't be used, or not without a secret, or there is a secret without one.
    pub(super) fn options(&self, hosts: &HostArguments) -> Result<StandbyOptions, String> {
        let file = hosts.secret_file();
        let has_address = hosts.listens() || self.join.is_some() || self.standby_at.is_some();
        if file.is_some() && !has_address {
            return Err("--secret: it is of use with --listen, --standby-at or --join".to_string());
        }
        let address = |option: &str, address: &Option<String>| {
            let address = address.as_ref();
            address
                .map(|address| checked(option, address, file))
                .transpose()
        };
        let at = address("--standby-at", &self.standby_at)?;
        if let Some(Err(error)) = at.map(TcpListener::bind) {
            return Err(format!(
                "--standby-at {}: {error}\n  = use another port",
                at.unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
            ));
        }
        Ok(StandbyOptions {
            may_be_followed: true,
            at,
            stands_by: self.standby,
            active: address("--join", &self.join)?,
            secret: file.map(secret).transpose()?,
            runs_if_alone: self.or_run,
        })
    }
}

/// An address; beyond loopback there has to be a secret.
fn checked(option: &str, address: &str, file: Option<&Path>) -> Result<SocketAddr, String> {
    let resolved = resolve(option, address, ADDRESS)?;
    match file.is_some() || resolved.ip().to_canonical().is_loopback() {
        true => Ok(resolved),
        false => Err(format!(
            "{option} {address}: without a secret, anybody there could take the query over\n  \
             = slackwater key > cluster.key; chmod 600 cluster.key; and on both hosts: --secret cluster.key"
        )),
    }
}

/// The arguments of `promote`.
#[derive(Args)]
#[command(after_help = PROMOTE_HELP)]
pub(super) struct PromoteArguments {
    /// The directory of the query's state, or the --standby-at of the run that is active
    #[arg(value_name = "DIR|ADDRESS")]
    place: String,
    /// With an address: the file with the key that both hosts have (see slackwater key), or with certificates
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
}

/// Lets the standby of a query continue.
pub(super) fn promote_standby(arguments: &PromoteArguments) -> ExitCode {
    let place = match arguments.place() {
        Ok(place) => place,
        Err(error) => return ended(Err(error), USAGE),
    };
    ended(promote(&place), FAILED)
}

impl PromoteArguments {
    fn place(&self) -> Result<Place, String> {
        let PromoteArguments {
            place,
            secret: file,
        } = self;
        let port = place.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if Path::new(place).exists() {
            return Ok(Place::Folder(PathBuf::from(place)));
        }
        if !matches!(port, Some(Ok(_))) {
            return Err(format!(
                "promote {place}: there is no such directory, and it is no address\n  \
                 = give the query's --state, or the --standby-at of its run: {ADDRESS}"
            ));
        }
        Ok(Place::Address(Remote {
            address: checked("promote", place, file.as_deref())?,
            secret: file.as_deref().map(secret).transpose()?,
            timeout: Duration::from_nanos(STANDBY_TIMEOUT_MIN_NS),
        }))
    }
}

fn ended(result: Result<String, String>, code: u8) -> ExitCode {
    match result {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {error}\n"));
            ExitCode::from(code)
        }
    }
}
