//! The last rejected records, read from the ends of dead-letter files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The most records that are shown.
const SHOWN_MAX: usize = 10;

/// The bytes that are read of a file: a line has at most the first 4 KiB of a record, escaped.
const TAIL_BYTES: u64 = 64 * 1024;

/// The characters that are shown of a record.
const RECORD_MAX: usize = 200;

/// A rejected record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRow {
    /// The table.
    pub table: String,
    /// Where it was read: `file:line`.
    pub place: String,
    /// Why it was rejected.
    pub reason: String,
    /// The record's beginning.
    pub record: String,
}

/// The last records that a run has rejected.
#[derive(Debug, Default)]
pub struct BadRows {
    /// The dead-letter file of each table.
    files: Vec<(String, PathBuf)>,
    /// How many were rejected when the files were read last.
    known: u64,
    rows: Vec<BadRow>,
}

impl BadRows {
    /// Nothing was rejected yet by the tables with these files.
    pub fn new(files: Vec<(String, PathBuf)>) -> BadRows {
        BadRows {
            files,
            ..BadRows::default()
        }
    }

    /// The last records; the files are read only if more than before were rejected, `rejected` in all.
    pub fn last(&mut self, rejected: u64) -> &[BadRow] {
        if rejected != self.known {
            self.known = rejected;
            // Earlier runs have written into the same files.
            let shown = SHOWN_MAX.min(usize::try_from(rejected).unwrap_or(SHOWN_MAX));
            let files = self.files.iter();
            let mut rows = files
                .flat_map(|(table, path)| tail(path, table, shown))
                .collect::<Vec<_>>();
            rows.truncate(shown);
            self.rows = rows;
        }
        &self.rows
    }
}

/// The last records of a table in a file, the last one first. A file that is not there has none.
fn tail(path: &Path, table: &str, most: usize) -> Vec<BadRow> {
    let text = tail_text(path).unwrap_or_default();
    let lines = text.lines().rev();
    // The first line may have lost its beginning.
    let rows = lines.filter_map(|line| serde_json::from_str::<BadRow>(line).ok());
    let mut last = Vec::with_capacity(most);
    for row in rows.filter(|row| row.table == table) {
        if last.len() == most {
            break;
        }
        // Every job that reads the table writes it, and so does one that reads it again.
        if !last.contains(&row) {
            last.push(row);
        }
    }
    for row in &mut last {
        if let Some((end, _)) = row.record.char_indices().nth(RECORD_MAX) {
            row.record.truncate(end);
            row.record.push('…');
        }
    }
    last
}

fn tail_text(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(table: &str, number: usize, record: &str) -> String {
        let (place, reason) = (format!("f:{number}"), "is broken");
        let line = serde_json::json!({
            "table": table, "place": place, "reason": reason, "record": record
        });
        format!("{line}\n")
    }

    #[test]
    fn regression_records_that_several_jobs_rejected_are_shown_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let lines = (1..=4).flat_map(|number| std::iter::repeat_n(line("t", number, "x"), 4));
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        let mut bad = BadRows::new(vec![("t".to_string(), path)]);
        let places = bad.last(4).iter().map(|row| row.place.as_str());
        assert_eq!(places.collect::<Vec<_>>(), ["f:4", "f:3", "f:2", "f:1"]);
    }

    #[test]
    fn the_last_records_of_this_run_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let long = "é".repeat(3_000);
        let lines = (0..100).map(|number| line("t", number, &long)).collect();
        let mut text: String = lines;
        text.push_str(&line("other", 100, "x"));
        text.push_str(&line("t", 101, "x"));
        std::fs::write(&path, &text).unwrap();
        let missing = folder.path().join("missing.jsonl");
        let files = vec![("u".to_string(), missing), ("t".to_string(), path.clone())];
        let mut bad = BadRows::new(files);
        assert_eq!(bad.last(0), []);
        let places = |rows: &[BadRow]| {
            let places = rows.iter().map(|row| row.place.clone());
            places.collect::<Vec<_>>()
        };
        assert_eq!(places(bad.last(2)), ["f:101", "f:99"]);
        assert_eq!(bad.last(2)[1].record.chars().count(), RECORD_MAX + 1);
        // Nothing is read until more records were rejected.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(places(bad.last(2)), ["f:101", "f:99"]);
        assert_eq!(bad.last(3), []);
        std::fs::write(&path, &text).unwrap();
        assert_eq!(bad.last(40).len(), SHOWN_MAX);
    }
}
