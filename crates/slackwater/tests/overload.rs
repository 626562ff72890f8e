//! A sink that is slower than the source holds the source back, and memory stays where it is, however
//! long that lasts (I3).

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Rows of an hour at a thousand a second, and of one at ten thousand.
const ROWS: u64 = 3_600_000;
const ROWS_LONG: u64 = 36_000_000;

/// What the slow peer takes at once, and how long it rests then: some 60 MB/s, where the source alone
/// makes several times as much.
const TAKEN: usize = 1 << 20;
const REST: Duration = Duration::from_millis(16);

/// Memory of the whole program: blocks, queues of 16 chunks and buffers of sockets, with a build that
/// is not optimised, come to a quarter of it.
const MEMORY_MAX: u64 = 250_000_000;

#[test]
fn a_slow_sink_holds_the_source_back() {
    for state in [false, true] {
        overload(ROWS, state);
    }
}

#[test]
#[ignore = "takes minutes: make test-crash"]
fn a_slow_sink_holds_the_source_back_for_an_hour() {
    overload(ROWS_LONG, true);
}

fn overload(rows: u64, state: bool) {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "CREATE TABLE visits (ts_ms BIGINT, ip STRING)
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}');
         CREATE TABLE out (ip STRING, ts_ms BIGINT, ip_again STRING)
         WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = 'connect', 'format' = 'csv');
         SET 'checkpoint_interval' = '100 ms';
         SET 'memory_limit' = '10 MB';
         INSERT INTO out SELECT ip, ts_ms, ip FROM visits;"
    );
    let query = folder.path().join("query.sql");
    std::fs::write(&query, text).unwrap();
    let report = folder.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    command
        .args(["run", "--quiet", "--parallelism", "2", "--report"])
        .arg(&report)
        .arg(&query)
        .current_dir(folder.path())
        .stdin(Stdio::null());
    if state {
        command.arg("--state").arg(folder.path().join("state"));
    }
    let mut run = command.spawn().unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let (mut lines, mut taken) = (0, vec![0; TAKEN]);
    loop {
        let mut filled = 0;
        while filled < TAKEN {
            match peer.read(&mut taken[filled..]).unwrap() {
                0 => break,
                bytes => filled += bytes,
            }
        }
        let taken = taken[..filled].iter();
        lines += taken.filter(|byte| **byte == b'\n').count();
        if filled < TAKEN {
            break;
        }
        std::thread::sleep(REST);
    }
    assert!(run.wait().unwrap().success());
    assert_eq!(lines as u64, rows);
    let report = std::fs::read_to_string(&report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rows_out"], rows);
    let memory = report["peak_rss_bytes"].as_u64().unwrap();
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    if state {
        assert!(report["checkpoints"]["stored"].as_u64().unwrap() > 1);
    }
}
