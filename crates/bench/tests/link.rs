//! A quick run of `slackwater bench link`, from end to end. Speeds are not checked.

use serde_json::Value;

use crate::support::Folder;

fn number(value: &Value, field: &str) -> f64 {
    let number = value[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is not a number in {value}"))
}

#[test]
fn the_requested_kinds_are_measured() {
    let folder = Folder::new();
    let kinds = "in-process,shm-lent,shm-copied,tcp-link,unix,unix-seqpacket,pipe,tcp-plain";
    let arguments = ["link", "--quick", "--kinds", kinds, "--json", "link.json"];
    let table = folder.bench(&arguments).ok().out;
    let figures = folder.json("link.json");
    let points = figures["points"].as_array().unwrap();
    for kind in kinds.split(',') {
        assert!(table.contains(kind), "{kind} in {table}");
        let of_kind = points.iter().filter(|point| point["kind"] == kind);
        // Two patterns, two ways to wait, four sizes.
        assert_eq!(of_kind.count(), 16, "{kind}");
    }
    for point in points.iter().filter(|point| point["unsupported"].is_null()) {
        let flow = &point["flow"];
        assert!(number(&flow["messages_per_s"], "median") > 0.0, "{point}");
        assert!(
            number(&flow["sender_cpu_s_per_gb"], "median") >= 0.0,
            "{point}"
        );
        if point["pattern"] == "ping-pong" {
            let latency = &point["latency"];
            let p50_ns = number(&latency["p50_ns"], "median");
            assert!(
                p50_ns > 0.0 && p50_ns <= number(&latency["p999_ns"], "median"),
                "{point}"
            );
        }
    }
    let goals = figures["verdicts"].as_array().unwrap();
    assert_eq!(goals.len(), 4);
    assert!(goals[0]["met"].is_boolean() && goals[1]["met"].is_boolean());
    assert!(table.contains("a cache line one way"), "{table}");
}

#[test]
fn an_unknown_kind_is_named() {
    let folder = Folder::new();
    folder
        .bench(&["link", "--kinds", "carrier-pigeon"])
        .fails(1, &["carrier-pigeon", "shm-lent"]);
    folder
        .bench(&["link", "--peers", "/nowhere/at/all"])
        .fails(1, &["/nowhere/at/all"]);
}
