use slackwater_engine::latency::{SLOTS, upper_ns};

use crate::cluster::HostsKnown;

use super::snapshot::{OperatorCounts, SinkCounts, SourceCounts, WorkerCounts};
use super::*;

/// Counts of an incarnation that read `rows`.
fn counts(rows: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let source = SourceCounts {
        rows,
        bytes: 10 * rows,
        late: rows / 10,
        bad: 1,
        connections_lost: 0,
        watermark_us: Some(1_500_000),
    };
    snapshot.sources.insert("a \"b\"".to_string(), source);
    let mut latencies = vec![0; SLOTS];
    latencies[SLOTS / 2] = rows;
    let sink = SinkCounts {
        rows,
        latencies,
        target_ns: Some(20_000_000),
        violated_ns: 500_000_000,
    };
    snapshot.sinks.insert("print".to_string(), sink);
    snapshot.operators = vec![OperatorCounts {
        name: "scan".to_string(),
        busy_s: 0.25,
        rows,
        state_bytes: 7,
        waiting: Some(3),
    }];
    let worker = WorkerCounts {
        cpu_s: Some(0.5),
        wakeups: None,
    };
    snapshot.workers.insert(0, worker);
    snapshot.unknown = [2, 0];
    snapshot.checkpoints = Some(CheckpointCounts {
        stored: 2,
        aborted: 1,
        total_ns: 3_000_000,
        bytes: 100,
        last: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(2_500)),
        standby: Some(StandbyCounts {
            is_connected: true,
            behind: 3,
        }),
    });
    snapshot.processes_cpu_s = 1_000.0;
    snapshot.processes_resident_bytes = 1 << 40;
    snapshot
}

/// The value of the sample that begins so.
#[track_caller]
fn value(page: &str, sample: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no '{sample}' in\n{page}"));
    line.parse().unwrap()
}

const ROWS: &str = r#"slackwater_source_rows_total{pipeline="q",table="a \"b\""}"#;

