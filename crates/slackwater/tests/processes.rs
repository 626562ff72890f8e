//! Queries in several processes: the same rows, and what happens when one of them dies.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Folder, PATIENCE, Running, eventually};

const KINDS: [&str; 2] = ["shm", "tcp"];

fn endless(rate: &str) -> String {
    format!(
        "CREATE TABLE v (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
           WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
         WITH ('connector' = 'datagen', 'generator' = 'uservisits'{rate});
         CREATE TABLE o (start TIMESTAMP(3), ip STRING, n BIGINT)
         WITH ('connector' = 'file', 'path' = 'out.csv');
         INSERT INTO o SELECT window_start, ip, COUNT(*)
         FROM TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' SECOND)
         GROUP BY window_start, window_end, ip;
         SELECT ip FROM v;"
    )
}

/// Processes whose parent is `parent`, by number.
pub fn children(parent: u32) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        if fields.split_whitespace().nth(1) == Some(&parent.to_string()) {
            found.extend(Pid::from_raw(number));
        }
    }
    found.sort_by_key(|pid| pid.as_raw_nonzero());
    found
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // Its name in brackets, then its state: a zombie waits for a parent that is gone.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Starts an endless query in `processes` and waits until rows come out.
fn start(folder: &Folder, processes: &str, link: &str) -> (Running, Vec<Pid>) {
    let text = endless(", 'rate' = '20000/s'");
    let arguments = [
        "--parallelism",
        "3",
        "--processes",
        processes,
        "--link",
        link,
    ];
    let running = folder.start(&text, &arguments);
    for _ in 0..1_000 {
        running.line();
    }
    let children = children(running.id());
    assert_eq!(children.len(), processes.parse::<usize>().unwrap());
    (running, children)
}

#[test]
fn a_process_that_is_killed_ends_the_query_and_is_named() {
    for (link, victim) in KINDS.into_iter().zip([0, 1]) {
        let folder = Folder::new();
        let (running, children) = start(&folder, "3", link);
        kill_process(children[victim], Signal::KILL).unwrap();
        let finished = running.finish(PATIENCE);
        let pid = children[victim].as_raw_nonzero();
        let name = format!("process {victim} (pid {pid})");
        finished.fails(1, &[&name, "signal 9"]);
        assert!(
            !children.into_iter().any(is_alive),
            "{link}: a process is left"
        );
        // The sink's process lives, and discards what it wrote.
        let left = folder.names();
        assert_eq!(
            left,
            ["query.sql", "report.json"],
            "{link}: half a file is left"
        );
    }
}

#[test]
fn a_parent_that_is_killed_leaves_no_process_and_no_file() {
    for link in KINDS {
        let folder = Folder::new();
        let (running, children) = start(&folder, "2", link);
        let parent = Pid::from_raw(running.id() as i32).unwrap();
        kill_process(parent, Signal::KILL).unwrap();
        eventually("end of the orphans", || {
            (!children.iter().any(|&child| is_alive(child))).then_some(())
        });
        assert_eq!(folder.names(), ["query.sql"], "{link}");
        running.finish(PATIENCE);
    }
}

#[test]
fn an_interrupt_ends_all_processes_with_one_summary() {
    for link in KINDS {
        let folder = Folder::new();
        let (running, children) = start(&folder, "2", link);
        // As a terminal and a supervisor do: every process gets it.
        for &child in &children {
            kill_process(child, Signal::INT).unwrap();
            kill_process(child, Signal::TERM).unwrap();
        }
        running.interrupt();
        let finished = running.finish(PATIENCE).ok();
        assert_eq!(
            finished.err.matches("  rows ").count(),
            1,
            "{}",
            finished.err
        );
        let report = folder.json("report.json");
        assert!(report["rows_in"].as_u64().unwrap() > 0);
        assert!(folder.path("out.csv").exists());
    }
}

#[test]
fn a_duration_ends_all_processes() {
    let folder = Folder::new();
    let arguments = ["--processes", "2", "--duration", "500ms"];
    folder.run(&endless(", 'rate' = '2000/s'"), &arguments).ok();
    let report = folder.json("report.json");
    // No end would come without it; how long after it the last process ends is the machine's affair.
    assert!(report["wall_s"].as_f64().unwrap() >= 0.5);
}

