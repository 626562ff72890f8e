//! Rows per CPU second at more instances than one, measured here.

use std::path::Path;

use serde::Serialize;

use crate::hibench::child::Programs;
use crate::hibench::figures::{Machine, Spread};
use crate::hibench::folder::Folder;
use crate::hibench::workload::{self, Workload};
use slackwater::report::count;

/// Files that are read, a partition each: as many instances of a source have something to do.
pub const FILES: u64 = 8;

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Scaling {
    /// Where.
    pub machine: Machine,
    /// Records of all files.
    pub rows: u64,
    /// Files.
    pub files: u64,
    /// Rounds.
    pub runs: u32,
    /// Each workload at each parallelism.
    pub points: Vec<Point>,
}

/// A workload at one parallelism.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// HiBench's name.
    pub workload: &'static str,
    /// Instances of each parallelisable subquery.
    pub parallelism: usize,
    /// Rows per second of time.
    pub rows_per_s: Spread,
    /// Rows per second of CPU time.
    pub rows_per_cpu_s: Spread,
    /// The same as a share of the first parallelism's in the same round.
    pub ratio: Spread,
}

/// Measures all workloads at each parallelism, all of them in each round.
pub fn measure(
    rows: u64,
    parallelism: &[usize],
    runs: u32,
    parent: Option<&Path>,
) -> Result<Scaling, String> {
    let programs = Programs::find()?;
    let folder = Folder::make(parent, rows)?;
    let rows = rows / FILES * FILES;
    eprintln!("generating {} records in {FILES} files", count(rows));
    for file in 0..FILES {
        let file = folder.path().join(format!("visits-{file}.csv"));
        programs.run(&folder, &workload::generate(&file, rows / FILES), 1)?;
    }
    let files = folder.path().join("visits-*.csv");
    check_answers(&programs, &folder, &files, parallelism)?;
    let mut found = vec![Vec::new(); Workload::ALL.len() * parallelism.len()];
    for round in 1..=runs {
        eprintln!("round {round} of {runs}");
        let mut slots = found.iter_mut();
        for workload in Workload::ALL {
            let mut first = None;
            for &instances in parallelism {
                let cost = programs.run(&folder, &workload.sql(&files), instances)?;
                if cost.rows_in != rows || cost.rows_bad != 0 {
                    return Err(format!(
                        "{} at parallelism {instances}: {} of {} records read, {} bad",
                        workload.name(),
                        count(cost.rows_in),
                        count(rows),
                        count(cost.rows_bad)
                    ));
                }
                let per_cpu_s = rows as f64 / cost.cpu_s;
                let first = *first.get_or_insert(per_cpu_s);
                let slot = slots.next().expect("a slot for each point");
                slot.push((cost.rows_per_s, per_cpu_s, per_cpu_s / first));
            }
        }
    }
    let points = Workload::ALL
        .into_iter()
        .flat_map(|workload| parallelism.iter().map(move |&p| (workload, p)));
    let points = points
        .zip(&found)
        .map(|((workload, parallelism), runs)| Point {
            workload: workload.name(),
            parallelism,
            rows_per_s: Spread::of(runs.iter().map(|run| run.0)),
            rows_per_cpu_s: Spread::of(runs.iter().map(|run| run.1)),
            ratio: Spread::of(runs.iter().map(|run| run.2)),
        });
    Ok(Scaling {
        machine: Machine::this(),
        rows,
        files: FILES,
        runs,
        points: points.collect(),
    })
}

/// Fixwindow's result is the same at each parallelism: a fast wrong answer is an error here.
fn check_answers(
    programs: &Programs,
    folder: &Folder,
    files: &Path,
    parallelism: &[usize],
) -> Result<(), String> {
    let results = folder.path().join("results.csv");
    let mut expected = None;
    for &instances in parallelism {
        let text = workload::fix_window_results(files, &results);
        programs.run(folder, &text, instances)?;
        let answer = programs.checksum(&results)?;
        let answer = (answer.result_rows, answer.checksum);
        if *expected.get_or_insert(answer.clone()) != answer {
            return Err(format!(
                "fixwindow has another answer at parallelism {instances} than at {}",
                parallelism[0]
            ));
        }
    }
    Ok(())
}
