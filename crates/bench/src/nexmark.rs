//! `slackwater bench nexmark`: Nexmark's queries over generated events, and Apache Flink on the same.
//!
//! The queries are the files of `examples/nexmark` with other sources and sinks. Events are generated as
//! they are read, or read from a file of JSON with the same ones; rows are discarded. Flink runs the same
//! text over the same file in a process of its own (`crates/bench/peers/flink`), each time right after
//! the engine, so that a ratio compares two runs under the same conditions. Figures are medians over
//! `--runs` rounds.
//!
//! CPU time is the kernel's, of the whole process. For Flink it is also given excluding start-up: less
//! that of a run over few events, which contains the start of the JVM, of the cluster and of the query.
//! The JIT compiler continues after that, so the comparison is fairer with more events.

mod figures;
pub mod flink;
mod queries;

use std::path::{Path, PathBuf};

use clap::Args;
use slackwater::report::count;

use figures::{Figures, FlinkStart, Series};
use flink::Flink;
use queries::{Input, QUERIES, Query};

use crate::hibench::bytes_of;
use crate::lab::folder::{Folder, Room};
use crate::lab::{self, Experiment, Files, Verdict};
use crate::programs::{Engine, Parallelism};

/// Average size of an event as JSON, with its line end, rounded up: 332 bytes were measured.
const EVENT_BYTES_MAX: u64 = 360;

/// Events of the runs that measure Flink's start-up.
const START_EVENTS: u64 = 1_000;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Events: of 50 one is a person, three are auctions, and the others bids
    #[arg(
        long,
        default_value_t = 10_000_000,
        value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000)
    )]
    events: u64,
    /// Queries [default: all]
    #[arg(long, value_name = "Q,Q", value_delimiter = ',')]
    queries: Vec<String>,
    /// Those of the queries that Flink runs, too
    #[arg(
        long,
        value_name = "Q,Q",
        value_delimiter = ',',
        default_value = "q0,q1,q2,q3,q4,q5,q7,q8"
    )]
    flink_queries: Vec<String>,
    /// The folder of Flink, which `make peers-flink` creates [default: target/flink if it exists]
    #[arg(long, value_name = "DIR")]
    flink: Option<PathBuf>,
    /// Where events come from
    #[arg(long, value_delimiter = ',', default_value = "json,generator")]
    inputs: Vec<Input>,
    /// Instances of each parallelizable subquery, or auto: one measurement for each
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "1,auto"
    )]
    parallelism: Vec<Parallelism>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    files: Files,
    /// The folder of the events as JSON during the experiment [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The plan of the experiment.
struct Plan<'a> {
    queries: Vec<&'static Query>,
    /// The queries that Flink runs, too.
    flink_queries: Vec<&'static Query>,
    flink: Option<Flink>,
    arguments: &'a Arguments,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan {
        queries: chosen("--queries", &arguments.queries)?,
        flink_queries: chosen("--flink-queries", &arguments.flink_queries)?,
        flink: Flink::find(arguments.flink.as_deref())?,
        arguments,
    };
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan<'_> {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let Arguments { events, runs, .. } = self.arguments;
        let queries = self.queries.len();
        format!(
            "{queries} queries over {} events, {runs} round(s)",
            count(*events)
        )
    }

    fn measure(&self) -> Result<Figures, String> {
        let events = self.arguments.events;
        let what = format!("{} events", count(events));
        let parent = self
            .arguments
            .folder
            .clone()
            .unwrap_or_else(std::env::temp_dir);
        let room = Room {
            bytes: events.saturating_mul(EVENT_BYTES_MAX),
            what: &what,
            option: "--events",
        };
        let folder = Folder::with_room(Some(&parent), &room)?;
        Bench {
            engine: Engine::new(folder.path())?,
            folder: folder.path(),
            file: folder.file("events.jsonl"),
            plan: self,
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

/// The queries with these names, or all queries.
fn chosen(option: &str, names: &[String]) -> Result<Vec<&'static Query>, String> {
    if names.is_empty() {
        return Ok(QUERIES.iter().collect());
    }
    let known = || QUERIES.iter().map(|query| query.name).collect::<Vec<_>>();
    let find = |name: &String| {
        let query = QUERIES.iter().find(|query| query.name == name);
        query.ok_or_else(|| {
            format!(
                "{option}: there is no '{name}', only {}",
                known().join(", ")
            )
        })
    };
    names.iter().map(find).collect()
}

struct Bench<'a> {
    engine: Engine,
    folder: &'a Path,
    file: PathBuf,
    plan: &'a Plan<'a>,
}

