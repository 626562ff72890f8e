//! What the tuner does to a query with little work. Counts, no times.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::Folder;

const ROWS: u64 = 100;

/// The system calls that are counted: those of looks, and files that are opened.
const TRACED: [&str; 5] = [
    "-f",
    "-qq",
    "-e",
    "trace=openat,pread64,clock_gettime",
    "-o",
];

/// A hundred rows in two seconds, to a sink with a target; returns the calls of each thread in order.
fn calls(folder: &Folder) -> Option<HashMap<String, Vec<String>>> {
    let works = Command::new("strace")
        .args(&TRACED[..4])
        .arg("true")
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        println!("note: no strace that may trace: skipped");
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sending = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        for number in 0..ROWS {
            writeln!(peer, "{number}").unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let query = format!(
        "CREATE TABLE t (n BIGINT) WITH ('connector' = 'tcp', 'address' = '{address}', 'format' = 'csv');
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole', 'latency_target' = '20 ms');
         INSERT INTO o SELECT n FROM t WHERE n >= 0;"
    );
    folder.write("query.sql", query.as_bytes());
    let output = Command::new("strace")
        .args(TRACED)
        .arg("calls")
        .arg(env!("CARGO_BIN_EXE_slackwater"))
        .args(["run", "query.sql", "--report", "report.json"])
        .current_dir(folder.path("."))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    sending.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut threads: HashMap<String, Vec<String>> = HashMap::new();
    for line in folder.read("calls").lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let calls = threads.entry(thread.to_string()).or_default();
        calls.push(call.trim_start().to_string());
    }
    Some(threads)
}

#[test]
fn looks_open_no_file_and_read_each_thread_once() {
    let folder = Folder::new();
    let Some(threads) = calls(&folder) else {
        return;
    };
    let report = folder.json("report.json");
    assert_eq!(report["rows_in"], ROWS);
    let all = || threads.values().flatten();
    let count = |parts: &[&str]| {
        let is_one = |call: &&String| parts.iter().all(|part| call.contains(part));
        all().filter(is_one).count()
    };
    let workers = report["plan"]["workers"].as_u64().unwrap() as usize;
    let corrections = report["plan"]["tuning"]["corrections"].as_u64().unwrap() as usize;
    assert!(
        corrections > 0 && corrections < ROWS as usize,
        "{corrections}"
    );
    // The report reads each thread once more.
    assert!(count(&["openat", "/schedstat"]) <= 2 * workers);
    assert!(count(&["openat", "/proc/stat"]) <= 1);
    // A look reads the clock of its own thread before and after.
    let looks = count(&["clock_gettime", "CLOCK_THREAD_CPUTIME_ID"]) / 2;
    assert!(
        looks >= corrections,
        "{looks} looks, {corrections} corrections"
    );
    // Of a thread's file, which has numbers.
    let is_reading = |call: &&String| {
        let text = call
            .strip_prefix("pread64(")
            .and_then(|call| call.split_once('"'));
        text.is_some_and(|(_, text)| text.starts_with(|first: char| first.is_ascii_digit()))
    };
    let readings = all().filter(is_reading).count();
    assert!(readings >= looks);
    assert!(
        readings <= (looks + 1) * workers,
        "{readings} readings of {workers} workers in {looks} looks"
    );
}
