//! `run --metrics`: what a scrape shows is what the report says, and nothing wakes up between scrapes.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;
use slackwater::machine::children_cpu_s;

use crate::idle::{activity, settled};
use crate::process::{Folder, PATIENCE, Running, eventually, free_address, request};

mod prometheus;

/// A table with event time, of rows that a test sends.
pub const QUERY: &str = "
CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'tcp', 'address' = '${ADDRESS}', 'mode' = 'listen');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO o SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k;";

const TARGET: &[&str] = &["--set", "latency_target=20 ms"];

/// A running query with metrics.
struct Scraped {
    running: Running,
    folder: Folder,
    rows: String,
    metrics: String,
}

impl Scraped {
    fn start(arguments: &[&str]) -> Scraped {
        let folder = Folder::new();
        let (rows, metrics) = (free_address(), free_address());
        let text = QUERY.replace("${ADDRESS}", &rows);
        let running = folder.start(
            &text,
            &[&["--metrics", &metrics], TARGET, arguments].concat(),
        );
        let scraped = Scraped {
            running,
            folder,
            rows,
            metrics,
        };
        scraped.ready();
        scraped
    }

    fn ready(&self) {
        eventually("query that is ready", || {
            let answer = get(&self.metrics, "/readyz", "")?;
            answer.starts_with("HTTP/1.1 200 ").then_some(())
        });
    }

    fn connect(&self) -> TcpStream {
        eventually("listener", || TcpStream::connect(&self.rows).ok())
    }

    fn scrape(&self) -> Samples {
        let answer = eventually("page", || get(&self.metrics, "/metrics", ""));
        Samples::of(&answer)
    }

    /// Waits until the only partition of the table has a watermark.
    fn partition_has_watermark(&self, seconds: &str) {
        let of = r#"slackwater_partition_watermark_timestamp_seconds{pipeline="query",table="t",partition="#;
        eventually("watermark of the partition", || {
            let answer = get(&self.metrics, "/metrics?partitions=true", "")?;
            let mut lines = answer.lines().filter(|line| line.starts_with(of));
            lines
                .next()?
                .ends_with(&format!("\"}} {seconds}"))
                .then_some(())
        });
    }

    /// Scrapes until a sample has this value.
    fn scrape_until(&self, sample: &str, value: f64) -> Samples {
        let what = format!("{sample} {value}");
        eventually(&what, || {
            Some(self.scrape()).filter(|samples| samples.0.get(sample) == Some(&value))
        })
    }

    /// Ends it, and returns the report.
    fn end(self) -> Value {
        self.running.interrupt();
        self.running.finish(PATIENCE).ok();
        assert!(
            TcpStream::connect(&self.metrics).is_err(),
            "the port is closed"
        );
        self.folder.json("report.json")
    }
}

/// The whole answer to a request, if somebody listens.
fn get(address: &str, path: &str, header: &str) -> Option<String> {
    request(address, &format!("GET {path}"), header, b"")
}

/// The samples of a page.
struct Samples(BTreeMap<String, f64>);

impl Samples {
    #[track_caller]
    fn of(answer: &str) -> Samples {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let (_, page) = answer.split_once("\r\n\r\n").unwrap();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            (sample.to_string(), value.parse().unwrap())
        });
        Samples(samples.collect())
    }

    #[track_caller]
    fn get(&self, sample: &str) -> f64 {
        let value = self.0.get(sample);
        *value.unwrap_or_else(|| panic!("no {sample} in {:#?}", self.0))
    }

    /// No counter has gone backwards since `before`.
    #[track_caller]
    fn assert_since(&self, before: &Samples) {
        for (sample, value) in &before.0 {
            let name = sample.split('{').next().unwrap();
            let is_counter = ["_total", "_bucket", "_sum", "_count"]
                .iter()
                .any(|end| name.ends_with(end));
            if is_counter {
                assert!(self.get(sample) >= *value, "{sample} was {value}");
            }
        }
    }
}

const ROWS_IN: &str = r#"slackwater_source_rows_total{pipeline="query",table="t"}"#;
const ROWS_OUT: &str = r#"slackwater_sink_rows_total{pipeline="query",table="o"}"#;
const LATE: &str = r#"slackwater_rows_late_total{pipeline="query",table="t"}"#;
const BAD: &str = r#"slackwater_rows_bad_total{pipeline="query",table="t"}"#;
const RESTARTS: &str = r#"slackwater_restarts_total{pipeline="query"}"#;

