//! Sources that are read partially, and resume in another incarnation.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{Resume, Source, SourcePoll, SourceRequest, SourceRows, Tuning};

use super::tests::{request, row_text};
use crate::table::TableDefinition;
use crate::table::tests::table;

/// The rows passed on from a partition, as the engine records them.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Partition {
    /// `position:value|value…` of rows, `position:reason` of rejections.
    pub(crate) rows: Vec<String>,
    pub(crate) refused: Vec<String>,
    position: u64,
    ended: bool,
}

/// All rows passed on, by partition name.
pub(crate) type Read = BTreeMap<String, Partition>;

impl Partition {
    /// Takes rows as the engine does: those before the position were taken already.
    fn take(&mut self, rows: SourceRows) {
        let first_new = self.position;
        for row in 0..rows.batch.num_rows() {
            let position = rows.positions.at(row);
            if position >= first_new {
                self.rows
                    .push(format!("{position}:{}", row_text(&rows.batch, row)));
                self.position = self.position.max(position + 1);
            }
        }
        for refused in rows.rejected {
            let position = refused.position.unwrap();
            if position >= first_new {
                self.refused.push(format!("{position}:{}", refused.reason));
                self.position = self.position.max(position + 1);
            }
        }
    }
}

/// An opened source and the names of its partitions.
struct Reader {
    source: Box<dyn Source>,
    names: BTreeMap<u32, String>,
    ended: bool,
}

impl Reader {
    fn new(table: &TableDefinition, request: SourceRequest, read: &mut Read) -> Reader {
        let mut source = crate::source(table).unwrap().source(request).unwrap();
        let opened = source.open(&mut Waiter::new().unwrap()).unwrap();
        for (_, name) in &opened {
            read.entry(name.clone()).or_default();
        }
        Reader {
            source,
            names: opened.into_iter().collect(),
            ended: false,
        }
    }

    /// Polls this many times, or to the end.
    fn poll(&mut self, times: usize, read: &mut Read) {
        for _ in 0..times {
            match self.source.poll().unwrap() {
                SourcePoll::Rows(rows) => {
                    let name = &self.names[&rows.partition];
                    read.get_mut(name).unwrap().take(rows);
                }
                SourcePoll::PartitionEnded { partition } => {
                    let name = &self.names[&partition];
                    read.get_mut(name).unwrap().ended = true;
                }
                SourcePoll::PartitionStarted { partition, name } => {
                    read.entry(name.clone()).or_default();
                    self.names.insert(partition, name);
                }
                SourcePoll::End => {
                    self.ended = true;
                    return;
                }
                _ => {}
            }
        }
    }

    /// The positions that a checkpoint saves.
    fn cut(&mut self, read: &Read) -> Vec<Resume> {
        let names = self.names.iter();
        let resume = names.map(|(&partition, name)| Resume {
            name: name.clone(),
            position: read[name].position,
            bookmark: self.source.bookmark(partition),
            ended: read[name].ended,
        });
        resume.collect()
    }
}

/// Reads everything, with a checkpoint after each of `cuts` polls, and each part by another number of
/// instances.
pub(crate) fn read_with_cuts(
    table: &TableDefinition,
    columns: &[usize],
    rows: usize,
    parsers: usize,
    cuts: &[usize],
) -> Read {
    let mut read = Read::new();
    let mut resume = vec![];
    let mut parts = cuts.iter().copied().chain([usize::MAX]).enumerate();
    parts.all(|(part, polls)| {
        let instances = part % 3 + 1;
        let readers = (0..instances).map(|instance| {
            let request = SourceRequest {
                instance,
                instances,
                // Each part is also parsed by another number of threads.
                parsers: (part + parsers) % 3 + 1,
                tuning: Arc::new(Tuning::new(0, rows + part)),
                resume: resume.clone().into(),
                ..request(columns)
            };
            Reader::new(table, request, &mut read)
        });
        let mut readers = readers.collect::<Vec<Reader>>();
        for reader in &mut readers {
            reader.poll(polls, &mut read);
        }
        resume = readers
            .iter_mut()
            .flat_map(|reader| reader.cut(&read))
            .collect();
        !readers.iter().all(|reader| reader.ended)
    });
    read
}

const LOG: &str =
    r#"1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 "-" "agent""#;

