//! The kafka source and sink against a real broker: `make test-kafka` fetches and starts one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use slackwater::report::Report;
use slackwater::run::{Outcome, RunOptions, run};

use crate::support::{Seeded, run_text};
use broker::{Broker, jars};

mod broker;
mod crash;
mod driver;
mod resume;
mod transactions;

/// The rows of a file, sorted.
fn rows(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut rows = text.lines().map(str::to_string).collect::<Vec<_>>();
    rows.sort();
    rows
}

fn table(broker: &Broker, name: &str, columns: &str, topic: &str, options: &str) -> String {
    let address = broker.address();
    format!(
        "CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', \
         'properties.bootstrap.servers' = '{address}' {options});\n"
    )
}

const BOUNDED: &str = ", 'scan.bounded.mode' = 'latest-offset'";

fn out(columns: &str, path: &Path) -> String {
    let path = path.display();
    format!(
        "CREATE TABLE o ({columns}) WITH ('connector' = 'file', 'path' = '{path}', \
         'overwrite' = 'true');\n"
    )
}

/// Rows of a bounded read of one STRING column.
fn read_back(broker: &Broker, topic: &str, options: &str, folder: &Path) -> Vec<String> {
    let path = folder.join(format!("{topic}.read.csv"));
    let columns = "line STRING";
    let text = table(
        broker,
        "t",
        columns,
        topic,
        &format!("{BOUNDED}, 'format' = 'raw' {options}"),
    ) + &out(columns, &path)
        + "INSERT INTO o SELECT line FROM t;";
    run_text(&text, &[]).unwrap();
    rows(&path)
}

/// `partition,number` for a partition, as lines.
fn numbered(partition: usize, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers
        .map(|number| format!("{partition}-{number}"))
        .collect()
}

fn bytes(lines: &[String]) -> impl Iterator<Item = &[u8]> {
    lines.iter().map(|line| line.as_bytes())
}

#[test]
fn against_a_broker() {
    let Some(jars) = jars() else {
        return;
    };
    let mut broker = Broker::start(jars);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    a_record_is_read_as_it_was_written(&broker, folder);
    windows_are_those_of_files(&broker, folder);
    begins_where_it_is_told(&broker, folder);
    bad_records_are_kept(&broker, folder);
    metadata_are_columns(&broker, folder);
    a_primary_key_replaces_and_removes(&broker, folder);
    compressed_topics_are_read(&broker, folder);
    what_is_wrong_is_said(&broker, folder);
    new_partitions_are_found(&broker, folder);
    nothing_is_lost_when_the_broker_dies_while_it_is_read(&mut broker, folder);
    nothing_is_lost_when_the_broker_dies_while_it_is_written(&mut broker, folder);
}

/// Sources and sinks as a query with checkpoints uses them.
#[test]
fn checkpoints_against_a_broker() {
    let Some(jars) = jars() else {
        return;
    };
    let mut broker = Broker::start(jars);
    resume::sources_go_on(&broker);
    transactions::sinks_deliver_once(&broker);
    transactions::a_broker_that_restarts(&mut broker);
}

/// Through a producer's queue that is far too small, as JSON, with a key.
fn a_record_is_read_as_it_was_written(broker: &Broker, folder: &Path) {
    broker.create_topic("written", 3);
    let input = folder.join("written.csv");
    let lines = (0..50_000).map(|n| format!("{},\"text, {n}\",{}.5\n", n % 997, n));
    fs::write(&input, lines.collect::<String>()).unwrap();
    let columns = "k INT, s STRING, v DOUBLE";
    // Several instances may write only so.
    let small = ", 'format' = 'json', 'key.fields' = 'k', 'key.format' = 'csv', \
                 'delivery' = 'at_least_once', \
                 'properties.queue.buffering.max.messages' = '500'";
    for parallelism in ["1", "2"] {
        let topic = format!("written{parallelism}");
        broker.create_topic(&topic, 3);
        let text = format!(
            "CREATE TABLE i ({columns}) WITH ('connector' = 'file', 'path' = '{}');\n",
            input.display()
        ) + &table(broker, "w", columns, &topic, small)
            + "INSERT INTO w SELECT * FROM i;";
        let report = run_text(&text, &[("parallelism", parallelism)]).unwrap();
        assert_eq!(report.rows_out, 50_000);
        let path = folder.join("read.csv");
        let options = format!("{BOUNDED}, 'format' = 'json'");
        let text = table(broker, "r", columns, &topic, &options)
            + &out(columns, &path)
            + "INSERT INTO o SELECT * FROM r;";
        let report = run_text(&text, &[("parallelism", parallelism)]).unwrap();
        assert_eq!((report.rows_in, report.rows_bad), (50_000, 0));
        assert_eq!(rows(&path), rows(&input));
    }
}