/// Two late rows, three bad ones, and windows that are complete.
pub const ROWS: &str = "1000,a\n1500,b\nx,a\n2500,c\n1100,a\n9000,a\n1200,b\n,b\nno\n";

#[test]
fn a_scrape_shows_what_the_report_says() {
    let settings: [&[&str]; 4] = [
        &[],
        &["--parallelism", "2", "--set", "chunk_rows=1"],
        &["--processes", "2", "--parallelism", "2"],
        &["--processes", "2", "--parallelism", "2", "--state", "state"],
    ];
    for arguments in settings {
        let scraped = Scraped::start(arguments);
        let before = scraped.scrape();
        assert_eq!(before.get(ROWS_IN), 0.0);
        assert!(
            !before.0.keys().any(|sample| sample.contains("watermark")),
            "none before the first row"
        );
        let mut peer = scraped.connect();
        peer.write_all(ROWS.as_bytes()).unwrap();
        scraped.scrape_until(ROWS_OUT, 3.0);
        // The processes report for themselves: the one that reads may be the last.
        let watermark = r#"slackwater_watermark_timestamp_seconds{pipeline="query",table="t"}"#;
        let after = scraped.scrape_until(watermark, 9.0);
        after.assert_since(&before);
        let target = r#"slackwater_latency_target_seconds{pipeline="query",table="o"}"#;
        assert_eq!(after.get(target), 0.02);
        let latencies = r#"slackwater_sink_latency_seconds_count{pipeline="query",table="o"}"#;
        scraped.scrape_until(latencies, 3.0);
        let workers = after.0.keys();
        let workers = workers.filter(|sample| sample.starts_with("slackwater_worker_cpu"));
        assert!(workers.count() >= if arguments.is_empty() { 1 } else { 2 });
        assert!(after.get("process_resident_memory_bytes") > 1e6);
        assert!(
            after.get(
                r#"slackwater_operator_rows_total{pipeline="query",node="0",operator="source"}"#
            ) >= 0.0
        );
        scraped.scrape_until(BAD, 3.0);
        scraped.scrape_until(ROWS_IN, 9.0);
        let last = scraped.scrape_until(LATE, 2.0);
        assert!(!last.0.keys().any(|sample| sample.contains("partition=")));
        scraped.partition_has_watermark("9");
        let report = scraped.end();
        let source = &report["sources"][0];
        for (sample, field) in [(ROWS_IN, "rows_in"), (LATE, "rows_late"), (BAD, "rows_bad")] {
            assert_eq!(source[field].as_f64(), Some(last.get(sample)), "{field}");
        }
        assert_eq!(
            report["sinks"][0]["rows_out"].as_f64(),
            Some(last.get(ROWS_OUT))
        );
        assert_eq!(
            (last.get(ROWS_IN), last.get(LATE)),
            (9.0, 2.0),
            "{arguments:?}"
        );
        // The report counts from the query's start, a scrape from the program's, which may take long on a
        // cold machine. What the system has counted for this process's children is as much or more.
        let cpu_s = last.get("process_cpu_seconds_total");
        let counted_s = children_cpu_s() + 0.02;
        assert!(cpu_s > 0.0 && cpu_s <= counted_s, "{cpu_s} of {counted_s}");
        let reported_s = report["cpu_s"].as_f64().unwrap();
        assert!(reported_s > 0.0 && reported_s <= counted_s);
    }
}

