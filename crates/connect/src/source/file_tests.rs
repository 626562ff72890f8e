//! The file source through the public entry point.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_schema::DataType;
use flate2::Compression;
use flate2::write::GzEncoder;
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{SourcePoll, SourceRequest, Tuning};
use slackwater_engine::time::now_ns;

use super::tests::{Drained, read_all, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

fn lines(path: &Path, options: &[(&str, &str)]) -> TableDefinition {
    let path = path.to_str().unwrap();
    let options = [
        &[("connector", "file"), ("format", "raw"), ("path", path)],
        options,
    ]
    .concat();
    table(&[("line", DataType::Utf8View)], &options)
}

fn read(table: &TableDefinition, request: SourceRequest) -> Drained {
    let mut source = crate::source(table).unwrap().source(request).unwrap();
    read_all(&mut *source)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn numbered(count: usize) -> String {
    (0..count)
        .map(|line| format!("line {line} of the file\n"))
        .collect()
}

#[test]
fn files_of_a_glob_are_partitions_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("b.txt", "b1\nb2\nb3"),
        ("a.txt", "a1\na2\n"),
        ("c.txt", ""),
        ("d", "no\n"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::create_dir(folder.path().join("folder.txt")).unwrap();
    let table = lines(&folder.path().join("*.txt"), &[]);
    let connector = crate::source(&table).unwrap();
    let description = connector.describe();
    assert_eq!(
        (description.max_instances, description.total_bytes),
        (3, Some(14))
    );
    let mut request = request(&[0]);
    request.tuning = Arc::new(Tuning::new(0, 1));
    let bytes_read = request.bytes_read.clone();
    let drained = read(&table, request.clone());
    assert_eq!(
        drained.strings,
        ["0:1:a1", "1:1:b1", "0:2:a2", "1:2:b2", "1:3:b3"]
    );
    assert_eq!(drained.ended, [2, 0, 1]);
    assert_eq!(bytes_read.load(Ordering::Relaxed), 14);

    let mut shared = vec![];
    for instance in 0..2 {
        let part = SourceRequest {
            instance,
            instances: 2,
            ..request.clone()
        };
        shared.push(read(&table, part).strings);
    }
    assert_eq!(shared[0], ["0:1:a1", "0:2:a2"]);
    assert_eq!(shared[1], ["1:1:b1", "1:2:b2", "1:3:b3"]);
    let idle = SourceRequest {
        instance: 7,
        instances: 8,
        ..request
    };
    assert_eq!(read(&table, idle).strings.len(), 0);
}

#[test]
fn a_unit_of_work_per_file_reads_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(folder.path().join(name), format!("{name}1\n{name}2\n")).unwrap();
    }
    let table = lines(&folder.path().join("[abc]"), &[("unit_of_work", "file")]);
    let connector = crate::source(&table).unwrap();
    assert_eq!(connector.describe().max_instances, 1);
    let request = SourceRequest {
        tuning: Arc::new(Tuning::new(0, 1)),
        unit_per_partition: true,
        ..request(&[0])
    };
    let mut source = connector.source(request).unwrap();
    let opened = source.open(&mut Waiter::new().unwrap()).unwrap();
    assert_eq!(opened.len(), 1);
    let mut said = vec![];
    loop {
        said.push(match source.poll().unwrap() {
            SourcePoll::Rows(rows) => format!("row of {}", rows.partition),
            SourcePoll::PartitionStarted { partition, .. } => format!("start {partition}"),
            SourcePoll::PartitionEnded { partition } => format!("end {partition}"),
            SourcePoll::EndOfWork => "unit".into(),
            SourcePoll::End => break,
            SourcePoll::Pending | SourcePoll::NotBefore { .. } | SourcePoll::ConnectionLost => {
                panic!("a file never waits")
            }
        });
    }
    let unit = |n| {
        vec![
            format!("row of {n}"),
            format!("row of {n}"),
            format!("end {n}"),
            "unit".into(),
        ]
    };
    let start = |n| vec![format!("start {n}")];
    assert_eq!(
        said,
        [unit(0), start(1), unit(1), start(2), unit(2)].concat()
    );
}

#[test]
fn gzip_is_decompressed_and_members_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.gz");
    let packed = [gzip(b"one\ntwo\nthr"), gzip(b"ee\nfour")].concat();
    fs::write(&path, &packed).unwrap();
    let request = request(&[0]);
    let bytes_read = request.bytes_read.clone();
    let drained = read(&lines(&path, &[]), request);
    assert_eq!(
        drained.strings,
        ["0:1:one", "0:2:two", "0:3:three", "0:4:four"]
    );
    assert_eq!(
        bytes_read.load(Ordering::Relaxed),
        packed.len() as u64,
        "compressed bytes count"
    );
}

#[test]
fn truncated_gzip_yields_its_rows_and_then_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.gz");
    let packed = gzip(numbered(100_000).as_bytes());
    fs::write(&path, &packed[..packed.len() / 2]).unwrap();
    let mut source = crate::source(&lines(&path, &[]))
        .unwrap()
        .source(request(&[0]))
        .unwrap();
    source.open(&mut Waiter::new().unwrap()).unwrap();
    let mut drained = Drained::default();
    let error = loop {
        match source.poll() {
            Ok(poll) => assert!(!drained.take(poll), "it must not look complete"),
            Err(error) => break error,
        }
    };
    let read = drained.strings.len();
    assert!((10_000..99_000).contains(&read), "{read}");
    let expected = format!(
        "{}:{read}: the gzip data ends early, after line {read} (the file was truncated: fetch it again)",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    fs::write(&path, b"this is no gzip").unwrap();
    let mut source = crate::source(&lines(&path, &[]))
        .unwrap()
        .source(request(&[0]))
        .unwrap();
    source.open(&mut Waiter::new().unwrap()).unwrap();
    let error = source.poll().err().unwrap();
    assert!(error.reason.contains("invalid gzip header"), "{error}");
}

