//! `/v1/views` and `/v1/tables`.

use serde_json::json;

use super::fake::{many, rows};
use super::*;

/// The statement that was run last.
fn last(served: &Served) -> (String, Vec<Option<String>>) {
    served.fake.run.lock().unwrap().pop().unwrap()
}

#[test]
fn what_has_a_name_is_listed() {
    let served = served();
    let views = served.get("/v1/views").ok().json();
    assert_eq!(views[0]["name"], "v");
    assert_eq!(views[0]["kind"], "materialized view");
    assert_eq!(views[1]["kind"], "view");
    assert_eq!(
        views[0]["columns"][0],
        json!({"name": "k", "type": "STRING", "nullable": false, "key": true})
    );
    let tables = served.get("/v1/tables").ok().json();
    assert_eq!(tables.as_array().unwrap().len(), 1);
    assert_eq!(tables[0]["definition"], "CREATE t");
    served.get("/v1/views?x").refused(400, "value", "'x'");
}

#[test]
fn a_view_is_read_whole_or_by_conditions() {
    let served = served();
    let all = served.get("/v1/views/v").ok();
    assert_eq!(all.headers["content-type"], "application/json");
    assert_eq!(all.json().as_array().unwrap().len(), 3);
    assert_eq!(last(&served), ("SELECT * FROM `v`".to_string(), vec![]));
    let path = "/v1/views/v?n=7&k=a%27b&order=-n,k&limit=10&offset=5&where=n+%3E+1+--+x&format=csv";
    assert!(served.get(path).ok().text().starts_with("k,n,x,at\n"));
    let (text, parameters) = last(&served);
    assert_eq!(
        text,
        "SELECT * FROM `v` WHERE `n` = $1 AND `k` = $2 AND (n > 1 -- x\n) ORDER BY `n` DESC, `k` LIMIT 10 \
         OFFSET 5"
    );
    assert_eq!(parameters, [Some("7".to_string()), Some("a'b".to_string())]);
    served.get("/v1/views/w%20%601%60?where=true").ok();
    assert_eq!(last(&served).0, "SELECT * FROM `w ``1``` WHERE (true\n)");
}

#[test]
fn what_a_view_has_not_is_refused_with_a_hint() {
    let served = served();
    let error = served
        .get("/v1/views/nothing")
        .refused(404, "undefined", "'nothing'");
    assert_eq!(error["hint"], "GET /v1/views lists the views");
    served.get("/v1/views/t").refused(404, "undefined", "'t'");
    served
        .get("/v1/views/nothing/changes")
        .refused(404, "undefined", "'nothing'");
    let error = served
        .get("/v1/views/v?K=1")
        .refused(400, "undefined", "'K'");
    assert!(
        error["hint"].as_str().unwrap().contains("k, n, x, at"),
        "{error}"
    );
    served
        .get("/v1/views/v?order=k%3B")
        .refused(400, "undefined", "'k;'");
    served
        .get("/v1/views/v?limit=x")
        .refused(400, "value", "'x' is not a number");
    assert!(
        served.fake.run.lock().unwrap().is_empty(),
        "nothing was run"
    );
    // The place is one in the condition that the client has written.
    let error = served
        .get("/v1/views/v?n=1&where=1+%3D+oops")
        .refused(400, "undefined", "oops");
    assert_eq!(error["position"], 4);
}

/// A client that follows the changes, and what it has heard until this part.
struct Follower(TcpStream, Vec<u8>);

impl Follower {
    fn hear(&mut self, part: &str) -> &str {
        while !String::from_utf8_lossy(&self.1).contains(part) {
            let mut bytes = [0; 1 << 16];
            let read = self.0.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended before {part}");
            self.1.extend_from_slice(&bytes[..read]);
        }
        std::str::from_utf8(&self.1).unwrap()
    }
}

fn follow(served: &Served, path: &str) -> Follower {
    Follower(served.send(&format!("GET {path}"), "", b""), Vec::new())
}

