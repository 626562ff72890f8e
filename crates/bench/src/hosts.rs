//! `slackwater bench hosts`: what it costs that a query runs on several hosts, compared with worker
//! processes of one host, and with Apache Flink.
//!
//! ```text
//! one-host   slackwater run --processes 3 --link tcp
//! hosts      slackwater run --listen --hosts 3 --here,  2 × slackwater worker --join,  in clear
//! hosts-tls  the same with --secret
//! flink      a JobManager, 3 × a TaskManager with one slot, a client: a JVM each
//! ```
//!
//! The hosts are programs on the loopback address of this machine, so the network costs nothing and adds
//! nothing; what is compared is the work of the programs. All ways run three instances of each subquery
//! with the same settings: `placement` = `os`, because hosts that are one machine would be pinned to the
//! same core, and `wait` = `interrupt`, because each of them believes that all cores are its own.
//!
//! What the figures contain:
//! - **CPU time** and **wake-ups** are the kernel's count for processes that have ended (`getrusage`), of
//!   every process from its start to its end: orchestrator, agents, worker processes; or all five JVMs.
//!   *Excluding start-up* is less that of a run over few records.
//! - **Beside workers** is what is left of it when the worker processes' own count is taken away: agents
//!   and orchestrator, and the ends of the workers.
//! - **Bytes on the wire** are the frames of links between processes, from the report: without TLS
//!   records, TCP and IP.
//! - **Ratios** compare neighboring runs of a round; every other round goes backwards.
//! - **Idle**: three hosts with an open, silent connection, after some rows. Voluntary context switches of
//!   all threads of all processes are counted.
//!
//! Every run of a query must give the same number of rows, none late or rejected.
//!
//! Shutdown: processes that are still running when an experiment fails are killed, and its folder is
//! removed.

mod cluster;
mod figures;
mod flink;
mod idle;
mod process;
mod queries;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use slackwater::report::count;

use cluster::Engine;
use figures::{Figures, Run};
use flink::FlinkCluster;
use queries::Input;

use crate::hibench::workload::Workload;
use crate::lab::folder::{Folder, Room};
use crate::lab::{self, Experiment, Files, Verdict};
use crate::nexmark::flink::Flink;

/// Hosts, and instances of each subquery.
const HOSTS: usize = 3;

/// Longest generated record, twice: the file is split into one for each host.
const RECORD_BYTES_MAX: u64 = 2 * 240;

/// Records of the runs that measure the start.
const START_ROWS: u64 = 3_000;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Generated records
    #[arg(
        long,
        default_value_t = 5_000_000,
        value_parser = clap::value_parser!(u64).range(3_000..=100_000_000)
    )]
    rows: u64,
    /// Workloads of HiBench: fixwindow, repartition (two rows of three go to another host), wordcount (a
    /// count by key, with an update for each record), identity
    #[arg(
        long,
        value_name = "Q,Q",
        value_delimiter = ',',
        value_parser = queries::named,
        default_value = "fixwindow,repartition,wordcount"
    )]
    queries: Vec<Workload>,
    /// What is compared
    #[arg(
        long,
        value_name = "WAY,WAY",
        value_delimiter = ',',
        default_value = "one-host,hosts,hosts-tls,flink"
    )]
    ways: Vec<Way>,
    /// The folder of Flink, which `make peers-flink` creates [default: target/flink if it exists]
    #[arg(long, value_name = "DIR")]
    flink: Option<PathBuf>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Seconds for which idle hosts are watched, for each way to connect them; 0 skips this
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    idle: u64,
    #[command(flatten)]
    files: Files,
    /// The folder of the generated files during the experiment [default: /dev/shm if it exists, else the
    /// folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// How a query is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Three worker processes of one host, connected by TCP.
    OneHost,
    /// Three hosts, in clear.
    Hosts,
    /// Three hosts, connected by TLS.
    HostsTls,
    /// Flink with three TaskManagers.
    Flink,
}

impl Way {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Way::OneHost => "one-host",
            Way::Hosts => "hosts",
            Way::HostsTls => "hosts-tls",
            Way::Flink => "flink",
        }
    }
}

/// The plan of the experiment.
struct Plan<'a> {
    flink: Option<Flink>,
    arguments: &'a Arguments,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan {
        flink: Flink::find(arguments.flink.as_deref())?,
        arguments,
    };
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan<'_> {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let Arguments {
            queries,
            ways,
            rows,
            runs,
            ..
        } = self.arguments;
        format!(
            "{} queries in {} ways over {} generated records, {runs} round(s)",
            queries.len(),
            ways.len(),
            count(*rows)
        )
    }

    fn measure(&self) -> Result<Figures, String> {
        let rows = self.arguments.rows;
        let what = format!("{} records", count(rows));
        let room = Room {
            bytes: rows.saturating_mul(RECORD_BYTES_MAX),
            what: &what,
            option: "--rows",
        };
        let folder = Folder::with_room(self.arguments.folder.as_deref(), &room)?;
        let engine = Engine::new(folder.path())?;
        Bench {
            all: Input::generate(folder.path(), "all", rows)?,
            few: Input::generate(folder.path(), "few", START_ROWS)?,
            engine,
            plan: self,
            folder: folder.path(),
        }
        .measure()
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        figures.verdicts()
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }
}

struct Bench<'a> {
    plan: &'a Plan<'a>,
    engine: Engine,
    folder: &'a Path,
    all: Input,
    few: Input,
}

impl Bench<'_> {
    fn measure(&self) -> Result<Figures, String> {
        let Arguments { runs, idle, .. } = *self.plan.arguments;
        if self.plan.arguments.ways.contains(&Way::Flink) && self.plan.flink.is_none() {
            eprintln!(
                "note: there is no Flink in target/flink, so only the engine is measured\n  \
                 = make peers-flink installs it"
            );
        }
        let cases = self.cases();
        let mut starts = Vec::new();
        let mut all = Vec::new();
        for round in lab::rounds(runs) {
            for &(workload, way) in round.order(&cases) {
                starts.push(self.run_one(workload, way, &self.few)?);
                let run = self.run_one(workload, way, &self.all)?;
                round.note(run.line());
                all.push(run);
            }
        }
        figures::check(&all)?;
        let mut silent = Vec::new();
        for way in [Way::Hosts, Way::HostsTls] {
            if idle > 0 && self.plan.arguments.ways.contains(&way) {
                silent.push(idle::measure(&self.engine, way, idle)?);
            }
        }
        Ok(Figures::of(&self.all, runs, all, starts, silent))
    }

    /// What each round runs: the ways of a query follow each other, because they are compared.
    fn cases(&self) -> Vec<(Workload, Way)> {
        let Arguments { queries, ways, .. } = self.plan.arguments;
        let is_possible = |&(workload, way): &(Workload, Way)| {
            way != Way::Flink
                || self.plan.flink.is_some() && queries::for_flink(workload, &self.few).is_some()
        };
        let cases = queries.iter();
        let cases = cases.flat_map(|&workload| ways.iter().map(move |&way| (workload, way)));
        cases.filter(is_possible).collect()
    }

    fn run_one(&self, workload: Workload, way: Way, input: &Input) -> Result<Run, String> {
        let (Way::Flink, Some(flink)) = (way, &self.plan.flink) else {
            let text = workload.sql(&input.pattern());
            return self.engine.run(workload, way, &text, input.rows);
        };
        let text = queries::for_flink(workload, input)
            .ok_or_else(|| format!("{} has no text for Flink", workload.name()))?;
        let used = FlinkCluster::run(flink, self.folder, &text)?;
        Ok(Run::of_flink(workload, input.rows, used))
    }
}