/// Partitions with disorder and late rows: the same as files with the same rows.
fn windows_are_those_of_files(broker: &Broker, folder: &Path) {
    broker.create_topic("windows", 3);
    let mut seeded = Seeded(7);
    for partition in 0..3 {
        let mut lines = vec![];
        for row in 0..20_000u64 {
            // Out of order by up to 8 s, of which 3 s are allowed.
            let second = (row / 20 + 8).saturating_sub(seeded.below(8)) + partition * 5;
            let (minute, second) = (second / 60, second % 60);
            let key = seeded.below(13);
            lines.push(format!("{key},2026-01-01 00:{minute:02}:{second:02},{row}"));
        }
        fs::write(
            folder.join(format!("w{partition}.csv")),
            lines.join("\n") + "\n",
        )
        .unwrap();
        broker.produce("windows", partition as i32, bytes(&lines));
    }
    let columns = "k INT, ts TIMESTAMP(3), v BIGINT, \
                   WATERMARK FOR ts AS ts - INTERVAL '3' SECOND";
    let query = "INSERT INTO o SELECT window_start, k, COUNT(*), SUM(v) \
                 FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND) \
                 GROUP BY window_start, window_end, k;";
    let result = folder.join("windows.csv");
    let sink = out("w TIMESTAMP(3), k INT, n BIGINT, s BIGINT", &result);
    let answer = |source: &str, parallelism: &str| -> (Vec<String>, Report) {
        let text = format!("{source}{sink}{query}");
        let report = run_text(&text, &[("parallelism", parallelism)]).unwrap();
        (rows(&result), report)
    };
    let files = format!(
        "CREATE TABLE t ({columns}) WITH ('connector' = 'file', 'path' = '{}/w?.csv');\n",
        folder.display()
    );
    let (expected, of_files) = answer(&files, "1");
    assert!(expected.len() > 1_000 && of_files.rows_late > 1_000);
    let topic = table(broker, "t", columns, "windows", BOUNDED);
    for parallelism in ["1", "2", "3"] {
        let (found, report) = answer(&topic, parallelism);
        assert_eq!(found, expected, "at parallelism {parallelism}");
        assert_eq!(
            (report.rows_in, report.rows_late),
            (60_000, of_files.rows_late)
        );
    }
}

fn begins_where_it_is_told(broker: &Broker, folder: &Path) {
    broker.create_topic("begins", 2);
    for partition in 0..2 {
        broker.produce(
            "begins",
            partition as i32,
            bytes(&numbered(partition, 0..10)),
        );
    }
    let named = ", 'scan.startup.mode' = 'specific-offsets', \
                 'scan.startup.specific-offsets' = 'partition:0,offset:8;partition:1,offset:9'";
    assert_eq!(
        read_back(broker, "begins", named, folder),
        ["0-8", "0-9", "1-9"]
    );
    let first = ", 'scan.startup.mode' = 'specific-offsets', \
                 'scan.startup.specific-offsets' = 'partition:0,offset:10'";
    assert_eq!(read_back(broker, "begins", first, folder).len(), 10);
    let time = |time: u64| {
        format!(", 'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '{time}'")
    };
    assert_eq!(read_back(broker, "begins", &time(1), folder).len(), 20);
    assert!(read_back(broker, "begins", &time(4_000_000_000_000), folder).is_empty());
    let latest = ", 'scan.startup.mode' = 'latest-offset'";
    assert!(read_back(broker, "begins", latest, folder).is_empty());
    assert_eq!(read_back(broker, "begins", "", folder).len(), 20);
    // Two topics are one table.
    broker.create_topic("begins2", 1);
    broker.produce("begins2", 0, bytes(&numbered(2, 0..5)));
    assert_eq!(read_back(broker, "begins;begins2", "", folder).len(), 25);
}

