//! Rows that are pushed over HTTP, and read by SUBSCRIBE.
//!
//! A request is answered when the job has read its rows, which under a latency target may take most of the
//! target. So several producers take turns, as they do wherever rows are pushed one request after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use slackwater_engine::time::now_ns;

use super::Plan;
use super::figures::Push;
use super::server::{PATIENCE, Server, quantile, refused};
use crate::common::sleep_until;

/// The latency target of the job.
pub const TARGET_MS: u64 = 20;

/// The time between two requests.
const EVERY_NS: u64 = 10_000_000;

/// Clients that push, in turn.
const PRODUCERS: u64 = 4;

/// Rows of this time are not counted: the job adapts to the load.
const WARM_UP_S: f64 = 2.0;

/// Pushes rows for a while.
pub fn measure(plan: &Plan) -> Result<Push, String> {
    let server = Server::start(&plan.folder, "push")?;
    server.run(&[
        "CREATE TABLE events (id BIGINT, sent BIGINT) WITH ('connector' = 'http', 'format' = 'csv')",
        &format!(
            "SET 'latency_target' = '{TARGET_MS} ms'; \
             CREATE MATERIALIZED VIEW seen AS SELECT id, sent FROM events"
        ),
    ])?;
    let mut client = server.client()?;
    let subscribe = "SUBSCRIBE seen";
    let none: [&str; 0] = [];
    let mut rows = client
        .query_raw(subscribe, none)
        .map_err(|error| refused(subscribe, &error))?;
    let per_request = (plan.pushes_per_s * EVERY_NS as f64 / 1e9).round().max(1.0) as u64;
    let begin_ns = now_ns();
    let counted_ns = begin_ns + (WARM_UP_S * 1e9) as u64;
    let end_ns = counted_ns + (plan.seconds * 1e9) as u64;
    let requests = (end_ns - begin_ns) / EVERY_NS;
    let (pushed, read, usage) = std::thread::scope(|scope| {
        let server = &server;
        let producers = (0..PRODUCERS).map(|number| {
            scope.spawn(move || {
                let own = (number..requests).step_by(PRODUCERS as usize);
                let pushed = push(&server.http, own, per_request, begin_ns);
                if pushed.is_err() {
                    // Otherwise the reader would wait for the rows.
                    server.kill();
                }
                pushed
            })
        });
        let producers = producers.collect::<Vec<_>>();
        let measuring = scope.spawn(|| {
            sleep_until(counted_ns);
            server.usage_over(Duration::from_secs_f64(plan.seconds))
        });
        let mut read = || -> Result<Vec<f64>, String> {
            let failed = |error| refused(subscribe, &error);
            let mut times_ms = Vec::new();
            for _ in 0..requests * per_request {
                let Some(row) = rows.next().map_err(failed)? else {
                    return Err(format!("{subscribe} has ended"));
                };
                let due_ns = row.try_get::<_, i64>("sent").map_err(failed)? as u64;
                if due_ns >= counted_ns {
                    times_ms.push(now_ns().saturating_sub(due_ns) as f64 / 1e6);
                }
            }
            Ok(times_ms)
        };
        let read = read();
        let panicked = "a thread of the experiment panicked";
        let mut pushed: Result<Vec<f64>, String> = Ok(Vec::new());
        for producer in producers {
            let own = producer.join().map_err(|_| panicked)?;
            pushed = pushed.and_then(|all| Ok([all, own?].concat()));
        }
        Ok::<_, String>((pushed, read, measuring.join().map_err(|_| panicked)?))
    })?;
    // Otherwise the client would wait for the end of the changes.
    server.kill();
    let (mut accepted_ms, mut times_ms, usage) = (pushed?, read?, usage?);
    Ok(Push {
        rows_per_s: plan.pushes_per_s,
        rows: times_ms.len() as u64,
        target_ms: TARGET_MS as f64,
        p50_ms: quantile(&mut times_ms, 0.5),
        p99_ms: quantile(&mut times_ms, 0.99),
        max_ms: quantile(&mut times_ms, 1.0),
        accepted_p99_ms: quantile(&mut accepted_ms, 0.99),
        cpu_percent: usage.percent(),
    })
}

/// Pushes rows, each request when it is due; how long each took to be answered, in milliseconds.
fn push(
    address: &str,
    requests: impl Iterator<Item = u64>,
    rows: u64,
    begin_ns: u64,
) -> Result<Vec<f64>, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut answers = BufReader::new(stream.try_clone().map_err(failed)?);
    let mut times_ms = Vec::new();
    for request in requests {
        let due_ns = begin_ns + request * EVERY_NS;
        sleep_until(due_ns);
        let body = (0..rows).map(|row| format!("{},{due_ns}\n", request * rows + row));
        let body = body.collect::<String>();
        let length = body.len();
        let text = format!(
            "POST /v1/tables/events HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).map_err(failed)?;
        let (status, body) = answer(&mut answers).map_err(failed)?;
        if status != 200 {
            return Err(format!("{address}: {status}: {body}"));
        }
        times_ms.push(now_ns().saturating_sub(due_ns) as f64 / 1e6);
    }
    Ok(times_ms)
}

/// Reads an answer: its status and its body.
fn answer(from: &mut impl BufRead) -> std::io::Result<(u16, String)> {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if line.starts_with("http/") {
            status = line
                .split(' ')
                .nth(1)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0);
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = String::new();
    from.take(length).read_to_string(&mut body)?;
    Ok((status, body))
}