#[test]
fn changes_are_told_as_they_happen_until_the_client_leaves() {
    let served = served();
    let mut first = follow(&served, "/v1/views/v/changes");
    let mut second = follow(&served, "/v1/views/v/changes?format=lines");
    // Before there are any changes.
    let head = first.hear("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    second.hear(r#"{"columns":"#);
    assert_eq!(last(&served).0, "SUBSCRIBE `v`");
    let tell = |batch: Option<arrow_array::RecordBatch>| {
        for subscriber in &*served.fake.subscribers.lock().unwrap() {
            let _ = subscriber.send(batch.clone());
        }
    };
    tell(Some(rows()));
    let event = "data: {\"k\":\"a\",\"n\":1,\"x\":0.5,\"at\":\"1970-01-01 00:00:00\"}\n\n";
    first.hear(event);
    second.hear(r#"{"row":{"k":"ü""#);
    drop(first);
    // A thread that waits for changes is woken.
    eventually("the first is cancelled", || {
        *served.fake.cancelled.lock().unwrap() == 1
    });
    tell(Some(many(5_000)));
    second.hear("some key");
    tell(None);
    second.hear(r#"{"done":"SELECT 5003""#);
    eventually("the second is over", || {
        *served.fake.cancelled.lock().unwrap() == 2
    });
}

#[test]
fn an_end_of_changes_is_an_event_so_that_pages_do_not_begin_again() {
    let served = served();
    let mut follower = follow(&served, "/v1/views/v/changes");
    follower.hear("\r\n\r\n");
    served.fake.subscribers.lock().unwrap()[0]
        .send(None)
        .unwrap();
    follower.hear("event: end\ndata: {}\n\n");
}

#[test]
fn pushed_rows_are_counted_or_refused() {
    let served = served();
    let push = |table: &str, rows: &str| served.ask(&format!("POST /v1/tables/{table}"), "", rows);
    assert_eq!(push("t", "1,a\n2,b\n").ok().json(), json!({"rows": 2}));
    assert_eq!(*served.fake.pushed.lock().unwrap(), b"1,a\n2,b\n");
    let error = push("t", "bad\n").refused(400, "value", "line 1: column n");
    assert_eq!(error["hint"], "send CSV");
    assert_eq!(error["line"], 1);
    push("v", "1\n").refused(404, "undefined", "there is no table 'v'");
}

#[test]
fn regression_a_push_says_what_was_left_out_and_what_was_there_before() {
    let served = served();
    let push = |query: &str, rows: &str| served.ask(&format!("POST /v1/tables/t{query}"), "", rows);
    let left_out = push("", "one bad\n2,b\n").ok().json();
    assert_eq!(left_out, json!({"rows": 1, "rejected": 1}));
    let repeated = push("?producer=me&sequence=1", "").ok().json();
    assert_eq!(repeated, json!({"rows": 0, "repeated": true}));
    let first = push("?producer=me&sequence=2", "1,a\n").ok().json();
    assert_eq!(first, json!({"rows": 1}));
}

#[test]
fn regression_what_may_be_tried_again_is_answered_with_503() {
    let served = served();
    for (rows, status, kind) in [
        ("starting", 503, "not_running"),
        ("busy", 503, "busy"),
        ("unconfirmed", 503, "unconfirmed"),
        ("stopped", 409, "not_running"),
    ] {
        let answered = served.ask("POST /v1/tables/t", "", rows);
        answered.refused(status, kind, "not now");
    }
}

#[test]
fn regression_bodies_that_are_compressed_are_refused() {
    let served = served();
    for request in ["POST /v1/tables/t", "POST /v1/sql", "PATCH /v1/jobs/v"] {
        for encoding in ["gzip", "identity, gzip", "zstd"] {
            let header = format!("content-encoding: {encoding}\r\n");
            let error = served.ask(request, &header, "1,a\n");
            let error = error.refused(415, "value", "compressed");
            assert!(error["hint"].as_str().unwrap().contains("as it is"));
        }
    }
    assert!(served.fake.pushed.lock().unwrap().is_empty());
    assert!(served.fake.run.lock().unwrap().is_empty());
    let plain = "content-encoding: Identity\r\n";
    served.ask("POST /v1/tables/t", plain, "1,a\n").ok();
}
