//! `/v1/jobs`.

use serde_json::json;

use super::*;

/// The statements that were run.
fn run(served: &Served) -> Vec<String> {
    let mut run = served.fake.run.lock().unwrap();
    run.drain(..).map(|(text, _)| text).collect()
}

#[test]
fn jobs_are_listed_and_shown() {
    let served = served();
    let jobs = served.get("/v1/jobs").ok().json();
    assert_eq!(
        jobs,
        json!([
            {"name": "s", "status": "failed", "reason": "disk full", "process": 7, "starts": 3},
            {"name": "v", "status": "starting", "reason": null, "process": 7, "starts": 3},
        ])
    );
    let job = served.get("/v1/jobs/v").ok().json();
    assert_eq!(job["report"], json!({"rows_in": 12}));
    // A job that does not run has no report, and its state says why.
    let job = served.get("/v1/jobs/s").ok().json();
    assert_eq!(
        (&job["report"], &job["reason"]),
        (&json!(null), &json!("disk full"))
    );
    let error = served.get("/v1/jobs/x").refused(404, "no_such_job", "'x'");
    assert_eq!(error["hint"], "GET /v1/jobs lists the jobs");
}

#[test]
fn a_job_is_changed_in_the_words_of_sql() {
    let served = served();
    let patch = |job: &str, body: &str| served.ask(&format!("PATCH /v1/jobs/{job}"), "", body);
    assert_eq!(
        patch("v", r#"{"status": "stopped"}"#).ok().json()["name"],
        "v"
    );
    assert_eq!(run(&served), ["STOP JOB `v`"]);
    let body = r#"{"settings": {"latency_target": "5 ms", "x'y": 1}, "status": "running"}"#;
    patch("v", body).ok();
    let expected = ["ALTER JOB `v` SET ('x''y' = '1')", "START JOB `v`"];
    assert_eq!(run(&served), expected);
    for (body, part) in [
        ("", "not valid JSON"),
        ("1", "not an object"),
        ("{}", "nothing is to be changed"),
        (r#"{"status": "paused"}"#, "neither"),
        (r#"{"settings": []}"#, "'settings' can't be changed"),
        // It changes while the job runs, and is no statement.
        (
            r#"{"settings": {"latency_target": "soon"}}"#,
            "'soon' is not a duration",
        ),
        (r#"{"settings": {"a": []}}"#, "'a' is not a text"),
        (r#"{"name": "w"}"#, "'name' can't be changed"),
    ] {
        patch("v", body).refused(400, "value", part);
    }
    patch("x", r#"{"status": "stopped"}"#).refused(404, "no_such_job", "'x'");
    assert!(run(&served).is_empty());
}

#[test]
fn a_job_that_others_need_is_dropped_only_with_them() {
    let served = served();
    let error = served
        .ask("DELETE /v1/jobs/v", "", "")
        .refused(409, "dependent", "depends");
    assert_eq!(error["hint"], "use CASCADE");
    let dropped = served.ask("DELETE /v1/jobs/v?cascade", "", "").ok().json();
    assert_eq!(dropped, json!({"done": "DROP JOB", "notices": []}));
    assert_eq!(run(&served), ["DROP JOB `v`", "DROP JOB `v` CASCADE"]);
    served
        .ask("DELETE /v1/jobs/v?force", "", "")
        .refused(400, "value", "'force'");
}
