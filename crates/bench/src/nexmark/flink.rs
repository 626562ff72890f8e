//! Apache Flink, each run in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use crate::lab::write;
use crate::programs::finish;

/// Apache Flink, as `crates/bench/peers/flink` builds it.
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

/// The program's own report of what the kernel counted for it.
#[derive(Deserialize)]
struct FlinkReport {
    cpu_s: f64,
}

impl Flink {
    /// Flink in this folder, or in `target/flink` if it exists.
    pub fn find(folder: Option<&Path>) -> Result<Option<Flink>, String> {
        let is_there = |folder: &Path| folder.join("slackwater-flink.jar").is_file();
        match folder {
            Some(folder) if is_there(folder) => Ok(Some(Flink {
                folder: folder.to_path_buf(),
            })),
            Some(folder) => Err(format!(
                "--flink {}: there is no slackwater-flink.jar\n  \
                     = make peers-flink creates it in target/flink",
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

    /// The class path of the JVM.
    pub fn classes(&self) -> String {
        format!("{0}/slackwater-flink.jar:{0}/lib/*", self.folder.display())
    }

    /// Runs a query to its end.
    pub fn run(&self, folder: &Path, text: &str, parallelism: usize) -> Result<FlinkCost, String> {
        let query = folder.join("flink.sql");
        write(&query, text)?;
        let mut command = Command::new("java");
        command
            .args(["-cp", &self.classes(), "slackwater.RunSql"])
            .arg(&query)
            .arg(parallelism.to_string());
        let begun = Instant::now();
        let output = finish(command, text, None)?;
        let wall_s = begun.elapsed().as_secs_f64();
        let report = String::from_utf8_lossy(&output.stdout);
        let last = report.lines().last().unwrap_or_default();
        let report = serde_json::from_str::<FlinkReport>(last)
            .map_err(|error| format!("can't parse Flink's report '{last}': {error}"))?;
        Ok(FlinkCost {
            wall_s,
            cpu_s: report.cpu_s,
        })
    }
}
