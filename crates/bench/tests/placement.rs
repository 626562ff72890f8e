//! `slackwater bench placement`: the prediction, which takes neither another machine nor time.

use crate::support::Folder;

#[test]
fn predictions_are_compared_with_published_figures() {
    let folder = Folder::new();
    let arguments = [
        "placement",
        "--predict-only",
        "--nodes",
        "1,4",
        "--json",
        "placement.json",
    ];
    let out = folder.bench(&arguments).ok().out;
    for part in [
        "a prediction, not a reproduction",
        "from P5: 18 workers a node",
        "identity",
        "wordcount",
        "570,000",
        "3,150,000",
        "MISSED by",
    ] {
        assert!(
            out.contains(part) || (part == "MISSED by" && out.contains("met: predicted gain")),
            "'{part}' is not in:\n{out}"
        );
    }
    let figures = folder.json("placement.json");
    assert_eq!(figures["predictions"].as_array().unwrap().len(), 12);
    let deployments = figures["deployed"]["deployments"].as_array().unwrap();
    // On one node there is one.
    assert_eq!(deployments.len(), 1 + 3);
    for part in [
        "copies as in P5",
        "one query",
        "copies, one answer",
        "placed: ns = work",
    ] {
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
    assert!(figures["scaling"].is_null());
    assert_eq!(figures["parameters"]["machine"], "bullion-s16");
    let wrong = ["placement", "--nodes", "17"];
    folder.bench(&wrong).fails(1, &["--nodes 17", "1 to 16"]);
    let wrong = ["placement", "--parallelism", "0"];
    folder.bench(&wrong).fails(1, &["--parallelism"]);
}
