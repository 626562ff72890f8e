//! The library in programs that know nothing of it: what they see is what TCP shows them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The library of this build.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("the path of the test");
    let folder = this.parent().expect("its folder");
    let name = "libslackwater_sockets.so";
    let places = [folder.join(name), folder.join("..").join(name)];
    let found = places.into_iter().find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("there is no {name} in {}", folder.display()))
}

fn suite() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sockets/suite.py")
}

/// Runs the suite of sockets in Python, with the library and this way to wait, or over TCP.
fn run(wait: Option<&str>, statistics: &Path) -> Output {
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(suite())
        .env("SEEDS", "6")
        .stdin(Stdio::null());
    if let Some(wait) = wait {
        command
            .env("LD_PRELOAD", library())
            .env("SLACKWATER_SOCKETS_WAIT", wait)
            .env("SLACKWATER_SOCKETS_STATISTICS", statistics)
            // A small ring is full more often.
            .env("SLACKWATER_SOCKETS_LANE_KIB", "64");
    }
    command.output().expect("python3 is needed for this test")
}

/// The sum of a counter over all processes.
fn sum(statistics: &str, counter: &str) -> u64 {
    let key = format!("\"{counter}\":");
    let numbers = statistics.lines().filter_map(|line| {
        let rest = line.split(&key).nth(1)?;
        rest.split([',', '}']).next()?.parse::<u64>().ok()
    });
    numbers.sum()
}

fn same_as_tcp(wait: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("statistics.json");
    let (tcp, shared) = (run(None, &file), run(Some(wait), &file));
    let text = |output: &Output| {
        let out = String::from_utf8_lossy(&output.stdout);
        format!(
            "{out}{}{}",
            String::from_utf8_lossy(&output.stderr),
            output.status
        )
    };
    let (tcp, shared) = (text(&tcp), text(&shared));
    for (tcp, shared) in tcp.lines().zip(shared.lines()) {
        assert_eq!(tcp, shared, "with --wait {wait}");
    }
    assert_eq!(tcp, shared, "with --wait {wait}");
    assert!(tcp.contains("random_operations"), "{tcp}");
    // Otherwise TCP was compared with itself.
    let statistics = std::fs::read_to_string(&file).expect("statistics");
    assert!(sum(&statistics, "moved") > 400, "{statistics}");
    assert!(
        sum(&statistics, "received_bytes") > 1_000_000,
        "{statistics}"
    );
}

#[test]
fn programs_see_what_tcp_shows_them_when_they_wait_for_wakes() {
    same_as_tcp("interrupt");
}

#[test]
fn programs_see_what_tcp_shows_them_when_they_sleep() {
    same_as_tcp("sleep");
}

#[test]
fn programs_see_what_tcp_shows_them_when_they_spin() {
    same_as_tcp("spin");
}

/// A server and its client, which is a process of its own: `CLIENT` names the library for it alone.
const ECHO: &str = r#"
import os, socket, subprocess, sys
client = """import socket, sys
end = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for size in (1, 1000, 300000):
    end.sendall(b"x" * size)
    got = 0
    while got < size: got += len(end.recv(size))
end.close()"""
environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
if "CLIENT" in environment: environment["LD_PRELOAD"] = environment["CLIENT"]
listener = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", client, str(listener.getsockname()[1])], env=environment)
end, _ = listener.accept()
total = 0
while data := end.recv(100000):
    total += len(data)
    end.sendall(data)
print(total, child.wait())
"#;

fn echoes(variable: &str) {
    let mut command = Command::new("python3");
    command
        .args(["-c", ECHO])
        .env_remove("LD_PRELOAD")
        .env_remove("CLIENT")
        .env(variable, library());
    let output = command.output().expect("python3 is needed for this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text.trim(),
        "301001 0",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_client_without_the_library_is_served_over_tcp() {
    echoes("LD_PRELOAD");
}

#[test]
fn a_server_without_the_library_is_reached_over_tcp() {
    echoes("CLIENT");
}
