//! File sinks under checkpoints: whatever dies at whatever moment, each surviving row is written once.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, StringViewArray};
use arrow_schema::DataType;
use proptest::prelude::*;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Error;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Delivery, Recovered, Sink, SinkConnector, SinkRequest};

use crate::source::tests::{read_all, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

mod fenced;

fn of_file(path: &Path, options: &[(&str, &str)]) -> TableDefinition {
    let columns = [("n", DataType::Int64), ("s", DataType::Utf8View)];
    let own = [("connector", "file"), ("path", path.to_str().unwrap())];
    table(&columns, &[&own, options].concat())
}

fn chunk(numbers: &[i64]) -> Chunk {
    let strings = numbers.iter().map(|n| Some("x".repeat(*n as usize % 7)));
    let columns: [(&str, ArrayRef); 2] = [
        (
            "n",
            Arc::new(PrimitiveArray::<Int64Type>::from(numbers.to_vec())),
        ),
        ("s", Arc::new(strings.collect::<StringViewArray>())),
    ];
    Chunk::new(RecordBatch::try_from_iter(columns).unwrap(), 0)
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = folder.read_dir() else {
        return vec![];
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = names.collect::<Vec<String>>();
    names.sort();
    names
}

/// The numbers in a file, in order, as the file source reads them.
fn numbers_in(path: &Path, options: &[(&str, &str)]) -> Vec<i64> {
    let table = of_file(path, options);
    let source = crate::source(&table).unwrap().source(request(&[0]));
    let read = read_all(&mut *source.unwrap());
    assert_eq!(read.rejected, []);
    let numbers = read.strings.iter().map(|text| text.rsplit(':').next());
    numbers.map(|text| text.unwrap().parse().unwrap()).collect()
}

fn sink_of(
    connector: &dyn SinkConnector,
    instance: usize,
    instances: usize,
    epoch: u64,
) -> Box<dyn Sink> {
    let request = SinkRequest {
        instance,
        instances,
        epoch: Some(epoch),
    };
    let mut sink = connector.sink(&request).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink
}

/// An event in the life of a query.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// This many rows arrive; the last ones are flushed or not.
    Write(usize, bool),
    /// A checkpoint: whether it is stored, and how often the commit reaches the sinks.
    Checkpoint(bool, usize),
    /// Everything dies. It resumes with this many instances, after this many recoveries.
    Crash(usize, usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1usize..40, any::<bool>()).prop_map(|(rows, flushed)| Act::Write(rows, flushed)),
        3 => (prop::bool::weighted(0.8), 0usize..3).prop_map(|(is, n)| Act::Checkpoint(is, n)),
        2 => (1usize..4, 1usize..3).prop_map(|(instances, times)| Act::Crash(instances, times)),
    ]
}

/// A query with its sinks, and its stored checkpoint.
struct Query {
    table: TableDefinition,
    connector: Arc<dyn SinkConnector>,
    sinks: Vec<Box<dyn Sink>>,
    epoch: u64,
    next: i64,
    /// The rows that a reader must find at the end.
    rows: Vec<i64>,
    /// Prepared and not known to be committed.
    pending: Vec<String>,
    /// The rows and what was pending in the stored checkpoint.
    stored: (usize, Vec<String>),
    is_stored: bool,
}

impl Query {
    fn begin(table: TableDefinition, instances: usize) -> Query {
        let connector = crate::sink(&table).unwrap();
        connector.begin(true).unwrap();
        let mut query = Query {
            connector,
            table,
            sinks: vec![],
            epoch: 0,
            next: 0,
            rows: vec![],
            pending: vec![],
            stored: (0, vec![]),
            is_stored: false,
        };
        query.connector.recover(1, None).unwrap();
        query.run(instances);
        query
    }

    fn run(&mut self, instances: usize) {
        let instances = instances.min(self.connector.capabilities().max_instances);
        self.epoch += 1;
        let epoch = self.epoch;
        self.sinks = (0..instances)
            .map(|instance| sink_of(&*self.connector, instance, instances, epoch))
            .collect();
    }

