//! `slackwater demo`: a stream that needs no files and no network, its page with the slider, and `kill -9`
//! with the same answer.

mod kill;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::arguments::{duration, rows_per_s};
use crate::report::count;
use crate::run::{Doors, RunOptions, run_script};
use crate::script::Script;
use crate::terminal::say;

/// The name of the program, which is also that of its job.
const FILE: &str = "demo.sql";

const AUCTIONS: &str = include_str!("demo/auctions.sql");

/// How long a killed query would take if it were not killed.
const KILL_DURATION: Duration = Duration::from_secs(12);

/// The options of `slackwater demo`.
#[derive(Args)]
pub struct Arguments {
    /// Kill the query twice while it runs (kill -9), and compare its answer with an undisturbed run's
    #[arg(long)]
    kill: bool,
    /// End after this time, such as 30s; with --kill the time that the events take [default: until Ctrl-C;
    /// with --kill 12s]
    #[arg(long, value_parser = duration)]
    duration: Option<Duration>,
    /// Events per second
    #[arg(long, value_name = "EVENTS", default_value = "20000", value_parser = rows_per_s)]
    rate: f64,
    /// Where to serve the page [default: any free port of this machine]
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        hide_default_value = true
    )]
    page: String,
    /// Print the page's address and open no browser
    #[arg(long)]
    no_browser: bool,
}

/// The program: `events` are further options of its source, `answer` those of its sink.
fn program(rate: f64, events: &str, answer: &str) -> String {
    // Event time passes as fast as time does.
    let per_second = rate.ceil();
    let events = format!("'events_per_second' = '{per_second}'{events}");
    AUCTIONS
        .replace("${EVENTS}", &events)
        .replace("${ANSWER}", answer)
}

/// Runs the demo.
pub fn run(arguments: &Arguments) -> ExitCode {
    let rate = arguments.rate;
    say(&format!(
        "An auction site: {} events per second, counted by auction and second. 99 of 100 rows leave within \
         the target.\n",
        count(rate as u64)
    ));
    if arguments.kill {
        return kill::run(arguments);
    }
    say("Open the page, pull the slider, and watch the cores. Ctrl-C ends.\n");
    let mut script = Script::default();
    let paced = format!(", 'rate' = '{rate}/s'");
    script.add(FILE, &program(rate, &paced, "'connector' = 'blackhole'"));
    let options = RunOptions {
        duration: arguments.duration,
        live: true,
        signals: true,
        doors: Some(Doors {
            page: Some(arguments.page.clone()),
            opens_browser: !arguments.no_browser,
            ..Doors::default()
        }),
        ..RunOptions::default()
    };
    super::finish(run_script(&script, &options), None, false)
}