fn columns_of(format: &str) -> Vec<(&'static str, DataType)> {
    match format {
        "raw" => vec![("line", DataType::Utf8View)],
        "combined_log" => vec![
            ("ip", DataType::Utf8View),
            ("time", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("status", DataType::Int32),
        ],
        _ => vec![("n", DataType::Int64), ("s", DataType::Utf8View)],
    }
}

/// Lines of a format, some of them bad.
fn any_text(format: &'static str) -> impl Strategy<Value = String> {
    let good = match format {
        "csv" => "[0-9]{1,3},([a-z]{0,5}|\"[a-z\n]{0,5}\"\"\")",
        "json" => r#"\{"n":[1-9]{1,4},"s":"[a-z]{0,5}"\}"#,
        _ => "[a-z0-9, ]{1,12}",
    };
    let line = prop_oneof![
        4 => good,
        2 => Just(LOG.to_string()),
        1 => "[a-z\",#{]{0,6}",
        1 => "[a-z]{200,400}",
    ];
    let end = prop_oneof![4 => Just("\n"), 1 => Just("\r\n")];
    let lines = proptest::collection::vec((line, end), 0..40);
    (lines, any::<(bool, bool)>()).prop_map(|(lines, (has_mark, has_end))| {
        let lines = lines.iter().map(|(line, end)| format!("{line}{end}"));
        let mark = if has_mark { "\u{feff}" } else { "" };
        let text = format!("{mark}{}", lines.collect::<String>());
        match has_end {
            true => text,
            false => text.trim_end_matches('\n').to_string(),
        }
    })
}

fn any_case() -> impl Strategy<Value = (&'static str, Vec<String>)> {
    let format = prop::sample::select(vec!["csv", "json", "combined_log", "regex", "raw"]);
    format.prop_flat_map(|format| {
        let strings = proptest::collection::vec(any_text(format), 1..4);
        (Just(format), strings)
    })
}

fn pack(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn files_go_on_anywhere(
        (format, strings) in any_case(),
        packing in prop::array::uniform3(prop::sample::select(vec!["", ".gz", ".zst"])),
        header in prop_oneof![Just("true"), Just("false")],
        rate in prop_oneof![Just(None), Just(Some("1000000/s"))],
        unit in prop_oneof![3 => Just("none"), 1 => Just("file")],
        rows in 1usize..9,
        parsers in 0usize..3,
        cuts in proptest::collection::vec(0usize..20, 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (number, text) in strings.iter().enumerate() {
            let path = folder.path().join(format!("{number}.txt{}", packing[number]));
            let bytes = match packing[number] {
                ".gz" => pack(text),
                ".zst" => zstd::encode_all(text.as_bytes(), 1).unwrap(),
                _ => text.clone().into_bytes(),
            };
            fs::write(path, bytes).unwrap();
        }
        let path = folder.path().join("*");
        let path = path.to_str().unwrap();
        let mut options = vec![("connector", "file"), ("format", format), ("path", path)];
        options.push(("unit_of_work", unit));
        options.extend(rate.map(|rate| ("replay_rate", rate)));
        if format == "regex" {
            options.push(("regex.pattern", r"(?<n>\d+)[a-z]*,? ?(?<s>[a-z]*)"));
        }
        if format == "csv" {
            options.push(("csv.header", header));
            options.push(("csv.comment", "#"));
        }
        let columns = columns_of(format);
        let table = table(&columns, &options);
        let read = (0..columns.len()).collect::<Vec<usize>>();
        let whole = read_with_cuts(&table, &read, rows, 0, &[]);
        prop_assert!(whole.values().all(|partition| partition.ended));
        prop_assert_eq!(read_with_cuts(&table, &read, rows, parsers, &cuts), whole);
    }

    #[test]
    fn generated_rows_resume_anywhere(
        visits: bool,
        disorder in prop_oneof![Just("0 s"), Just("40 ms"), Just("3 s")],
        rate in prop_oneof![Just(None), Just(Some("1000000/s"))],
        rows in 1usize..70,
        cuts in proptest::collection::vec(0usize..9, 1..5),
    ) {
        let generator = if visits { "uservisits" } else { "nexmark" };
        let columns = match visits {
            true => vec![("ts_ms", DataType::Int64), ("url", DataType::Utf8View)],
            false => vec![("event_type", DataType::Int32)],
        };
        let mut options = vec![("connector", "datagen"), ("generator", generator)];
        options.extend([("rows", "500"), ("disorder", disorder)]);
        options.extend(rate.map(|rate| ("rate", rate)));
        let table = table(&columns, &options);
        let read = (0..columns.len()).collect::<Vec<usize>>();
        let whole = read_with_cuts(&table, &read, rows, 0, &[]);
        prop_assert_eq!(read_with_cuts(&table, &read, rows, 0, &cuts), whole);
    }
}

fn raw(path: &Path, options: &[(&str, &str)]) -> TableDefinition {
    let path = path.to_str().unwrap();
    let own = [("connector", "file"), ("format", "raw"), ("path", path)];
    table(&[("line", DataType::Utf8View)], &[&own, options].concat())
}

fn going_on(path: &Path, position: u64, bookmark: Option<&str>) -> SourceRequest {
    let known = Resume {
        name: path.display().to_string(),
        position,
        bookmark: bookmark.map(str::to_string),
        ended: false,
    };
    SourceRequest {
        resume: vec![known].into(),
        ..request(&[0])
    }
}

#[test]
fn a_compressed_file_is_read_again_at_full_speed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.gz");
    fs::write(&path, pack(&"line\n".repeat(1_000))).unwrap();
    let table = raw(&path, &[("replay_rate", "1/min")]);
    let request = going_on(&path, 991, None);
    let mut source = crate::source(&table).unwrap().source(request).unwrap();
    source.open(&mut Waiter::new().unwrap()).unwrap();
    let mut seen = 0;
    let mut ingest_ns = 0;
    while seen < 991 {
        let SourcePoll::Rows(rows) = source.poll().unwrap() else {
            panic!("rows that were read before are not paced");
        };
        seen += rows.batch.num_rows();
        ingest_ns = rows.ingest_ns;
    }
    assert_eq!(seen, 991, "the pace begins with the first new row");
    let SourcePoll::NotBefore { time_ns } = source.poll().unwrap() else {
        panic!("the second new row is due a minute later");
    };
    assert_eq!(time_ns - ingest_ns, 60_000_000_000);
    assert_eq!(source.bookmark(0), None);
}

#[test]
fn rows_that_are_held_are_not_before_the_bookmark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    fs::write(&path, "one\ntwo\nthree\n").unwrap();
    let table = raw(&path, &[("replay_rate", "1/min")]);
    let mut source = crate::source(&table)
        .unwrap()
        .source(request(&[0]))
        .unwrap();
    source.open(&mut Waiter::new().unwrap()).unwrap();
    assert!(matches!(source.poll().unwrap(), SourcePoll::Rows(_)));
    let bookmark = source.bookmark(0);
    assert!(bookmark.as_ref().unwrap().contains("\"offset\":4"));
    assert!(matches!(
        source.poll().unwrap(),
        SourcePoll::NotBefore { .. }
    ));
    assert_eq!(source.bookmark(0), bookmark);
}