    fn write(&mut self, rows: usize, flushed: bool) {
        let numbers = (self.next..self.next + rows as i64).collect::<Vec<i64>>();
        self.next += rows as i64;
        let nth = self.next as usize % self.sinks.len();
        let sink = &mut self.sinks[nth];
        sink.write(&chunk(&numbers)).unwrap();
        if flushed {
            sink.flush().unwrap();
        }
        self.rows.extend(numbers);
    }

    fn prepare(&mut self, is_last: bool) {
        for sink in &mut self.sinks {
            sink.flush().unwrap();
            self.pending.extend(sink.prepare(is_last).unwrap());
        }
    }

    fn store(&mut self) {
        self.stored = (self.rows.len(), self.pending.clone());
        self.is_stored = true;
    }

    fn commit(&mut self, times: usize) {
        for _ in 0..times {
            for prepared in &self.pending {
                self.connector.commit(prepared).unwrap();
            }
        }
        if times > 0 {
            self.pending.clear();
        }
    }

    fn recover(&mut self, times: usize) {
        for _ in 0..times {
            self.connector = crate::sink(&self.table).unwrap();
            // Until something is stored, the query starts from nothing.
            let prepared = Some(&*self.stored.1).filter(|_| self.is_stored);
            let recovered = self.connector.recover(self.epoch + 1, prepared);
            assert_eq!(recovered, Ok(Recovered::Committed));
        }
        self.pending.clear();
    }

    /// Drops everything that runs, and resumes from what is stored.
    fn crash(&mut self, instances: usize, times: usize) {
        self.sinks.clear();
        self.rows.truncate(self.stored.0);
        self.recover(times);
        self.run(instances);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write(rows, flushed) => self.write(rows, flushed),
            Act::Checkpoint(is_stored, commits) => {
                self.prepare(false);
                if is_stored {
                    self.store();
                    self.commit(commits);
                }
            }
            Act::Crash(instances, times) => self.crash(instances, times),
        }
    }

    /// The end: whether it is stored before a crash, and how often it is committed before one.
    fn end(&mut self, ends: &[(bool, usize)]) {
        for &(is_stored, commits) in ends {
            self.prepare(true);
            for sink in &mut self.sinks {
                sink.finish(true).unwrap();
            }
            if !is_stored {
                self.crash(2, 1);
                continue;
            }
            self.store();
            self.commit(commits);
            // Other parts of the query continue, and the end is done once more.
            for is_last in [false, true] {
                self.sinks.clear();
                self.recover(2);
                self.run(2);
                self.prepare(true);
                for sink in &mut self.sinks {
                    sink.finish(true).unwrap();
                }
                self.store();
                self.commit(usize::from(is_last));
            }
            return;
        }
    }
}

/// Formats of parts.
const FORMATS: &[&str] = &[
    "csv",
    "json",
    "arrow",
    #[cfg(feature = "parquet")]
    "parquet",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_surviving_row_is_there_once(
        name in prop::sample::select(vec![
            "out", "out.csv", "out.csv.gz", "out.csv.zst", "out.json", "out.json.gz",
        ]),
        format in prop::sample::select(FORMATS),
        header in prop_oneof![Just("true"), Just("false")],
        instances in 1usize..4,
        overwrites: bool,
        acts in prop::collection::vec(any_act(), 0..25),
        lost_ends in 0usize..3,
        commits in 0usize..3,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let format = match name {
            "out" => format,
            name if name.contains("json") => "json",
            _ => "csv",
        };
        let options = match format {
            "csv" => vec![("csv.header", header)],
            format => vec![("format", format)],
        };
        let mut of_sink = options.clone();
        if overwrites {
            of_sink.push(("overwrite", "true"));
            if name == "out" {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("part-7.csv"), "old").unwrap();
            } else {
                fs::write(&path, "old").unwrap();
            }
        }
        let mut query = Query::begin(of_file(&path, &of_sink), instances);
        for act in acts {
            query.act(act);
        }
        let ends = vec![(false, 0); lost_ends];
        query.end(&[ends, vec![(true, commits)]].concat());
        if name == "out" {
            let mut found = vec![];
            for part in names(&path) {
                prop_assert!(!part.starts_with('.'), "{part}");
                found.extend(numbers_in(&path.join(part), &options));
            }
            found.sort_unstable();
            prop_assert_eq!(found, query.rows);
        } else {
            prop_assert_eq!(names(folder.path()), [name]);
            prop_assert_eq!(numbers_in(&path, &options), query.rows);
        }
    }
}

