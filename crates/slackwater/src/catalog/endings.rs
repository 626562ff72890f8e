//! Files whose name says another format than the table does.

use std::collections::BTreeMap;

use slackwater_sql::program::Program;
use slackwater_sql::table::Table;

/// What a file's name may end in, where its format isn't csv; and the format that is meant.
const ENDINGS: [(&str, Option<&str>); 6] = [
    ("json", Some("json")),
    ("jsonl", Some("json")),
    ("ndjson", Some("json")),
    ("parquet", Some("parquet")),
    ("arrow", Some("arrow")),
    ("avro", None),
];

/// One warning for each table of a program whose path says a format and whose options say none: it is read or
/// written as csv, where the name promises something else.
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
    let is_file = table.options.get("connector")?.eq_ignore_ascii_case("file");
    if !is_file || table.options.contains_key("format") {
        return None;
    }
    let path = table.options.get("path")?.to_lowercase();
    let path = path.trim_end_matches(".gz").trim_end_matches(".zst");
    let (ending, format) = ENDINGS.iter().find(|(ending, _)| {
        path.strip_suffix(ending)
            .is_some_and(|rest| rest.ends_with('.'))
    })?;
    let hint = match format {
        Some(format) => format!("'format' = '{format}' is what the name says"),
        None => format!("{ending} is no format that is known here"),
    };
    Some(format!(
        "table '{}': its 'path' ends in .{ending}, and it is {done} as csv, since it has no 'format': {hint}",
        table.name
    ))
}
