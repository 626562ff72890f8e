//! Several hosts: the options of `run`, and `slackwater worker`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use slackwater_control::topology::parse_list;
use slackwater_secure::Secret;
use slackwater_sql::settings::Hosts;

use crate::address::resolve;
use crate::cluster::{AgentOptions, ClusterOptions, Ending, Stopping, run_agent};
use crate::hosts::host_name;
use crate::machine::Machine;
use crate::terminal::{FAILED, USAGE, say};

/// What an address looks like.
const ADDRESS: &str = "host:port, such as 10.0.0.1:7070";
/// The most hosts that a query is planned for without running.
const PLANNED_MAX: usize = 1_000;

/// The number of hosts to plan for.
pub(super) fn hosts_planned(text: &str) -> Result<usize, String> {
    let hosts = text.parse::<usize>().ok();
    let hosts = hosts.filter(|hosts| (1..=PLANNED_MAX).contains(hosts));
    hosts.ok_or_else(|| format!("expected a number of hosts from 1 to {PLANNED_MAX}"))
}

pub(super) const KEY_HELP: &str = "\
  slackwater key > cluster.key; chmod 600 cluster.key

Who has the file can run SQL on all hosts that use it. To change the key, add the new one below the old one
on every host, then exchange the two lines everywhere, then remove the old one.";

const WORKER_HELP: &str = "\
The agent ends when the query does. SIGTERM or Ctrl-C asks the query to go on without this host, and the
agent ends once it does, after 30 s at the latest; a second one ends it at once. If the agent loses the
orchestrator, it kills the processes that it has started for it, and joins again.

  slackwater key > cluster.key; chmod 600 cluster.key          (and the same file on each host)
  h1$ slackwater run query.sql --listen 10.0.0.1:7070 --secret cluster.key --hosts 2 --here
  h2$ slackwater worker --join 10.0.0.1:7070 --secret cluster.key --name h2";

/// The options of a query on several hosts.
#[derive(Args)]
pub(super) struct HostArguments {
    /// Run on several hosts, whose agents (slackwater worker) join at this address of this host
    #[arg(long, value_name = "ADDRESS", requires = "hosts")]
    listen: Option<String>,
    /// With --listen: how many hosts there are to be, such as 3, or 1..3 for as many of these as join
    #[arg(long, value_name = "N|MIN..MAX", value_parser = hosts, requires = "listen")]
    hosts: Option<Hosts>,
    /// With --listen: this host is one of them, and not only the place of what is bound to it
    #[arg(long, requires = "listen")]
    here: bool,
    /// With --listen: the name of this host [default: what the system calls it]
    #[arg(long, value_name = "NAME", requires = "listen")]
    name: Option<String>,
    /// With --listen: the ports at which this host's worker processes may listen, such as 7100-7199
    /// [default: any that is free]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports, requires = "listen")]
    ports: Option<(u16, u16)>,
    /// With --listen, --standby-at or --join: the file with the key that other hosts need, too (see
    /// slackwater key), or with this host's certificate, its private key and the authority, in the PEM format
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// With --listen and --state: where several orchestrators of the same query agree who leads, such as
    /// sqlite:registry.db on one host, or zk://h1:2181,h2:2181/query
    #[arg(long, value_name = "URL", requires_all = ["listen", "state"])]
    registry: Option<String>,
}

impl HostArguments {
    /// The file with the secret.
    pub(super) fn secret_file(&self) -> Option<&Path> {
        self.secret.as_deref()
    }

    /// Whether other hosts join.
    pub(super) fn listens(&self) -> bool {
        self.listen.is_some()
    }

    /// The hosts to run on, if there are several.
    ///
    /// # Errors
    ///
    /// If the address or the number is not valid.
    pub(super) fn cluster(&self) -> Result<Option<ClusterOptions>, String> {
        let (Some(listen), Some(hosts)) = (&self.listen, self.hosts) else {
            return Ok(None);
        };
        let address = listen_at(listen, self.secret.is_some())?;
        if self.registry.is_some() && (address.ip().is_unspecified() || address.port() == 0) {
            return Err(format!(
                "--listen {listen}: with --registry, others are told this address\n  \
                 = name one at which they reach this host, with its port, such as 10.0.0.1:7070"
            ));
        }
        let secret = self.secret.as_deref().map(secret).transpose()?;
        let name = self.name.clone().unwrap_or_else(host_name);
        check_name(&name)?;
        Ok(Some(ClusterOptions {
            listen: address,
            secret,
            name,
            hosts,
            here: self.here,
            ports: self.ports,
            registry: self.registry.clone(),
            lobby: None,
        }))
    }
}

/// Reads an address for agents: beyond loopback there has to be a secret.
pub(super) fn listen_at(listen: &str, has_secret: bool) -> Result<SocketAddr, String> {
    let address = resolve("--listen", listen, ADDRESS)?;
    match has_secret || address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!(
            "--listen {listen}: without a secret, anybody who reaches this address could run SQL here\n  \
             = slackwater key > cluster.key; chmod 600 cluster.key; and on every host: --secret cluster.key"
        )),
    }
}

