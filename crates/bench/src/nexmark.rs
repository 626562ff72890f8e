//! `slackwater bench nexmark`: Nexmark's queries over made-up events, beside Apache Flink.
//!
//! The queries are the files of `examples/nexmark` with other sources and sinks. Events are made up as they are
//! read, or read from a file of JSON that holds the same ones; rows go nowhere. Flink runs the same text over the
//! same file in a process of its own (`bench/peers/flink`), each time right after the engine, so that a ratio
//! compares two neighbours in time and not two moods of the machine. Figures are medians over `--runs` rounds.
//!
//! CPU time is the kernel's, of the whole process. For Flink it is given a second time without that of a run over
//! few events, which has the start of the JVM, of the cluster and of the query in it. Compiling hot code goes on
//! behind that, so the more events, the fairer.

mod figures;
mod programs;
mod queries;

use std::path::{Path, PathBuf};

use clap::Args;

use super::common::{check_folders, write_json};
use super::hibench::figures::Machine;
use super::hibench::folder::Folder;
use figures::{Figures, FlinkStart, Series};
use programs::{Engine, Flink};
use queries::{Input, QUERIES, Query};
use slackwater::report::count;

/// Longest event as JSON, on average, with its line end: 332 bytes were measured.
const EVENT_BYTES_MAX: u64 = 360;

/// Events of the runs that show what starting Flink costs.
const START_EVENTS: u64 = 1_000;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// Events: of 50 one is a person, three are auctions, and the others bids
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    events: u64,
    /// Queries [default: all]
    #[arg(long, value_name = "Q,Q", value_delimiter = ',')]
    queries: Vec<String>,
    /// Of them, those that Flink runs, too
    #[arg(
        long,
        value_name = "Q,Q",
        value_delimiter = ',',
        default_value = "q0,q1,q2,q3,q4,q5,q7,q8"
    )]
    flink_queries: Vec<String>,
    /// Where Flink is: `make peers-flink` puts it there [default: target/flink where it is]
    #[arg(long, value_name = "DIR")]
    flink: Option<PathBuf>,
    /// Where events come from
    #[arg(long, value_delimiter = ',', default_value = "json,generator")]
    inputs: Vec<Input>,
    /// Instances of each parallelisable subquery, one measurement each
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2")]
    parallelism: Vec<usize>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the events lie as JSON meanwhile [default: the temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    check_folders(&[&arguments.json])?;
    if arguments.parallelism.contains(&0) {
        return Err("--parallelism: write numbers from 1, such as 1,2".to_string());
    }
    let queries = chosen("--queries", &arguments.queries)?;
    let flink_queries = chosen("--flink-queries", &arguments.flink_queries)?;
    let flink = Flink::find(arguments.flink.as_deref())?;
    let bytes = arguments.events.saturating_mul(EVENT_BYTES_MAX);
    let what = format!("{} events", count(arguments.events));
    let parent = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Folder::with_room(&parent, bytes, &what, "--events")?;
    let bench = Bench {
        engine: Engine::new(folder.path())?,
        flink,
        folder: folder.path(),
        file: folder.path().join("events.jsonl"),
        arguments,
    };
    let figures = bench.measure(&queries, &flink_queries)?;
    print!("{}", figures.table());
    write_json(arguments.json.as_deref(), &figures)
}

/// The queries with these names, or all of them.
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
    flink: Option<Flink>,
    folder: &'a Path,
    file: PathBuf,
    arguments: &'a Arguments,
}

impl Bench<'_> {
    fn measure(
        &self,
        queries: &[&'static Query],
        flink: &[&'static Query],
    ) -> Result<Figures, String> {
        let events = self.arguments.events;
        eprintln!(
            "writing {} events to {}",
            count(events),
            self.folder.display()
        );
        queries::write_side_input(self.folder)?;
        self.engine.run(&queries::generate(&self.file, events), 1)?;
        let flink = match self.flink {
            Some(_) => flink,
            None => {
                eprintln!(
                    "note: there is no Flink in target/flink (make peers-flink): the engine alone"
                );
                &[]
            }
        };
        let mut all = self.series(queries, flink);
        let starts = self.starts(&all)?;
        for round in 1..=self.arguments.runs {
            eprintln!("round {round} of {}", self.arguments.runs);
            for series in &mut all {
                self.run_one(series)?;
            }
        }
        let bytes = std::fs::metadata(&self.file)
            .map_err(|error| format!("{}: {error}", self.file.display()))?;
        Ok(Figures::of(
            Machine::this(),
            events,
            bytes.len(),
            self.arguments.runs,
            &all,
            starts,
        ))
    }

    /// What is run in each round: the inputs and parallelisms of a query one after the other, because they are
    /// compared.
    fn series(&self, queries: &[&'static Query], flink: &[&'static Query]) -> Vec<Series> {
        let mut all = Vec::new();
        for &query in queries {
            for &input in &self.arguments.inputs {
                for &parallelism in &self.arguments.parallelism {
                    let beside =
                        input == Input::Json && flink.iter().any(|other| other.name == query.name);
                    all.push(Series::new(query, input, parallelism, beside));
                }
            }
        }
        all
    }

    /// The CPU time that Flink takes to start, for each of its parallelisms.
    fn starts(&self, all: &[Series]) -> Result<Vec<FlinkStart>, String> {
        let (Some(flink), Some(first)) = (&self.flink, all.iter().find(|series| series.beside))
        else {
            return Ok(Vec::new());
        };
        let few = self.folder.join("few.jsonl");
        self.engine.run(&queries::generate(&few, START_EVENTS), 1)?;
        let mut starts = Vec::new();
        for &parallelism in &self.arguments.parallelism {
            eprintln!("Flink's start, parallelism {parallelism}");
            let text = first.query.for_flink(&few, self.folder);
            let mut costs = Vec::new();
            for _ in 0..self.arguments.runs {
                costs.push(flink.run(self.folder, &text, parallelism)?);
            }
            starts.push(FlinkStart::of(parallelism, &costs));
        }
        Ok(starts)
    }

    fn run_one(&self, series: &mut Series) -> Result<(), String> {
        let (query, parallelism) = (series.query, series.parallelism);
        let text = query.over(series.input, &self.file, self.arguments.events, self.folder);
        let cost = self.engine.run(&text, parallelism)?;
        // The side input's rows count, too.
        if cost.rows_in < self.arguments.events || cost.rows_bad != 0 || cost.rows_late != 0 {
            return Err(format!(
                "{}: {} of {} events read, {} bad, {} late",
                query.name,
                count(cost.rows_in),
                count(self.arguments.events),
                count(cost.rows_bad),
                count(cost.rows_late)
            ));
        }
        series.runs.push(cost);
        if let (Some(flink), true) = (&self.flink, series.beside) {
            let text = query.for_flink(&self.file, self.folder);
            series
                .flink_runs
                .push(flink.run(self.folder, &text, parallelism)?);
        }
        Ok(())
    }
}
