//! Two runs on one folder: the one that began last is the only one whose rows count.

use rustix::process::{Pid, Signal, kill_process};

use super::*;

const COPIES: &str = "INSERT INTO copies SELECT ms, k, v FROM events;";

/// Starts the command line's program, by way of `before`.
fn start(case: &Case, before: &[String]) -> std::process::Child {
    let query = case.path("query.sql");
    std::fs::write(&query, case.text()).unwrap();
    Command::new(&before[0])
        .args(&before[1..])
        .args([env!("CARGO_BIN_EXE_slackwater"), "run"])
        .arg(&query)
        .args([
            "--quiet",
            "--state",
            "state",
            "--set=checkpoint_interval=50 ms",
        ])
        .current_dir(case.folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < until, "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_whole(case: &Case) {
    let input = std::fs::read_to_string(case.path("in.csv")).unwrap();
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert_eq!(copies.lines().count() as u64, ROWS);
    assert!(input.split_once('\n').unwrap().1 == copies, "not a copy");
}

/// Arguments of strace that let opening the file of the sink take so long, as a slow disk may, in the
/// incarnation `epoch` and in versions that didn't number it.
fn slow(case: &Case, epoch: u64, delay_us: u64) -> Vec<String> {
    let names = [
        format!(".copies.csv.{epoch:010}.unfinished"),
        ".copies.csv.unfinished".to_string(),
    ];
    let paths = names
        .iter()
        .map(|name| case.path(name).display().to_string());
    let delay = format!("inject=openat:delay_enter={delay_us}");
    let words = [
        "strace",
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=openat",
        "-e",
        &delay,
    ];
    let mut words = words.map(str::to_string).to_vec();
    words.extend(paths.flat_map(|path| ["-P".to_string(), path]));
    words
}

/// The older run opens the file of its sink after the younger one has begun, and before that one opens it:
/// what the older one wrote was kept, and came again.
#[test]
fn regression_a_run_that_opens_its_file_late_writes_nothing_that_is_kept() {
    let case = Case::new(COPIES);
    let (older, younger) = (slow(&case, 1, 900_000), slow(&case, 2, 1_500_000));
    let works = Command::new("strace")
        .args(&older[1..])
        .arg("true")
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        println!("note: no strace that may trace: skipped");
        return;
    }
    let older = start(&case, &older);
    wait_for(&case.path("state/checkpoints/00000000000000000001.json"));
    let younger = start(&case, &younger);
    let younger = younger.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&younger.stderr).into_owned();
    assert!(younger.status.success(), "{said}");
    let older = older.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&older.stderr).into_owned();
    assert_eq!(older.status.code(), Some(1), "{said}");
    assert!(said.contains("taken over"), "{said}");
    is_whole(&case);
}

#[test]
fn a_run_that_was_stopped_holds_nobody_up_and_can_not_write_when_it_is_continued() {
    let case = Case::new(COPIES);
    let older = start(&case, &["env".to_string()]);
    wait_for(&case.path("state/checkpoints/00000000000000000003.json"));
    let pid = Pid::from_raw(older.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let younger = start(&case, &["env".to_string()])
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8_lossy(&younger.stderr).into_owned();
    assert!(younger.status.success(), "{said}");
    is_whole(&case);
    kill_process(pid, Signal::CONT).unwrap();
    let older = older.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&older.stderr).into_owned();
    assert_eq!(older.status.code(), Some(1), "{said}");
    assert!(said.contains("taken over"), "{said}");
    is_whole(&case);
}
