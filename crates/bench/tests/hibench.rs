//! `slackwater bench hibench` over few records, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn every_workload_is_compared_with_the_hand_written_program() {
    let folder = Folder::new();
    let arguments = [
        "hibench",
        "--rows",
        "20000",
        "--runs",
        "1",
        "--parallelism",
        "1",
        "--memory-rows",
        "20000,0",
        "--folder",
        ".",
        "--json",
        "hibench.json",
    ];
    let finished = folder.bench(&arguments).ok();
    for part in [
        "HiBench streaming: 20,000 records",
        "identity",
        "identity-rows",
        "repartition",
        "wordcount",
        "fixwindow",
        "countwindow",
        "limit: fixwindow written by hand",
        "MB over 20,000 records",
    ] {
        let out = &finished.out;
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
    let figures = folder.json("hibench.json");
    let workloads = figures["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 6);
    for workload in workloads {
        let ratio = workload["limit_ratio"]["median"].as_f64().unwrap();
        assert!(ratio > 0.0, "{workload}");
    }
    assert_eq!(folder.names(), ["hibench.json"]);
}

#[test]
fn wrong_arguments_are_rejected() {
    let folder = Folder::new();
    folder
        .bench(&["hibench", "--parallelism", "0"])
        .fails(2, &["--parallelism", "expected numbers from 1 and auto"]);
}
