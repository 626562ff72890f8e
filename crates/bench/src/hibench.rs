//! `slackwater bench hibench`: the streaming workloads of HiBench over generated visits, compared
//! with the same fixwindow written by hand (`crates/bench/limit`).
//!
//! Every run is a process of its own, with its own CPU time and memory; before each one the hand-written
//! program runs over the same file, so that a ratio compares two runs under the same conditions. Figures
//! are medians over `--runs` rounds.
//!
//! Before anything is measured, fixwindow's answer is compared with the hand-written one at each
//! parallelism: a fast wrong answer is an error here. The generated file is removed when the command
//! ends, also by Ctrl-C.

pub mod by_hand;
pub mod figures;
pub mod workload;

use std::path::{Path, PathBuf};

use clap::Args;
use slackwater::report::count;

use by_hand::{ByHand, Checksum};
use figures::{Figures, Measured, MemoryRun, Run};
use workload::Workload;

use crate::lab::folder::{Folder, Room};
use crate::lab::{self, Experiment, Files, Verdict, spread};
use crate::programs::{Engine, Parallelism};

/// Longest generated record with its line end, rounded up: the longest string of each table and the
/// widest number of each column add up to 233 bytes.
const RECORD_BYTES_MAX: u64 = 240;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Records in the generated file
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
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
    /// The folder of the generated file during the experiment [default: /dev/shm if it exists, else the
    /// folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Records of the two streams whose peak memory is compared; 0,0 skips this
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        num_args = 1,
        default_value = "1000000,10000000"
    )]
    memory_rows: Vec<u64>,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    lab::conduct(arguments, &arguments.files, None)
}

/// A new folder with room for generated records.
pub fn folder_for(parent: Option<&Path>, rows: u64) -> Result<Folder, String> {
    let what = format!("{} records", count(rows));
    let room = Room {
        bytes: rows.saturating_mul(RECORD_BYTES_MAX),
        what: &what,
        option: "--rows",
    };
    Folder::with_room(parent, &room)
}

impl Experiment for Arguments {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let (rows, runs) = (count(self.rows), self.runs);
        let workloads = Workload::ALL.len();
        format!("{workloads} workloads over {rows} generated records, {runs} round(s)")
    }

    fn measure(&self) -> Result<Figures, String> {
        let by_hand = ByHand::find()?;
        let folder = folder_for(self.folder.as_deref(), self.rows)?;
        let engine = Engine::new(folder.path())?;
        let file = folder.file("visits.csv");
        engine.run(&workload::generate(&file, self.rows), 1)?;
        let expected = by_hand.run(&file)?.answer;
        let results = folder.file("results.csv");
        check_answers(&engine, &file, &results, &self.parallelism, &expected)?;
        // The parallelisms of a workload follow each other, because they are compared.
        let cases = Workload::ALL.into_iter();
        let cases = cases.flat_map(|workload| self.parallelism.iter().map(move |&n| (workload, n)));
        let cases = cases.collect::<Vec<(Workload, Parallelism)>>();
        let mut runs = Vec::new();
        for round in lab::rounds(self.runs) {
            for &(workload, parallelism) in round.order(&cases) {
                let limit = by_hand.run(&file)?;
                let cost = engine.run(&workload.sql(&file), parallelism)?;
                cost.check(workload.name(), self.rows)?;
                runs.push(Run {
                    workload,
                    parallelism,
                    cost,
                    limit,
                });
            }
        }
        let measured = cases.iter();
        let measured = measured.map(|&(workload, n)| Measured::of(workload, n, &runs));
        Ok(Figures {
            rows: self.rows,
            file_bytes: bytes_of(&file)?,
            runs: self.runs,
            limit: spread(&runs, |run| run.limit.us_per_row()),
            workloads: measured.collect(),
            memory: self.memory(&engine)?,
        })
    }

    fn verdicts(&self, _: &Figures) -> Vec<Verdict> {
        Vec::new()
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }
}

impl Arguments {
    /// Peak memory of fixwindow over streams of different lengths.
    fn memory(&self, engine: &Engine) -> Result<Vec<MemoryRun>, String> {
        let lengths = self.memory_rows.iter().filter(|&&rows| rows > 0);
        let runs = lengths.map(|&rows| {
            eprintln!("memory over {} records", count(rows));
            let cost = engine.run(&workload::fix_window_generated(rows), 1)?;
            Ok(MemoryRun {
                rows,
                peak_rss_bytes: cost.peak_rss_bytes,
            })
        });
        runs.collect()
    }
}

/// Compares fixwindow's result with the hand-written program's at each parallelism.
fn check_answers(
    engine: &Engine,
    file: &Path,
    results: &Path,
    parallelism: &[Parallelism],
    expected: &Checksum,
) -> Result<(), String> {
    let by_hand = ByHand::find()?;
    for &parallelism in parallelism {
        engine.run(&workload::fix_window_results(file, results), parallelism)?;
        let answer = by_hand.checksum(results)?;
        if answer != *expected {
            return Err(format!(
                "fixwindow at parallelism {parallelism} gave a different answer than the hand-written \
                 program: {answer}, not {expected}"
            ));
        }
    }
    eprintln!("fixwindow gives the hand-written program's answer: {expected}");
    Ok(())
}

/// The size of a file.
pub fn bytes_of(file: &Path) -> Result<u64, String> {
    let metadata = std::fs::metadata(file);
    metadata
        .map(|metadata| metadata.len())
        .map_err(|error| format!("{}: {error}", file.display()))
}