#[test]
fn parts_appear_with_their_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let connector = crate::sink(&of_file(&path, &[("csv.header", "true")])).unwrap();
    assert_eq!(connector.capabilities().delivery, Delivery::ExactlyOnce);
    connector.begin(true).unwrap();
    connector.recover(7, None).unwrap();
    let mut sink = sink_of(&*connector, 2, 3, 7);
    assert_eq!(sink.prepare(false).unwrap(), None, "it holds no rows");
    sink.write(&chunk(&[1, 2])).unwrap();
    let first = sink.prepare(false).unwrap().unwrap();
    sink.write(&chunk(&[3])).unwrap();
    sink.flush().unwrap();
    let hidden = [
        ".part-00002-0000000007-0000000000.csv.tmp",
        ".part-00002-0000000007-0000000001.csv.tmp",
    ];
    assert_eq!(names(&path), hidden);
    connector.commit(&first).unwrap();
    connector.commit(&first).unwrap();
    assert_eq!(
        names(&path),
        [hidden[1], "part-00002-0000000007-0000000000.csv"]
    );
    let part = path.join("part-00002-0000000007-0000000000.csv");
    assert_eq!(fs::read_to_string(&part).unwrap(), "n,s\n1,x\n2,xx\n");
    // A failed query keeps what a checkpoint may contain, and nothing else.
    let second = sink.prepare(false).unwrap().unwrap();
    sink.write(&chunk(&[4])).unwrap();
    sink.finish(false).unwrap();
    assert_eq!(names(&path).len(), 2);
    // Files of other programs stay.
    fs::write(path.join(".part-1.csv.tmp"), "").unwrap();
    fs::write(path.join(".part-00000-0000000006-0000000003.csv.tmp"), "").unwrap();
    connector
        .recover(8, Some(&[first.clone(), second]))
        .unwrap();
    assert_eq!(
        names(&path),
        [
            ".part-1.csv.tmp",
            "part-00002-0000000007-0000000000.csv",
            "part-00002-0000000007-0000000001.csv"
        ]
    );
    fs::remove_file(part).unwrap();
    let error = connector.commit(&first).unwrap_err().to_string();
    assert!(error.contains("part-00002-0000000007-0000000000.csv: neither it nor .part-00002"));
    assert!(error.contains("(put it back"), "{error}");
}

#[test]
fn one_file_grows_and_gets_its_name_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let table = of_file(&path, &[("csv.header", "true")]);
    let connector = crate::sink(&table).unwrap();
    connector.begin(true).unwrap();
    connector.recover(1, None).unwrap();
    let mut sink = sink_of(&*connector, 0, 1, 1);
    let empty = sink.prepare(false).unwrap().unwrap();
    sink.write(&chunk(&[1])).unwrap();
    let second = sink.prepare(false).unwrap().unwrap();
    assert_ne!(
        sink.prepare(false).unwrap().unwrap(),
        second,
        "also without rows"
    );
    connector.commit(&second).unwrap();
    assert_eq!(names(folder.path()), [".out.csv.0000000001.unfinished"]);
    sink.write(&chunk(&[2])).unwrap();
    sink.flush().unwrap();
    drop(sink);
    let prepared = [empty.clone(), second.clone()];
    connector.recover(2, Some(&prepared)).unwrap();
    assert_eq!(names(folder.path()), [".out.csv.0000000002.unfinished"]);
    let mut sink = sink_of(&*connector, 0, 1, 2);
    sink.write(&chunk(&[3])).unwrap();
    let last = sink.prepare(true).unwrap().unwrap();
    sink.finish(true).unwrap();
    // The end is not committed yet: the query may still resume from before it.
    assert_eq!(names(folder.path()), [".out.csv.0000000002.unfinished"]);
    for epoch in [2, 3] {
        connector.commit(&last).unwrap();
        let prepared = [second.clone(), last.clone()];
        connector.recover(epoch, Some(&prepared)).unwrap();
        assert_eq!(names(folder.path()), ["out.csv"]);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "n,s\n1,x\n3,xxx\n");
    let error = connector.recover(4, Some(&[second])).unwrap_err();
    assert!(
        error.to_string().contains("out.csv: neither it nor"),
        "{error}"
    );
}

