//! The skeleton that all experiments share.
//!
//! ```text
//! arguments ─► plan ─► rounds ─► figures ─► verdicts ─┬─► table: standard output
//!             (family)  (round)  (family)   (verdict)  ├─► JSON: --json
//!                                                      └─► charts: --svg
//! ```
//!
//! A family (`wait`, `link`, …) defines what is measured and what its figures mean: it implements
//! [`Experiment`]. Everything else is here, once: the machine and its load, alternating rounds,
//! repetitions of disturbed points, medians and spreads, goals, tables, files and charts.
//!
//! Invariants:
//! - Nothing is measured before all arguments and output folders have been checked: figures that can't be
//!   stored would be lost.
//! - Every other round measures its cases backwards, so that a drift of the machine favors none of them.

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
pub use round::{REPEATED_SHARE_MAX, Round, rounds};
pub use statistics::{distinct, geometric_mean, median, spread};
pub use table::{Table, bytes, minutes, number, rate, time};
pub use verdict::Verdict;

/// A kind of experiment with its plan.
pub trait Experiment {
    /// All measurements, as they are stored as JSON.
    type Figures: Serialize;

    /// A line that says what will be measured, and how long it will take.
    fn announcement(&self) -> String;

    /// Measures everything.
    ///
    /// # Errors
    ///
    /// If something can't be measured, or an answer is wrong.
    fn measure(&self) -> Result<Self::Figures, String>;

    /// The goals and their verdicts. Pure.
    fn verdicts(&self, figures: &Self::Figures) -> Vec<Verdict>;

    /// The figures as text. Pure.
    fn text(&self, figures: &Self::Figures) -> String;

    /// The figures as charts, for families that take `--svg`. Pure.
    fn charts(&self, _: &Self::Figures) -> Vec<Chart> {
        Vec::new()
    }
}

/// Output files.
#[derive(Args, Clone, Debug, Default)]
pub struct Files {
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The chart file.
#[derive(Args, Clone, Debug, Default)]
pub struct Drawing {
    /// Draw the figures as SVG into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The stored result of an experiment.
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
/// If a folder is missing, something can't be measured, or a file can't be written.
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
        "about {}; up to {} if other processes disturb",
        minutes(expected_s),
        minutes(expected_max_s)
    )
}

/// Writes a file.
///
/// # Errors
///
/// If the file can't be written; the message contains its name.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_folder(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(format!("the folder {} does not exist", folder.display())),
        None => Ok(()),
    }
}
