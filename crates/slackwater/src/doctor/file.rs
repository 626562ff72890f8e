//! `slackwater doctor REPORT`: the diagnosis of a run from its report.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::sources::Examined;
use super::table;
use crate::report::{EventTimeReport, PartitionReport};

/// What is read of a report.
#[derive(Deserialize)]
struct ReportFile {
    diagnosis: Vec<String>,
    sources: Vec<SourceFile>,
}

#[derive(Deserialize)]
struct SourceFile {
    table: String,
    event_time: Option<EventTimeReport>,
    partitions: Vec<PartitionReport>,
}

/// The diagnosis of the run that has written the report at `path`.
///
/// # Errors
///
/// If the file can't be read or is not a report.
pub fn diagnose(path: &Path) -> Result<String, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    read(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(text: &str) -> Result<String, String> {
    const HINT: &str = "a report is what slackwater run query.sql --report FILE has written";
    let value = serde_json::from_str::<Value>(text)
        .map_err(|error| format!("is not a report: {error}\n  = {HINT}"))?;
    let has = |name: &str| value.get(name).is_some();
    if !has("sources") || !has("rows_in") {
        return Err(format!(
            "is not a report: it has no 'sources' and 'rows_in'\n  = {HINT}"
        ));
    }
    if !has("diagnosis") {
        return Err(
            "is the report of an earlier version, which has no 'diagnosis'\n  = run the query again"
                .to_string(),
        );
    }
    let report = serde_json::from_value::<ReportFile>(value)
        .map_err(|error| format!("is not a report: {error}\n  = {HINT}"))?;
    let sources = report.sources.into_iter().map(|source| Examined {
        table: source.table,
        event_time: source.event_time,
        partitions: source.partitions,
    });
    let sources = sources.collect::<Vec<Examined>>();
    if sources.is_empty() {
        return Ok("the query read no table\n".to_string());
    }
    let mut diagnosis = report.diagnosis;
    if diagnosis.is_empty() {
        diagnosis
            .push("nothing was held back when the query ended, and no row was late".to_string());
    }
    Ok(table::text(&diagnosis, sources.iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_is_said_so() {
        let error = read("SELECT 1").unwrap_err();
        assert!(
            error.starts_with("is not a report: expected value at line 1"),
            "{error}"
        );
        let error = read("{\"a\": 1}").unwrap_err();
        assert!(
            error.starts_with("is not a report: it has no 'sources'"),
            "{error}"
        );
        let error = read("{\"rows_in\": 1, \"sources\": []}").unwrap_err();
        assert!(
            error.starts_with("is the report of an earlier version"),
            "{error}"
        );
        let error = read("{\"rows_in\": 1, \"sources\": [{}], \"diagnosis\": []}").unwrap_err();
        assert!(error.contains("missing field `table`"), "{error}");
        let read = read("{\"rows_in\": 0, \"sources\": [], \"diagnosis\": []}").unwrap();
        assert_eq!(read, "the query read no table\n");
    }
}
