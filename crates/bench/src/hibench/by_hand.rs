//! The hand-written program, run as a process of its own.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use slackwater::report::count;

use crate::programs::{self, finish, parse};

/// The path of the program.
pub struct ByHand(PathBuf);

/// What the hand-written program computed, and its cost.
#[derive(Debug, Clone, Deserialize)]
pub struct Limit {
    /// Number of records read.
    pub rows: u64,
    /// The answer.
    #[serde(flatten)]
    pub answer: Checksum,
    /// CPU time of the process.
    pub cpu_s: f64,
}

/// A summary of a result file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Checksum {
    /// Number of rows.
    pub result_rows: u64,
    /// The sum of the rows' hashes, in any order.
    pub checksum: String,
}

impl Limit {
    /// CPU time per record, in microseconds.
    pub fn us_per_row(&self) -> f64 {
        self.cpu_s * 1e6 / self.rows as f64
    }
}

impl Display for Checksum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = count(self.result_rows);
        write!(formatter, "{rows} rows, checksum {}", self.checksum)
    }
}

impl ByHand {
    /// The program in the folder of this one.
    ///
    /// # Errors
    ///
    /// If it does not exist.
    pub fn find() -> Result<ByHand, String> {
        programs::by_hand().map(ByHand)
    }

    /// Computes fixwindow over a file.
    ///
    /// # Errors
    ///
    /// The program's error message.
    pub fn run(&self, file: &Path) -> Result<Limit, String> {
        let mut command = Command::new(&self.0);
        command.arg(file);
        parse(&finish(command, "", None)?.stdout, "the limit's figures")
    }

    /// Rows and checksum of a result file.
    ///
    /// # Errors
    ///
    /// The program's error message.
    pub fn checksum(&self, results: &Path) -> Result<Checksum, String> {
        let mut command = Command::new(&self.0);
        command.arg("--checksum").arg(results);
        parse(&finish(command, "", None)?.stdout, "the checksum")
    }
}
