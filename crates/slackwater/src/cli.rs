//! The command line.

mod arguments;
mod asking;
mod calibrated;
mod check;
mod demo;
mod doors;
mod embedded;
mod example;
mod experiments;
mod explained;
mod generated;
mod hosts;
mod serve;
mod sockets;
mod standby;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use slackwater_engine::runtime::WORKER_NAME;

use crate::explain::{Format, Price};
use crate::run::{Failure, Finished, Outcome, RunOptions, StateOptions, run_script};
use crate::shell::Remote;
use crate::terminal::{FAILED, USAGE, print, say};
use arguments::{QueryArguments, duration, key_value, rows_per_s};
use doors::DoorArguments;
use example::EXAMPLE;
pub use experiments::PROGRAM_VARIABLE;
use explained::{Explain, analyse, explained};

/// A stream processing engine: give it a query, see its answer, its latency and what it cost.
#[derive(Parser)]
#[command(name = "slackwater", version, arg_required_else_help = true, after_help = EXAMPLE)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a file of SQL statements until its inputs end, then print what it cost.
    #[command(after_help = "\
Rows of a SELECT go to standard output, the summary and errors to standard error. When all inputs have
ended, all windows are closed; Ctrl-C and --duration end the query and leave its windows open.

  slackwater run query.sql --parallelism 2 --report report.json
  slackwater run query.sql --set chunk_rows=1024 --set emit=every_row
  slackwater run query.sql --state state --processes 2    (resumes from its last checkpoint)
  slackwater run tables.sql -e 'SELECT auction, price FROM bids WHERE price > 10'
  cat events.csv | slackwater run query.sql          (a table with 'connector' = 'stdin')")]
    Run {
        #[command(flatten)]
        query: QueryArguments,
        /// End the sources after this time, such as 20s or 500ms
        #[arg(long, value_parser = duration)]
        duration: Option<Duration>,
        /// Keep checkpoints in this directory (or s3://bucket/folder), and resume from the last one
        #[arg(long, value_name = "DIR")]
        state: Option<String>,
        /// With --state: start over instead of resuming from the checkpoints there
        #[arg(long, requires = "state")]
        from_scratch: bool,
        /// With --state: if the newest checkpoint is damaged, resume from the one before it, although rows
        /// are then written again to sinks that would otherwise have each row once
        #[arg(long, requires = "state")]
        accept_duplicates: bool,
        #[command(flatten)]
        standby: standby::StandbyArguments,
        /// Write the report as JSON to this file
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// No summary and no progress line
        #[arg(long, short)]
        quiet: bool,
        /// Draw a line a second: rate, latency against target, cores used
        #[arg(long, conflicts_with = "quiet")]
        live: bool,
        #[command(flatten)]
        hosts: Box<hosts::HostArguments>,
        #[command(flatten)]
        doors: DoorArguments,
    },
    /// Print a new key, which all hosts of a query share.
    #[command(after_help = hosts::KEY_HELP)]
    Key,
    /// Join a query on several hosts: start the worker processes that it asks for.
    Worker(hosts::WorkerArguments),
    /// Show how a query on several hosts stands: who directs it, the hosts that have joined, who stands by.
    Status(asking::StatusArguments),
    /// Make a query on several hosts go on without one of them; returns when that host has left.
    Drain(asking::DrainArguments),
    /// Let the standby of a query go on instead of the run that is active: nothing is read twice.
    Promote(standby::PromoteArguments),
    /// Show a stream with its page: needs no files and no network.
    Demo(demo::Arguments),
    /// Show how a query would run: query graph, subqueries, instances, placement.
    #[command(after_help = explained::HELP)]
    Explain {
        #[command(flatten)]
        query: QueryArguments,
        /// Run the query, and show measured figures beside the predicted ones
        #[arg(long)]
        analyze: bool,
        /// With --analyze: end the sources after this time, such as 20s
        #[arg(long, value_parser = duration, requires = "analyze")]
        duration: Option<Duration>,
        /// Show what each of several latency targets would cost, instead of a plan
        #[arg(long, conflicts_with_all = ["analyze", "format"])]
        targets: bool,
        /// Plan for this load of the sources together, such as 20000/s or 20k/s [default: what they
        /// declare, or 10000/s]
        #[arg(long, value_name = "ROWS", value_parser = rows_per_s)]
        rate: Option<f64>,
        /// With --targets: what a core costs per hour, in any currency
        #[arg(long, default_value = "0.04", requires = "targets")]
        price: Price,
        /// Plan for so many hosts like this one, h1 to hN
        #[arg(long, value_name = "N", conflicts_with = "analyze", value_parser = hosts::hosts_planned)]
        hosts: Option<usize>,
        /// What to write
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Open a shell: declare tables and run queries one by one.
    #[command(after_help = "\
Statements end with ';'. \\? lists the commands, Ctrl-C ends a query, Ctrl-D the shell. Files are run
before the first prompt. If standard input is not a terminal, it is run like a file.

  slackwater sql tables.sql
  slackwater sql < statements.sql
  slackwater sql --connect 127.0.0.1:7480        (a server: see slackwater serve)")]
    Sql {
        /// Files of SQL statements that are run first
        files: Vec<PathBuf>,
        /// A setting, as with SET; overrides SET and can be given several times
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
        settings: Vec<(String, String)>,
        /// Run the statements on the server whose --http is this address
        #[arg(long, value_name = "ADDRESS")]
        connect: Option<String>,
        /// With --connect: the token of the server [default: $SLACKWATER_TOKEN]
        #[arg(long, requires = "connect")]
        token: Option<String>,
    },
    /// Print a script with which a shell completes this command line.
    #[command(after_help = "\
  slackwater completions bash > ~/.local/share/bash-completion/completions/slackwater
  slackwater completions fish > ~/.config/fish/completions/slackwater.fish
  slackwater completions zsh > a folder of $fpath, as _slackwater")]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder; packages do.
    #[command(hide = true)]
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Show what is known of this machine: NUMA nodes, cores, caches, frequencies.
    Topology {
        /// Show a machine known by name (bullion-s16), or described in a file (JSON as --json
        /// prints it)
        #[arg(long, visible_alias = "topology", value_name = "NAME|FILE")]
        from: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say which partition held the others back in a run, and what would have kept its late rows.
    #[command(after_help = "\
  slackwater run query.sql --report report.json
  slackwater doctor report.json
  slackwater doctor busy_airports      (a job of a server)

In the shell, \\why says the same of a query that runs.")]
    Doctor {
        /// The file that run --report has written, or a job of a server
        #[arg(value_name = "REPORT|JOB")]
        report: PathBuf,
        /// The server's --http
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7480")]
        connect: String,
        /// The token of the server [default: $SLACKWATER_TOKEN]
        #[arg(long)]
        token: Option<String>,
    },
    /// Say what a new version of a query can use of the state that the old one has saved.
    #[command(after_help = check::HELP)]
    Check(check::Arguments),
    /// List the checkpoints that a query has saved with --state.
    Checkpoints {
        /// The directory, or s3://bucket/folder
        place: String,
    },
    /// Measure what waiting and links cost on this host, and save the figures for later runs.
    #[command(after_help = "\
The figures are saved in $SLACKWATER_CACHE, else $XDG_CACHE_HOME/slackwater, else ~/.cache/slackwater
(calibration.json). Queries whose workers choose how to wait use them. Without figures of this host and
version they use built-in ones.")]
    Calibrate(crate::calibrate::Arguments),
    /// One side of a measured link; `calibrate` starts it.
    #[command(hide = true)]
    MeasureLink(crate::calibrate::LinkSide),
    /// A part of a query; `run --processes` starts it.
    #[command(hide = true)]
    Part {
        /// The worker process's number
        #[arg(long)]
        process: usize,
        /// The descriptor of the socket to its parent
        #[arg(long)]
        control: i32,
    },
    /// Run a server: jobs that go on for months, and views that psql can read.
    #[command(after_help = "\
The server keeps what is declared in DIR and resumes all jobs when it is started again. SIGTERM and Ctrl-C
save their state and end it.

  slackwater serve --dir data
  psql -h 127.0.0.1 -p 7432
  slackwater serve --pg 0.0.0.0:7432 --passwords users.txt --tls-certificate cert.pem --tls-key key.pem")]
    Serve(serve::ServeArguments),
    /// A job of a server; `serve` starts it.
    #[command(hide = true)]
    Job {
        /// The descriptor of the socket to the server
        #[arg(long)]
        control: i32,
        /// The job's name, for the list of processes
        #[arg(long)]
        name: String,
    },
    /// Run the published experiments, one command each.
    #[command(disable_help_flag = true, after_help = experiments::BENCH_HELP)]
    Bench(experiments::Arguments),
    /// Let replicas of servers such as Redis follow as slowly as their allowed lag lets them.
    #[command(disable_help_flag = true, after_help = experiments::POWER_HELP)]
    Power(experiments::Arguments),
    /// Run a program whose TCP connections within this host go through shared memory.
    #[command(after_help = sockets::HELP)]
    Sockets(sockets::Arguments),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    quiet_workers();
    crate::signals::ignore_file_limits();
    let command_line = CommandLine::parse();
    match command_line.command {
        Command::Run {
            query,
            duration,
            state,
            from_scratch,
            accept_duplicates,
            standby,
            report,
            quiet,
            live,
            hosts,
            doors,
        } => {
            let cluster = match hosts.cluster() {
                Ok(cluster) => cluster,
                Err(error) => return complain(&error, USAGE),
            };
            let standby = match standby.options(&hosts) {
                Ok(standby) => standby,
                Err(error) => return complain(&error, USAGE),
            };
            let machine = match query.machine_here() {
                Ok(machine) => machine,
                Err(error) => return complain(&error, USAGE),
            };
            let options = RunOptions {
                settings: query.settings(),
                duration,
                progress: !quiet,
                live,
                doors: doors.doors(),
                cluster,
                signals: true,
                machine,
                state: state.map(|place| StateOptions {
                    place,
                    from_scratch,
                    accepts_duplicates: accept_duplicates,
                }),
                standby,
                ..RunOptions::default()
            };
            let script = match query.script() {
                Ok(script) => script,
                Err(error) => return complain(&error, USAGE),
            };
            // Checked before the query runs: otherwise the figures of the run would be lost.
            let folder = report.as_deref().and_then(Path::parent);
            let named = folder.filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = named.filter(|folder| !folder.is_dir()) {
                let folder = folder.display();
                return complain(&format!("--report: there is no folder {folder}"), USAGE);
            }
            finish(run_script(&script, &options), report, quiet)
        }
        Command::Explain {
            query,
            analyze,
            duration,
            targets,
            rate,
            price,
            hosts,
            format,
        } => {
            let script = match query.script() {
                Ok(script) => script,
                Err(error) => return complain(&error, USAGE),
            };
            let explain = Explain {
                format,
                hosts,
                rows_per_s: rate,
                price: targets.then_some(price),
            };
            match explained(&query, &script, &explain) {
                Err(error) => complain(&error, USAGE),
                Ok((explained, _)) if !analyze => {
                    print(&explained);
                    ExitCode::SUCCESS
                }
                Ok(_) if format != Format::Text => complain(
                    "--analyze is not supported with --format: its output is text",
                    USAGE,
                ),
                Ok((explained, predicted)) => {
                    print(&explained);
                    analyse(&query, &script, duration, &predicted)
                }
            }
        }
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Sql {
            files,
            settings,
            connect: None,
            ..
        } => ExitCode::from(crate::shell::run(&files, settings, None)),
        Command::Sql {
            files,
            settings,
            connect: Some(address),
            token,
        } => match Remote::new(&address, doors::token(token), settings) {
            Ok(remote) => ExitCode::from(crate::shell::run(&files, Vec::new(), Some(remote))),
            Err(error) => complain(&error, FAILED),
        },
        Command::Completions { shell } => generated::completions(shell),
        Command::Man { folder } => generated::manual(&folder),
        Command::Key => hosts::key(),
        Command::Worker(arguments) => hosts::worker(&arguments),
        Command::Status(arguments) => asking::show_status(&arguments),
        Command::Drain(arguments) => asking::drain_host(&arguments),
        Command::Promote(arguments) => standby::promote_standby(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Job { control, .. } => crate::server::job_main(control),
        Command::Part { control, .. } => crate::hosts::worker_main(control),
        Command::Topology { from, json } => shown(topology(from.as_deref(), json), USAGE),
        Command::Doctor {
            report,
            connect,
            token,
        } => match report.exists() || report.extension().is_some() {
            true => shown(crate::doctor::diagnose(&report), USAGE),
            false => {
                let job = report.display().to_string();
                shown(
                    crate::shell::why(&connect, doors::token(token), &job),
                    USAGE,
                )
            }
        },
        Command::Check(arguments) => arguments.run(),
        Command::Checkpoints { place } => shown(crate::checkpoints::list(&place), FAILED),
        Command::Calibrate(arguments) => {
            match crate::calibrate::run(&arguments, &calibrated::rows_of) {
                Ok(text) => {
                    print(&text);
                    ExitCode::SUCCESS
                }
                Err(error) => complain(&error, FAILED),
            }
        }
        Command::MeasureLink(side) => match side.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&error, FAILED),
        },
        Command::Bench(words) => complain(&experiments::become_bench(&words), FAILED),
        Command::Power(words) => complain(&experiments::become_power(&words), FAILED),
        Command::Sockets(arguments) => complain(&sockets::become_program(&arguments), FAILED),
    }
}

