//! Runs the query that `calibrate` measures.

use crate::calibrate::Worked;
use crate::run::{Failure, Outcome, RunOptions, run};

/// Runs a query with a way to wait to its end, and returns what its worker did.
pub(super) fn worked(sql: &str, wait: &str) -> Result<Worked, String> {
    let settings = [("wait", wait), ("linger", "0 ms"), ("parallelism", "1")];
    let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
    let options = RunOptions {
        settings: settings.to_vec(),
        ..RunOptions::default()
    };
    let report = match run("calibration", sql, &options) {
        Ok(Outcome::Finished(finished)) => finished.report,
        Ok(Outcome::Explained(_)) => {
            return Err("the query that is measured has not run".to_string());
        }
        Err(Failure::Usage(error) | Failure::Query(error, _)) => {
            return Err(format!("the query that is measured failed: {error}"));
        }
    };
    let worker = report.plan.threads.first();
    let worker = worker.ok_or("the query that is measured has no worker")?;
    let cpu_s = worker.cpu_s;
    Ok(Worked {
        rows: report.rows_out,
        cpu_s: cpu_s.ok_or("this system doesn't count the CPU time of threads")?,
        activations: worker.activations,
        sleeps: worker.sleeps,
    })
}
