//! The programs that are measured, each run a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde::Deserialize;

use crate::common::write;
use crate::programs;

/// The engine.
pub struct Engine {
    program: PathBuf,
    folder: PathBuf,
}

/// What a run of the engine cost: some fields of its report.
#[derive(Debug, Clone, Deserialize)]
pub struct Cost {
    /// Rows read.
    pub rows_in: u64,
    /// Rows refused.
    pub rows_bad: u64,
    /// Rows that came too late.
    pub rows_late: u64,
    /// From the first row to the end.
    pub wall_s: f64,
    /// CPU time of the whole process, its start and the planning of the query included.
    pub cpu_s: f64,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
}

impl Engine {
    /// The engine, which writes its texts and reports to a folder.
    pub fn new(folder: &Path) -> Result<Engine, String> {
        Ok(Engine {
            program: programs::engine()?,
            folder: folder.to_path_buf(),
        })
    }

    /// Runs a text to its end.
    pub fn run(&self, text: &str, parallelism: usize) -> Result<Cost, String> {
        let (query, report) = (
            self.folder.join("query.sql"),
            self.folder.join("report.json"),
        );
        write(&query, text)?;
        let mut command = Command::new(&self.program);
        command
            .arg("run")
            .arg(&query)
            .args(["--quiet", "--parallelism", &parallelism.to_string()]);
        command.arg("--report").arg(&report);
        finish(command, text)?;
        let json =
            std::fs::read(&report).map_err(|error| format!("{}: {error}", report.display()))?;
        serde_json::from_slice(&json).map_err(|error| format!("{}: {error}", report.display()))
    }
}

/// Apache Flink, as `peers/flink` makes it.
pub struct Flink {
    folder: PathBuf,
}

/// What a run of Flink cost.
#[derive(Debug, Clone, Copy)]
pub struct FlinkCost {
    /// From the start of the JVM to its end.
    pub wall_s: f64,
    /// CPU time of the whole process.
    pub cpu_s: f64,
}

/// What the program says itself, of what the kernel counted for it.
#[derive(Deserialize)]
struct Said {
    cpu_s: f64,
}

impl Flink {
    /// In this folder, or in `target/flink` if it is there.
    pub fn find(folder: Option<&Path>) -> Result<Option<Flink>, String> {
        let is_there = |folder: &Path| folder.join("slackwater-flink.jar").is_file();
        match folder {
            Some(folder) if is_there(folder) => Ok(Some(Flink {
                folder: folder.to_path_buf(),
            })),
            Some(folder) => Err(format!(
                "--flink {}: there is no slackwater-flink.jar\n  = make peers-flink makes it in target/flink",
                folder.display()
            )),
            None => {
                let folder = Path::new("target/flink");
                Ok(is_there(folder).then(|| Flink {
                    folder: folder.to_path_buf(),
                }))
            }
        }
    }

    /// Runs a text to its end.
    pub fn run(&self, folder: &Path, text: &str, parallelism: usize) -> Result<FlinkCost, String> {
        let query = folder.join("flink.sql");
        write(&query, text)?;
        let classes = format!("{0}/slackwater-flink.jar:{0}/lib/*", self.folder.display());
        let mut command = Command::new("java");
        command
            .args(["-cp", &classes, "slackwater.RunSql"])
            .arg(&query)
            .arg(parallelism.to_string());
        let begun = Instant::now();
        let output = finish(command, text)?;
        let wall_s = begun.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        let said = serde_json::from_str::<Said>(last)
            .map_err(|error| format!("flink said '{last}': {error}"))?;
        Ok(FlinkCost {
            wall_s,
            cpu_s: said.cpu_s,
        })
    }
}

/// Runs a program to its end; an exit code other than 0 is an error with what it said.
fn finish(mut command: Command, text: &str) -> Result<Output, String> {
    let program = command.get_program().display().to_string();
    command.stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{program}: {}\n{}\nthe query was:\n{text}",
        output.status,
        said.trim_end()
    ))
}
