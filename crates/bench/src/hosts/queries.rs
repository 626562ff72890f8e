//! The queries, and their input: a file of records for each host.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::HOSTS;
use crate::hibench::bytes_of;
use crate::hibench::workload::{self, Workload};
use crate::programs;

/// Records in files.
pub struct Input {
    /// Number of records.
    pub rows: u64,
    /// Bytes of all files.
    pub bytes: u64,
    folder: PathBuf,
}

/// The workload with this name.
///
/// # Errors
///
/// If there is none.
pub fn named(name: &str) -> Result<Workload, String> {
    let mut all = Workload::ALL.into_iter();
    all.find(|workload| workload.name() == name).ok_or_else(|| {
        let names = Workload::ALL.map(Workload::name).join(", ");
        format!("expected one of {names}")
    })
}

impl Input {
    /// Generates records, and deals them out to files in turn.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    pub fn generate(parent: &Path, name: &str, rows: u64) -> Result<Input, String> {
        let all = parent.join(format!("{name}.csv"));
        let engine = programs::Engine::new(parent)?;
        engine.run(&workload::generate(&all, rows), 1)?;
        let folder = parent.join(name);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(failed)?;
        deal(&all, &folder).map_err(failed)?;
        let bytes = bytes_of(&all)?;
        std::fs::remove_file(&all).map_err(failed)?;
        Ok(Input {
            rows,
            bytes,
            folder,
        })
    }

    /// Files that are not there.
    #[cfg(test)]
    pub fn of(rows: u64, bytes: u64) -> Input {
        Input {
            rows,
            bytes,
            folder: PathBuf::from("/visits"),
        }
    }

    /// The files, as the engine wants them to be named.
    pub fn pattern(&self) -> PathBuf {
        self.folder.join("*.csv")
    }
}

/// Writes each line of a file to the next one of several files.
fn deal(all: &Path, folder: &Path) -> std::io::Result<()> {
    let files = (1..=HOSTS).map(|host| folder.join(format!("{host}.csv")));
    let files = files.map(|path| File::create(path).map(BufWriter::new));
    let mut files = files.collect::<std::io::Result<Vec<BufWriter<File>>>>()?;
    let mut lines = BufReader::new(File::open(all)?);
    let mut line = Vec::new();
    let mut host = 0;
    while lines.read_until(b'\n', &mut line)? > 0 {
        files[host].write_all(&line)?;
        line.clear();
        host = (host + 1) % HOSTS;
    }
    files.iter_mut().try_for_each(Write::flush)
}

/// The query for Flink; `None` for what its SQL has no words for: a sink of other rows than those of the
/// instance before it, and windows of a number of rows.
pub fn for_flink(workload: Workload, input: &Input) -> Option<String> {
    match workload {
        Workload::Repartition | Workload::CountWindow => None,
        Workload::Identity | Workload::IdentityRows | Workload::WordCount | Workload::FixWindow => {
            // Names that are reserved words there are quoted. An aggregation without windows gives an
            // update for each row, unless mini-batches are asked for.
            let text = workload.sql(&input.folder);
            let text = text
                .replace("SET 'emit' = 'every_row';\n", "")
                .replace("'connector' = 'file'", "'connector' = 'filesystem'")
                .replace(" language STRING", " `language` STRING")
                .replace("TABLE out ", "TABLE `out` ")
                .replace("INTO out ", "INTO `out` ");
            Some(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_dealt_out_whole() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("all");
        std::fs::write(&all, "a\nbb\nc\nd\ne").unwrap();
        deal(&all, folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let parts = ["1.csv", "2.csv", "3.csv"].map(read);
        assert_eq!(parts, ["a\nd\n", "bb\ne", "c\n"]);
    }

    #[test]
    fn flink_gets_its_own_connectors_and_quotes() {
        let input = Input::of(1, 1);
        assert_eq!(for_flink(Workload::Repartition, &input), None);
        for workload in [Workload::WordCount, Workload::FixWindow] {
            let text = for_flink(workload, &input).unwrap();
            for part in ["'filesystem'", "'/visits'", "`language`", "INTO `out`"] {
                assert!(text.contains(part), "{part} is not in {text}");
            }
            for other in ["'file'", "'emit'", " out "] {
                assert!(!text.contains(other), "{other} is in {text}");
            }
        }
    }

    #[test]
    fn workloads_have_names() {
        assert_eq!(named("fixwindow"), Ok(Workload::FixWindow));
        assert!(
            named("sort")
                .unwrap_err()
                .contains("identity, identity-rows, repartition")
        );
    }
}
