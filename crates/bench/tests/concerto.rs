//! `slackwater bench concerto` from end to end, in short. Speeds are not checked. It needs Redis.

use crate::support::Folder;

#[test]
fn batches_are_compared_and_energy_is_computed() {
    if std::process::Command::new("redis-server")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("note: redis-server is not installed: bench concerto is not tested");
        return;
    }
    let folder = Folder::new();
    let arguments = [
        "concerto",
        "--quick",
        "--slow",
        "none",
        "--part",
        "cost,energy",
        "--json",
        "concerto.json",
    ];
    let finished = folder.bench(&arguments).ok();
    for part in [
        "master, 2 replicas",
        "Energy saved compared with all cores fast (computed",
        "36.1 and 48.1 %",
        "needs cpufreq",
    ] {
        let out = &finished.out;
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
}

#[test]
fn an_unknown_server_is_an_error() {
    let folder = Folder::new();
    let arguments = ["concerto", "--servers", "memcached"];
    folder
        .bench(&arguments)
        .fails(1, &["memcached", "redis or valkey"]);
}
