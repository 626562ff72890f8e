//! What comes from outside and is wrong, missing, huge or late: a clear message or a refused row,
//! and never a panic (I4).

use crate::process::Folder;

mod event_time;
mod expressions;
mod files;
mod options;
mod output;
mod peers;
mod records;
mod sockets;
mod sql_text;

/// `t` reads `in.csv` (or what `options` say), `o` writes `out.csv`.
fn reading(columns: &str, options: &str, written: &str, query: &str) -> String {
    let path = if options.contains("'path'") {
        ""
    } else {
        ", 'path' = 'in.csv'"
    };
    format!(
        "CREATE TABLE t ({columns}) WITH ('connector' = 'file'{path}{options});
         CREATE TABLE o ({written}) WITH ('connector' = 'file', 'path' = 'out.csv');
         INSERT INTO o {query};"
    )
}

const EVENTS: &str = "ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts";

const COUNT_BY_10_S: &str = "SELECT CAST(window_start AS BIGINT), COUNT(*)
    FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end";

/// Reasons of the dead letters of `t`, as `place: reason`.
fn refused(folder: &Folder) -> Vec<String> {
    let letters = folder.json_lines("slackwater-dead-letter/t.jsonl");
    let text = |letter: &serde_json::Value, name: &str| letter[name].as_str().unwrap().to_string();
    letters
        .iter()
        .map(|l| format!("{}: {}", text(l, "place"), text(l, "reason")))
        .collect()
}
