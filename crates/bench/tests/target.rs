//! `slackwater bench target` with two tiny points, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn two_points_are_measured_from_end_to_end() {
    let folder = Folder::new();
    // A window closes 1 s after the first record: within the measured interval.
    let finished = folder
        .bench(&[
            "target",
            "--quick",
            "--queries",
            "filter,window",
            "--rates",
            "2000",
            "--targets",
            "20",
            "--settings",
            "auto,interrupt",
            "--warm-up",
            "0.8",
            "--seconds",
            "0.3",
            "--json",
            "target.json",
            "--svg",
            "target.svg",
        ])
        .ok();
    assert!(finished.err.contains("4 points, about"), "{}", finished.err);
    for part in [
        "| query | setting | 2 k/s |",
        "| filter | auto:20ms |",
        "| window | interrupt |",
        "targets missed by auto that a fixed setting meets",
        "not measured: auto:20ms against hand, filter at 500 k/s",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("target.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for point in points {
        // Warm-up, interval and tail, without records left.
        let generated = &point["generated"];
        assert_eq!(generated["sent"]["records"], 2_800, "{point}");
        assert_eq!(generated["sent"]["unsent"], 0, "{point}");
        let in_all = generated["received"]["rows"].as_u64().unwrap();
        let counted = generated["rows"].as_u64().unwrap();
        assert!(0 < counted && counted < in_all, "{point}");
        assert!(generated["latency"]["max_us"].as_f64().unwrap() > 0.0);
        assert!(point["usage"]["cpu_s"].as_f64().unwrap() > 0.0);
        assert!(point["own"]["p99_us"].as_f64().unwrap() > 0.0);
        assert!(point["own"]["plan"]["subqueries"].is_array());
    }
    let summaries = figures["summaries"].as_array().unwrap();
    assert_eq!(summaries.len(), 4);
    for summary in summaries {
        let is_auto = summary["setting"] == "auto:20ms";
        assert_eq!(summary["target_met"].is_boolean(), is_auto, "{summary}");
    }
    assert_eq!(figures["comparisons"].as_array().unwrap().len(), 2);
    assert!(figures["host"]["processor"].is_string());
    let drawing = folder.read("target.svg");
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    assert_eq!(folder.names(), ["target.json", "target.svg"]);
}

#[test]
fn wrong_arguments_are_rejected_at_once() {
    let folder = Folder::new();
    folder
        .bench(&["target", "--settings", "fast"])
        .fails(2, &["--settings", "interrupt"]);
    folder
        .bench(&["target", "--svg", "nowhere/target.svg"])
        .fails(1, &["the folder nowhere does not exist"]);
    let hand = ["target", "--settings", "hand", "--queries", "window"];
    folder
        .bench(&hand)
        .fails(1, &["nothing is left to measure"]);
}
