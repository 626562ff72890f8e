//! Runs the query that `calibrate` measures.

use crate::run::{Failure, Outcome, RunOptions, run};

/// Runs a query with a way to wait to its end, and returns how many rows it wrote.
pub(super) fn rows_of(sql: &str, wait: &str) -> Result<u64, String> {
    let settings = [("wait", wait), ("linger", "0 ms"), ("parallelism", "1")];
    let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
    let options = RunOptions {
        settings: settings.to_vec(),
        ..RunOptions::default()
    };
    match run("calibration", sql, &options) {
        Ok(Outcome::Finished(finished)) => Ok(finished.report.rows_out),
        Ok(Outcome::Explained(_)) => Err("the query that is measured has not run".to_string()),
        Err(Failure::Usage(error) | Failure::Query(error, _)) => {
            Err(format!("the query that is measured failed: {error}"))
        }
    }
}
