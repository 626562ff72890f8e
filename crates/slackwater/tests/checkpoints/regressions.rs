//! What went wrong once.

use super::*;

#[test]
fn regression_a_pipe_brings_what_it_has_not_brought_before() {
    let folder = tempfile::tempdir().unwrap();
    let text = "CREATE TABLE i (k STRING, v INT) WITH ('connector' = 'stdin');
         CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'file', 'path' = 'o');
         INSERT INTO o SELECT k, v FROM i;";
    std::fs::write(folder.path().join("query.sql"), text).unwrap();
    let pipe = |rows: std::ops::Range<u64>, stays: bool| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["run", "query.sql", "--quiet", "--state", "state"])
            .args(if stays {
                &["--duration", "300ms"][..]
            } else {
                &[]
            })
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = run.stdin.take().unwrap();
        for row in rows {
            std::io::Write::write_all(&mut input, format!("a,{row}\n").as_bytes()).unwrap();
        }
        if stays {
            assert!(run.wait().unwrap().success());
        } else {
            drop(input);
            assert!(run.wait().unwrap().success());
        }
    };
    pipe(0..5, true);
    pipe(5..9, false);
    let mut rows = Vec::new();
    for part in std::fs::read_dir(folder.path().join("o")).unwrap() {
        let text = std::fs::read_to_string(part.unwrap().path()).unwrap();
        rows.extend(text.lines().map(str::to_string));
    }
    rows.sort();
    assert_eq!(
        rows,
        (0..9).map(|row| format!("a,{row}")).collect::<Vec<_>>()
    );
}

/// Starts the command line's program, kills or signals it with `end` a little later, and returns what it
/// said.
fn interrupted(case: &Case, arguments: &[&str], end: &[rustix::process::Signal]) -> Output {
    let query = case.path("query.sql");
    std::fs::write(&query, case.text()).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .arg("run")
        .arg(&query)
        .args(["--quiet", "--state", "state"])
        .args(arguments)
        .current_dir(case.folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has begun when it has claimed the place of its checkpoints, and written something.
    let until = Instant::now() + Duration::from_secs(20);
    while !case
        .path("state/checkpoints/00000000000000000001.json")
        .exists()
    {
        assert!(Instant::now() < until, "it did not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(150));
    let pid = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
    for &signal in end {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    run.wait_with_output().unwrap()
}

#[test]
fn regression_a_death_before_the_first_checkpoint_does_not_lock_the_output() {
    use rustix::process::Signal;
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    for _ in 0..2 {
        interrupted(&case, &["--set", "checkpoint_interval=1h"], &[Signal::KILL]);
    }
    case.run(&[], false).unwrap();
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert_eq!(copies.lines().count() as u64, ROWS);
    // What is of others is refused before anything is claimed, however often it is tried.
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    std::fs::write(case.path("copies.csv"), "mine").unwrap();
    for _ in 0..2 {
        let reason = refused(case.run(&[], false));
        assert!(reason.contains("copies.csv already exists"), "{reason}");
    }
    assert_eq!(
        std::fs::read_to_string(case.path("copies.csv")).unwrap(),
        "mine"
    );
    let claims = std::fs::read_dir(case.path("state/checkpoints"));
    assert_eq!(claims.map_or(0, |claims| claims.count()), 0);
}

#[test]
fn regression_the_same_signal_twice_is_one_and_saves() {
    use rustix::process::Signal;
    let case = Case::new(COUNTS);
    let output = interrupted(&case, &[], &[Signal::INT, Signal::INT]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let finished = case.run(&[], false).unwrap();
    assert!(finished.report.restored_from.is_some());
    assert!(finished.report.rows_in < ROWS, "nothing was saved");
    assert_eq!(case.counts(), case.expected());
}

/// SIGHUP is what a closed terminal sends.
#[test]
fn sighup_saves_as_sigterm_does() {
    let case = Case::new(COUNTS);
    let output = interrupted(&case, &[], &[rustix::process::Signal::HUP]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let finished = case.run(&[], false).unwrap();
    assert!(finished.report.restored_from.is_some());
    assert!(finished.report.rows_in < ROWS, "nothing was saved");
    assert_eq!(case.counts(), case.expected());
}

#[test]
fn regression_what_could_not_be_saved_is_not_called_saved() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut case = Case::new(COUNTS);
    case.rate = RATE / 5;
    std::fs::write(case.path("query.sql"), case.text()).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args([
            "run",
            "query.sql",
            "--state",
            "state",
            "--processes=2",
            "--parallelism=2",
        ])
        .current_dir(case.folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let until = Instant::now() + Duration::from_secs(20);
    let worker = loop {
        let listed = std::fs::read_to_string(&children).unwrap_or_default();
        let workers = listed.split_whitespace().map(|pid| pid.parse().unwrap());
        let has_begun = case.path("state/parts").exists();
        match workers.collect::<Vec<i32>>()[..] {
            [worker, _] if has_begun => break worker,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(Instant::now() < until, "it did not begin");
    };
    // Who doesn't answer the barrier keeps the last checkpoint from being stored.
    let worker = Pid::from_raw(worker).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    kill_process(Pid::from_raw(run.id() as i32).unwrap(), Signal::TERM).unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped before a last checkpoint"), "{said}");
    assert!(!said.contains("and saved"), "{said}");
}

#[test]
fn regression_output_that_is_gone_is_said_at_once() {
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    case.run_for(Some(300), &[], false).unwrap();
    for entry in std::fs::read_dir(case.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|ending| ending == "unfinished")
        {
            std::fs::remove_file(path).unwrap();
        }
    }
    let (reason, report) = failed(case.run(&[], false));
    assert!(reason.contains("copies.csv: neither it nor"), "{reason}");
    assert_eq!(report.restarts, 0);
    // The input, too.
    let case = Case::new(COUNTS);
    case.run_for(Some(300), &[], false).unwrap();
    std::fs::write(case.path("in.csv"), "ts,k,v\n").unwrap();
    let (reason, report) = failed(case.run(&[], false));
    assert!(
        reason.contains("in.csv") && reason.contains("read before"),
        "{reason}"
    );
    assert_eq!(report.restarts, 0);
}
