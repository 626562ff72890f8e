//! `slackwater bench wait` with two tiny points, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn two_points_are_measured_from_end_to_end() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return;
    }
    let folder = Folder::new();
    let finished = folder
        .bench(&[
            "wait",
            "--quick",
            "--kinds",
            "shm,plain",
            "--modes",
            "sleep:1ms,auto:1ms",
            "--rates",
            "500,20k",
            "--seconds",
            "0.1",
            "--json",
            "wait.json",
            "--svg",
            "wait.svg",
        ])
        .ok();
    assert!(finished.err.contains("8 points, about"), "{}", finished.err);
    for part in [
        "| plain TCP | interrupt |",
        "| shared memory | auto:1ms |",
        "| 20 k/s |",
        "sleep:1ms over shared memory against interrupts over plain TCP",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("wait.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        let due = point["sent"]["due"].as_u64().unwrap();
        assert!(due > 10, "{point}");
        assert!(point["sent"]["usage"]["cpu_s"].as_f64().unwrap() > 0.0);
        if point["way"]["transport"] == "nothing" {
            assert!(point["received"].is_null());
            continue;
        }
        let received = &point["received"];
        assert!(received["in_time"].as_u64().unwrap() <= due, "{point}");
        assert!(received["usage"]["cpu_s"].as_f64().unwrap() > 0.0);
        assert!(received["since_due"]["max_us"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(figures["summaries"].as_array().unwrap().len(), 6);
    assert!(figures["host"]["processor"].is_string());
    assert!(figures["load_after"].is_array());
    assert_eq!(figures["oversleeps"][0]["sleep_us"], 1000.0);
    let drawing = folder.read("wait.svg");
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
}

/// Whole queries need the engine's program beside this one.
#[test]
#[ignore = "slow: make test-all"]
fn queries_are_measured_from_end_to_end() {
    let folder = Folder::new();
    if !folder.has_engine() {
        return;
    }
    let finished = folder
        .bench(&[
            "wait",
            "--query",
            "--quick",
            "--modes",
            "interrupt,auto:1ms",
            "--rates",
            "500",
            "--seconds",
            "0.2",
            "--json",
            "wait.json",
        ])
        .ok();
    for part in [
        "| TCP, interrupt |",
        "| shared memory, auto:1ms |",
        "3 processes: CPU time",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("wait.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    for point in points {
        let processes = point["processes"].as_u64().unwrap() as usize;
        let ran = &point["ran"];
        assert_eq!(ran["cpu_percent"].as_array().unwrap().len(), processes);
        assert!(ran["report"]["rows_in"].as_u64().unwrap() > 100, "{point}");
        let links = ran["report"]["plan"]["remote_links"].as_array().unwrap();
        assert_eq!(links.len(), processes - 1, "{point}");
    }
    for run in figures["throughput"].as_array().unwrap() {
        assert!(run["rows_per_s"].as_f64().unwrap() > 0.0, "{run}");
    }
}

#[test]
fn wrong_arguments_are_rejected_at_once() {
    let folder = Folder::new();
    folder
        .bench(&["wait", "--modes", "sleeping"])
        .fails(2, &["--modes", "'interrupt'"]);
    folder
        .bench(&["wait", "--json", "nowhere/wait.json"])
        .fails(1, &["the folder nowhere does not exist"]);
}
