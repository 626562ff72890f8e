//! `slackwater bench hibench`: the four streaming workloads of HiBench over generated visits,
//! beside the same fixwindow written by hand (`bench/limit`).
//!
//! Every run is a process of its own, so that its CPU time and memory are its own; before each one
//! the hand-written program runs over the same file, so that a ratio compares two neighbours in
//! time and not two moods of the machine. Figures are medians over `--runs` rounds.
//!
//! Before anything is measured, fixwindow's answer is compared with the hand-written one at each
//! parallelism: a fast wrong answer is an error here. The generated file goes when the command
//! ends, also by Ctrl-C.

pub(super) mod child;
pub(super) mod figures;
pub(super) mod folder;
pub(super) mod workload;

use std::path::{Path, PathBuf};

use clap::Args;

use child::{Cost, Programs};
use figures::{Figures, Machine, Measured, MemoryRun, Spread};
use folder::Folder;
use workload::Workload;

use crate::common::write_json;
use slackwater::report::count;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// Records in the generated file
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Instances of each parallelisable subquery, one measurement each
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2")]
    parallelism: Vec<usize>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the generated file lies meanwhile [default: /dev/shm where it is, else the temporary
    /// folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Records of the two streams whose peak memory is compared; 0,0 leaves that out
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
    if arguments.parallelism.contains(&0) {
        return Err("--parallelism: write numbers from 1, such as 1,2".to_string());
    }
    let programs = Programs::find()?;
    let folder = Folder::make(arguments.folder.as_deref(), arguments.rows)?;
    let file = folder.path().join("visits.csv");
    eprintln!(
        "generating {} records in {}",
        count(arguments.rows),
        folder.path().display()
    );
    programs.run(&folder, &workload::generate(&file, arguments.rows), 1)?;
    check_answers(&programs, &folder, &file, &arguments.parallelism)?;
    let figures = Figures {
        machine: Machine::this(),
        rows: arguments.rows,
        file_bytes: bytes_of(&file)?,
        runs: arguments.runs,
        workloads: Vec::new(),
        limit: Spread::default(),
        memory: Vec::new(),
    };
    let mut figures = measure(&programs, &folder, &file, arguments, figures)?;
    for &rows in arguments.memory_rows.iter().filter(|&&rows| rows > 0) {
        eprintln!("memory over {} records", count(rows));
        let cost = programs.run(&folder, &workload::fix_window_generated(rows), 1)?;
        let peak_rss_bytes = cost.peak_rss_bytes;
        figures.memory.push(MemoryRun {
            rows,
            peak_rss_bytes,
        });
    }
    print!("{}", figures.table());
    write_json(arguments.json.as_deref(), &figures)
}

/// The runs of one workload at one parallelism, each with its ratio to the run of the hand-written
/// program before it.
struct Series {
    workload: Workload,
    parallelism: usize,
    runs: Vec<(Cost, f64)>,
}

fn measure(
    programs: &Programs,
    folder: &Folder,
    file: &Path,
    arguments: &Arguments,
    mut figures: Figures,
) -> Result<Figures, String> {
    let mut limits = Vec::new();
    let mut all = Vec::new();
    // The parallelisms of a workload one after the other, because they are compared.
    for workload in Workload::ALL {
        all.extend(arguments.parallelism.iter().map(|&parallelism| Series {
            workload,
            parallelism,
            runs: Vec::new(),
        }));
    }
    for round in 1..=arguments.runs {
        eprintln!("round {round} of {}", arguments.runs);
        for series in &mut all {
            let limit = programs.limit(file)?;
            let cost = programs.run(folder, &series.workload.sql(file), series.parallelism)?;
            if cost.rows_in != arguments.rows || cost.rows_bad != 0 {
                return Err(format!(
                    "{}: {} of {} records read, {} bad",
                    series.workload.name(),
                    count(cost.rows_in),
                    count(arguments.rows),
                    count(cost.rows_bad)
                ));
            }
            let ratio = limit.cpu_s / cost.cpu_s;
            limits.push(limit);
            series.runs.push((cost, ratio));
        }
    }
    figures.limit = Spread::of(
        limits
            .iter()
            .map(|limit| limit.cpu_s * 1e6 / limit.rows as f64),
    );
    let measured = all
        .iter()
        .map(|series| Measured::of(series.workload.name(), series.parallelism, &series.runs));
    figures.workloads = measured.collect();
    Ok(figures)
}

/// Compares fixwindow's result with the hand-written program's, at each parallelism.
fn check_answers(
    programs: &Programs,
    folder: &Folder,
    file: &Path,
    parallelism: &[usize],
) -> Result<(), String> {
    let expected = programs.limit(file)?;
    let results = folder.path().join("results.csv");
    for &parallelism in parallelism {
        programs.run(
            folder,
            &workload::fix_window_results(file, &results),
            parallelism,
        )?;
        let answer = programs.checksum(&results)?;
        if (answer.result_rows, &answer.checksum) != (expected.result_rows, &expected.checksum) {
            return Err(format!(
                "fixwindow at parallelism {parallelism} gave another answer than the hand-written \
                 program: {} rows with checksum {}, not {} with {}",
                count(answer.result_rows),
                answer.checksum,
                count(expected.result_rows),
                expected.checksum
            ));
        }
    }
    eprintln!(
        "fixwindow gives the hand-written program's answer: {} rows, checksum {}",
        count(expected.result_rows),
        expected.checksum
    );
    Ok(())
}

fn bytes_of(file: &Path) -> Result<u64, String> {
    let metadata = std::fs::metadata(file);
    metadata
        .map(|metadata| metadata.len())
        .map_err(|error| format!("{}: {error}", file.display()))
}
