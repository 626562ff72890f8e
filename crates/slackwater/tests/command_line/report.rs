//! The fields of the report.

use super::{COUNTING, counted};
use crate::process::Folder;

#[test]
fn the_report_has_exactly_its_fields() {
    let folder = counted();
    let finished = folder.run(COUNTING, &["--parallelism", "2"]).ok();
    assert_eq!(finished.out, "", "rows went to a file");
    for part in [
        "rows       5 in, 3 out, 0 late, 1 bad",
        "time ",
        "cpu ",
        "memory ",
        "latency ",
    ] {
        assert!(finished.err.contains(part), "{}", finished.err);
    }
    let text = folder.read("report.json");
    let report = folder.json("report.json");
    // In this order, too: people read it.
    let fields = [
        "rows_in",
        "rows_out",
        "rows_late",
        "rows_bad",
        "wall_s",
        "cpu_s",
        "cpu_us_per_row",
        "rows_per_s",
        "peak_rss_bytes",
        "latency_target_ms",
        "latency_ms",
        "target_met",
        "wakeups",
        "plan",
        "sources",
        "sinks",
        "restored_from",
        "restarts",
        "rescales",
        "checkpoints",
        "warnings",
        "diagnosis",
    ];
    let places = fields.map(|field| text.find(&format!("\n  \"{field}\":")).expect(field));
    assert_eq!(report.as_object().unwrap().len(), fields.len());
    assert!(places.is_sorted(), "{text}");
    let latency = report["latency_ms"].as_object().unwrap();
    let mut names = latency.keys().map(String::as_str).collect::<Vec<_>>();
    names.sort_unstable();
    assert_eq!(names, ["count", "max", "p50", "p99", "p999"]);
    assert_eq!(
        (&report["rows_in"], &report["rows_out"]),
        (&5.into(), &3.into())
    );
    assert_eq!(
        (&report["rows_bad"], &report["rows_late"]),
        (&1.into(), &0.into())
    );
    assert_eq!(latency["count"], 3);
    assert!(latency["p50"].as_f64().unwrap() <= latency["max"].as_f64().unwrap());
    assert!(report["latency_target_ms"].is_null() && report["target_met"].is_null());
    assert!(report["wakeups"].as_u64().unwrap() > 0);
    assert!(report["cpu_s"].as_f64().unwrap() > 0.0);
    let per_row = report["cpu_s"].as_f64().unwrap() * 1e6 / 5.0;
    assert!((report["cpu_us_per_row"].as_f64().unwrap() - per_row).abs() < 1e-3);
    assert!(report["peak_rss_bytes"].as_u64().unwrap() > 1_000_000);
    assert_eq!(report["plan"]["parallelism"], 2);
    let source = &report["sources"][0];
    assert_eq!(
        (&source["table"], &source["rows_in"]),
        (&"t".into(), &5.into())
    );
    assert_eq!(source["bytes_read"], 29);
    assert_eq!(
        (&source["rows_late"], &source["rows_bad"]),
        (&0.into(), &1.into())
    );
    assert_eq!(source["dead_letter"], "slackwater-dead-letter/t.jsonl");
    let sink = &report["sinks"][0];
    assert_eq!(
        (&sink["table"], &sink["rows_out"]),
        (&"o".into(), &3.into())
    );
    assert_eq!(sink["latency_ms"]["count"], 3);
}

#[test]
fn a_report_without_rows_has_nulls_and_no_zeros_for_what_was_not_measured() {
    let folder = Folder::with(&[("in.csv", "")]);
    folder
        .run(COUNTING, &["--set", "latency_target=20 ms"])
        .ok();
    let report = folder.json("report.json");
    assert_eq!(report["rows_in"], 0);
    assert!(report["cpu_us_per_row"].is_null());
    assert!(report["latency_ms"]["p99"].is_null());
    assert_eq!(report["latency_target_ms"], 20.0);
}
