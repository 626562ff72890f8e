//! Questions to the orchestrator of a query: `slackwater status` and `slackwater drain`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use slackwater_sql::settings::Hosts;

use super::hosts::check_join;
use crate::cluster::{Status, drain, leader, status};
use crate::terminal::{FAILED, USAGE, print, say};

const STATUS_HELP: &str = "\
  slackwater status --join 10.0.0.1:7070,10.0.0.2:7070 --secret cluster.key
  slackwater status --registry zk://h1:2181,h2:2181/query --secret cluster.key --json";

const DRAIN_HELP: &str = "\
The query is saved and goes on with the other hosts, so that nothing is read twice. The agent of the host
ends. It is refused if too few hosts would be left.

  slackwater drain h3 --join 10.0.0.1:7070 --secret cluster.key";

/// Which orchestrator to ask.
#[derive(Args)]
struct Whom {
    /// The addresses at which orchestrators listen: whoever answers first is asked
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        required_unless_present = "registry"
    )]
    join: Vec<String>,
    /// The registry that says which orchestrator leads, instead of --join
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "join",
        required_unless_present = "join"
    )]
    registry: Option<String>,
    /// The file with the orchestrator's key (see slackwater key), or with certificates
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
}

/// The arguments of `status`.
#[derive(Args)]
#[command(after_help = STATUS_HELP)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    whom: Whom,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The arguments of `drain`.
#[derive(Args)]
#[command(after_help = DRAIN_HELP)]
pub(super) struct DrainArguments {
    /// The name of the host
    host: String,
    #[command(flatten)]
    whom: Whom,
}

/// Why a question was not answered, and the exit code.
type Failed = (String, u8);

impl Whom {
    /// The addresses to ask, and the secret.
    fn find(&self) -> Result<(Vec<String>, Option<slackwater_secure::Secret>), Failed> {
        let addresses = match &self.registry {
            None => self.join.clone(),
            Some(url) => vec![leader(url).map_err(|error| (error, FAILED))?],
        };
        let secret = check_join(&addresses, self.secret.as_deref());
        Ok((addresses, secret.map_err(|error| (error, USAGE))?))
    }
}

/// Shows how a query stands.
pub(super) fn show_status(arguments: &StatusArguments) -> ExitCode {
    let shown = arguments.whom.find().and_then(|(addresses, secret)| {
        let status = status(&addresses, secret.as_ref()).map_err(|error| (error, FAILED))?;
        match arguments.json {
            false => Ok(table(&status)),
            true => serde_json::to_string_pretty(&status)
                .map(|json| json + "\n")
                .map_err(|error| (error.to_string(), FAILED)),
        }
    });
    ended(shown.map(|text| print(&text)))
}

/// Makes a query go on without a host.
pub(super) fn drain_host(arguments: &DrainArguments) -> ExitCode {
    let drained = arguments.whom.find().and_then(|(addresses, secret)| {
        drain(&addresses, secret.as_ref(), &arguments.host).map_err(|error| (error, FAILED))
    });
    ended(drained.map(|()| say(&format!("{} has left\n", arguments.host))))
}

fn ended(result: Result<(), Failed>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((error, code)) => {
            say(&format!("error: {error}\n"));
            ExitCode::from(code)
        }
    }
}

fn table(status: &Status) -> String {
    let Status {
        name,
        address,
        pid,
        term,
        query,
        ..
    } = status;
    let hosts = Hosts {
        min: status.hosts_min,
        max: status.hosts_max,
    };
    let here = if status.here {
        ", this one included"
    } else {
        ""
    };
    let mut text = format!(
        "{query}: {name} ({address}, pid {pid}) directs it, term {term}\nhosts: {hosts}{here}\n"
    );
    let width = status.hosts.iter().map(|host| host.name.len()).max();
    for host in &status.hosts {
        let s = |count| if count == 1 { "" } else { "s" };
        let state = match (host.is_leaving, host.processes) {
            (true, _) => "is leaving".to_string(),
            (false, 0) => "spare".to_string(),
            (false, 1) => "1 process".to_string(),
            (false, processes) => format!("{processes} processes"),
        };
        let _ = writeln!(
            text,
            "  {:width$}  {}  {} core{}  {state}",
            host.name,
            host.address,
            host.cores,
            s(host.cores),
            width = width.unwrap_or(0),
        );
    }
    if !status.standbys.is_empty() {
        let _ = writeln!(text, "standing by: {}", status.standbys.join(", "));
    }
    let _ = writeln!(
        text,
        "turned away: {} connections; late messages dropped: {}",
        status.refused, status.fenced
    );
    text
}
