//! The size of messages between processes: what `explain` says, and what the report counts.

use std::path::Path;

use serde_json::Value;
use slackwater::calibrate::{Calibration, FORMAT, Host, LinkCost, WaitCosts};
use slackwater::measure::Kind;

use crate::process::Folder;

/// Writes a calibration of this host into a folder; links cost `factor` times as much as they should.
fn calibrate(folder: &Path, factor: f64) {
    let link = |kind, (size_bytes, latency_ns, messages_per_s): (usize, f64, f64)| LinkCost {
        kind,
        size_bytes,
        latency_p50_ns: latency_ns * factor,
        latency_p99_ns: latency_ns * factor,
        messages_per_s: messages_per_s / factor,
        gb_per_s: messages_per_s / factor * size_bytes as f64 / 1e9,
    };
    let tcp = [(64, 6_000.0, 7e6), (65_536, 9_400.0, 88_000.0)];
    let shm = [(64, 170.0, 6e6), (65_536, 1_600.0, 1e6)];
    let links = tcp.map(|point| link(Kind::TcpLink, point));
    let calibration = Calibration {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_string(),
        host: Host::this(),
        date: "2026-01-31T23:59:59Z".to_string(),
        quick: true,
        clock_ns: 20.0,
        costs: WaitCosts {
            wake_ns: 30_000,
            sleep_ns: 20_000,
            oversleep_p50_ns: 30_000,
            oversleep_p99_ns: 60_000,
        },
        wakes: Vec::new(),
        sleeps: Vec::new(),
        links: links
            .into_iter()
            .chain(shm.map(|point| link(Kind::ShmLent, point)))
            .collect(),
        activations: Vec::new(),
        more: None,
    };
    std::fs::create_dir_all(folder).unwrap();
    let text = serde_json::to_string(&calibration).unwrap();
    std::fs::write(folder.join("calibration.json"), text).unwrap();
}

/// Visits per address, in two processes.
const QUERY: &str = "
    CREATE TABLE v (ts_ms BIGINT, ip STRING, country STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
      WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'generator' = 'uservisits',
      'rows' = '60000', 'rate' = '60000');
    CREATE TABLE o (ip STRING, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO o SELECT ip, COUNT(*) OVER (PARTITION BY ip ORDER BY ts) FROM v;";

/// The plan of a query as JSON, on a host whose links cost `factor` times as much.
fn explained(query: &str, factor: f64, settings: &[&str]) -> Value {
    let folder = Folder::new();
    let cache = folder.path("cache");
    calibrate(&cache, factor);
    folder.write("query.sql", query.as_bytes());
    let mut arguments = vec!["explain", "query.sql", "--format", "json"];
    arguments.extend(["--processes", "2"]);
    for setting in settings {
        arguments.extend(["--set", setting]);
    }
    let mut command = folder.command(&arguments);
    let output = command.env("SLACKWATER_CACHE", &cache).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The report of a run in two processes.
fn report(query: &str, settings: &[&str]) -> Value {
    let folder = Folder::new();
    let mut arguments = vec!["--processes", "2"];
    for setting in settings {
        arguments.extend(["--set", setting]);
    }
    folder.run(query, &arguments).ok();
    folder.json("report.json")
}

/// The size and the reason of the only link between the processes.
fn message(plan: &Value) -> (Option<u64>, String) {
    let links = plan["links"].as_array().unwrap().iter();
    let mut remote = links.filter(|link| link["message_reason"].is_string());
    let link = remote.next().unwrap_or_else(|| panic!("{plan}"));
    assert!(remote.next().is_none(), "{plan}");
    let reason = link["message_reason"].as_str().unwrap();
    (link["message_bytes"].as_u64(), reason.to_string())
}

#[test]
fn a_link_of_four_times_the_calibrated_cost_gets_larger_messages() {
    for link in ["link=tcp", "link=shm"] {
        let [cheap, dear] = [1.0, 4.0].map(|factor| message(&explained(QUERY, factor, &[link])));
        assert!(cheap.0.unwrap() > 1_000, "{cheap:?}");
        assert!(dear.0 > cheap.0, "{link}: {cheap:?} {dear:?}");
        assert!(cheap.1.contains("rows of"), "{cheap:?}");
    }
    // The faster link needs smaller messages.
    let [tcp, shm] =
        ["link=tcp", "link=shm"].map(|link| message(&explained(QUERY, 1.0, &[link])).0);
    assert!(shm < tcp, "{shm:?} {tcp:?}");
}

#[test]
fn a_tight_target_makes_messages_smaller_and_a_set_size_stays() {
    let loose = message(&explained(QUERY, 1.0, &[])).0;
    let tight = message(&explained(QUERY, 1.0, &["latency_target=1 ms"]));
    assert!(tight.0 < loose, "{tight:?} {loose:?}");
    assert!(tight.1.contains("the target of 1.00 ms"), "{tight:?}");
    let set = message(&explained(QUERY, 1.0, &["message_bytes=4 KiB"]));
    assert_eq!(set.0, Some(4_096));
    assert!(set.1.contains("as 'message_bytes' says"), "{set:?}");
    assert_eq!(
        message(&explained(QUERY, 1.0, &["message_bytes=none"])).0,
        None
    );
}

#[test]
fn messages_have_the_size_that_was_set_over_both_kinds_of_links() {
    let query = QUERY.replace("'rows' = '60000', 'rate' = '60000'", "'rows' = '60000'");
    for (link, size) in [("shm", "none"), ("shm", "4 KiB"), ("tcp", "4 KiB")] {
        let settings = [
            format!("link={link}"),
            format!("message_bytes={size}"),
            "parallelism=1".to_string(),
        ];
        let report = report(&query, &settings.each_ref().map(String::as_str));
        assert_eq!(report["rows_out"], 60_000);
        let between = &report["plan"]["remote_links"][0];
        let [messages, rows, bytes] =
            ["messages", "rows", "bytes"].map(|name| between["send"][name].as_u64().unwrap());
        assert_eq!(rows, 60_000, "{between}");
        assert_eq!(between["receive"]["rows"], rows, "{between}");
        if size == "none" {
            assert!(between["message_bytes"].is_null(), "{between}");
            continue;
        }
        assert_eq!(between["message_bytes"], 4_096, "{between}");
        // Watermarks are messages, too, and the first chunk is cut by an estimate.
        assert!(messages > bytes / 8_192, "{between}");
    }
}

/// Rows of 3 kB, of which the plan expects 40 bytes, in messages for a tight target.
#[test]
fn the_size_follows_the_rows_that_are_measured() {
    let query = "
        CREATE TABLE v (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
          WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'generator' = 'uservisits',
          'rows' = '30000', 'rate' = '15000');
        CREATE TABLE o (ip STRING, tile STRING, n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT ip, tile, COUNT(*) OVER (PARTITION BY ip ORDER BY ts)
          FROM (SELECT ip, ts, RPAD(ip, 3000, 'x') AS tile FROM v);";
    let settings = ["latency_target=2 ms"];
    let planned = message(&explained(query, 1.0, &settings)).0.unwrap();
    let report = report(query, &settings);
    let between = &report["plan"]["remote_links"][0];
    let corrected = between["message_bytes"].as_u64().unwrap();
    assert!(corrected > 2 * planned, "{planned} {between}");
}
