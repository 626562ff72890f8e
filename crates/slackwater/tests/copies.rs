//! Copies of a query on NUMA nodes (`SET 'copies'`): one answer comes out, whatever is copied, and `explain`
//! says what is.

use crate::placement::two_nodes;
use crate::process::Folder;

const TABLES: &str = "
CREATE TABLE t (ms BIGINT, k STRING, n BIGINT, x DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'file', 'path' = 'in-*.csv');
";

/// HiBench's fixed window: the number of rows and the first time, by key.
const WINDOWS: &str = "
CREATE TABLE o (at TIMESTAMP(3), k STRING, n BIGINT, first_at TIMESTAMP(3), most BIGINT) WITH (
  'connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT window_start, k, COUNT(*), MIN(ts), MAX(n) FILTER (WHERE n > 5)
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND) GROUP BY window_start, window_end, k;";

/// Without keys and windows, at the end: one row.
const TOTAL: &str = "
SET 'emit' = 'final';
CREATE TABLE o (n BIGINT, keys BIGINT) WITH (
  'connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT SUM(n), COUNT(DISTINCT k) FROM t;";

/// A running count by key; only the last row of a key is an answer.
const RUNNING: &str = "
SET 'emit' = 'every_row';
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT k, COUNT(*) FROM t GROUP BY k;";

/// Rows that are only filtered.
const FILTERED: &str = "
SET 'order' = 'none';
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT k, n FROM t WHERE n % 3 = 0;";

/// Five files of 3,000 rows over 40 keys and 6 seconds; one of them has no rows of the last three.
fn folder() -> Folder {
    let folder = Folder::new();
    for file in 0..5 {
        let rows = (0..3_000).filter(|row| file != 3 || *row < 1_500);
        let rows = rows.map(|row| {
            format!(
                "{},k{},{},{}.5\n",
                row * 2,
                (row * 7 + file) % 40,
                row % 11,
                file
            )
        });
        let rows = rows.collect::<String>();
        folder.write(&format!("in-{file}.csv"), rows.as_bytes());
    }
    if let Some(machine) = two_nodes() {
        folder.write("machine.json", machine.as_bytes());
    }
    folder
}

const ON_TWO_NODES: [&str; 2] = ["--topology", "machine.json"];

fn answer(folder: &Folder, query: &str) -> Vec<String> {
    let rows = folder.sorted("out.csv");
    match query == RUNNING {
        true => crate::support::last_per_key(&rows, ','),
        false => rows,
    }
}

#[test]
fn copies_give_the_answer_of_one_query() {
    let folder = folder();
    if two_nodes().is_none() {
        return;
    }
    let settings: &[&[&str]] = &[
        &["--set", "copies=none", "--parallelism", "2"],
        &["--set", "copies=nodes"],
        &[
            "--set",
            "copies=nodes",
            "--parallelism",
            "6",
            "--set",
            "chunk_rows=97",
        ],
        &[
            "--set",
            "copies=nodes",
            "--processes",
            "nodes",
            "--set",
            "link=shm",
        ],
        &[
            "--set",
            "copies=nodes",
            "--processes",
            "2",
            "--set",
            "link=tcp",
            "--parallelism",
            "4",
        ],
        &[
            "--set",
            "copies=nodes",
            "--set",
            "rebalance=shuffle",
            "--set",
            "chunk_rows=31",
        ],
        &[
            "--set",
            "copies=nodes",
            "--set",
            "placement=os",
            "--set",
            "latency_target=20 ms",
        ],
        &["--set", "copies=nodes", "--set", "two_phase=off"],
        &[
            "--set",
            "copies=nodes",
            "--state",
            "state",
            "--from-scratch",
            "--set",
            "checkpoint_interval=5 ms",
        ],
    ];
    for (query, first_phases) in [
        (WINDOWS, true),
        (TOTAL, true),
        (RUNNING, false),
        (FILTERED, false),
    ] {
        let text = format!("{TABLES}{query}");
        folder.run(&text, &[]).ok();
        let expected = answer(&folder, query);
        assert!(!expected.is_empty());
        let balanced: &[&str] = &["--set", "copies=nodes", "--set", "balancer=round_robin"];
        let more = (query == FILTERED).then_some(balanced);
        for arguments in settings.iter().copied().chain(more) {
            if query == RUNNING && arguments.contains(&"rebalance=shuffle") {
                continue;
            }
            let run = [&ON_TWO_NODES[..], arguments].concat();
            folder.run(&text, &run).ok();
            assert_eq!(answer(&folder, query), expected, "{arguments:?}\n{query}");
            let report = folder.json("report.json");
            assert_eq!(
                (&report["rows_late"], &report["rows_bad"]),
                (&0.into(), &0.into())
            );
            let copies = &report["plan"]["copies"];
            if arguments.contains(&"copies=none") {
                assert!(copies.is_null(), "{copies}");
                continue;
            }
            assert_eq!(copies["copies"], 2, "{copies}");
            let first = copies["first_phases"].as_array().unwrap().len();
            let is_off = arguments.contains(&"two_phase=off");
            assert_eq!(first, usize::from(first_phases && !is_off), "{copies}");
        }
    }
}

/// The bytes that links between the processes of the last run carried.
fn bytes_sent(folder: &Folder) -> u64 {
    let report = folder.json("report.json");
    let links = report["plan"]["remote_links"].as_array().unwrap().clone();
    assert!(!links.is_empty());
    links
        .iter()
        .map(|link| link["send"]["bytes"].as_u64().unwrap())
        .sum()
}

#[test]
fn groups_and_not_rows_go_between_nodes() {
    let folder = folder();
    if two_nodes().is_none() {
        return;
    }
    let text = format!("{TABLES}{WINDOWS}");
    let mut bytes = Vec::new();
    for copies in ["copies=none", "copies=nodes"] {
        let arguments = [
            "--processes",
            "nodes",
            "--parallelism",
            "2",
            "--set",
            copies,
        ];
        folder
            .run(&text, &[&ON_TWO_NODES[..], &arguments].concat())
            .ok();
        bytes.push(bytes_sent(&folder));
    }
    // 13,500 rows, or two times at most 40 groups of 3 windows.
    assert!(bytes[1] * 5 < bytes[0], "{bytes:?}");
}

#[test]
fn explain_says_what_is_copied() {
    let folder = folder();
    let explain = |query: &str, arguments: &[&str]| {
        folder.write("query.sql", format!("{TABLES}{query}").as_bytes());
        let all = [
            "explain",
            "query.sql",
            "--topology",
            "bullion-s16",
            "--set",
            "copies=nodes",
        ];
        folder.slackwater(&[&all, arguments].concat()).ok().out
    };
    let contains = |text: &str, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
    };
    // The machine has 16 nodes, and the table five partitions.
    let text = explain(WINDOWS, &[]);
    contains(
        &text,
        &[
            "Copies: 16, one on each NUMA node",
            "  each: source #0, ",
            "  each: the first phase of aggregate #",
            "  one for all: aggregate #",
            "worker 15 (core 270 of node 15): ",
        ],
    );
    let text = explain(RUNNING, &[]);
    contains(&text, &["gets all rows: it can't be done in two phases"]);
    let changes = RUNNING.replace("SET 'emit' = 'every_row';", "");
    let text = explain(&changes, &[]);
    contains(
        &text,
        &["gets all rows: it emits before its input or window has ended"],
    );
    let text = explain(WINDOWS, &["--set", "two_phase=off"]);
    contains(&text, &["gets all rows: 'two_phase' is 'off'"]);
    let floats = WINDOWS.replace("MAX(n) FILTER (WHERE n > 5)", "CAST(SUM(x) AS BIGINT)");
    contains(&explain(&floats, &[]), &["SET 'two_phase' = 'on' permits"]);
    let permitted = explain(&floats, &["--set", "two_phase=on"]);
    contains(&permitted, &["  each: the first phase of aggregate #"]);
    let text = explain(FILTERED, &["--set", "placement=os"]);
    contains(
        &text,
        &["note: threads are not pinned: the kernel decides where each copy runs"],
    );
    let hosts = [
        "explain",
        "query.sql",
        "--hosts",
        "2",
        "--set",
        "copies=hosts",
    ];
    folder.write("query.sql", format!("{TABLES}{WINDOWS}").as_bytes());
    let text = folder.slackwater(&hosts).ok().out;
    contains(
        &text,
        &[
            "Copies: 2, one on each host",
            "  each: the first phase of aggregate #",
        ],
    );
    let json = explain(WINDOWS, &["--format", "json"]);
    let json = serde_json::from_str::<serde_json::Value>(&json).unwrap();
    let copies = &json["copies"];
    assert_eq!(
        (&copies["copies"], &copies["places"]),
        (&16.into(), &"nodes".into())
    );
    let bytes = [&copies["bytes_between"], &copies["bytes_between_without"]];
    assert!(
        bytes.iter().all(|bytes| bytes.as_f64().is_some()),
        "{copies}"
    );
}

