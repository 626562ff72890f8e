//! One partition that several threads parse: the rows, what is late, what is bad and where it stood are
//! those of one thread (I1, I2), also after a kill at another parallelism (I6).

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use slackwater::report::Report;

use crate::crash::{Trial, compare, parts, start};
use crate::process::Folder;
use crate::support::{Seeded, run_text};

/// Records of an input: over 1 MB, three blocks or more.
const RECORDS: u64 = 14_000;

/// How long an undisturbed run with a pace takes.
const RUN_S: f64 = 1.0;

/// CSV or lines of JSON: out of order, with line ends in quoted fields, and bad records.
fn input(is_json: bool, seeded: &mut Seeded) -> String {
    let mut text = String::new();
    for record in 0..RECORDS {
        let ms = 1_700_000_000_000 + record * 10 + seeded.below(900);
        let key = seeded.below(50);
        let padding = "x".repeat(seeded.below(90) as usize);
        let kind = seeded.below(100);
        match (is_json, kind) {
            (_, 0) => text.push_str("this is not a record\n"),
            (_, 1) => text.push('\n'),
            (true, 2) => writeln!(text, r#"{{"ms":"soon","k":"k{key}","v":{record}}}"#).unwrap(),
            (true, 3) => writeln!(text, r#"{{"k":"k{key}","ms":{ms}}}"#).unwrap(),
            (true, _) => {
                let line = format!(r#"{{"ms":{ms},"k":"k{key}","note":"{padding}","v":{record}}}"#);
                writeln!(text, "{line}").unwrap();
            }
            (false, 2) => writeln!(text, "soon,k{key},,{record}").unwrap(),
            (false, 3..20) => {
                writeln!(
                    text,
                    "{ms},k{key},\"{padding}\n1,\"\"2\"\",\n3,4\",{record}"
                )
                .unwrap();
            }
            (false, _) => writeln!(text, "{ms},k{key},{padding},{record}").unwrap(),
        }
    }
    text
}

/// A query of late rows, of rows that are not, and of windows.
fn query(format: &str, folder: &Path, options: &str, out_options: &str) -> String {
    let file = format!("'connector' = 'file', 'path' = '{}/in'", folder.display());
    query_of(&file, format, folder, options, out_options)
}

/// The same over another source.
fn query_of(source: &str, format: &str, folder: &Path, options: &str, out_options: &str) -> String {
    let folder = folder.display();
    let out =
        |name: &str| format!("WITH ('connector' = 'file', 'path' = '{folder}/{name}{out_options})");
    format!(
        "CREATE TABLE t (ms BIGINT, k STRING, note STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
           WATERMARK FOR ts AS ts - INTERVAL '0.5' SECOND)
         WITH ({source}, 'format' = '{format}',
           'dead_letter' = '{folder}/bad.jsonl'{options});
         CREATE TABLE windows (start TIMESTAMP(3), k STRING, n BIGINT, s BIGINT, l STRING) {};
         CREATE TABLE plain (k STRING, v BIGINT, l INT) {};
         INSERT INTO windows SELECT window_start, k, COUNT(*), SUM(v), MAX(note)
           FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end, k;
         INSERT INTO plain SELECT k, v, CHAR_LENGTH(note) FROM t WHERE v % 3 <> 1;",
        out("windows"),
        out("plain"),
    )
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(str::to_string).collect()
}

/// What a run has counted and written.
#[derive(Debug, PartialEq)]
struct Written {
    counted: [u64; 3],
    windows: Vec<String>,
    /// In the order of the file.
    plain: Vec<String>,
    bad: Vec<String>,
}

fn written(report: &Report, folder: &Path) -> Written {
    let counted = [report.rows_in, report.rows_late, report.rows_bad];
    read_back(counted, folder)
}

fn read_back(counted: [u64; 3], folder: &Path) -> Written {
    let [windows, plain, bad] = ["windows.csv", "plain.csv", "bad.jsonl"].map(|name| {
        let path = folder.join(name);
        let rows = lines(&path);
        std::fs::remove_file(path).unwrap();
        rows
    });
    let mut windows = windows;
    windows.sort();
    Written {
        counted,
        windows,
        plain,
        bad,
    }
}

#[test]
fn a_file_that_several_threads_parse_has_the_same_rows_late_rows_and_dead_letters() {
    let mut seeded = Seeded(41);
    for format in ["csv", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let text = input(format == "json", &mut seeded);
        std::fs::write(folder.path().join("in"), text).unwrap();
        let sql = query(format, folder.path(), "", ".csv'");
        let run = |settings: &[(&str, &str)]| {
            let report = run_text(&sql, settings).unwrap();
            written(&report, folder.path())
        };
        let one = run(&[("parallelism", "1")]);
        let [_, late, bad] = one.counted;
        assert!(
            late > 500 && bad > 200 && one.bad.len() == bad as usize,
            "{:?}",
            one.counted
        );
        for _ in 0..4 {
            let [parallelism, parsers, chunk_rows] = [
                1 + seeded.below(3),
                2 + seeded.below(4),
                100 + seeded.below(5_000),
            ]
            .map(|number| number.to_string());
            let settings = [
                ("parallelism", parallelism.as_str()),
                ("parsers", parsers.as_str()),
                ("chunk_rows", chunk_rows.as_str()),
            ];
            let several = run(&settings);
            assert!(
                several == one,
                "{format}, {settings:?}: {:?} {:?}",
                several.counted,
                one.counted
            );
        }
    }
}

/// Sends bytes to whoever connects first, in pieces of random size.
fn serve(bytes: Vec<u8>, mut seeded: Seeded) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = rest.len().min(1 + seeded.below(300_000) as usize);
            peer.write_all(&rest[..length]).unwrap();
            rest = &rest[length..];
        }
    });
    (address, thread)
}

