//! Warnings about files whose names suggest another format than csv.

use std::collections::BTreeMap;

use slackwater_sql::program::Program;
use slackwater_sql::table::Table;

use super::kind::connector_of;

/// Endings of file names that suggest another format than csv, and that format if it is supported.
const ENDINGS: [(&str, Option<&str>); 6] = [
    ("json", Some("json")),
    ("jsonl", Some("json")),
    ("ndjson", Some("json")),
    ("parquet", Some("parquet")),
    ("arrow", Some("arrow")),
    ("avro", None),
];

/// A warning for each table whose path suggests another format but that has no `'format'`, and so is read or
/// written as csv.
pub fn endings(program: &Program) -> Vec<String> {
    let mut found = BTreeMap::new();
    for node in &program.nodes {
        let read = node.as_source().map(|source| (&source.table, "read"));
        let written = node
            .as_sink()
            .and_then(|sink| Some((sink.table.as_ref()?, "written")));
        let Some((table, done)) = read.or(written) else {
            continue;
        };
        if let Some(warning) = ending(table, done) {
            found.insert((&table.name, done), warning);
        }
    }
    found.into_values().collect()
}

fn ending(table: &Table, done: &str) -> Option<String> {
    if table.options.contains_key("format") {
        return None;
    }
    let option = connector_of(table)?.path_with_format()?;
    let path = table.options.get(option)?.to_lowercase();
    let path = path.trim_end_matches(".gz").trim_end_matches(".zst");
    let (ending, format) = ENDINGS.iter().find(|(ending, _)| {
        path.strip_suffix(ending)
            .is_some_and(|rest| rest.ends_with('.'))
    })?;
    let hint = match format {
        Some(format) => format!("set 'format' = '{format}' if that is what the file contains"),
        None => format!("{ending} is not a supported format"),
    };
    Some(format!(
        "table '{}': its '{option}' ends in .{ending}, but without 'format' it is {done} as csv: {hint}",
        table.name
    ))
}
