//! The page, the API and the metrics of a server.

use super::{Server, table, write_input};

#[test]
fn jobs_are_seen_and_changed_over_http() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 100_000);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), "5000/s"),
        "SET 'latency_target' = '20 ms'",
    ]);
    let text = "CREATE SINK out AS SELECT id FROM numbers
                WITH ('connector' = 'file', 'path' = 'out.csv', 'latency_target' = '20 ms')";
    let (status, answer) = server.http("POST", "/v1/sql", text);
    assert_eq!(status, 200, "{answer}");
    let (status, page) = server.http("GET", "/", "");
    assert_eq!(status, 200);
    assert!(page.contains("Slackwater"));
    let (status, jobs) = server.http("GET", "/v1/jobs", "");
    assert_eq!(status, 200, "{jobs}");
    let jobs = serde_json::from_str::<serde_json::Value>(&jobs).unwrap();
    assert_eq!(jobs[0]["name"], "out");
    let target = || {
        loop {
            let (status, job) = server.http("GET", "/v1/jobs/out", "");
            assert_eq!(status, 200, "{job}");
            let job = serde_json::from_str::<serde_json::Value>(&job).unwrap();
            // Until its first counts have come, there are none.
            if let Some(target) = job["report"]["counts"]["sinks"][0]["target_ms"].as_f64() {
                return target;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    assert_eq!(target(), 20.0);
    let (status, answer) = server.http(
        "PATCH",
        "/v1/jobs/out",
        "{\"settings\": {\"latency_target\": \"50 ms\"}}",
    );
    assert_eq!(status, 200, "{answer}");
    assert_eq!(target(), 50.0);
    let (status, why) = server.http("GET", "/v1/jobs/out/why", "");
    assert_eq!(status, 200, "{why}");
    let (status, metrics) = server.http("GET", "/metrics", "");
    assert_eq!(status, 200);
    assert!(
        metrics.contains("slackwater_job_status{pipeline=\"out\",status=\"running\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("slackwater_source_rows_total{pipeline=\"out\",table=\"numbers\"}"),
        "{metrics}"
    );
    let (status, _) = server.http("PATCH", "/v1/jobs/out", "{\"status\": \"stopped\"}");
    assert_eq!(status, 200);
    assert_eq!(server.rows("SHOW SINKS"), ["out|file|stopped"]);
    let (status, answer) = server.http("DELETE", "/v1/jobs/out", "");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(server.http("GET", "/v1/jobs/out", "").0, 404);
}

#[test]
fn regression_a_job_is_shown_under_its_whole_name_and_as_finished() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 10);
    let server = Server::start(folder.path());
    // The part before the last dot, after the last slash, was taken for the name.
    server.run(&[
        &table(folder.path(), "5000/s"),
        "CREATE MATERIALIZED VIEW `<b>x.y</b>` AS SELECT COUNT(id) AS n FROM numbers",
    ]);
    server.wait_for("SELECT * FROM `<b>x.y</b>`", &["10"]);
    server.wait_for("SHOW MATERIALIZED VIEWS", &["<b>x.y</b>|finished"]);
    let (status, job) = server.http("GET", "/v1/jobs/%3Cb%3Ex.y%3C%2Fb%3E", "");
    assert_eq!(status, 200, "{job}");
    let job = serde_json::from_str::<serde_json::Value>(&job).unwrap();
    assert_eq!(job["report"]["job"]["name"], "<b>x.y</b>");
    // Its process stays, for its rows; it was shown as restarting.
    assert_eq!(job["report"]["counts"]["status"], "finished");
}

#[test]
fn regression_the_late_rows_of_a_job_that_has_finished_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("late.csv");
    // The second row is an hour late.
    let rows = "2026-01-01 10:00:00\n2026-01-01 09:00:00\n2026-01-01 10:00:01\n";
    std::fs::write(&input, rows).unwrap();
    let server = Server::start(folder.path());
    let table = format!(
        "CREATE TABLE clicks (ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'file', 'path' = '{}')",
        input.display()
    );
    let query = "SELECT window_end, COUNT(*) AS n
                 FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' SECOND)
                 GROUP BY window_start, window_end";
    let sink = format!("CREATE SINK written AS {query} WITH ('connector' = 'blackhole')");
    server.run(&[
        &table,
        &format!("CREATE MATERIALIZED VIEW late AS {query}"),
        &sink,
    ]);
    server.wait_for("SHOW MATERIALIZED VIEWS", &["late|finished"]);
    server.wait_for("SHOW SINKS", &["written|blackhole|finished"]);
    let (status, why) = server.http("GET", "/v1/jobs/late/why", "");
    assert_eq!(status, 200, "{why}");
    assert!(why.contains("1 of 3 rows"), "{why}");
    // A sink's process ends.
    let begun = std::time::Instant::now();
    loop {
        let (status, why) = server.http("GET", "/v1/jobs/written/why", "");
        if status == 409 && why.contains("log has what it said") {
            break;
        }
        assert!(begun.elapsed() < super::LIMIT, "{status} {why}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn pushed_rows_are_read_at_once_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(&[
        "CREATE TABLE events (k BIGINT, v BIGINT) WITH ('connector' = 'http', 'format' = 'json')",
    ]);
    let rows = "{\"k\": 1, \"v\": 5}\n{\"k\": 2, \"v\": 7}\n";
    let path = "/v1/tables/events?producer=me&sequence=1";
    let (status, answer) = server.http("POST", path, rows);
    assert_eq!(status, 409, "{answer}");
    assert!(answer.contains("no job reads"), "{answer}");
    server.run(&[
        "CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS total FROM events GROUP BY k",
        "CREATE MATERIALIZED VIEW counts AS SELECT COUNT(*) AS n FROM events",
    ]);
    // The second one is the first one again.
    for _ in 0..2 {
        let (status, answer) = server.http("POST", path, rows);
        assert_eq!(status, 200, "{answer}");
    }
    server.wait_for("SELECT * FROM sums", &["1|5", "2|7"]);
    server.wait_for("SELECT * FROM counts", &["2"]);
    let (status, answer) = server.http("POST", "/v1/tables/events", "{\"k\": 1}\n{\"k\": \"x\"}\n");
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("line 2"), "{answer}");
    assert_eq!(server.http("POST", "/v1/tables/nothing", rows).0, 404);
    // After a restart, too.
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(folder.path());
    assert_eq!(server.http("POST", path, rows).0, 200);
    assert_eq!(
        server
            .http("POST", "/v1/tables/events?producer=me&sequence=2", rows)
            .0,
        200
    );
    server.wait_for("SELECT * FROM counts", &["4"]);
}

