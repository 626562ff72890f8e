//! `slackwater bench nexmark`: both inputs, and errors. Flink's part needs Java and is not run here.

use crate::support::Folder;

#[test]
fn every_input_is_measured_and_the_folder_is_left_as_it_was() {
    let folder = Folder::new();
    let arguments = [
        "nexmark",
        "--events",
        "2000",
        "--queries",
        "q0,q5",
        "--runs",
        "1",
        "--folder",
        ".",
        "--json",
        "nexmark.json",
    ];
    let finished = folder.bench(&arguments).ok();
    for part in [
        "Nexmark: 2,000 events",
        "q5",
        "json",
        "generator",
        "Feldera",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    assert!(
        finished.err.contains("make peers-flink"),
        "{}",
        finished.err
    );
    let figures = folder.json("nexmark.json");
    // Two queries, two inputs, parallelism 1 and 2.
    assert_eq!(figures["queries"].as_array().unwrap().len(), 8);
    assert!(
        figures["queries"][0]["events_per_cpu_s"]["median"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert_eq!(folder.names(), ["nexmark.json"]);
}

#[test]
fn wrong_arguments_are_rejected_before_anything_is_created() {
    let folder = Folder::new();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let arguments = [&["nexmark"], arguments].concat();
        folder.bench(&arguments).fails(1, parts);
    };
    refused(&["--queries", "q6"], &["--queries", "no 'q6'", "q22"]);
    refused(&["--flink-queries", "q99"], &["--flink-queries", "q99"]);
    refused(
        &["--flink", "."],
        &["slackwater-flink.jar", "make peers-flink"],
    );
    folder
        .bench(&["nexmark", "--parallelism", "0"])
        .fails(2, &["--parallelism", "expected numbers from 1 and auto"]);
    refused(&["--json", "no/such.json"], &["does not exist"]);
    assert!(folder.names().is_empty());
}
