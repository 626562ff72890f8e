//! The skeleton that all experiments share.
//!
//! ```text
//! arguments ─► plan ─► rounds ─► figures ─► verdicts ─┬─► table: standard output
//!             (family)  (round)  (family)   (verdict)  ├─► JSON: --json
//!                                                      └─► charts: --svg
//! ```
//!
//! A family (`wait`, `link`, …) says what is measured and what its figures mean: it implements
//! [`Experiment`]. Everything else stands here once: where and under which load it was measured, alternating
//! rounds, repetitions of what was disturbed, medians and spreads, goals, tables, files and charts.
//!
//! Invariants:
//! - Nothing is measured before all arguments and output folders were checked: figures that can't be kept are
//!   lost.
//! - Every other round goes through its cases backwards, so that a drift of the machine favors none of them.

pub mod chart;
mod conditions;
pub mod folder;
pub mod processes;
mod round;
mod statistics;
mod table;
mod verdict;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

pub use chart::Chart;
pub use conditions::Conditions;
pub use round::{REPEATED_SHARE_MAX, rounds};
pub use statistics::{distinct, geometric_mean, median, spread};
pub use table::{Table, bytes, minutes, number, rate, time};
pub use verdict::Verdict;

/// A kind of experiment with its plan.
pub trait Experiment {
    /// All that was measured, as JSON has it.
    type Figures: Serialize;

    /// What will be measured, and for how long: a line.
    fn announcement(&self) -> String;

    /// Measures all of it.
    ///
    /// # Errors
    ///
    /// When something can't be measured, or an answer is wrong.
    fn measure(&self) -> Result<Self::Figures, String>;

    /// The goals and what became of them. Pure.
    fn verdicts(&self, figures: &Self::Figures) -> Vec<Verdict>;

    /// The figures as people read them. Pure.
    fn text(&self, figures: &Self::Figures) -> String;

    /// The figures as charts, of families that take `--svg`. Pure.
    fn charts(&self, _: &Self::Figures) -> Vec<Chart> {
        Vec::new()
    }
}

/// Where the figures go.
#[derive(Args, Clone, Debug, Default)]
pub struct Files {
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where the charts go.
#[derive(Args, Clone, Debug, Default)]
pub struct Drawing {
    /// Draw the figures into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// All that is kept of an experiment.
#[derive(Serialize)]
struct Report<'a, F> {
    #[serde(flatten)]
    conditions: &'a Conditions,
    #[serde(flatten)]
    figures: &'a F,
    verdicts: &'a [Verdict],
}

/// Runs an experiment from its announcement to its files.
///
/// # Errors
///
/// When a folder is missing, something can't be measured, or a file can't be written.
pub fn conduct<E: Experiment>(
    experiment: &E,
    files: &Files,
    drawing: Option<&Drawing>,
) -> Result<(), String> {
    let svg = drawing.and_then(|drawing| drawing.svg.as_deref());
    for path in [files.json.as_deref(), svg].into_iter().flatten() {
        check_folder(path)?;
    }
    eprintln!("{}", experiment.announcement());
    let watched = Conditions::watch();
    let figures = experiment.measure()?;
    let conditions = watched.end();
    let verdicts = experiment.verdicts(&figures);
    let mut text = format!("{}\n{}", conditions.line(), experiment.text(&figures));
    if !verdicts.is_empty() {
        text.push_str("\nGoals\n\n");
    }
    for verdict in &verdicts {
        text.push_str(&format!("- {}\n", verdict.line()));
    }
    print!("{text}");
    if let Some(path) = &files.json {
        let report = Report {
            conditions: &conditions,
            figures: &figures,
            verdicts: &verdicts,
        };
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        write(path, &(text + "\n"))?;
    }
    match svg {
        Some(path) => write(path, &chart::svg(&experiment.charts(&figures))?),
        None => Ok(()),
    }
}

/// The announcement of an experiment that measures disturbed points again.
pub fn about(expected_s: f64, expected_max_s: f64) -> String {
    format!(
        "about {}; up to {} where other processes disturb",
        minutes(expected_s),
        minutes(expected_max_s)
    )
}

/// Writes a file.
///
/// # Errors
///
/// With the file's name.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_folder(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(format!("there is no folder {}", folder.display())),
        None => Ok(()),
    }
}