#[test]
fn counters_never_go_backwards_over_restarts() {
    let board = Board::new("q".to_string(), Job::default());
    assert!(!board.is_running());
    board.begin();
    assert!(board.is_running());
    board.show(counts(100));
    let first = board.page();
    assert_eq!(value(&first, ROWS), 100.0);
    board.pause();
    board.end(counts(120));
    let between = board.page();
    assert!(!board.is_running());
    assert_eq!(value(&between, ROWS), 120.0);
    board.begin();
    let begun = board.page();
    assert_eq!(value(&begun, ROWS), 120.0);
    board.show(counts(30));
    let last = board.page();
    assert_eq!(value(&last, ROWS), 150.0);
    assert_eq!(
        value(&last, r#"slackwater_restarts_total{pipeline="q"}"#),
        1.0
    );
    let pages = [first, between, begun, last];
    for (before, after) in pages.iter().zip(&pages[1..]) {
        let is_counter = |line: &&str| {
            let name = line.split(['{', ' ']).next().unwrap();
            ["_total", "_count", "_sum", "_bucket"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        let counters = before.lines().filter(|line| !line.starts_with('#'));
        for line in counters.filter(is_counter) {
            let (sample, count) = line.rsplit_once(' ').unwrap();
            assert!(value(after, sample) >= count.parse().unwrap(), "{sample}");
        }
    }
    // What doesn't count up is as it is now.
    let target = r#"slackwater_latency_target_seconds{pipeline="q",table="print"}"#;
    assert_eq!(value(&pages[3], target), 0.02);
    let state = r#"slackwater_operator_state_bytes{pipeline="q",node="0",operator="scan"}"#;
    assert_eq!(value(&pages[3], state), 7.0);
}

#[test]
fn every_count_is_on_the_page() {
    let board = Board::new("q".to_string(), Job::default());
    board.begin();
    board.show(counts(100));
    let page = board.page();
    let table = |name: &str| format!(r#"slackwater_{name}{{pipeline="q",table="a \"b\""}}"#);
    let sink = |name: &str| format!(r#"slackwater_{name}{{pipeline="q",table="print"}}"#);
    assert_eq!(value(&page, &table("source_bytes_total")), 1_000.0);
    assert_eq!(value(&page, &table("rows_late_total")), 10.0);
    assert_eq!(
        value(
            &page,
            r#"slackwater_rows_late_total{pipeline="q",table=""}"#
        ),
        2.0
    );
    assert_eq!(value(&page, &table("rows_bad_total")), 1.0);
    assert!(!page.contains(r#"slackwater_rows_bad_total{pipeline="q",table=""}"#));
    assert_eq!(value(&page, &table("watermark_timestamp_seconds")), 1.5);
    assert_eq!(value(&page, &sink("sink_rows_total")), 100.0);
    assert_eq!(value(&page, &sink("sink_latency_seconds_count")), 100.0);
    assert_eq!(value(&page, &sink("target_violated_seconds_total")), 0.5);
    let worker = r#"slackwater_worker_cpu_seconds_total{pipeline="q",worker="0"}"#;
    assert_eq!(value(&page, worker), 0.5);
    let stored = r#"slackwater_checkpoints_total{pipeline="q",result="stored"}"#;
    assert_eq!(value(&page, stored), 2.0);
    let last = r#"slackwater_last_checkpoint_timestamp_seconds{pipeline="q"}"#;
    assert_eq!(value(&page, last), 2.5);
    let behind = r#"slackwater_standby_checkpoints_behind{pipeline="q"}"#;
    assert_eq!(value(&page, behind), 3.0);
    let connected = r#"slackwater_standby_connected{pipeline="q"}"#;
    assert_eq!(value(&page, connected), 1.0);
    assert!(value(&page, "process_cpu_seconds_total") > 1_000.0);
    assert!(value(&page, "process_resident_memory_bytes") > (1u64 << 40) as f64);
    // Processes that have ended hold nothing.
    board.end(counts(100));
    let page = board.page();
    assert!(value(&page, "process_resident_memory_bytes") < (1u64 << 40) as f64);
}

#[test]
fn a_row_is_in_the_first_bucket_that_its_slot_does_not_exceed() {
    for slot in [0, 31, 32, 100, 333, SLOTS - 1] {
        let mut one = counts(0);
        let sink = one.sinks.get_mut("print").unwrap();
        sink.latencies = vec![0; SLOTS];
        sink.latencies[slot] = 1;
        let board = Board::new("q".to_string(), Job::default());
        board.show(one);
        let page = board.page();
        let upper_s = upper_ns(slot) as f64 / 1e9;
        let bucket = "slackwater_sink_latency_seconds_bucket";
        let mut bounds = Vec::new();
        for line in page.lines().filter(|line| line.starts_with(bucket)) {
            let (labels, rows) = line.rsplit_once(' ').unwrap();
            let bound = labels
                .split(",le=\"")
                .nth(1)
                .unwrap()
                .trim_end_matches("\"}");
            let bound = bound.replace("+Inf", "inf").parse::<f64>().unwrap();
            assert_eq!(rows == "1", bound >= upper_s, "slot {slot}: {line}");
            bounds.push(bound);
        }
        assert_eq!(bounds.len(), 38);
        assert!(bounds.is_sorted(), "{bounds:?}");
    }
}

#[test]
fn rows_of_no_single_source_do_not_seem_fewer_while_workers_count() {
    let board = Board::new("q".to_string(), Job::default());
    board.begin();
    let sample = r#"slackwater_rows_late_total{pipeline="q",table=""}"#;
    for (read, shown) in [(2, 2.0), (1, 2.0), (3, 3.0)] {
        let mut now = counts(100);
        now.unknown = [read, 0];
        board.show(now);
        assert_eq!(value(&board.page(), sample), shown);
    }
}

#[test]
fn hosts_are_known_between_incarnations_and_counted_at_each_look() {
    let board = Board::new("q".to_string(), Job::default());
    assert_eq!(board.hosts_json(), "null\n");
    board.begin();
    let mut now = counts(100);
    now.hosts = Some(HostsKnown {
        wanted: 3,
        reason: "busy",
        used: 2,
        joined: 2,
        min: 1,
        max: 4,
    });
    board.show(now);
    board.pause();
    board.end(counts(200));
    board.count_hosts(|| 1);
    let hosts = serde_json::from_str::<serde_json::Value>(&board.hosts_json()).unwrap();
    assert_eq!((&hosts["wanted"], &hosts["joined"]), (&3.into(), &1.into()));
    let page = board.page();
    let of = |name: &str| value(&page, &format!("slackwater_hosts_{name}{{pipeline=\"q\"}}"));
    assert_eq!((of("wanted"), of("used"), of("joined")), (3.0, 2.0, 1.0));
}

#[test]
fn the_page_gets_the_same_counts() {
    let job = Job {
        json: "{}".to_string(),
        ..Job::default()
    };
    let board = Board::new("q".to_string(), job);
    let json = || serde_json::from_str::<serde_json::Value>(&board.json()).unwrap();
    assert_eq!(json()["status"], "starting");
    board.begin();
    board.show(counts(100));
    board.pause();
    board.end(counts(200));
    assert_eq!(json()["status"], "restarting");
    board.begin();
    board.show(counts(50));
    let shown = json();
    assert_eq!(shown["status"], "running");
    assert_eq!(shown["restarts"], 1);
    let source = &shown["sources"][0];
    assert_eq!(
        (&source["rows"], &source["late"]),
        (&250.into(), &25.into())
    );
    assert_eq!(source["watermark_ms"], 1_500);
    assert_eq!(shown["late_elsewhere"], 4);
    let sink = &shown["sinks"][0];
    assert_eq!(
        (&sink["rows"], &sink["target_ms"]),
        (&250.into(), &20.0.into())
    );
    let rows = sink["latency"].as_array().unwrap().iter();
    let rows = rows.map(|slot| slot[1].as_u64().unwrap()).sum::<u64>();
    let expected = [200, 50].map(|rows| counts(rows).sinks["print"].latencies.iter().sum::<u64>());
    assert_eq!(rows, expected.iter().sum::<u64>());
    // What waits, and what is held, is not added up.
    assert_eq!(shown["nodes"][0]["waiting"], 3);
    assert_eq!(shown["nodes"][0]["state_bytes"], 7);
    assert_eq!(shown["checkpoints"]["stored"], 4);
    assert_eq!(shown["bad_rows"], serde_json::json!([]));
    assert!(
        !board.json().contains('\n'),
        "an event's data has no line breaks"
    );
}