#[test]
fn existing_files_are_refused_or_removed_when_a_query_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (parts, file) = (folder.path().join("parts"), folder.path().join("out.csv"));
    fs::create_dir(&parts).unwrap();
    let refused = |path: &Path, reason: &str| {
        let error = crate::sink(&of_file(path, &[])).unwrap().begin(true);
        let error = error.unwrap_err();
        assert_eq!(error.place, path.display().to_string());
        assert!(error.reason.contains(reason), "{error}");
        assert_eq!(error.hint, "name another path, or add 'overwrite' = 'true'");
    };
    let over = |path: &Path| {
        let connector = crate::sink(&of_file(path, &[("overwrite", "true")])).unwrap();
        connector.begin(true).unwrap();
        connector
    };
    // An unfinished file belongs to a query that may be resumed.
    over(&file).recover(1, None).unwrap();
    refused(&file, "an earlier query left");
    over(&file);
    assert_eq!(names(folder.path()), ["parts"]);
    // So does one of an earlier version.
    fs::write(folder.path().join(".out.csv.unfinished"), "").unwrap();
    refused(&file, "an earlier query left");
    over(&file);
    assert_eq!(names(folder.path()), ["parts"]);
    fs::write(&file, "old").unwrap();
    refused(&file, "already exists");
    let connector = over(&file);
    let mut sink = connector.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink.finish(false).unwrap();
    assert_eq!(names(folder.path()), ["out.csv", "parts"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    // A finished file stays as it is.
    let mut sink = sink_of(&*connector, 0, 1, 2);
    assert_eq!(sink.prepare(true).unwrap(), None);
    let error = sink.write(&chunk(&[1])).unwrap_err();
    assert!(error.reason.contains("is finished"), "{error}");
    connector.recover(2, Some(&[])).unwrap();
    assert_eq!(names(folder.path()), ["out.csv", "parts"]);

    let connector = over(&parts);
    let mut sink = sink_of(&*connector, 0, 1, 1);
    sink.write(&chunk(&[1])).unwrap();
    let prepared = sink.prepare(false).unwrap().unwrap();
    connector.commit(&prepared).unwrap();
    sink.write(&chunk(&[2])).unwrap();
    drop(sink);
    for name in ["part-0.csv", "part-0.txt", "notes"] {
        fs::write(parts.join(name), "").unwrap();
    }
    refused(&parts, "is not empty");
    let connector = over(&parts);
    assert_eq!(names(&parts), ["notes", "part-0.csv", "part-0.txt"]);
    let mut sink = sink_of(&*connector, 0, 1, 1);
    sink.write(&chunk(&[3])).unwrap();
    let prepared = sink.prepare(false).unwrap().unwrap();
    connector.commit(&prepared).unwrap();
    let part = "part-00000-0000000001-0000000000.csv";
    assert_eq!(names(&parts), ["notes", "part-0.txt", part]);
    // Nothing of it stays if a later incarnation starts from nothing.
    connector.recover(2, None).unwrap();
    assert_eq!(names(&parts), ["notes", "part-0.txt"]);
    // A query without checkpoints replaces them at its end.
    let connector = crate::sink(&of_file(&parts, &[("overwrite", "true")])).unwrap();
    let mut sink = connector.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink.finish(true).unwrap();
    assert_eq!(names(&parts), ["notes", "part-0.csv", "part-0.txt"]);
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let full = |hidden: &Path, path: &Path| -> Error {
        std::os::unix::fs::symlink("/dev/full", hidden).unwrap();
        let connector = crate::sink(&of_file(path, &[])).unwrap();
        let mut sink = sink_of(&*connector, 0, 1, 1);
        let numbers = (0..100_000).collect::<Vec<i64>>();
        let written = sink.write(&chunk(&numbers));
        written
            .and_then(|()| sink.prepare(false).map(drop))
            .unwrap_err()
    };
    let folder = tempfile::tempdir().unwrap();
    let hidden = folder.path().join(".out.csv.0000000001.unfinished");
    let parts = folder.path().join("parts");
    fs::create_dir(&parts).unwrap();
    let part = parts.join(".part-00000-0000000001-0000000000.csv.tmp");
    for (hidden, path) in [(hidden, folder.path().join("out.csv")), (part, parts)] {
        let error = full(&hidden, &path);
        assert_eq!(error.place, hidden.display().to_string());
        assert!(error.reason.contains("No space left"), "{error}");
        assert_eq!(error.hint, "make room on the disk");
    }
}

#[test]
fn failing_to_prepare_or_commit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (parts, file) = (folder.path().join("parts"), folder.path().join("out.csv"));
    let to_parts = crate::sink(&of_file(&parts, &[])).unwrap();
    let to_file = crate::sink(&of_file(&file, &[])).unwrap();
    for broken in [
        "",
        "7",
        r#"{"hidden":".x.tmp","name":"x"}"#,
        r#"{"hidden":"../secret","name":"part-00000-0000000001-0000000000.csv"}"#,
    ] {
        for connector in [&to_parts, &to_file] {
            let error = connector.commit(broken).unwrap_err().to_string();
            assert!(error.contains("can't be read"), "{error}");
            assert!(connector.recover(1, Some(&[broken.to_string()])).is_err());
        }
    }
    let other = r#"{"file":"b.csv","bytes":1,"epoch":1,"number":0,"is_last":false}"#;
    let error = to_file.commit(other).unwrap_err().to_string();
    assert!(error.contains("name the same path as before"), "{error}");
    // Truncated by somebody.
    to_file.recover(1, None).unwrap();
    let mut sink = sink_of(&*to_file, 0, 1, 1);
    sink.write(&chunk(&[1, 2, 3])).unwrap();
    let prepared = sink.prepare(false).unwrap().unwrap();
    drop(sink);
    let grown = folder.path().join(".out.csv.0000000001.unfinished");
    fs::write(grown, "1").unwrap();
    let error = to_file.recover(2, Some(&[prepared]));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("has 1 bytes, but 15 were written"),
        "{error}"
    );
    let gone = sink_of(&*to_parts, 0, 1, 2);
    drop(gone);
    let missing = r#"{"hidden":".part-00000-0000000002-0000000000.csv.tmp","name":"part-00000-0000000002-0000000000.csv"}"#;
    let error = to_parts.secure(missing).unwrap_err();
    assert!(error.reason.contains("can't sync"), "{error}");
    let mut sink = sink_of(&*to_parts, 0, 1, 3);
    sink.write(&chunk(&[1, 2])).unwrap();
    let prepared = sink.prepare(false).unwrap().unwrap();
    let hidden = parts.join(".part-00000-0000000003-0000000000.csv.tmp");
    fs::write(&hidden, "1").unwrap();
    let error = to_parts.commit(&prepared).unwrap_err().to_string();
    assert!(error.contains("has 1 bytes, but "), "{error}");
    fs::remove_file(hidden).unwrap();
    // The folder is removed while the sink writes to it.
    let mut sink = sink_of(&*to_parts, 0, 1, 1);
    fs::remove_dir(&parts).unwrap();
    let error = sink.write(&chunk(&[1])).unwrap_err();
    assert!(error.place.contains(".part-00000-0000000001"), "{error}");
    assert!(error.hint.contains("removed"), "{error}");
    // The place of the file is taken by a folder.
    let to_file = crate::sink(&of_file(&folder.path().join("b.csv"), &[])).unwrap();
    to_file.recover(1, None).unwrap();
    let mut sink = sink_of(&*to_file, 0, 1, 1);
    let prepared = sink.prepare(true).unwrap().unwrap();
    sink.finish(true).unwrap();
    fs::create_dir(folder.path().join("b.csv")).unwrap();
    let error = to_file.commit(&prepared).unwrap_err();
    assert!(
        error.reason.contains("can't give the file its name"),
        "{error}"
    );
    assert_ne!(error.hint, "");
}