#[test]
fn the_report_adds_up_over_processes() {
    let text = "CREATE TABLE t (k STRING, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'file', 'path' = 'in.csv');
        CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv');
        INSERT INTO o SELECT k, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)
        GROUP BY window_start, window_end, k;";
    let mut rows = String::new();
    for row in 0..3_000 {
        let (key, minute) = (row % 7, row / 60);
        rows.push_str(&format!("k{key},{row},2026-01-01 00:{minute:02}:00\n"));
    }
    rows.push_str("k1,many,2026-01-01 00:50:00\nk1,1\n");
    let mut expected = None;
    for (processes, link) in [("1", "auto"), ("2", "shm"), ("3", "tcp")] {
        let folder = Folder::with(&[("in.csv", &rows)]);
        let arguments = [
            "--parallelism",
            "2",
            "--processes",
            processes,
            "--link",
            link,
        ];
        let finished = folder.run(text, &arguments).ok();
        let report = folder.json("report.json");
        let figures =
            ["rows_in", "rows_out", "rows_late", "rows_bad"].map(|name| report[name].clone());
        let bytes = report["sources"][0]["bytes_read"].clone();
        let found = (figures, bytes, folder.sorted("out.csv"));
        let letters = folder.json_lines("slackwater-dead-letter/t.jsonl");
        assert_eq!(letters.len(), 2);
        assert!(finished.err.contains("2 kept in"), "{}", finished.err);
        assert_eq!(
            report["sources"][0]["dead_letter"],
            "slackwater-dead-letter/t.jsonl"
        );
        assert_eq!(expected.get_or_insert(found.clone()), &found, "{processes}");
        let latency = &report["latency_ms"];
        assert_eq!(latency["count"], report["rows_out"]);
        // Times are taken in several processes: their clocks must be one.
        let wall_ms = report["wall_s"].as_f64().unwrap() * 1000.0;
        assert!(latency["max"].as_f64().unwrap() <= wall_ms, "{latency}");
        assert!(report["cpu_s"].as_f64().unwrap() > 0.0);
        let plan = &report["plan"];
        if processes == "1" {
            assert_eq!(plan["processes"].as_array().unwrap().len(), 0);
            continue;
        }
        let number = processes.parse::<usize>().unwrap();
        assert_eq!(plan["processes"].as_array().unwrap().len(), number);
        let links = plan["remote_links"].as_array().unwrap();
        assert!(!links.is_empty());
        for between in links {
            assert_eq!(between["kind"], link);
            let (send, receive) = (&between["send"], &between["receive"]);
            assert_eq!(send["messages"], receive["messages"], "{between}");
            assert_eq!(send["bytes"], receive["bytes"], "{between}");
            assert!(send["messages"].as_u64().unwrap() > 0);
            assert!(send["busy_s"].as_f64().unwrap() > 0.0);
            assert!(receive["busy_s"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn a_failure_in_another_process_is_said_as_it_is() {
    let text = "CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv',
          'on_error' = 'fail');
        CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv');
        INSERT INTO o SELECT k, COUNT(n) FROM t GROUP BY k;";
    for link in KINDS {
        let folder = Folder::with(&[("in.csv", "a,1\nb,two\n")]);
        let arguments = ["--parallelism", "2", "--processes", "2", "--link", link];
        let finished = folder.run(text, &arguments);
        finished.fails(1, &["in.csv:2", "'n'"]);
        assert!(!folder.path("out.csv").exists());
    }
}

#[test]
fn wrong_numbers_of_processes_are_refused() {
    let folder = Folder::new();
    let wrong = |arguments: &[&str], parts: &[&str]| {
        folder.run(&endless(""), arguments).fails(2, parts);
    };
    wrong(
        &["--processes", "0"],
        &["'0' is not a valid value of 'processes'"],
    );
    wrong(&["--processes", "65"], &["1 to 64"]);
    wrong(
        &["--link", "pigeon"],
        &["'pigeon' is not a valid value of 'link'", "'tcp' or 'xdp'"],
    );
    let finished = folder.run(&endless(""), &["--processes", "3", "--workers", "2"]);
    finished.fails(
        2,
        &["3 processes need more than 2 worker threads", "--workers 3"],
    );
}

#[test]
fn standard_input_is_read_in_another_process() {
    let folder = Folder::new();
    folder.write(
        "query.sql",
        b"CREATE TABLE t (n BIGINT) WITH ('connector' = 'stdin', 'format' = 'csv');
          SELECT SUM(n) AS total FROM t;",
    );
    let arguments = ["run", "query.sql", "--processes", "2", "--quiet"];
    let finished = folder.slackwater_with_input(&arguments, b"1\n2\n39\n").ok();
    assert_eq!(
        finished.out.lines().last(),
        Some("+I     42"),
        "{}",
        finished.out
    );
}

#[test]
fn nothing_is_left_in_shared_memory() {
    let names = || {
        let entries = std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|entry| entry.file_name());
        let ours = names.filter(|name| name.to_string_lossy().contains("slackwater"));
        ours.count()
    };
    assert!(Path::new("/proc").is_dir());
    let before = names();
    let folder = Folder::new();
    let (running, children) = start(&folder, "2", "shm");
    kill_process(children[1], Signal::KILL).unwrap();
    running.finish(PATIENCE);
    assert_eq!(names(), before);
}

#[test]
fn explain_shows_the_process_of_each_worker() {
    let folder = Folder::new();
    folder.write("query.sql", endless("").as_bytes());
    let arguments = ["explain", "query.sql", "--processes", "2", "--workers", "3"];
    let out = folder.slackwater(&arguments).ok().out;
    for part in [
        "worker 0 (process 0,",
        "worker 1 (process 0,",
        "worker 2 (process 1,",
    ] {
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
}

/// A host that does other work lets a process wait for longer than a second, here because it is stopped: the
/// report waits for what it counts.
#[test]
fn regression_a_report_lacks_no_counts_of_a_slow_process() {
    let folder = Folder::with(&[("in.csv", "1\n2\n3\n")]);
    let text = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
        CREATE TABLE o (n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv');
        INSERT INTO o SELECT n FROM t;
        CREATE TABLE s (n BIGINT) WITH ('connector' = 'stdin', 'format' = 'csv');
        CREATE TABLE b (n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO b SELECT n FROM s;";
    folder.write("query.sql", text.as_bytes());
    let arguments = ["run", "query.sql", "--processes", "2", "--workers", "2"];
    let more = ["--parallelism", "1", "--report", "report.json"];
    let command = folder.command(&[&arguments[..], &more].concat());
    let (running, input) = Running::start_with_input(command);
    eventually("rows of the file", || {
        folder.path("out.csv").exists().then_some(())
    });
    // The process of worker 0, which has nothing more to do.
    let children = children(running.id());
    kill_process(children[0], Signal::STOP).unwrap();
    drop(input);
    std::thread::sleep(Duration::from_millis(1_500));
    kill_process(children[0], Signal::CONT).unwrap();
    let finished = running.finish(PATIENCE).ok();
    assert!(!finished.err.contains("lacks"), "{}", finished.err);
    let report = folder.json("report.json");
    let processes = report["plan"]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{report}");
}
