//! The command line.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Given, Settings};
use crate::error::{Error, Result};
use crate::run::{self, Options};
use crate::status::Status;
use crate::{ask, host, unit};

/// A power manager for replicated servers (Redis, Valkey, Slackwater): replicas follow as slowly as the lag
/// that you allow lets them.
#[derive(Debug, Parser)]
#[command(
    name = "slackwater-power",
    version,
    subcommand_precedence_over_arg = true,
    after_help = "\
  slackwater-power redis://127.0.0.1:6379 --lag 20ms      finds its replicas on this host, and manages them
  slackwater-power plan redis://127.0.0.1:6379            says what would be done
  slackwater-power check                                  says what this host can do
  slackwater-power restore                                undoes what a manager that was killed has left

Passwords are read from $SLACKWATER_POWER_PASSWORD or from the files that the configuration names."
)]
struct CommandLine {
    #[command(flatten)]
    all: All,
    #[command(subcommand)]
    command: Option<What>,
}

#[derive(Debug, Args)]
struct All {
    /// Where servers are: redis://[user@]host:port, sentinel://host:port/name or cluster://host:port
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// The configuration
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// How far replicas may be behind, such as 20ms; without it nothing is batched
    #[arg(long, value_parser = config::lag_ns, global = true)]
    lag: Option<u64>,
    /// Look and decide, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Serve metrics on this address of this host, such as 127.0.0.1:9618
    #[arg(long, value_name = "ADDRESS", value_parser = config::metrics_address)]
    metrics: Option<SocketAddr>,
    /// Where what was found is kept until it is restored
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/run/slackwater/power.journal",
        global = true
    )]
    journal: PathBuf,
    /// The user that the process with the network becomes [default: slackwater-power, or nobody]
    #[arg(long)]
    user: Option<String>,
    /// A tree of files instead of /sys
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys",
        hide = true,
        global = true
    )]
    sysfs: PathBuf,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what this host can do: frequencies, energy, batching
    Check,
    /// Show what a running manager does
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Look around for some seconds, and say what would be done; changes nothing
    Plan {
        /// Where servers are
        #[arg(value_name = "URL")]
        urls: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Undo what a manager that was killed has left
    Restore,
    /// Make a replica fast, then promote it
    Promote {
        /// The replica's address, such as 127.0.0.1:6380
        address: SocketAddr,
    },
    /// Print a unit for systemd, a rule for udev, and an ACL
    Unit,
    /// The process with the network; the manager starts it.
    #[command(hide = true)]
    Head {
        /// The end of a socket pair
        channel: i32,
        /// A socket that listens
        page: i32,
    },
}

/// How many seconds are looked around for a plan: what is written is seen in two.
const PLAN_ROUNDS: u32 = 3;

/// Runs the program.
pub fn main() -> ExitCode {
    let line = CommandLine::parse();
    match run(line) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.code())
        }
    }
}

fn run(line: CommandLine) -> Result<u8> {
    let all = &line.all;
    let options = Options {
        journal: all.journal.clone(),
        sysfs: all.sysfs.clone(),
        is_dry: all.dry_run,
        user: all.user.clone(),
    };
    match line.command {
        Some(What::Unit) => print(unit::TEXT),
        Some(What::Restore) => run::restore(&options.journal).map(|()| 0),
        Some(What::Check) => print(&host::check(&options.sysfs, &settings(all, &[])?)),
        Some(What::Status { json }) => {
            let page = ask::page(&options.journal, "/status")?;
            let status = serde_json::from_str::<Status>(&page);
            let status = status.map_err(|error| Error::failed("status", error))?;
            print(&if json { page + "\n" } else { status.text() })
        }
        Some(What::Plan { ref urls, json }) => {
            let status = run::plan(with_servers(settings(all, urls)?)?, &options, PLAN_ROUNDS)?;
            match json {
                true => {
                    let text = serde_json::to_string_pretty(&status);
                    print(&(text.map_err(|error| Error::failed("plan", error))? + "\n"))
                }
                false => print(&status.text()),
            }
        }
        Some(What::Promote { address }) => {
            let settings = settings(all, &[])?;
            let found = settings
                .servers
                .iter()
                .find_map(|server| server.login.as_ref());
            let login = found.map(config::Secret::login).transpose()?;
            let login = login.or_else(config::login_of_variable);
            print(&ask::promote(&options.journal, address, login.as_ref())?)
        }
        Some(What::Head { channel, page }) => {
            run::run_head(with_servers(settings(all, &[])?)?, &options, channel, page)
        }
        None => {
            let settings = with_servers(settings(all, &[])?)?;
            let arguments = std::env::args().skip(1).collect::<Vec<String>>();
            run::run_hand(&settings, &options, &arguments)
        }
    }
}

fn settings(all: &All, more: &[String]) -> Result<Settings> {
    config::read(&Given {
        file: all.config.clone(),
        urls: all.urls.iter().chain(more).cloned().collect(),
        lag_ns: all.lag,
        metrics: all.metrics,
    })
}

fn with_servers(settings: Settings) -> Result<Settings> {
    match settings.servers.is_empty() {
        false => Ok(settings),
        true => Err(Error::usage("slackwater-power", "no server is named")
            .hint("give a URL such as redis://127.0.0.1:6379, or --config FILE with [[redis]]")),
    }
}

/// Writes to standard output; a closed pipe is not an error.
fn print(text: &str) -> Result<u8> {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(0)
}