fn bad_records_are_kept(broker: &Broker, folder: &Path) {
    broker.create_topic("bad", 1);
    let messages = [
        "{\"a\": 1}",
        "{",
        "",
        "{\"a\":\n 2}",
        "{\"a\": \"x\"}",
        "{\"a\": 3}",
    ];
    broker.produce("bad", 0, messages.map(str::as_bytes));
    let (letters, path) = (folder.join("letters.jsonl"), folder.join("bad.csv"));
    let options = format!(
        "{BOUNDED}, 'format' = 'json', 'dead_letter' = '{}'",
        letters.display()
    );
    let text = table(broker, "t", "a INT", "bad", &options)
        + &out("a INT", &path)
        + "INSERT INTO o SELECT a FROM t;";
    let report = run_text(&text, &[]).unwrap();
    assert_eq!((report.rows_in, report.rows_bad), (5, 2));
    assert_eq!(rows(&path), ["1", "2", "3"]);
    let letters = fs::read_to_string(letters).unwrap();
    let places = letters.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["place"].as_str().unwrap().to_string()
    });
    assert_eq!(places.collect::<Vec<_>>(), ["bad[0]@1", "bad[0]@4"]);
    let failing = text.replace("'format'", "'on_error' = 'fail', 'format'");
    let error = run_text(&failing, &[]).unwrap_err();
    assert!(error.contains("bad[0]@1: "), "{error}");
}

fn metadata_are_columns(broker: &Broker, folder: &Path) {
    broker.create_topic("meta", 1);
    let input = folder.join("meta.csv");
    fs::write(&input, "1,x\n2,y\n,\n").unwrap();
    let columns = "a INT, s STRING";
    let keyed = ", 'format' = 'json', 'key.fields' = 's;a', 'key.format' = 'csv'";
    let text = format!(
        "CREATE TABLE i ({columns}) WITH ('connector' = 'file', 'path' = '{}');\n",
        input.display()
    ) + &table(broker, "w", columns, "meta", keyed)
        + "INSERT INTO w SELECT * FROM i;";
    run_text(&text, &[]).unwrap();
    broker.produce("meta", 0, ["{", "{\"a\": 4}"].map(str::as_bytes));
    let path = folder.join("meta.read.csv");
    let columns = "place BIGINT METADATA FROM 'offset', a INT, \
                   at TIMESTAMP(3) METADATA FROM 'timestamp', key STRING METADATA, \
                   topic STRING METADATA VIRTUAL, partition INT METADATA, s STRING, \
                   WATERMARK FOR at AS at";
    let text = table(
        broker,
        "t",
        columns,
        "meta",
        &format!("{BOUNDED}, 'format' = 'json'"),
    ) + &out(
        "o BIGINT, a INT, k STRING, s STRING, w STRING, recent BOOLEAN",
        &path,
    ) + "INSERT INTO o SELECT place, a, key, s, topic || '-' || CAST(partition AS STRING), \
           at > TIMESTAMP '2020-01-01 00:00:00' FROM t;";
    let report = run_text(&text, &[]).unwrap();
    assert_eq!((report.rows_in, report.rows_bad), (5, 1));
    let expected = [
        "0,1,\"x,1\",x,meta-0,true",
        "1,2,\"y,2\",y,meta-0,true",
        "2,,\",\",,meta-0,true",
        "4,4,,,meta-0,true",
    ];
    assert_eq!(rows(&path), expected);
    let error = |columns: &str| {
        run_text(
            &(table(broker, "t", columns, "meta", "") + "SELECT a FROM t;"),
            &[],
        )
        .unwrap_err()
    };
    let wrong = error("a INT, x INT METADATA FROM 'offset'");
    assert!(
        wrong.contains("declare x BIGINT METADATA FROM 'offset'"),
        "{wrong}"
    );
    let wrong = error("a INT, x INT METADATA FROM 'ofset'");
    assert!(
        wrong.contains("one of topic, partition, offset, timestamp, key"),
        "{wrong}"
    );
}

