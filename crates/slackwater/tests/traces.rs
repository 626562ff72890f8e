//! Control events of a run for OpenTelemetry: what a collector gets, and what happens without one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::process::{Folder, PATIENCE, Running, free_address};

const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

const QUERY: &str = "SET 'checkpoint_interval' = '50 ms';
CREATE TABLE t (ts_ms BIGINT, ip STRING)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '1000/s', 'rows' = '500');
CREATE TABLE o (ip STRING) WITH ('connector' = 'file', 'path' = 'out.csv');
INSERT INTO o SELECT ip FROM t;";

/// A collector that keeps what it gets: the path and the body of each request.
fn collector() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, got) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut first, mut length) = (String::new(), 0);
            stream.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let line = line.trim_end().to_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            let path = first.split(' ').nth(1).unwrap().to_string();
            let _ = sender.send((path, serde_json::from_slice(&body).unwrap()));
        }
    });
    (address, got)
}

fn traced(folder: &Folder, endpoint: &str, arguments: &[&str]) -> Running {
    folder.write("query.sql", QUERY.as_bytes());
    let arguments = [&["run", "query.sql", "--quiet"], arguments].concat();
    let mut command = folder.command(&arguments);
    command.env(VARIABLE, endpoint);
    Running::start(command)
}

#[test]
fn a_collector_gets_incarnations_and_checkpoints() {
    let folder = Folder::new();
    let (endpoint, got) = collector();
    traced(&folder, &endpoint, &["--state", "state"])
        .finish(PATIENCE)
        .ok();
    let mut names = BTreeMap::<String, u64>::new();
    let mut traces = Vec::new();
    // The run has ended, so all of it was sent.
    while let Ok((path, body)) = got.recv_timeout(std::time::Duration::from_millis(500)) {
        assert_eq!(path, "/v1/traces");
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        for span in spans.as_array().unwrap() {
            let name = span["name"].as_str().unwrap().to_string();
            *names.entry(name).or_default() += 1;
            let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
            assert!(
                time("startTimeUnixNano") <= time("endTimeUnixNano"),
                "{span}"
            );
            assert_eq!(span["status"]["code"], 1, "{span}");
            traces.push(span["traceId"].clone());
        }
    }
    assert_eq!(names["incarnation"], 1, "{names:?}");
    assert!(names["checkpoint"] >= 2, "{names:?}");
    traces.dedup();
    assert_eq!(traces.len(), 1);
}

#[test]
fn without_a_collector_the_run_says_so_and_goes_on() {
    let folder = Folder::new();
    let nobody = format!("http://{}", free_address());
    let finished = traced(&folder, &nobody, &[]).finish(PATIENCE).ok();
    let warned = finished.err.matches("traces are not stored").count();
    assert_eq!(warned, 1, "{}", finished.err);
    assert_eq!(folder.sorted("out.csv").len(), 500);
}

#[test]
fn an_address_that_is_none_is_an_error_before_the_run() {
    let folder = Folder::new();
    let finished = traced(&folder, "collector:4318", &[]).finish(PATIENCE);
    finished.fails(2, &[VARIABLE, "'collector:4318'", "http://127.0.0.1:4318"]);
}
