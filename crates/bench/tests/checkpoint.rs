//! `slackwater bench checkpoint` with two tiny points and a kill, from end to end. Speeds are not
//! checked.

use crate::support::Folder;

#[test]
fn points_and_a_kill_are_measured_from_end_to_end() {
    let folder = Folder::new();
    let finished = folder
        .bench(&[
            "checkpoint",
            "--quick",
            "--keys",
            "1000",
            "--places",
            "folder",
            "--intervals",
            "200",
            "--rate",
            "5k",
            "--seconds",
            "0.5",
            "--folder",
            ".",
            "--json",
            "checkpoint.json",
        ])
        .ok();
    for part in [
        "| 1000 | folder | none |",
        "| 1000 | folder | 200 ms |",
        "| 1000 | 1 |",
        "not measured: additional CPU time in the worst round, every 10 s, 100000 keys",
    ] {
        assert!(
            finished.out.contains(part),
            "'{part}' is not in:\n{}",
            finished.out
        );
    }
    let figures = folder.json("checkpoint.json");
    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert!(points[0]["checkpoints"].is_null());
    assert!(points[1]["checkpoints"]["stored"].as_u64().unwrap() > 0);
    assert!(points[1]["stored"]["base_bytes"].as_u64().unwrap() > 0);
    let kill = &figures["kills"][0];
    for pair in ["noticed_ms", "back_ms", "caught_up_ms"].windows(2) {
        let ms = |name: &str| kill[name].as_f64().unwrap();
        assert!(0.0 < ms(pair[0]) && ms(pair[0]) <= ms(pair[1]), "{kill}");
    }
    assert!(figures["host"]["processor"].is_string());
    assert_eq!(folder.names(), ["checkpoint.json"]);
}

#[test]
fn wrong_arguments_are_rejected_at_once() {
    let folder = Folder::new();
    folder
        .bench(&["checkpoint", "--keys", "2000"])
        .fails(2, &["--keys", "power of ten"]);
    folder
        .bench(&["checkpoint", "--json", "nowhere/checkpoint.json"])
        .fails(1, &["the folder nowhere does not exist"]);
}