#[test]
fn counters_go_on_when_a_process_is_killed() {
    let arguments = ["--processes", "2", "--parallelism", "2", "--state", "state"];
    let scraped = Scraped::start(&arguments);
    let mut peer = scraped.connect();
    peer.write_all(ROWS.as_bytes()).unwrap();
    scraped.scrape_until(ROWS_OUT, 3.0);
    // What a process has not reported when it is killed is not counted.
    let mut before = scraped.scrape_until(ROWS_IN, ROWS.lines().count() as f64);
    let children = crate::processes::children(scraped.running.id());
    rustix::process::kill_process(children[0], rustix::process::Signal::KILL).unwrap();
    eventually("restart", || {
        let now = scraped.scrape();
        now.assert_since(&before);
        before = now;
        (before.get(RESTARTS) == 1.0).then_some(())
    });
    scraped.ready();
    let mut peer = scraped.connect();
    peer.write_all(b"20000,a\n30000,a\n").unwrap();
    eventually("rows after the restart", || {
        let now = scraped.scrape();
        now.assert_since(&before);
        before = now;
        (before.get(ROWS_IN) >= 11.0).then_some(())
    });
    let last = scraped.scrape();
    let report = scraped.end();
    assert_eq!(report["restarts"].as_f64(), Some(last.get(RESTARTS)));
    // A peer does not send again what was read since the last checkpoint: it counts as read, and is not in
    // the answer, whose rows the report has.
    assert_eq!(last.get(ROWS_IN), 11.0);
    assert_eq!(report["sources"][0]["rows_in"], 2);
    let stored = r#"slackwater_checkpoints_total{pipeline="query",result="stored"}"#;
    assert!(last.get(stored) >= report["checkpoints"]["stored"].as_f64().unwrap() - 1.0);
}

#[test]
fn nothing_wakes_up_between_scrapes() {
    for arguments in [&[][..], &["--processes", "2", "--parallelism", "2"]] {
        let scraped = Scraped::start(arguments);
        let mut peer = scraped.connect();
        peer.write_all(ROWS.as_bytes()).unwrap();
        scraped.scrape_until(ROWS_OUT, 3.0);
        let children = crate::processes::children(scraped.running.id());
        let numbers = children.iter().map(|pid| pid.as_raw_nonzero().get() as u32);
        let processes = numbers.chain([scraped.running.id()]).collect::<Vec<u32>>();
        processes.iter().for_each(|&process| {
            settled(process);
        });
        let rest = processes.iter().map(|&process| activity(process));
        let rest = rest.collect::<Vec<_>>();
        std::thread::sleep(Duration::from_secs(3));
        for (&process, rest) in processes.iter().zip(&rest) {
            assert_eq!(activity(process), *rest, "{arguments:?}");
        }
        scraped.scrape();
        let own = scraped.running.id();
        assert_ne!(
            activity(own),
            rest[rest.len() - 1],
            "the measurement sees nothing"
        );
        scraped.end();
    }
}

#[test]
fn doors_that_can_not_open_are_an_error_before_the_query_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--metrics", &taken], &["in use", "= use another port"]),
        (
            &["--metrics", "0.0.0.0:0"],
            &["other machines", "= set SLACKWATER_TOKEN or --token"],
        ),
        (
            &["--metrics", "9464"],
            &["'9464' is not an address", "127.0.0.1:9464"],
        ),
        (
            &["--metrics", "127.0.0.1:0", "--token", ""],
            &["the token is empty"],
        ),
        (&["--token", "secret"], &["--metrics"]),
    ];
    for (arguments, parts) in cases {
        let text = "CREATE TABLE i (a INT) WITH ('connector' = 'file', 'path' = 'i.csv');
                    CREATE TABLE o (a INT) WITH ('connector' = 'file', 'path' = 'o.csv');
                    INSERT INTO o SELECT a FROM i;";
        folder.write("i.csv", b"1\n");
        folder.run(text, arguments).fails(2, parts);
        assert!(!folder.path("o.csv").exists(), "nothing has started");
    }
}

#[test]
fn with_a_token_only_those_who_show_it_see_the_metrics() {
    let folder = Folder::new();
    let (rows, metrics) = (free_address(), free_address());
    let text = QUERY.replace("${ADDRESS}", &rows);
    folder.write("query.sql", text.as_bytes());
    let mut command = folder.command(&["run", "query.sql", "--metrics", &metrics]);
    command.env("SLACKWATER_TOKEN", "secret");
    let running = Running::start(command);
    let status = |path: &str, header: &str| {
        let answer = eventually("answer", || get(&metrics, path, header));
        answer.split(' ').nth(1).unwrap().to_string()
    };
    assert_eq!(status("/metrics", ""), "401");
    assert_eq!(status("/metrics", "authorization: Bearer other\r\n"), "401");
    assert_eq!(
        status("/metrics", "authorization: Bearer secret\r\n"),
        "200"
    );
    assert_eq!(status("/healthz", ""), "200");
    running.interrupt();
    running.finish(PATIENCE).ok();
}