impl Bench<'_> {
    fn measure(&self) -> Result<Figures, String> {
        let Arguments { events, runs, .. } = *self.plan.arguments;
        queries::write_side_input(self.folder)?;
        self.engine.run(&queries::generate(&self.file, events), 1)?;
        if self.plan.flink.is_none() {
            eprintln!(
                "note: there is no Flink in target/flink, so only the engine is measured\n  \
                 = make peers-flink installs it"
            );
        }
        let mut all = self.series();
        let starts = self.starts(&all)?;
        for round in lab::rounds(runs) {
            for place in round.places(all.len()) {
                self.run_one(&mut all[place])?;
            }
        }
        Ok(Figures::of(
            events,
            bytes_of(&self.file)?,
            runs,
            &all,
            starts,
        ))
    }

    /// What each round runs: the inputs and parallelisms of a query follow each other, because they are
    /// compared.
    fn series(&self) -> Vec<Series> {
        let Plan {
            queries,
            flink_queries,
            flink,
            arguments,
        } = self.plan;
        let mut all = Vec::new();
        for &query in queries {
            let of_flink = flink_queries.iter().any(|other| other.name == query.name);
            for &input in &arguments.inputs {
                for &parallelism in &arguments.parallelism {
                    // Flink has no `auto`.
                    let is_number = parallelism.number().is_some();
                    let with_flink =
                        flink.is_some() && input == Input::Json && of_flink && is_number;
                    all.push(Series::new(query, input, parallelism, with_flink));
                }
            }
        }
        all
    }

    /// The CPU time for starting Flink, at each of its parallelisms.
    fn starts(&self, all: &[Series]) -> Result<Vec<FlinkStart>, String> {
        let (Some(flink), Some(first)) = (
            &self.plan.flink,
            all.iter().find(|series| series.with_flink),
        ) else {
            return Ok(Vec::new());
        };
        let few = self.folder.join("few.jsonl");
        self.engine.run(&queries::generate(&few, START_EVENTS), 1)?;
        let mut starts = Vec::new();
        let numbers = self.plan.arguments.parallelism.iter();
        for parallelism in numbers.filter_map(|parallelism| parallelism.number()) {
            eprintln!("Flink's start-up, parallelism {parallelism}");
            let text = first.query.for_flink(&few, self.folder);
            let mut costs = Vec::new();
            for _ in 0..self.plan.arguments.runs {
                costs.push(flink.run(self.folder, &text, parallelism)?);
            }
            starts.push(FlinkStart::of(parallelism, &costs));
        }
        Ok(starts)
    }

    fn run_one(&self, series: &mut Series) -> Result<(), String> {
        let (query, parallelism) = (series.query, series.parallelism);
        let text = query.over(
            series.input,
            &self.file,
            self.plan.arguments.events,
            self.folder,
        );
        let cost = self.engine.run(&text, parallelism)?;
        cost.check(query.name, self.plan.arguments.events)?;
        series.runs.push(cost);
        if let (Some(flink), true, Some(parallelism)) =
            (&self.plan.flink, series.with_flink, parallelism.number())
        {
            let text = query.for_flink(&self.file, self.folder);
            series
                .flink_runs
                .push(flink.run(self.folder, &text, parallelism)?);
        }
        Ok(())
    }
}
