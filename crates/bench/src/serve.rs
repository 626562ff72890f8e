//! `slackwater bench serve`: what a server of jobs costs, and how soon it answers.
//!
//! Every part starts `slackwater serve` in an empty folder, and is one of its clients over PostgreSQL's
//! protocol or HTTP:
//!
//! - **create**: from `CREATE MATERIALIZED VIEW` over generated rows until a `SELECT` returns its first row.
//! - **push**: rows are pushed over HTTP at a fixed rate, a request every 10 ms, and a `SUBSCRIBE` over
//!   PostgreSQL's protocol returns them. Latency is from the time at which a row was due to be sent until it
//!   was read.
//! - **reads**: rows come in at a fixed rate, alternately with and without clients that read one row by key
//!   at a fixed rate. CPU time is the kernel's count of the server and all of its jobs.
//! - **idle**: jobs over a TCP peer that sends nothing. Memory is the proportional set size (PSS: a page that
//!   several processes share counts once) and, beside it, the resident set size (RSS) of each; wake-ups are
//!   the voluntary context switches of all threads.
//!
//! Shutdown: the servers are killed when a part ends or fails, their jobs end with them, and the folder is
//! removed.

mod create;
mod figures;
mod idle;
mod push;
mod reads;
mod server;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::common::parse_rate;
use crate::lab::folder::{Folder, Room};
use crate::lab::{self, Experiment, Files, Verdict};
use figures::Figures;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// 20 idle jobs, and short parts: a minute and a half
    #[arg(long)]
    quick: bool,
    /// Only these parts [default: all]
    #[arg(long, value_name = "PART,..", value_delimiter = ',')]
    parts: Option<Vec<Part>>,
    /// Idle jobs [default: 200]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    jobs: Option<u32>,
    /// Rows per second that are pushed
    #[arg(long, default_value = "10k", value_parser = parse_rate)]
    pushes: f64,
    /// Rows per second that come in while rows are read
    #[arg(long, default_value = "100k", value_parser = parse_rate)]
    rate: f64,
    /// Reads per second
    #[arg(long, default_value = "1000", value_parser = parse_rate)]
    reads: f64,
    /// Where the servers keep their state meanwhile [default: memory, else the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    files: Files,
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Create,
    Push,
    Reads,
    Idle,
}

/// What will be measured.
struct Plan {
    parts: Vec<Part>,
    jobs: u32,
    pushes_per_s: f64,
    rows_per_s: f64,
    reads_per_s: f64,
    /// Views that are created.
    creations: u32,
    /// The time of a point, in seconds.
    seconds: f64,
    rounds: u32,
    folder: Folder,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let jobs = arguments
        .jobs
        .unwrap_or(if arguments.quick { 20 } else { 200 });
    let room = Room {
        bytes: u64::from(jobs) << 20,
        what: "the state of the jobs",
        option: "--jobs",
    };
    let all = || Part::value_variants().to_vec();
    let plan = Plan {
        parts: arguments.parts.clone().unwrap_or_else(all),
        jobs,
        pushes_per_s: arguments.pushes,
        rows_per_s: arguments.rate,
        reads_per_s: arguments.reads,
        creations: if arguments.quick { 5 } else { 20 },
        seconds: if arguments.quick { 5.0 } else { 10.0 },
        rounds: if arguments.quick { 1 } else { 3 },
        folder: Folder::with_room(arguments.folder.as_deref(), &room)?,
    };
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let parts = self.parts.iter();
        let parts = parts.map(|part| format!("{part:?}").to_lowercase());
        let rounds = f64::from(self.rounds);
        let seconds = 60.0 + self.seconds * (3.0 * rounds + 3.0) + f64::from(self.jobs) * 0.15;
        let parts = parts.collect::<Vec<String>>().join(", ");
        format!("{parts}: about {}", lab::minutes(seconds))
    }

    fn measure(&self) -> Result<Figures, String> {
        let mut figures = Figures::default();
        for part in &self.parts {
            match part {
                Part::Create => figures.create = Some(create::measure(self)?),
                Part::Push => figures.push = Some(push::measure(self)?),
                Part::Reads => figures.reads = Some(reads::measure(self)?),
                Part::Idle => figures.idle = Some(idle::measure(self)?),
            }
        }
        Ok(figures)
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        figures.verdicts()
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }
}