fn compressed_topics_are_read(broker: &Broker, folder: &Path) {
    let lines = numbered(0, 100..200);
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        broker.create_compressed_topic(codec, 1, codec);
        broker.produce(codec, 0, bytes(&lines));
        if codec == "zstd" && !cfg!(feature = "kafka-zstd") {
            let options = format!("{BOUNDED}, 'format' = 'raw'");
            let text = table(broker, "t", "line STRING", codec, &options) + "SELECT line FROM t;";
            let error = run_text(&text, &[]).unwrap_err();
            assert!(error.contains("--features kafka-zstd"), "{error}");
        } else {
            assert_eq!(read_back(broker, codec, "", folder), lines);
        }
    }
}

fn what_is_wrong_is_said(broker: &Broker, folder: &Path) {
    let select = "SELECT a FROM t;";
    let error = run_text(&(table(broker, "t", "a INT", "nosuch", "") + select), &[]);
    let error = error.unwrap_err();
    assert!(
        error.contains("there is no topic 'nosuch'") && error.contains("'topic'"),
        "{error}"
    );
    let input = folder.join("one.csv");
    fs::write(&input, "1\n").unwrap();
    let text = format!(
        "CREATE TABLE i (a INT) WITH ('connector' = 'file', 'path' = '{}');\n",
        input.display()
    ) + &table(broker, "t", "a INT", "nosuch", "")
        + "INSERT INTO t SELECT a FROM i;";
    let error = run_text(&text, &[]).unwrap_err();
    assert!(
        error.contains("there is no topic 'nosuch' (create it"),
        "{error}"
    );
    let text = table(broker, "t", "a INT", "bad", "").replace(&broker.address(), "127.0.0.1:1");
    let error = run_text(&(text + select), &[]).unwrap_err();
    for part in [
        "127.0.0.1:1",
        "no broker answers within 10 s",
        "Connection refused",
        "start the broker",
    ] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let gone = ", 'scan.startup.mode' = 'specific-offsets', \
                'scan.startup.specific-offsets' = 'partition:0,offset:1000'";
    let error = run_text(&(table(broker, "t", "a INT", "bad", gone) + select), &[]).unwrap_err();
    assert!(error.contains("bad[0]"), "{error}");
}

/// Messages of a table with a PRIMARY KEY: by its columns, and without a value for a row that goes.
fn a_primary_key_replaces_and_removes(broker: &Broker, folder: &Path) {
    broker.create_topic("upserted", 1);
    let input = folder.join("upserted.csv");
    fs::write(&input, "a,1\nb,2\na,3\nb,4\na,5\n").unwrap();
    let read = format!(
        "CREATE TABLE i (k STRING, v INT) WITH ('connector' = 'file', 'path' = '{}');\n",
        input.display()
    );
    let columns = "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED";
    let text = read.clone()
        + &table(
            broker,
            "w",
            columns,
            "upserted",
            ", 'format' = 'json', 'key.format' = 'csv'",
        )
        + "INSERT INTO w SELECT k, COUNT(*) FROM i GROUP BY k HAVING COUNT(*) < 3;";
    let settings = [("emit", "every_row"), ("chunk_rows", "1")];
    run_text(&text, &settings).unwrap();
    let expected = [
        ("a", r#"{"k":"a","n":1}"#),
        ("b", r#"{"k":"b","n":1}"#),
        ("a", r#"{"k":"a","n":2}"#),
        ("b", r#"{"k":"b","n":2}"#),
        ("a", ""),
    ];
    let expected = expected.map(|(key, value)| (key.to_string(), value.to_string()));
    assert_eq!(broker.messages("upserted", 5), expected);
    let wrong = table(broker, "w", columns, "upserted", ", 'key.fields' = 'n'");
    let error = run_text(
        &(read.clone() + &wrong + "INSERT INTO w SELECT k, 1 FROM i;"),
        &[],
    );
    let error = error.unwrap_err();
    assert!(error.contains("the key is the PRIMARY KEY"), "{error}");
    let plain = table(broker, "w", "k STRING, n BIGINT", "upserted", "");
    // What never ends has no last result that a topic without a key could take.
    let endless = "CREATE TABLE e (event_type INT) WITH ('connector' = 'datagen', 'generator' = \
                   'nexmark');\n";
    let query = "INSERT INTO w SELECT CAST(event_type AS STRING), COUNT(*) FROM e GROUP BY event_type \
                 HAVING COUNT(*) < 3;";
    let error = run_text(&(endless.to_string() + &plain + query), &[]).unwrap_err();
    assert!(error.contains("'w' can only add rows"), "{error}");
}

fn new_partitions_are_found(broker: &Broker, folder: &Path) {
    broker.create_topic("grows", 1);
    broker.produce("grows", 0, bytes(&numbered(0, 0..10)));
    let path = folder.join("grows.csv");
    let options = ", 'format' = 'raw', 'scan.topic-partition-discovery.interval' = '1 s'";
    let text = table(broker, "t", "line STRING", "grows", options)
        + &out("line STRING", &path)
        + "INSERT INTO o SELECT line FROM t;";
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let options = RunOptions {
                duration: Some(Duration::from_secs(8)),
                ..RunOptions::default()
            };
            let outcome = run("test.sql", &text, &options);
            assert!(matches!(outcome, Ok(Outcome::Finished(_))));
        });
        std::thread::sleep(Duration::from_secs(2));
        broker.grow_topic("grows", 3);
        for partition in 0..3 {
            broker.produce(
                "grows",
                partition as i32,
                bytes(&numbered(partition, 10..20)),
            );
        }
        running.join().unwrap();
    });
    let expected = numbered(0, 0..20).into_iter();
    let mut expected = expected
        .chain(numbered(1, 10..20))
        .chain(numbered(2, 10..20))
        .collect::<Vec<_>>();
    expected.sort();
    assert_eq!(rows(&path), expected);
}

