//! The API in front of a fake server, over sockets of the loopback address.

mod fake;
mod jobs;
mod limits;
mod sql;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::backend::Cancelled;
use fake::Fake;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request with these headers.
pub fn asked(headers: &[(&'static str, &str)]) -> Asked {
    let headers = headers.iter().filter(|(_, value)| !value.is_empty());
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    Asked {
        path: "/".to_string(),
        query: None,
        headers: headers.collect(),
        parts: Vec::new(),
        body: Bytes::new(),
        cancelled: Cancelled::default(),
    }
}

/// A server in front of a fake backend.
struct Served {
    fake: Arc<Fake>,
    server: Server,
}

fn served() -> Served {
    served_with(Limits::default(), None)
}

fn served_with(limits: Limits, token: Option<&str>) -> Served {
    let fake = Arc::new(Fake::default());
    let pages = |_| {
        let of = |job: &str| {
            format!(
                "# HELP slackwater_source_rows_total Rows.\n# TYPE slackwater_source_rows_total counter\n\
                 slackwater_source_rows_total{{pipeline=\"{job}\"}} 7\n"
            )
        };
        vec![of("a"), of("b")]
    };
    let options = Options {
        address: "127.0.0.1:0".parse().unwrap(),
        token: token.map(str::to_string),
        limits,
        pages: Box::new(pages),
    };
    let backend = Arc::clone(&fake) as Arc<dyn Backend>;
    Served {
        fake,
        server: open(backend, options).unwrap(),
    }
}

/// What a server has answered.
#[derive(Debug)]
struct Answered {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    /// Whether the body has its end.
    is_whole: bool,
}

impl Answered {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    fn json(&self) -> Value {
        let value = serde_json::from_slice(&self.body);
        value.unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The lines of JSON.
    #[track_caller]
    fn lines(&self) -> Vec<Value> {
        let lines = self.text().lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[track_caller]
    fn ok(self) -> Answered {
        assert_eq!(self.status, 200, "{}", self.text());
        assert!(self.is_whole, "{}", self.text());
        self
    }

    /// It is this refusal.
    #[track_caller]
    fn refused(&self, status: u16, kind: &str, part: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/json");
        let error = self.json()["error"].take();
        assert_eq!(error["kind"], kind, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        error
    }
}

impl Served {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request, and returns the connection.
    fn send(&self, request: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-length: {length}\r\n{headers}\r\n"
        );
        // It may be refused before all is sent.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body);
        stream
    }

    #[track_caller]
    fn ask(&self, request: &str, headers: &str, body: &str) -> Answered {
        let mut bytes = Vec::new();
        // A connection that is reset has said what it said.
        let _ = self
            .send(request, headers, body.as_bytes())
            .read_to_end(&mut bytes);
        answered(&bytes)
    }

    #[track_caller]
    fn get(&self, path: &str) -> Answered {
        self.ask(&format!("GET {path}"), "", "")
    }

    #[track_caller]
    fn sql(&self, text: &str) -> Answered {
        self.ask("POST /v1/sql", "", text)
    }
}

#[track_caller]
fn answered(bytes: &[u8]) -> Answered {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_string()));
    let headers = headers.collect::<BTreeMap<String, String>>();
    let rest = &bytes[end + 4..];
    let (body, is_whole) = match headers.get("content-length") {
        Some(length) => (
            rest.to_vec(),
            rest.len() == length.parse::<usize>().unwrap(),
        ),
        None => chunks(rest),
    };
    Answered {
        status: status.parse().unwrap(),
        headers,
        body,
        is_whole,
    }
}

/// A body that came in chunks, and whether it has its end.
fn chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let chunk = &rest[end + 2..];
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        rest = chunk.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_description_has_every_route_and_no_other() {
    let routes = routes(Arc::new(Fake::default()), Box::new(|_| Vec::new()));
    let routes = routes.paths();
    let routes = routes.map(|(method, path)| format!("{method} {path}"));
    let routes = routes.collect::<BTreeSet<String>>();
    let document = serde_json::from_str::<Value>(OPENAPI).unwrap();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            described.insert(format!("{} {path}", method.to_uppercase()));
            let id = operation["operationId"].as_str();
            assert!(id.is_some_and(|id| !id.is_empty()), "{method} {path}");
        }
    }
    assert_eq!(described, routes);
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_resolves(&document, &document);
    let served = served();
    assert_eq!(served.get("/v1/openapi.json").ok().json(), document);
}

/// Every reference within the document leads to something.
fn assert_resolves(document: &Value, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(place)) = fields.get("$ref") {
                let found = document.pointer(place.strip_prefix('#').unwrap());
                assert!(found.is_some(), "{place}");
            }
            fields
                .values()
                .for_each(|value| assert_resolves(document, value));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|value| assert_resolves(document, value)),
        _ => {}
    }
}

#[test]
fn a_server_says_whether_it_is_ready_and_shows_the_metrics_of_all_jobs() {
    let served = served();
    assert_eq!(served.get("/healthz").ok().text(), "ok\n");
    let starting = served.get("/readyz");
    assert_eq!(
        (starting.status, starting.text()),
        (503, "starting: 1 of 2 jobs\n")
    );
    served.fake.jobs.lock().unwrap()[1].status = crate::backend::Status::Running;
    assert_eq!(served.get("/readyz").ok().text(), "ready\n");
    let metrics = served.get("/metrics").ok();
    assert_eq!(
        metrics.headers["content-type"],
        crate::prometheus::CONTENT_TYPE
    );
    let text = metrics.text();
    for line in [
        r#"slackwater_job_status{pipeline="v",status="running"} 1"#,
        r#"slackwater_job_starts_total{pipeline="v"} 3"#,
        "# TYPE slackwater_source_rows_total counter\n\
         slackwater_source_rows_total{pipeline=\"a\"} 7\nslackwater_source_rows_total{pipeline=\"b\"} 7\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn refusals_of_the_server_itself_are_json_where_programs_ask() {
    let served = served_with(Limits::default(), Some("secret"));
    served.get("/v1/jobs").refused(401, "denied", "token");
    assert!(
        served
            .get("/metrics")
            .text()
            .starts_with("the token is missing")
    );
    assert_eq!(served.get("/healthz").status, 200);
    assert_eq!(served.get("/readyz").status, 503);
    let with =
        |request: &str, body: &str| served.ask(request, "authorization: Bearer secret\r\n", body);
    with("GET /v1/nothing", "").refused(404, "undefined", "nothing here");
    let error = with("PUT /v1/jobs/v", "").refused(405, "syntax", "PUT");
    assert_eq!(error["hint"], "use GET, PATCH, DELETE");
    with("DELETE /v1/jobs/v", "x").refused(413, "limit", "more than 0 bytes");
    assert_eq!(with("GET /v1/jobs", "").status, 200);
}