#[test]
fn files_that_have_changed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let error = |text: &str, bookmark: Option<&str>| {
        fs::write(&path, text).unwrap();
        let request = going_on(&path, 3, bookmark);
        let mut source = crate::source(&raw(&path, &[]))
            .unwrap()
            .source(request)
            .unwrap();
        let opened = source.open(&mut Waiter::new().unwrap());
        let error = opened.and_then(|_| {
            while !matches!(source.poll()?, SourcePoll::End) {}
            Ok(())
        });
        let error = error.unwrap_err();
        assert_eq!(error.place, path.display().to_string());
        assert_ne!(error.hint, "");
        error.reason
    };
    let mark = Some(r#"{"offset":8,"line":3}"#);
    let reason = error("one\n", mark);
    assert_eq!(reason, "has 4 bytes, but 8 of it were read before");
    let reason = error("one and two\n", mark);
    assert!(reason.contains("no line ends at byte 8"), "{reason}");
    let reason = error("one\n", None);
    assert_eq!(
        reason,
        "ends after line 1, but was read up to line 2 before"
    );
    for broken in [
        "",
        "7",
        r#"{"offset":8,"line":0}"#,
        r#"{"offset":1,"line":9}"#,
    ] {
        let reason = error("one\ntwo\nthree\n", Some(broken));
        assert!(reason.contains("can't be read"), "{reason}");
    }
    let gone = going_on(&folder.path().join("gone"), 3, mark);
    let error = crate::source(&raw(&path, &[])).unwrap().source(gone);
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("gone: was read up to line 2 and is no longer among the files (put"),
        "{error}"
    );
}

#[test]
fn a_file_that_was_read_to_the_end_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    fs::write(&path, "one\n").unwrap();
    let connector = crate::source(&raw(&path, &[])).unwrap();
    fs::remove_file(&path).unwrap();
    let mut request = going_on(&path, 2, None);
    let mut known = request.resume.to_vec();
    known[0].ended = true;
    request.resume = known.into();
    let mut source = connector.source(request).unwrap();
    let opened = source.open(&mut Waiter::new().unwrap()).unwrap();
    assert_eq!(opened, [(0, path.display().to_string())]);
    assert!(matches!(
        source.poll().unwrap(),
        SourcePoll::PartitionEnded { partition: 0 }
    ));
    assert!(matches!(source.poll().unwrap(), SourcePoll::End));
}
