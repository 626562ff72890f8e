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

const EVENTS: &str = include_str!("demo/events.sql");
const BUSY_AUCTIONS: &str = include_str!("demo/busy_auctions.sql");
const SECONDS: &str = include_str!("demo/seconds.sql");

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
    /// Serve no page, and print the bids of each second
    #[arg(long, conflicts_with_all = ["page", "no_browser", "kill"])]
    no_page: bool,
}

/// The source, with further options.
fn events(rate: f64, further: &str) -> String {
    // Event time passes as fast as time does.
    let per_second = rate.ceil();
    let options = format!("'events_per_second' = '{per_second}'{further}");
    EVENTS.replace("${EVENTS}", &options)
}

/// The program: `further` options of its source, `answer` those of its sink.
fn program(rate: f64, further: &str, answer: &str) -> String {
    events(rate, further) + &BUSY_AUCTIONS.replace("${ANSWER}", answer)
}

/// Runs the demo.
pub fn run(arguments: &Arguments) -> ExitCode {
    let rate = arguments.rate;
    let by = match arguments.no_page {
        true => "second",
        false => "auction and second",
    };
    say(&format!(
        "An auction site: {} events per second, counted by {by}. 99 of 100 rows leave within the target.\n",
        count(rate as u64)
    ));
    if arguments.kill {
        return kill::run(arguments);
    }
    let paced = format!(", 'rate' = '{rate}/s'");
    let (text, ends) = match arguments.no_page {
        true => (events(rate, &paced) + SECONDS, "Ctrl-C ends.\n"),
        false => (
            program(rate, &paced, "'connector' = 'blackhole'"),
            "Open the page, pull the slider, and watch the cores. Ctrl-C ends.\n",
        ),
    };
    say(ends);
    let mut script = Script::default();
    script.add(FILE, &text);
    let doors = Doors {
        page: Some(arguments.page.clone()),
        opens_browser: !arguments.no_browser,
        ..Doors::default()
    };
    let options = RunOptions {
        duration: arguments.duration,
        // It would stand between the rows.
        live: !arguments.no_page,
        signals: true,
        doors: (!arguments.no_page).then_some(doors),
        ..RunOptions::default()
    };
    super::finish(run_script(&script, &options), None, false)
}
