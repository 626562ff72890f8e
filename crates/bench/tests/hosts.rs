//! `slackwater bench hosts` over few records, from end to end. Speeds are not checked; Flink's part needs
//! Java and is not run here.

use crate::support::Folder;

#[test]
fn hosts_are_compared_with_processes_and_the_folder_is_left_as_it_was() {
    let folder = Folder::new();
    let arguments = [
        "hosts",
        "--rows",
        "6000",
        "--runs",
        "1",
        "--queries",
        "fixwindow,repartition",
        "--idle",
        "1",
        "--folder",
        ".",
        "--json",
        "hosts.json",
    ];
    let finished = folder.bench(&arguments).ok();
    for part in [
        "Three hosts: 6,000 records",
        "one-host",
        "hosts-tls",
        "repartition",
        "CPU time with TLS, compared with one host",
        "wake-ups of idle hosts-tls in 1 s",
    ] {
        let out = &finished.out;
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
    assert!(
        finished.err.contains("make peers-flink"),
        "{}",
        finished.err
    );
    let figures = folder.json("hosts.json");
    // Two queries in three ways: not Flink.
    let measured = figures["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 6);
    for one in measured {
        assert!(one["cpu_us_per_row"]["median"].as_f64().unwrap() > 0.0);
        assert!(one["wire_bytes_per_row"].as_f64().unwrap() > 0.0, "{one}");
    }
    // Two rows of three go to another host.
    let repartition = measured.iter();
    let repartition = repartition.filter(|one| one["workload"] == "repartition");
    for one in repartition {
        let share = one["wire_rows_per_row"].as_f64().unwrap();
        assert!((0.5..0.8).contains(&share), "{one}");
    }
    // An orchestrator with its worker process, and two agents with theirs.
    let idle = figures["idle"].as_array().unwrap();
    let processes = idle.iter().map(|idle| idle["processes"].as_u64().unwrap());
    assert_eq!(processes.collect::<Vec<u64>>(), [6, 6]);
    assert_eq!(folder.names(), ["hosts.json"]);
}

#[test]
fn wrong_arguments_are_rejected_before_anything_is_created() {
    let folder = Folder::new();
    let refused = |code: i32, arguments: &[&str], parts: &[&str]| {
        let arguments = [&["hosts"], arguments].concat();
        folder.bench(&arguments).fails(code, parts);
    };
    refused(2, &["--queries", "sort"], &["--queries", "fixwindow"]);
    refused(2, &["--ways", "three"], &["--ways", "hosts-tls"]);
    refused(2, &["--rows", "5"], &["--rows", "3000"]);
    refused(
        1,
        &["--flink", "."],
        &["slackwater-flink.jar", "make peers-flink"],
    );
    refused(1, &["--json", "no/such.json"], &["does not exist"]);
    assert!(folder.names().is_empty());
}
