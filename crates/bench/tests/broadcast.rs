//! Small runs of `slackwater bench broadcast` and `bench line`, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn every_algorithm_over_every_link_reaches_every_receiver() {
    let folder = Folder::new();
    let arguments = [
        "broadcast",
        "--quick",
        "--settings",
        "5x3",
        "--sizes",
        "64,65536",
        "--json",
        "broadcast.json",
    ];
    let finished = folder.bench(&arguments).ok();
    for part in [
        "5 receivers in 3 process(es)",
        "shm ring",
        "tcp serial",
        "P2's ordering",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("broadcast.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for point in points {
        let ways = point["ways"].as_array().unwrap();
        assert!(ways.len() >= 8, "{} ways", ways.len());
        for way in ways {
            assert!(
                way["messages_per_s"]["median"].as_f64().unwrap() > 0.0,
                "{way}"
            );
            assert!(
                way["latency_p50_us"]["median"].as_f64().unwrap() > 0.0,
                "{way}"
            );
        }
        assert_eq!(point["choices"].as_array().unwrap().len(), 2);
    }
    // Two goals: those for 32 receivers were not measured.
    assert_eq!(figures["verdicts"].as_array().unwrap().len(), 2);
}

#[test]
fn a_line_is_measured_over_both_links() {
    let folder = Folder::new();
    let arguments = ["line", "--quick", "--workers", "2,4", "--json", "line.json"];
    let finished = folder.bench(&arguments).ok();
    assert!(
        finished.out.contains(": 4 workers: latency"),
        "{}",
        finished.out
    );
    let figures = folder.json("line.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    for point in points {
        assert!(point["ratio"]["median"].as_f64().unwrap() > 0.0, "{point}");
    }
}

#[test]
fn an_impossible_setting_is_rejected() {
    let folder = Folder::new();
    let refused = folder.bench(&["broadcast", "--settings", "4x8"]);
    refused.fails(2, &["such as 32x8"]);
}
