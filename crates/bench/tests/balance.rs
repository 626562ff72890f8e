//! `slackwater bench balance` with a few tiny points, from end to end. Speeds are not checked.

use crate::support::Folder;

#[test]
fn every_way_is_measured_from_end_to_end() {
    let folder = Folder::new();
    let finished = folder
        .bench(&[
            "balance",
            "--quick",
            "--seconds",
            "0.1",
            "--json",
            "balance.json",
        ])
        .ok();
    for line in [
        "| round robin | 16384 |",
        "| keyed, moving | 16384 |",
        "Goals",
    ] {
        assert!(finished.out.contains(line), "{}", finished.out);
    }
    let figures = folder.json("balance.json");
    assert!(figures["host"]["processor"].is_string());
    assert!(figures["stolen_percent"].as_f64().unwrap() >= 0.0);
    let cases = figures["cases"].as_array().unwrap();
    // Two ways with three sizes, for the time and for the reaction; and two ways by key.
    assert_eq!(cases.len(), 14);
    for case in cases {
        assert!(case["seconds"][0].as_f64().unwrap() > 0.0, "{case}");
    }
}

#[test]
fn wrong_arguments_are_rejected() {
    let folder = Folder::new();
    let refused = folder.bench(&["balance", "--factors", "0"]);
    assert!(
        refused.err.contains("--factors must be 1 or more"),
        "{}",
        refused.err
    );
}
