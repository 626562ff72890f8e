//! Rows per CPU second with more than one instance, measured on this machine.

use std::path::Path;

use serde::Serialize;

use slackwater::measure::Spread;
use slackwater::report::count;

use crate::hibench::by_hand::ByHand;
use crate::hibench::folder_for;
use crate::hibench::workload::{self, Workload};
use crate::lab::{self, spread};
use crate::programs::Engine;

/// Number of files, one partition each: as many instances of a source have work.
pub const FILES: u64 = 8;

/// Measurements on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Scaling {
    /// Number of records in all files.
    pub rows: u64,
    /// Number of files.
    pub files: u64,
    /// Number of rounds.
    pub runs: u32,
    /// Each workload at each parallelism.
    pub points: Vec<Point>,
}

/// A workload at one parallelism.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// HiBench's name.
    pub workload: &'static str,
    /// Instances of each parallelizable subquery.
    pub parallelism: usize,
    /// Rows per second of time.
    pub rows_per_s: Spread,
    /// Rows per second of CPU time.
    pub rows_per_cpu_s: Spread,
    /// Rows per CPU second as a share of the first parallelism's in the same round.
    pub ratio: Spread,
}

/// One run.
struct Run {
    workload: Workload,
    parallelism: usize,
    rows_per_s: f64,
    rows_per_cpu_s: f64,
    ratio: f64,
}

impl Point {
    fn of(workload: Workload, parallelism: usize, runs: &[Run]) -> Point {
        let spread_of = |pick: fn(&Run) -> f64| {
            let own = runs.iter();
            let own = own.filter(|run| (run.workload, run.parallelism) == (workload, parallelism));
            spread(own, pick)
        };
        Point {
            workload: workload.name(),
            parallelism,
            rows_per_s: spread_of(|run| run.rows_per_s),
            rows_per_cpu_s: spread_of(|run| run.rows_per_cpu_s),
            ratio: spread_of(|run| run.ratio),
        }
    }
}

/// Measures all workloads at each parallelism, all of them in each round.
pub fn measure(
    rows: u64,
    parallelism: &[usize],
    runs: u32,
    parent: Option<&Path>,
) -> Result<Scaling, String> {
    let folder = folder_for(parent, rows)?;
    let engine = Engine::new(folder.path())?;
    let rows = rows / FILES * FILES;
    eprintln!("generating {} records in {FILES} files", count(rows));
    for file in 0..FILES {
        let file = folder.file(&format!("visits-{file}.csv"));
        engine.run(&workload::generate(&file, rows / FILES), 1)?;
    }
    let files = folder.file("visits-*.csv");
    check_answers(&engine, &files, &folder.file("results.csv"), parallelism)?;
    let mut measured = Vec::new();
    for round in lab::rounds(runs) {
        for &workload in round.order(&Workload::ALL) {
            let mut of_round = Vec::new();
            for &parallelism in round.order(parallelism) {
                let cost = engine.run(&workload.sql(&files), parallelism)?;
                cost.check(workload.name(), rows)?;
                of_round.push((parallelism, cost.rows_per_s, rows as f64 / cost.cpu_s));
            }
            let first = of_round.iter().find(|run| run.0 == parallelism[0]);
            let first_per_cpu_s = first.map_or(f64::NAN, |run| run.2);
            measured.extend(
                of_round
                    .into_iter()
                    .map(|(parallelism, per_s, per_cpu_s)| Run {
                        workload,
                        parallelism,
                        rows_per_s: per_s,
                        rows_per_cpu_s: per_cpu_s,
                        ratio: per_cpu_s / first_per_cpu_s,
                    }),
            );
        }
    }
    let points = Workload::ALL.into_iter();
    let points = points.flat_map(|workload| parallelism.iter().map(move |&n| (workload, n)));
    let points = points.map(|(workload, parallelism)| Point::of(workload, parallelism, &measured));
    Ok(Scaling {
        rows,
        files: FILES,
        runs,
        points: points.collect(),
    })
}

/// Checks that fixwindow's result is the same at each parallelism: a fast wrong answer is an error here.
fn check_answers(
    engine: &Engine,
    files: &Path,
    results: &Path,
    parallelism: &[usize],
) -> Result<(), String> {
    let by_hand = ByHand::find()?;
    let mut expected = None;
    for &instances in parallelism {
        engine.run(&workload::fix_window_results(files, results), instances)?;
        let answer = by_hand.checksum(results)?;
        if *expected.get_or_insert(answer.clone()) != answer {
            return Err(format!(
                "fixwindow has a different answer at parallelism {instances} than at {}",
                parallelism[0]
            ));
        }
    }
    Ok(())
}
