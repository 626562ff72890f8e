//! Traces of control events for OpenTelemetry: incarnations, checkpoints, changed targets.
//!
//! ```text
//! run ─ Traces::span ─► queue of SPANS_MAX ─► thread ─ POST /v1/traces (OTLP, JSON) ─► collector
//! ```
//!
//! - The variables of OpenTelemetry say where the collector is; without them there is no thread and no cost.
//! - A run never waits for a collector: spans that find no room are counted, and said at the end.
//! - The thread wakes up only when there is something to send.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use slackwater_serve::client::Client;

/// The variables that name the collector: for traces only, and for everything.
const OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const OF_ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The path of a collector for traces.
const PATH: &str = "/v1/traces";

/// The most spans that wait to be sent.
const SPANS_MAX: usize = 1024;

/// How long spans are collected before they are sent together.
const LINGER: Duration = Duration::from_secs(1);

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something that took time, or happened at a moment.
#[derive(Debug, Clone)]
pub struct Span {
    /// What it was, such as `checkpoint`.
    pub name: &'static str,
    /// When it began.
    pub begun: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Facts about it, by the names of OpenTelemetry's conventions.
    pub facts: Vec<(&'static str, Fact)>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A fact about a span.
#[derive(Debug, Clone)]
pub enum Fact {
    /// A number.
    Number(u64),
    /// A string.
    Text(String),
}

/// Where the spans of a run go. A clone has the same run.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Tracing>>);

struct Tracing {
    /// `None` once it ends.
    queue: Option<mpsc::SyncSender<Span>>,
    thread: Option<JoinHandle<()>>,
}

impl Traces {
    /// The traces of a run, if the environment names a collector.
    ///
    /// # Errors
    ///
    /// If its address is not valid; the message names the variable.
    pub fn of_environment(run: &str) -> Result<Traces, String> {
        let named = |name: &'static str| {
            let value = std::env::var(name).ok();
            Some((name, value.filter(|value| !value.is_empty())?))
        };
        match named(OF_TRACES).or_else(|| named(OF_ALL)) {
            Some((name, url)) => Traces::to(name, &url, run),
            None => Ok(Traces::default()),
        }
    }

    fn to(variable: &str, url: &str, run: &str) -> Result<Traces, String> {
        let (address, path) = parts(url, variable == OF_ALL).ok_or_else(|| {
            format!(
                "{variable}: '{url}' is not supported\n  = it has the form http://127.0.0.1:4318"
            )
        })?;
        let (queue, spans) = mpsc::sync_channel(SPANS_MAX);
        let client = Client::of(&address);
        let batch = Batch::of(run);
        let thread = std::thread::Builder::new()
            .name("traces".to_string())
            .spawn(move || send_all(&spans, &client, &path, &batch))
            .map_err(|error| format!("can't start a thread: {error}"))?;
        Ok(Traces(Some(Arc::new(Tracing {
            queue: Some(queue),
            thread: Some(thread),
        }))))
    }

    /// Whether spans are wanted at all.
    pub fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sends a span; one that finds no room is lost.
    pub fn send(&self, span: Span) {
        if let Some(queue) = self.0.as_ref().and_then(|tracing| tracing.queue.as_ref())
            && queue.try_send(span).is_err()
        {
            eprintln!("warning: traces: the collector is too slow, and a span is lost");
        }
    }

    /// Sends what has happened now.
    pub fn event(&self, name: &'static str, facts: Vec<(&'static str, Fact)>) {
        if self.are_on() {
            let now = SystemTime::now();
            self.send(Span {
                name,
                begun: now,
                ended: now,
                facts,
                error: None,
            });
        }
    }
}