/// Rejected records without the name of their partition.
fn without_place(bad: &[String]) -> Vec<serde_json::Value> {
    let parsed = bad.iter().map(|line| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap();
        let place = fields.remove("place").unwrap();
        let position = place.as_str().unwrap().rsplit_once(':').unwrap().1;
        fields.insert("position".into(), position.into());
        record
    });
    parsed.collect()
}

#[test]
fn streams_that_several_threads_parse_have_the_rows_of_a_file() {
    let mut seeded = Seeded(47);
    for format in ["csv", "json"] {
        let folder = Folder::new();
        let place = folder.path("");
        let text = input(format == "json", &mut seeded);
        std::fs::write(folder.path("in"), &text).unwrap();
        let sql = query(format, &place, "", ".csv'");
        let one = run_text(&sql, &[("parallelism", "1")]).unwrap();
        let mut one = written(&one, &place);
        let bad = without_place(&std::mem::take(&mut one.bad));
        let same = |what: &str, mut other: Written| {
            assert_eq!(
                without_place(&std::mem::take(&mut other.bad)),
                bad,
                "{what}"
            );
            assert!(
                other == one,
                "{what}: {:?} {:?}",
                other.counted,
                one.counted
            );
        };
        for parsers in ["1", "2", "5"] {
            let chunk_rows = (100 + seeded.below(5_000)).to_string();
            let (address, thread) = serve(text.clone().into_bytes(), Seeded(seeded.below(1 << 40)));
            let source =
                format!("'connector' = 'tcp', 'mode' = 'connect', 'address' = '{address}'");
            let sql = query_of(&source, format, &place, "", ".csv'");
            let settings = [("parsers", parsers), ("chunk_rows", chunk_rows.as_str())];
            let report = run_text(&sql, &settings).unwrap();
            thread.join().unwrap();
            let what = format!("tcp, {format}, {settings:?}");
            same(&what, written(&report, &place));

            let sql = query_of("'connector' = 'stdin'", format, &place, "", ".csv'");
            folder.write("query.sql", sql.as_bytes());
            let [parsers, chunk_rows] = settings.map(|(key, value)| format!("--set={key}={value}"));
            let arguments = [
                "run",
                "query.sql",
                "--report",
                "report.json",
                &parsers,
                &chunk_rows,
            ];
            folder
                .slackwater_with_input(&arguments, text.as_bytes())
                .ok();
            let report = folder.json("report.json");
            let counted = ["rows_in", "rows_late", "rows_bad"];
            let counted = counted.map(|name| report[name].as_u64().unwrap());
            same(&format!("stdin, {format}"), read_back(counted, &place));
        }
    }
}

#[test]
fn a_file_that_several_threads_parse_is_resumed_at_another_parallelism() {
    let mut seeded = Seeded(43);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), input(false, &mut seeded)).unwrap();
    let of = |folder: &Path| {
        ["windows", "plain"].map(|name| {
            let parts = parts(&folder.join(name)).into_iter();
            let mut rows = parts.flat_map(|part| lines(&part)).collect::<Vec<String>>();
            rows.sort();
            rows
        })
    };
    let kept = "', 'overwrite' = 'false'";
    let whole = folder.path().join("whole");
    std::fs::create_dir(&whole).unwrap();
    let pace = format!(", 'replay_rate' = '{:.0}'", RECORDS as f64 / RUN_S);
    let at = |place: &Path, pace: &str| {
        let sql = query("csv", folder.path(), pace, kept);
        let out = |name: &str| format!("{}/{name}'", place.display());
        let of_folder = |name: &str| format!("{}/{name}'", folder.path().display());
        let sql = ["windows", "plain"]
            .iter()
            .fold(sql, |sql, name| sql.replace(&of_folder(name), &out(name)));
        let path = place.join("query.sql");
        std::fs::write(&path, sql).unwrap();
        path
    };
    let ran = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .arg("run")
        .arg(at(&whole, ""))
        .args(["--quiet", "--state", "state"])
        .current_dir(&whole)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let expected = of(&whole);
    assert!(expected.iter().all(|rows| rows.len() > 1_000));
    for round in 0..2 {
        let place = folder.path().join(format!("round{round}"));
        std::fs::create_dir(&place).unwrap();
        let query = at(&place, &pace);
        let trial = Trial {
            title: format!("round {round}"),
            kills_max: 3,
            run_s: RUN_S,
            patience: Duration::from_secs(60),
        };
        let intervals = ["20 ms", "50 ms", "100 ms"];
        let start = |seeded: &mut Seeded| start(&query, &place, &intervals, false, seeded);
        let ran = trial.run(&mut seeded, start, |_, _| None);
        assert!(ran.parents + ran.workers > 0, "{}", ran.log);
        for (found, expected) in of(&place).into_iter().zip(&expected) {
            compare(&trial.title, found, expected, &ran.log);
        }
    }
}
