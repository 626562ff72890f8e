//! The dead-letter file: rejected records are kept, with their place and the reason.
//!
//! One JSON object per line. The file is created when the first record is rejected and appended to by later
//! runs, so nothing is lost. Every line is one write, so records that were rejected before a crash are in the
//! file after it. A lock is good enough, because bad records are rare.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::source::{DeadLetters, Rejected};

use crate::file_format::Formats;
use crate::options::{OptionError, Options};
use crate::table;

/// The folder of dead-letter files whose table names no path, relative to the working folder.
const DEFAULT_FOLDER: &str = "slackwater-dead-letter";

/// Ended partitions whose names are kept: records that were read from them may still be rejected downstream.
/// 4,096 names of peers take about 500 KB.
const FORGOTTEN_KEPT_MAX: usize = 4_096;

/// Counts and keeps the rejected records of one table.
#[derive(Debug)]
pub struct FileDeadLetters {
    table: String,
    path: PathBuf,
    /// The separator between a partition's name and a position: `flights.csv:812`, `topic[3]@42`.
    separator: char,
    fail: bool,
    /// A hint for the first record, if it can't be read.
    of_first: Option<&'static str>,
    count: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Place and reason of the first record, for the summary.
    first: Option<String>,
    names: HashMap<u32, String>,
    /// Ended partitions, in the order in which they ended.
    forgotten: VecDeque<u32>,
    file: Option<File>,
}

/// Makes the dead letters of the source table `name` from its options `on_error` and `dead_letter`. `formats`
/// are those of its connector: they say what a record's position is.
pub(crate) fn dead_letters(
    name: &str,
    options: &Options<'_>,
    formats: Formats,
) -> std::result::Result<FileDeadLetters, OptionError> {
    let fail = table::settings(options)?.on_error_fail;
    let path = match options.text("dead_letter") {
        Some("") => {
            return Err(OptionError::new(
                "dead_letter",
                "is empty",
                "write the path of a file, or leave the option out",
            ));
        }
        Some(path) => PathBuf::from(path),
        None => {
            // A quoted table name may hold anything; the file must stay in its folder.
            let name = name.replace(['/', '\\', '\0'], "_");
            Path::new(DEFAULT_FOLDER).join(format!("{name}.jsonl"))
        }
    };
    Ok(FileDeadLetters {
        table: name.to_string(),
        path,
        separator: match formats {
            // A message's offset or number is not a line.
            Formats::Messages => '@',
            Formats::None | Formats::Lines | Formats::Files => ':',
        },
        fail,
        of_first: may_have_header(options, formats)
            .then_some("if the first line names the columns: 'csv.header' = 'true'"),
        count: AtomicU64::new(0),
        state: Mutex::default(),
    })
}

/// Whether the first record may be a header although the options don't say so.
fn may_have_header(options: &Options<'_>, formats: Formats) -> bool {
    let has_lines = match formats {
        Formats::Lines | Formats::Files => true,
        Formats::None | Formats::Messages => false,
    };
    let is_csv = options
        .text("format")
        .is_none_or(|format| format.eq_ignore_ascii_case("csv"));
    has_lines && is_csv && options.text("csv.header").is_none()
}

impl FileDeadLetters {
    /// Why a record was rejected, with a hint at the likely cause.
    fn reason(&self, rejected: &Rejected) -> String {
        let is_unread = rejected.reason.contains("can't read");
        match self.of_first {
            Some(hint) if rejected.position == Some(1) && is_unread => {
                format!("{}; {hint}", rejected.reason)
            }
            _ => rejected.reason.clone(),
        }
    }

    /// Records rejected so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Place and reason of the first record that was rejected.
    pub fn first(&self) -> Option<String> {
        self.lock().first.clone()
    }

    /// The file's path, whether it exists or not.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's path, once this run has written to it.
    pub fn path_if_created(&self) -> Option<PathBuf> {
        self.lock().file.is_some().then(|| self.path.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The names and the file are consistent after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a row was read, as rejected records have it: `flights.csv:812`.
    pub fn place_of(&self, partition: u32, position: u64) -> String {
        self.place(&self.lock(), Some(partition), Some(position))
    }

    fn place(&self, state: &State, partition: Option<u32>, position: Option<u64>) -> String {
        let name = match partition {
            None => self.table.clone(),
            Some(partition) => match state.names.get(&partition) {
                Some(name) => name.clone(),
                None => format!("{} partition {partition}", self.table),
            },
        };
        match position {
            None => name,
            Some(position) => format!("{name}{}{position}", self.separator),
        }
    }

    fn keep(&self, state: &mut State, line: &[u8]) -> std::io::Result<()> {
        if state.file.is_none() {
            if let Some(folder) = self
                .path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
            {
                std::fs::create_dir_all(folder)?;
            }
            state.file = Some(
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&self.path)?,
            );
        }
        state
            .file
            .as_mut()
            .map_or(Ok(()), |file| file.write_all(line))
    }
}

impl DeadLetters for FileDeadLetters {
    fn name_partition(&self, partition: u32, name: &str) {
        self.lock().names.insert(partition, name.to_string());
    }

    fn forget_partition(&self, partition: u32) {
        let mut state = self.lock();
        state.forgotten.push_back(partition);
        if state.forgotten.len() > FORGOTTEN_KEPT_MAX
            && let Some(oldest) = state.forgotten.pop_front()
        {
            state.names.remove(&oldest);
        }
    }