#[test]
fn regression_a_job_that_is_stopped_takes_no_part_in_a_push() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(&[
        "CREATE TABLE ac (k BIGINT) WITH ('connector' = 'http', 'bad_rows' = 'skip')",
        "CREATE MATERIALIZED VIEW ac1 AS SELECT SUM(k) AS n FROM ac",
        "CREATE MATERIALIZED VIEW ac2 AS SELECT SUM(k) AS n FROM ac",
    ]);
    let push = |query: &str, rows: &str| {
        let (status, answer) = server.http("POST", &format!("/v1/tables/ac{query}"), rows);
        let answer = serde_json::from_str::<serde_json::Value>(&answer).unwrap();
        (status, answer)
    };
    assert_eq!(push("", "1\n"), (200, serde_json::json!({"rows": 1})));
    server.run(&["STOP JOB ac2"]);
    assert_eq!(push("", "2\n"), (200, serde_json::json!({"rows": 1})));
    server.wait_for("SELECT * FROM ac1", &["3"]);
    server.run(&["STOP JOB ac1"]);
    let (status, answer) = push("", "4\n");
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(status, 409, "{answer}");
    assert!(message.contains("nothing would keep the rows"), "{answer}");
    // A job that has just been started is waited for.
    server.run(&["START JOB ac1", "START JOB ac2"]);
    let answer = push("?producer=me&sequence=1", "8\nx\n");
    assert_eq!(answer, (200, serde_json::json!({"rows": 1, "rejected": 1})));
    server.wait_for("SELECT * FROM ac1", &["11"]);
    server.wait_for("SELECT * FROM ac2", &["9"]);
    let (status, answer) = push("?producer=me&sequence=1", "8\nx\n");
    assert_eq!(
        (status, &answer["repeated"]),
        (200, &true.into()),
        "{answer}"
    );
    // A row may be bad for one job only: the others have it then, and the answer says so.
    server.run(&[
        "CREATE TABLE two (a BIGINT, b BIGINT) WITH ('connector' = 'http')",
        "CREATE MATERIALIZED VIEW of_a AS SELECT SUM(a) AS n FROM two",
        "CREATE MATERIALIZED VIEW of_b AS SELECT SUM(b) AS n FROM two",
    ]);
    let (status, answer) = server.http("POST", "/v1/tables/two", "1,2\n3,x\n");
    assert_eq!(status, 400, "{answer}");
    for part in [
        "job 'of_b'",
        "other jobs have the rows (of_a)",
        "producer=",
        "\"line\":2",
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
}

/// A driver that sends the next message once it has the answer to this one would wait forever.
#[test]
fn a_subscription_begins_before_its_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(&[
        "CREATE TABLE events (k BIGINT) WITH ('connector' = 'http')",
        "CREATE MATERIALIZED VIEW ks AS SELECT k FROM events",
    ]);
    let mut client = server.client();
    let (cancel, none) = (client.cancel_token(), [""; 0]);
    let mut changes = client.query_raw("SUBSCRIBE ks", none).unwrap();
    assert_eq!(server.http("POST", "/v1/tables/events", "7\n").0, 200);
    let row = postgres::fallible_iterator::FallibleIterator::next(&mut changes);
    assert_eq!(row.unwrap().unwrap().get::<_, i64>("k"), 7);
    // The driver waits for the end of what it has asked for.
    cancel.cancel_query(postgres::NoTls).unwrap();
}
