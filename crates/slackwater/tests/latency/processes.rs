//! Latency targets over several worker processes: looked at, corrected and reported as in one.

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::{PACED, folder};
use crate::process::{Folder, PATIENCE, eventually};

/// The controller acts on worker processes as it acts on threads: it asks them what they have done, corrects,
/// and what it sets arrives there.
#[test]
fn worker_processes_are_corrected_while_they_run() {
    let expected = {
        let folder = folder("SET 'latency_target' = '10 ms';");
        folder.slackwater(&["run", "query.sql"]).ok();
        folder.sorted("counts.csv")
    };
    for link in ["shm", "tcp"] {
        let folder = folder("SET 'latency_target' = '10 ms';");
        let arguments = [
            "run",
            "query.sql",
            "--processes",
            "2",
            "--parallelism",
            "2",
            "--link",
            link,
            "--report",
            "report.json",
        ];
        folder.slackwater(&arguments).ok();
        assert_eq!(folder.sorted("counts.csv"), expected, "{link}");
        let report = folder.json("report.json");
        let tuning = &report["plan"]["tuning"];
        let number = |field: &str| tuning[field].as_f64().unwrap();
        assert!(number("corrections") > 0.0, "{link}: {tuning}");
        assert!(number("changes") > 0.0, "{link}: {tuning}");
        assert_ne!(tuning["delay_first_ms"], tuning["delay_ms"], "{link}");
        // Instances stay in their processes.
        assert_eq!(number("moves"), 0.0, "{link}: {tuning}");
        assert_eq!(number("workers_used_max"), 2.0, "{link}: {tuning}");
        assert!(number("measured_cpu_percent") > 0.0, "{link}: {tuning}");
        let processes = report["plan"]["processes"].as_array().unwrap();
        let sum = |field: &str| {
            let each = processes
                .iter()
                .map(|process| process[field].as_u64().unwrap());
            each.sum::<u64>()
        };
        assert!(
            processes
                .iter()
                .all(|process| process["looks"].as_u64() > Some(0)),
            "{link}: {processes:?}"
        );
        // At first each is told how its worker waits, and how the source cuts its rows.
        assert!(sum("settings") > 4, "{link}: {processes:?}");
        for sink in report["sinks"].as_array().unwrap() {
            assert!(
                sink["violated_s"].as_f64() <= sink["active_s"].as_f64(),
                "{sink}"
            );
        }
    }
}

/// What the user has set is left alone in other processes, too.
#[test]
fn worker_processes_wait_as_they_were_told() {
    let folder = folder(
        "SET 'latency_target' = '10 ms'; SET 'wait' = 'interrupt'; SET 'linger' = '1 ms';
         SET 'chunk_rows' = '512'; SET 'message_bytes' = '4 KiB';",
    );
    let arguments = ["--processes", "2", "--report", "report.json"];
    folder
        .slackwater(&[&["run", "query.sql"], &arguments[..]].concat())
        .ok();
    let plan = &folder.json("report.json")["plan"];
    for process in plan["processes"].as_array().unwrap() {
        // What the source was told is what was set.
        assert!(process["settings"].as_u64() <= Some(1), "{process}");
        assert!(process["looks"].as_u64() > Some(0), "{process}");
    }
    assert!(plan["tuning"]["corrections"].as_u64() > Some(0), "{plan}");
}

/// What comes after a worker process was killed is tuned again.
#[test]
fn processes_that_are_started_again_are_tuned_again() {
    let text = PACED
        .replace("'rows' = '100000'", "'rows' = '60000'")
        .replace(
            "'rate' = '10000/s', 'rate_max' = '90000/s', 'rate_period' = '2 s'",
            "'rate' = '15000/s'",
        );
    let text = format!("SET 'latency_target' = '10 ms';{text}");
    let expected = {
        let folder = Folder::new();
        folder.run(&text, &[]).ok();
        folder.sorted("counts.csv")
    };
    let folder = Folder::new();
    let arguments = [
        "--processes",
        "2",
        "--parallelism",
        "2",
        "--state",
        "state",
        "--set",
        "checkpoint_interval=50 ms",
    ];
    let running = folder.start(&text, &arguments);
    let children = eventually("worker processes", || {
        let children = crate::processes::children(running.id());
        (children.len() == 2).then_some(children)
    });
    // It runs for four seconds.
    std::thread::sleep(Duration::from_millis(1_500));
    kill_process(children[1], Signal::KILL).unwrap();
    running.finish(PATIENCE).ok();
    assert_eq!(folder.sorted("counts.csv"), expected);
    let report = folder.json("report.json");
    assert_eq!(report["restarts"], 1);
    let plan = &report["plan"];
    // What is reported of tuning is the last incarnation's.
    assert!(plan["tuning"]["corrections"].as_u64() > Some(0), "{plan}");
    for process in plan["processes"].as_array().unwrap() {
        assert!(process["looks"].as_u64() > Some(0), "{process}");
        assert!(process["settings"].as_u64() > Some(0), "{process}");
    }
}

#[test]
fn explain_says_what_is_corrected_in_several_processes() {
    let folder = folder("SET 'latency_target' = '20 ms';");
    let arguments = ["--processes", "2", "--parallelism", "2"];
    let out = folder
        .slackwater(&[&["explain", "query.sql"], &arguments[..]].concat())
        .ok()
        .out;
    for part in [
        // Rows are counted by key in both processes; what is only filtered stays where it is.
        "chosen     2 workers in a row (",
        "chosen     all on one worker; the source's worker sleeps ",
        "the others: waits to be woken",
        "with several processes, instances stay on their workers; how long sources sleep",
    ] {
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
    let out = folder
        .slackwater(&[&["explain", "query.sql", "--analyze"], &arguments[..]].concat())
        .ok()
        .out;
    let line = out.lines().find(|line| line.contains("  at the end  "));
    let line = line.unwrap_or_else(|| panic!("nothing of tuning in:\n{out}"));
    assert!(line.contains(" corrections ("), "{line}");
    assert!(!line.contains(" 0 corrections"), "{line}");
    assert!(out.contains("  CPU time of the workers "), "{out}");
}