/// Starts the program on a text.
fn start(text: &str, folder: &Path) -> std::process::Child {
    let file = folder.join("query.sql");
    fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .arg("run")
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn says_both(child: std::process::Child, table: &str, address: &str) {
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let away = format!("warning: table '{table}': no broker of {address} answers");
    assert_eq!(error.matches(&away).count(), 1, "{error}");
    let back = format!("note: table '{table}': a broker of {address} answers again");
    assert_eq!(error.matches(&back).count(), 1, "{error}");
}

fn nothing_is_lost_when_the_broker_dies_while_it_is_read(broker: &mut Broker, folder: &Path) {
    broker.create_topic("read", 2);
    let mut expected = vec![];
    for partition in 0..2 {
        let lines = numbered(partition, 0..100_000);
        broker.produce("read", partition as i32, bytes(&lines));
        expected.extend(lines);
    }
    expected.sort();
    let path = folder.join("killed.csv");
    // Each fetch brings a batch and fills the queue, which is then left alone for 20 ms: 200 of them
    // take 4 s, and the broker dies among them.
    let slow = ", 'format' = 'raw', 'properties.fetch.message.max.bytes' = '2000', \
                'properties.queued.max.messages.kbytes' = '2'";
    let text = table(
        broker,
        "t",
        "line STRING",
        "read",
        &format!("{BOUNDED}{slow}"),
    ) + &out("line STRING", &path)
        + "INSERT INTO o SELECT line FROM t;";
    let mut child = start(&text, folder);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it was over before the broker died"
    );
    broker.kill();
    std::thread::sleep(Duration::from_millis(1_500));
    broker.restart();
    says_both(child, "t", &broker.address());
    assert_eq!(rows(&path), expected);
}

fn nothing_is_lost_when_the_broker_dies_while_it_is_written(broker: &mut Broker, folder: &Path) {
    broker.create_topic("write", 2);
    let input = folder.join("write.csv");
    let lines = numbered(0, 0..100_000);
    fs::write(&input, lines.join("\n") + "\n").unwrap();
    let text = format!(
        "CREATE TABLE i (line STRING) WITH ('connector' = 'file', 'path' = '{}', \
         'replay_rate' = '25000/s');\n",
        input.display()
    ) + &table(broker, "w", "line STRING", "write", "")
        + "INSERT INTO w SELECT line FROM i;";
    let mut child = start(&text, folder);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it was over before the broker died"
    );
    broker.kill();
    std::thread::sleep(Duration::from_millis(1_500));
    broker.restart();
    says_both(child, "w", &broker.address());
    let mut expected = lines;
    expected.sort();
    // The producer is idempotent, so they are not there twice either.
    assert_eq!(read_back(broker, "write", "", folder), expected);
}