#[test]
fn what_has_no_effect_or_can_t_be_is_said() {
    let folder = folder();
    let text = format!("{TABLES}{WINDOWS}");
    folder.write("query.sql", text.as_bytes());
    let explain = ["explain", "query.sql", "--set"];
    let here = slackwater_engine::link::allowed_cores();
    assert!(!here.is_empty());
    let out = folder
        .slackwater(&[&explain[..], &["copies=hosts"]].concat())
        .ok()
        .out;
    assert!(
        out.contains("note: 'copies' = 'hosts' has no effect: the query runs on one host"),
        "{out}"
    );
    let bullion = ["--topology", "bullion-s16"];
    let odd = [&explain[..], &["copies=nodes", "--workers", "24"], &bullion].concat();
    folder.slackwater(&odd).fails(
        2,
        &[
            "'copies' = 'nodes': 24 workers can't be divided among 16 nodes",
            "--workers 32",
        ],
    );
    folder
        .slackwater(&[&explain[..], &["copies=both"]].concat())
        .fails(
            2,
            &[
                "'both' is not a valid value of 'copies'",
                "'none', 'nodes' or 'hosts'",
            ],
        );
    let one = text.replace("in-*.csv", "in-0.csv");
    folder.write("query.sql", one.as_bytes());
    let out = folder
        .slackwater(&[&explain[..], &["copies=nodes"], &bullion].concat())
        .ok()
        .out;
    let note = "note: 'copies' has no effect: no source has more than one partition";
    assert!(out.contains(note), "{out}");
    assert!(!out.contains("Copies: "), "{out}");
}