fn topology(from: Option<&str>, json: bool) -> Result<String, String> {
    let topology = match from {
        Some(name_or_file) => crate::machine::named(name_or_file)?,
        None => crate::machine::topology(),
    };
    crate::machine::describe(&topology, json)
}

fn finish(outcome: Result<Outcome, Failure>, report: Option<PathBuf>, quiet: bool) -> ExitCode {
    let (finished, error) = match outcome {
        Ok(Outcome::Explained(text)) => {
            print(&text);
            return ExitCode::SUCCESS;
        }
        Err(Failure::Usage(error)) => return complain(&error, USAGE),
        Err(Failure::Query(error, None)) => return complain(&error, FAILED),
        Ok(Outcome::Finished(finished)) => (finished, None),
        Err(Failure::Query(error, Some(finished))) => (finished, Some(error)),
    };
    let Finished {
        report: figures,
        dead_letters,
        explained,
        abandoned,
        stopped,
    } = *finished;
    if !explained.is_empty() && !abandoned {
        print(&explained);
    }
    // A query that could not start has no figures.
    let has_begun = error.is_none() || figures.has_moved_rows();
    if !quiet && has_begun {
        say(&format!("\n{}", figures.summary(&dead_letters)));
        // If the checkpoint failed, that is the error.
        if stopped && (error.is_none() || figures.checkpoints.is_none()) {
            say(match figures.checkpoints.is_some() {
                true => {
                    "  stopped before its inputs ended, and checkpointed: the same command resumes from \
                     here\n"
                }
                false => "  stopped before its inputs ended: open windows are not in the result\n",
            });
        }
    }
    if quiet && let Some(line) = figures.warning(&dead_letters) {
        say(&format!("{line}\n"));
    }
    if abandoned {
        say("warning: a sink stopped accepting rows: the rows on their way to it are lost\n");
    }
    if let Some(path) = report {
        let written = serde_json::to_string_pretty(&figures)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&path, text + "\n"));
        if let Err(error) = written {
            return complain(&format!("--report {}: {error}", path.display()), FAILED);
        }
    }
    match error {
        None => ExitCode::SUCCESS,
        Some(error) => complain(&error, FAILED),
    }
}

/// Silences panics of workers: they become the query's error or a rejected row, with a better message. The
/// usual text of a panic is shown only if RUST_BACKTRACE is set.
fn quiet_workers() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let name = std::thread::current().name().map(str::to_string);
        let is_worker = name.is_some_and(|name| name.starts_with(WORKER_NAME));
        if !is_worker || std::env::var_os("RUST_BACKTRACE").is_some() {
            usual(panic);
        }
    }));
}

/// Prints a result, or complains with this exit code.
fn shown(result: Result<String, String>, code: u8) -> ExitCode {
    match result {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => complain(&error, code),
    }
}

fn complain(error: &str, code: u8) -> ExitCode {
    say(&format!("error: {error}\n"));
    ExitCode::from(code)
}
