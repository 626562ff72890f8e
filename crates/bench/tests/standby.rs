//! `slackwater bench standby` with a few keys, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn costs_and_take_overs_are_measured_from_end_to_end() {
    let folder = Folder::new();
    let arguments = [
        "standby",
        "--quick",
        "--keys",
        "1000",
        "--interval",
        "100",
        "--rate",
        "5k",
        "--seconds",
        "0.5",
        "--folder",
        ".",
        "--json",
        "standby.json",
    ];
    let finished = folder.bench(&arguments).ok();
    for part in [
        "| 1000 | a standby |",
        "| 1000 | restarted |",
        "rows again after notice",
    ] {
        let out = &finished.out;
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
    let figures = folder.json("standby.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 6, "three ways, with windows and by keys");
    let standbys = points.iter().filter(|point| point["way"] == "standby");
    assert!(standbys.clone().count() == 2);
    for standby in standbys {
        assert!(standby["standby_percent"].as_f64().unwrap() >= 0.0);
    }
    let takeovers = figures["takeovers"].as_array().unwrap();
    assert!(takeovers.len() >= 2, "slow storage needs root");
    assert!(
        takeovers
            .iter()
            .all(|found| found["back_ms"].as_f64().unwrap() > 0.0)
    );
    assert_eq!(folder.names(), ["standby.json"]);
}

#[test]
fn wrong_arguments_are_rejected_at_once() {
    let folder = Folder::new();
    folder
        .bench(&["standby", "--keys", "1"])
        .fails(2, &["--keys"]);
    folder
        .bench(&["standby", "--folder", "nowhere"])
        .fails(1, &["nowhere", "does not exist"]);
}