impl Drop for Tracing {
    /// Waits until everything is sent, or the collector has taken too long.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The address and the path in a URL. `is_base`: the path of traces follows it.
fn parts(url: &str, is_base: bool) -> Option<(String, String)> {
    let rest = url.strip_prefix("http://")?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = match address.contains(':') {
        true => address.to_string(),
        false => format!("{address}:4318"),
    };
    let path = format!("/{}", path.trim_end_matches('/'));
    let path = match is_base {
        true => path.trim_end_matches('/').to_string() + PATH,
        false => path,
    };
    (!address.starts_with(':')).then_some((address, path))
}

fn send_all(spans: &mpsc::Receiver<Span>, client: &Client, path: &str, batch: &Batch) {
    let mut has_warned = false;
    while let Ok(first) = spans.recv() {
        let until = Instant::now() + LINGER;
        let mut together = vec![first];
        while together.len() < SPANS_MAX {
            let left = until.saturating_duration_since(Instant::now());
            match spans.recv_timeout(left) {
                Ok(span) => together.push(span),
                Err(_) => break,
            }
        }
        let body = batch.json(&together).to_string();
        if let Err(failed) = client.post(path, body, PATIENCE)
            && !std::mem::replace(&mut has_warned, true)
        {
            eprintln!("warning: traces are not stored: {failed}");
        }
    }
}

/// What all spans of a run have in common.
struct Batch {
    run: String,
    trace: String,
}

impl Batch {
    fn of(run: &str) -> Batch {
        Batch {
            run: run.to_string(),
            trace: format!("{:032x}", fastrand::u128(1..)),
        }
    }

    /// Spans in OTLP's JSON.
    fn json(&self, spans: &[Span]) -> Value {
        let text = |text: &str| json!({ "stringValue": text });
        let fact = |key: &str, value: Value| json!({ "key": key, "value": value });
        let spans = spans.iter().map(|span| {
            let facts = span.facts.iter().map(|(name, value)| {
                let value = match value {
                    // 64-bit numbers are strings in the JSON of protocol buffers.
                    Fact::Number(number) => json!({ "intValue": number.to_string() }),
                    Fact::Text(value) => text(value),
                };
                fact(name, value)
            });
            let status = match &span.error {
                Some(error) => json!({ "code": 2, "message": error }),
                None => json!({ "code": 1 }),
            };
            json!({
                "traceId": self.trace,
                "spanId": format!("{:016x}", fastrand::u64(1..)),
                "name": span.name,
                "kind": 1,
                "startTimeUnixNano": nanos(span.begun),
                "endTimeUnixNano": nanos(span.ended),
                "attributes": facts.collect::<Vec<_>>(),
                "status": status,
            })
        });
        let resource = [
            fact("service.name", text("slackwater")),
            fact("service.version", text(env!("CARGO_PKG_VERSION"))),
            fact("slackwater.job", text(&self.run)),
            fact(
                "process.pid",
                json!({ "intValue": std::process::id().to_string() }),
            ),
        ];
        json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{
                "scope": { "name": "slackwater" },
                "spans": spans.collect::<Vec<_>>(),
            }],
        }] })
    }
}

fn nanos(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_as_for_other_programs() {
        let parts = |url: &str, is_base| {
            parts(url, is_base).map(|(address, path)| format!("{address} {path}"))
        };
        for (url, is_base, expected) in [
            ("http://a:4318", true, Some("a:4318 /v1/traces")),
            ("http://a/", true, Some("a:4318 /v1/traces")),
            ("http://a:1/x/", true, Some("a:1 /x/v1/traces")),
            ("http://a:1/x", false, Some("a:1 /x")),
            ("https://a:1/x", false, None),
            ("http://", true, None),
            ("a:4318", true, None),
        ] {
            let found = parts(url, is_base).filter(|found| !found.starts_with(' '));
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn spans_have_the_form_of_otlp() {
        let at = |ns: u64| UNIX_EPOCH + Duration::from_nanos(ns);
        let span = Span {
            name: "checkpoint",
            begun: at(5),
            ended: at(1_700_000_000_000_000_007),
            facts: vec![("slackwater.checkpoint", Fact::Number(u64::MAX))],
            error: Some("no room".to_string()),
        };
        let json = Batch::of("q").json(&[span]);
        let of = &json["resourceSpans"][0];
        assert_eq!(of["resource"]["attributes"][2]["value"]["stringValue"], "q");
        let span = &of["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"].as_str().map(str::len), Some(32));
        assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
        assert_eq!(span["endTimeUnixNano"], "1700000000000000007");
        assert_eq!(
            span["attributes"][0]["value"]["intValue"],
            u64::MAX.to_string()
        );
        assert_eq!(span["status"], json!({ "code": 2, "message": "no room" }));
    }
}
