//! `slackwater bench chunking` with a tiny pipeline, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn all_experiments_run_from_end_to_end() {
    let folder = Folder::new();
    let finished = folder
        .bench(&[
            "chunking",
            "--quick",
            "--computing",
            "0.5",
            "--blocks",
            "4096,65536",
            "--image",
            "524288",
            "--seconds",
            "0.15",
            "--json",
            "chunking.json",
            "--svg",
            "chunking.svg",
        ])
        .ok();
    assert!(finished.err.contains("about 0 min"), "{}", finished.err);
    for part in [
        "| blocks of | TCP | shared memory |",
        "| 64 KiB |",
        "TCP's best block is",
        "| rate | TCP, its best block | shared memory, the same block | shared memory, planned block |",
        "| parts | complete | TCP, its best block |",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("chunking.json");
    assert!(figures["host"]["processor"].is_string());
    let points = figures["points"].as_array().unwrap();
    assert!(points.len() > 20, "{} points", points.len());
    for point in points {
        assert!(point["cores_used"].as_f64().unwrap() > 0.0, "{point}");
    }
    let level = &figures["levels"][0];
    let sizes = level["sweep"]["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 4);
    // Complete images were sent, and parts of them as well; a busy host has no time for some sizes.
    let whole = |size: &serde_json::Value| size["complete_per_s"].as_f64().unwrap() > 0.0;
    assert!(sizes.iter().any(whole), "{sizes:?}");
    assert_eq!(level["latency"].as_array().unwrap().len(), 6);
    assert_eq!(level["rate"].as_array().unwrap().len(), 3);
    assert_eq!(level["mixed"].as_array().unwrap().len(), 12);
    for mix in level["mixed"].as_array().unwrap() {
        assert!(mix["mean_us"].as_f64().unwrap() > 0.0, "{mix}");
        assert!(mix["block_bytes"].as_u64().unwrap() >= 4096, "{mix}");
    }
    let drawing = folder.read("chunking.svg");
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
}

/// Queries need the engine's program beside this one.
#[test]
#[ignore = "slow: make test-all"]
fn the_experiments_run_as_queries_from_end_to_end() {
    let folder = Folder::new();
    if !folder.has_engine() {
        return;
    }
    let finished = folder
        .bench(&[
            "chunking",
            "--query",
            "--quick",
            "--seconds",
            "0.1",
            "--json",
            "chunking.json",
        ])
        .ok();
    for part in [
        "| blocks of | TCP | shared memory |",
        "TCP's best block is",
        "| complete | TCP,",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("chunking.json");
    // Two of the rates are above TCP's.
    assert_eq!(figures["points"].as_array().unwrap().len(), 10 * 3 - 2);
    assert_eq!(figures["verdicts"].as_array().unwrap().len(), 3);
}

#[test]
fn wrong_arguments_are_rejected_at_once() {
    let folder = Folder::new();
    folder
        .bench(&["chunking", "--blocks", "1000"])
        .fails(2, &["--blocks", "a multiple of 64 bytes"]);
    folder
        .bench(&["chunking", "--image", "1000"])
        .fails(1, &["--image", "a power of two"]);
    folder
        .bench(&["chunking", "--json", "nowhere/chunking.json"])
        .fails(1, &["the folder nowhere does not exist"]);
}