/// Reads the file of a secret.
pub(super) fn secret(file: &Path) -> Result<Secret, String> {
    if file
        .to_str()
        .is_some_and(|text| Secret::parse(text).is_ok())
    {
        return Err(
            "--secret: this is a key, which everybody can see in the list of processes\n  \
             = make a new one, and name its file: slackwater key > cluster.key"
                .to_string(),
        );
    }
    Secret::read(file).map_err(|error| format!("--secret {error}"))
}

/// Prints a new key.
pub(super) fn key() -> ExitCode {
    match Secret::generate() {
        Ok(secret) => {
            crate::terminal::print(&secret.text());
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {error}\n"));
            ExitCode::from(FAILED)
        }
    }
}

/// An agent.
#[derive(Args)]
#[command(after_help = WORKER_HELP)]
pub(super) struct WorkerArguments {
    /// The addresses at which orchestrators listen: whoever answers first is joined
    #[arg(long, value_name = "ADDRESS", required = true, value_delimiter = ',')]
    join: Vec<String>,
    /// The file with the orchestrator's key (see slackwater key), or with this host's certificate, its
    /// private key and the authority, in the PEM format
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// The name of this host [default: what the system calls it]
    #[arg(long)]
    name: Option<String>,
    /// The address at which other hosts reach this one [default: the one that the orchestrator is reached
    /// from]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// The ports at which worker processes may listen, such as 7100-7199 [default: any that is free]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    ports: Option<(u16, u16)>,
    /// The cores that queries may use, such as 0-3,8 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cores: Option<String>,
    /// A file that is there while the agent has joined, for probes that ask whether it is ready
    #[arg(long, value_name = "FILE")]
    joined: Option<PathBuf>,
}

/// Parses a number of hosts, or the fewest and the most.
fn hosts(text: &str) -> Result<Hosts, String> {
    Hosts::parse(text).ok_or_else(|| {
        "expected a number of hosts, or the fewest and the most, such as 3 or 1..3".to_string()
    })
}

/// Parses a range of ports.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let range = text.split_once('-').unwrap_or((text, text));
    let ports = (range.0.trim().parse(), range.1.trim().parse());
    match ports {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err("expected ports such as 7100-7199".to_string()),
    }
}

/// Runs an agent until it is stopped, or the query is over.
pub(super) fn worker(arguments: &WorkerArguments) -> ExitCode {
    let options = match options(arguments) {
        Ok(options) => options,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return ExitCode::from(USAGE);
        }
    };
    let stopping = Arc::new(Stopping::default());
    let told = Arc::clone(&stopping);
    let _watching = match crate::signals::watch(move || told.stop()) {
        Ok(watching) => watching,
        Err(error) => {
            say(&format!("error: signals: {error}\n"));
            return ExitCode::from(FAILED);
        }
    };
    match run_agent(&options, &stopping) {
        Ending::Stopped | Ending::Over => ExitCode::SUCCESS,
        Ending::Refused(reason) => {
            say(&format!("error: {reason}\n"));
            ExitCode::from(FAILED)
        }
    }
}

/// The longest name of a host: that of a part of a domain's name.
const NAME_BYTES_MAX: usize = 63;

/// Rejects names that can't be told apart in messages.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    match name.chars().all(is_known) && (1..=NAME_BYTES_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!(
            "--name: a host's name has 1 to {NAME_BYTES_MAX} letters, digits, '.', '-' and '_', such as h2"
        )),
    }
}

/// Checks the addresses of orchestrators, and reads the file of the secret.
pub(super) fn check_join(join: &[String], file: Option<&Path>) -> Result<Option<Secret>, String> {
    for join in join {
        let port = join.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(match join.is_empty() {
                true => "--join: an address between commas is empty".to_string(),
                false => format!("--join {join}: write {ADDRESS}"),
            });
        }
    }
    if file.is_none() {
        check_loopback(join)?;
    }
    file.map(secret).transpose()
}

/// Rejects orchestrators on other hosts without a secret: whoever is at that address could give orders.
fn check_loopback(join: &[String]) -> Result<(), String> {
    let is_elsewhere = |address: &&String| {
        // A name that is not known now is asked for again when the agent joins.
        resolve("--join", address, ADDRESS)
            .is_ok_and(|address| !address.ip().to_canonical().is_loopback())
    };
    match join.iter().find(is_elsewhere) {
        None => Ok(()),
        Some(address) => Err(format!(
            "--join {address}: without a secret, whoever is there could run programs here\n  \
             = slackwater key > cluster.key; chmod 600 cluster.key; and --secret cluster.key on every host"
        )),
    }
}

fn options(arguments: &WorkerArguments) -> Result<AgentOptions, String> {
    let secret = check_join(&arguments.join, arguments.secret.as_deref())?;
    let mut machine = Machine::this();
    if let Some(list) = &arguments.cores {
        let wrong = |error: String| format!("--cores {list}: {error}");
        let cores = parse_list(list).map_err(wrong)?;
        machine.topology.allow_only(&cores);
        if machine.topology.allowed().is_empty() {
            return Err(wrong(
                "this process may use none of these cores".to_string(),
            ));
        }
    }
    let name = arguments.name.clone().unwrap_or_else(host_name);
    check_name(&name)?;
    Ok(AgentOptions {
        join: arguments.join.clone(),
        secret,
        name,
        address: arguments.address,
        ports: arguments.ports,
        machine,
        joined: arguments.joined.clone(),
    })
}
