//! The programs that are measured, each run a process of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use super::folder::Folder;
use crate::programs;

/// Where the programs are.
pub struct Programs {
    engine: PathBuf,
    limit: PathBuf,
}

/// What a run of the engine cost: some fields of its report.
#[derive(Debug, Clone, Deserialize)]
pub struct Cost {
    /// Records read.
    pub rows_in: u64,
    /// Records refused.
    pub rows_bad: u64,
    /// Records per second.
    pub rows_per_s: f64,
    /// CPU time of the whole process, its start and the planning of the query included.
    pub cpu_s: f64,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
    /// Voluntary context switches.
    pub wakeups: u64,
}

/// What the hand-written program found, and what it cost.
#[derive(Debug, Clone, Deserialize)]
pub struct Limit {
    /// Records read.
    pub rows: u64,
    /// Rows of the answer.
    pub result_rows: u64,
    /// Of the answer, whatever the order of its rows.
    pub checksum: String,
    /// CPU time of the process.
    pub cpu_s: f64,
}

/// A result file in short.
#[derive(Debug, Clone, Deserialize)]
pub struct Checksum {
    /// Its rows.
    pub result_rows: u64,
    /// As [`Limit::checksum`].
    pub checksum: String,
}

impl Programs {
    /// The engine, and the program by hand.
    pub fn find() -> Result<Programs, String> {
        Ok(Programs {
            engine: programs::engine()?,
            limit: programs::by_hand()?,
        })
    }

    /// Runs a query to its end.
    pub fn run(&self, folder: &Folder, sql: &str, parallelism: usize) -> Result<Cost, String> {
        let report = folder.path().join("report.json");
        let mut command = Command::new(&self.engine);
        command
            .args(["run", "-", "--quiet", "--parallelism"])
            .arg(parallelism.to_string())
            .arg("--report")
            .arg(&report);
        finish(command, Some(sql))?;
        let text = std::fs::read(&report).map_err(|error| format!("{}: {error}", report.display()));
        parse(&text?, "the report")
    }

    /// Runs the hand-written program over a file.
    pub fn limit(&self, file: &Path) -> Result<Limit, String> {
        let mut command = Command::new(&self.limit);
        command.arg(file);
        parse(&finish(command, None)?.stdout, "the limit's figures")
    }

    /// Rows and checksum of a result file.
    pub fn checksum(&self, results: &Path) -> Result<Checksum, String> {
        let mut command = Command::new(&self.limit);
        command.arg("--checksum").arg(results);
        parse(&finish(command, None)?.stdout, "the checksum")
    }
}

/// Runs a program to its end; an exit code other than 0 is an error with what it said.
fn finish(mut command: Command, input: Option<&str>) -> Result<Output, String> {
    let program = command.get_program().display().to_string();
    let failed = |error: std::io::Error| format!("{program}: {error}");
    command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A child that has ended before reading says why on its standard error.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let query = input.map_or(String::new(), |input| format!("\nthe query was:\n{input}"));
    Err(format!(
        "{program}: {}\n{}{query}",
        output.status,
        said.trim_end()
    ))
}

fn parse<T: for<'de> Deserialize<'de>>(json: &[u8], what: &str) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| format!("{what}: {error}"))
}