/// The lines before the first error of a compressed file, and the error.
fn broken(path: &Path, packed: &[u8]) -> (usize, Option<slackwater_engine::Error>) {
    fs::write(path, packed).unwrap();
    let connector = crate::source(&lines(path, &[])).unwrap();
    let mut source = connector.source(request(&[0])).unwrap();
    source.open(&mut Waiter::new().unwrap()).unwrap();
    let mut drained = Drained::default();
    loop {
        match source.poll() {
            Ok(poll) => {
                if drained.take(poll) {
                    return (drained.strings.len(), None);
                }
            }
            Err(error) => return (drained.strings.len(), Some(error)),
        }
    }
}

#[test]
fn truncated_and_invalid_compressed_files_are_errors_after_the_lines_before() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["gz", "zst"] {
        let path = folder.path().join(format!("lines.{ending}"));
        let pack = |text: &str| match ending {
            "gz" => gzip(text.as_bytes()),
            _ => zstd::stream::encode_all(text.as_bytes(), 1).unwrap(),
        };
        let whole = pack(&numbered(50_000));
        // Wherever the file is truncated, this is noticed, and what can be decompressed is kept.
        for tenths in 1..10 {
            let (rows, error) = broken(&path, &whole[..whole.len() * tenths / 10]);
            let error = error.expect("it looks whole");
            assert_eq!(error.place, format!("{}:{rows}", path.display()));
            let wanted = format!("data ends early, after line {rows}");
            assert!(error.reason.contains(&wanted), "{error}");
            assert!(tenths < 5 || rows > 1_000, "{tenths}: {rows} rows");
        }
        let last = &whole[..whole.len() - 1];
        assert!(broken(&path, last).1.is_some(), "{ending}: the last byte");
        // A file that ends between two members may be complete.
        let two = [pack("a\nb\n"), pack("c\n")].concat();
        let (rows, error) = broken(&path, &two);
        assert!(rows == 3 && error.is_none(), "{ending}: {error:?}");
        for (bytes, kept) in [
            (
                &b"this is packed by nobody, and long enough for a header"[..],
                0,
            ),
            (&b"PK\x03\x04"[..], 0),
            (
                &[&two[..], b"and some text behind it, also rather long"].concat()[..],
                3,
            ),
        ] {
            let (rows, error) = broken(&path, bytes);
            let error = error.expect("it looks whole");
            assert_eq!(rows, kept, "{ending}: {error}");
            assert_eq!(error.place, format!("{}:{rows}", path.display()));
            let hints = ["fetch it again", "cut it off"];
            let has_hint = hints.iter().any(|hint| error.hint.contains(hint));
            assert!(has_hint, "{ending}: {error}");
        }
        // An empty file is not a compressed file; a compressed empty file is one.
        let error = broken(&path, b"").1.expect("it looks whole");
        assert!(error.reason.contains("ends early, after line 0"), "{error}");
        let (rows, error) = broken(&path, &pack(""));
        assert!(rows == 0 && error.is_none(), "{ending}: {error:?}");
    }
}

#[test]
fn replay_is_paced_and_stamped_with_deadlines() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), numbered(50)).unwrap();
    }
    let table = lines(&folder.path().join("?"), &[("replay_rate", "1000/s")]);
    let request = SourceRequest {
        tuning: Arc::new(Tuning::new(4_000_000, 1_000)),
        ..request(&[0])
    };
    let begin_ns = now_ns();
    let drained = read(&table, request);
    let took_ms = (now_ns() - begin_ns) / 1_000_000;
    assert_eq!(drained.strings.len(), 100);
    assert!(took_ms >= 99, "{took_ms} ms for 100 rows at 1000/s");
    // Five rows become due within a linger of 4 ms; on a busy host a chunk may have more.
    assert!(drained.chunks <= 20, "{} chunks", drained.chunks);
    let gaps = drained.ingest_ns.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(
        gaps.into_iter()
            .all(|gap_ns| gap_ns > 0 && gap_ns.is_multiple_of(1_000_000)),
        "{:?}",
        drained.ingest_ns
    );
}

#[test]
fn missing_files_and_wrong_paths_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| crate::source(&lines(path, &[])).err().unwrap().to_string();
    let text = error(&folder.path().join("missing.csv"));
    assert!(
        text.contains("can't find") && text.contains("missing.csv"),
        "{text}"
    );
    let text = error(folder.path());
    assert!(
        text.contains("is a folder") && text.contains("/*'"),
        "{text}"
    );
    let text = error(&folder.path().join("*.csv"));
    assert!(text.contains("no file matches"), "{text}");
    let text = error(&folder.path().join("[.csv"));
    assert!(text.contains("is not a valid pattern"), "{text}");
    let text = error(Path::new("/dev/null"));
    assert!(text.contains("not a regular file"), "{text}");
    let text = error(Path::new("nowhere/flights.csv"));
    assert!(text.contains("relative paths begin in /"), "{text}");
}

#[test]
fn a_file_that_goes_away_before_it_is_opened_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gone");
    fs::write(&path, "x").unwrap();
    let connector = crate::source(&lines(&path, &[])).unwrap();
    fs::remove_file(&path).unwrap();
    let mut source = connector.source(request(&[0])).unwrap();
    let error = source.open(&mut Waiter::new().unwrap()).unwrap_err();
    assert!(error.to_string().contains("can't open the file"), "{error}");
}