    fn reject(&self, rejected: &Rejected) -> Result<()> {
        let mut state = self.lock();
        let place = self.place(&state, rejected.partition, rejected.position);
        self.count.fetch_add(1, Ordering::Relaxed);
        let reason = self.reason(rejected);
        if self.fail {
            return Err(Error::new(place, reason)
                .hint("fix the record, or skip bad records with 'on_error' = 'skip'")
                .final_one());
        }
        if state.first.is_none() {
            state.first = Some(format!("{place}: {reason}"));
        }
        let line = serde_json::json!({
            "table": self.table,
            "place": place,
            "reason": reason,
            "record": rejected.record,
        });
        self.keep(&mut state, format!("{line}\n").as_bytes())
            .map_err(|error| {
                Error::new(
                    self.path.display().to_string(),
                    format!("can't keep a bad record: {error}"),
                )
                .hint("name a file that can be written with 'dead_letter' = 'path'")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letters;
    use crate::table::tests::table;

    fn rejected(position: u64) -> Rejected {
        Rejected {
            partition: Some(3),
            position: Some(position),
            reason: "7 fields where 5 are declared".into(),
            record: "a,\"b\"\u{fffd}\n".into(),
        }
    }

    #[test]
    fn kept_with_place_and_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/bad.jsonl");
        let table = table(&[], &[("dead_letter", path.to_str().unwrap())]);
        for run in 1..=2u64 {
            let letters = dead_letters(&table).unwrap();
            assert_eq!(letters.path_if_created(), None);
            letters.name_partition(3, "flights.csv");
            letters.reject(&rejected(812)).unwrap();
            assert_eq!(letters.count(), 1);
            assert_eq!(letters.path_if_created(), Some(path.clone()));
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().count() as u64, run);
            let line: serde_json::Value =
                serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(line["place"], "flights.csv:812");
            assert_eq!(line["record"], "a,\"b\"\u{fffd}\n");
            assert_eq!(line["table"], "t");
        }
    }

    #[test]
    fn a_message_has_no_line() {
        let place = |connector: &str| {
            let letters = dead_letters(&table(&[], &[("connector", connector)])).unwrap();
            letters.name_partition(3, "name");
            letters.place_of(3, 42)
        };
        for connector in ["kafka", "Kafka", "mqtt"] {
            assert_eq!(place(connector), "name@42", "{connector}");
        }
        for connector in ["file", "stdin", "tcp", "sqlite", "datagen"] {
            assert_eq!(place(connector), "name:42", "{connector}");
        }
    }

    #[test]
    fn names_of_connections_are_discarded_at_some_point() {
        let letters = dead_letters(&table(&[], &[])).unwrap();
        for partition in 0..10_000 {
            letters.name_partition(partition, "127.0.0.1:5");
            letters.forget_partition(partition);
        }
        letters.name_partition(10_000, "127.0.0.1:6");
        let state = letters.lock();
        assert_eq!(state.names.len(), FORGOTTEN_KEPT_MAX + 1);
        assert!(state.names.contains_key(&10_000) && state.names.contains_key(&9_999));
    }

    #[test]
    fn fail_names_the_place_and_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let options = [
            ("on_error", "fail"),
            ("dead_letter", path.to_str().unwrap()),
        ];
        let letters = dead_letters(&table(&[], &options)).unwrap();
        letters.name_partition(3, "flights.csv");
        let error = letters.reject(&rejected(812)).unwrap_err();
        assert_eq!(error.place, "flights.csv:812");
        assert!(!path.exists());
    }

    #[test]
    fn a_first_line_that_can_not_be_read_may_be_a_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let first = |options: &[(&str, &str)], position: u64| {
            let mut options = options.to_vec();
            options.push(("dead_letter", path.to_str().unwrap()));
            let letters = dead_letters(&table(&[], &options)).unwrap();
            letters
                .reject(&Rejected {
                    reason: "column 'ms' (BIGINT): can't read 'ms'".into(),
                    ..rejected(position)
                })
                .unwrap();
            letters.first().unwrap()
        };
        let hint = "'csv.header' = 'true'";
        assert!(first(&[("connector", "file")], 1).contains(hint));
        assert!(!first(&[("connector", "file")], 2).contains(hint));
        assert!(!first(&[("connector", "file"), ("format", "json")], 1).contains(hint));
        assert!(!first(&[("connector", "file"), ("csv.header", "false")], 1).contains(hint));
        assert!(!first(&[("connector", "kafka"), ("format", "csv")], 1).contains(hint));
    }

    #[test]
    fn an_unwritable_file_is_an_error() {
        let options = [("dead_letter", "/proc/nowhere/bad.jsonl")];
        let letters = dead_letters(&table(&[], &options)).unwrap();
        let error = letters.reject(&rejected(1)).unwrap_err();
        assert!(
            error.to_string().contains("/proc/nowhere/bad.jsonl"),
            "{error}"
        );
    }

    #[test]
    fn a_wild_table_name_stays_in_the_folder() {
        let mut wild = table(&[], &[]);
        wild.name = "../../x".into();
        let letters = dead_letters(&wild).unwrap();
        assert_eq!(
            letters.path,
            Path::new("slackwater-dead-letter/.._.._x.jsonl")
        );
    }
}
