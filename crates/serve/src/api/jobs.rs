//! `/v1/jobs`: what runs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::backend::{Answer, Cancelled, JobState, Kind, Refusal, Status};
use crate::http::{Answer as HttpAnswer, Asked, Piece, Reply};

use super::query::Query;
use super::{Api, Refused, answer, literal, quoted};

/// All jobs.
pub(super) fn list(api: &Api, asked: Asked, reply: Reply) {
    let list = || {
        Query::of(asked.query.as_deref())?.end("no parameters")?;
        let jobs = api.backend.jobs();
        Ok(Value::from(jobs.iter().map(job).collect::<Vec<_>>()))
    };
    answer(reply, list());
}

/// A job, with its report.
pub(super) fn show(api: &Api, asked: Asked, reply: Reply) {
    let show = || {
        Query::of(asked.query.as_deref())?.end("no parameters")?;
        shown(api, &asked.parts[0])
    };
    answer(reply, show());
}

/// Why nothing comes out of a job, in words.
pub(super) fn why(api: &Api, asked: Asked, reply: Reply) {
    let why = || {
        Query::of(asked.query.as_deref())?.end("no parameters")?;
        Ok(json!({ "why": api.backend.why(&asked.parts[0])? }))
    };
    answer(reply, why());
}

/// How often an open page gets the counts of a job.
const EVERY: Duration = Duration::from_secs(1);

/// The job, and then its counts again and again, for the page.
pub(super) fn events(api: &Api, asked: Asked, reply: Reply) {
    let name = asked.parts[0].clone();
    let first = state(api, &name).and_then(|_| Ok(api.backend.report(&name)?));
    let mut first = match first {
        Ok(report) => Some(report),
        Err(refused) => return answer(reply, Err(refused)),
    };
    let backend = Arc::clone(&api.backend);
    reply.send(HttpAnswer::events(EVERY, move |piece| {
        if let Some(report) = first.take() {
            return tell(piece, &report, true);
        }
        let (backend, name) = (Arc::clone(&backend), name.clone());
        let look = move || {
            // Without a piece, the page sees the end of the events, and asks for the jobs again.
            if let Ok(report) = backend.report(&name) {
                tell(piece, &report, false);
            }
        };
        // The job's process may take a while, and other clients are served meanwhile.
        let _ = std::thread::Builder::new()
            .name("look".to_string())
            .spawn(look);
    }));
}

/// Sends a report as events: `{"job": …, "counts": …}`.
fn tell(piece: Piece, report: &str, with_job: bool) {
    let Ok(report) = serde_json::from_str::<Value>(report) else {
        return;
    };
    let counts = report["counts"].to_string();
    match with_job {
        true => piece.send_all(&[("job", &report["job"].to_string()), ("counts", &counts)]),
        false => piece.send("counts", &counts),
    }
}

/// The setting that changes while a job runs; with a dot and a name, that of one sink.
const TARGET: &str = "latency_target";

/// `{"status": "stopped" | "running", "settings": {…}}`. Latency targets change while the job runs.
pub(super) fn change(api: &Api, asked: Asked, reply: Reply) {
    let change = || {
        Query::of(asked.query.as_deref())?.end("no parameters")?;
        let found = state(api, &asked.parts[0])?;
        let change = Change::of(&asked.body)?;
        let name = quoted(&found.name);
        let (targets, settings): (Vec<_>, Vec<_>) = change
            .settings
            .iter()
            .partition(|(key, _)| key.starts_with(TARGET));
        for (key, target) in targets {
            let sink = key[TARGET.len()..].strip_prefix('.');
            api.backend.retarget(&found.name, sink, target)?;
        }
        if !settings.is_empty() {
            let settings = settings.into_iter();
            let settings =
                settings.map(|(key, value)| format!("{} = {}", literal(key), literal(value)));
            let settings = settings.collect::<Vec<_>>().join(", ");
            let text = format!("ALTER JOB {name} SET ({settings})");
            done(api, &text, &asked.cancelled)?;
        }
        if let Some(runs) = change.runs {
            let word = if runs { "START" } else { "STOP" };
            done(api, &format!("{word} JOB {name}"), &asked.cancelled)?;
        }
        shown(api, &found.name)
    };
    answer(reply, change());
}

/// Drops a job, and with `?cascade` what depends on it.
pub(super) fn remove(api: &Api, asked: Asked, reply: Reply) {
    let remove = || {
        let mut query = Query::of(asked.query.as_deref())?;
        let cascades = if query.switch("cascade")? {
            " CASCADE"
        } else {
            ""
        };
        query.end("cascade")?;
        let found = state(api, &asked.parts[0])?;
        let text = format!("DROP JOB {}{cascades}", quoted(&found.name));
        let (tag, notices) = done(api, &text, &asked.cancelled)?;
        Ok(json!({ "done": tag, "notices": notices }))
    };
    answer(reply, remove());
}

fn state(api: &Api, name: &str) -> Result<JobState, Refused> {
    let jobs = api.backend.jobs();
    jobs.into_iter()
        .find(|job| job.name == name)
        .ok_or_else(|| {
            let refusal = Refusal::new(Kind::NoSuchJob, format!("there is no job '{name}'"));
            refusal.hint("GET /v1/jobs lists the jobs").into()
        })
}

fn shown(api: &Api, name: &str) -> Result<Value, Refused> {
    let state = state(api, name)?;
    let mut shown = job(&state);
    let report = match api.backend.report(&state.name) {
        Ok(report) => serde_json::from_str::<Value>(&report).map_err(|error| {
            Refusal::new(
                Kind::Internal,
                format!("the job's report is not JSON: {error}"),
            )
        })?,
        // Its state says why.
        Err(Refusal {
            kind: Kind::NotRunning | Kind::Starting,
            ..
        }) => Value::Null,
        Err(refusal) => return Err(refusal.into()),
    };
    shown["report"] = report;
    Ok(shown)
}

fn job(job: &JobState) -> Value {
    let (status, reason) = match &job.status {
        Status::Starting => ("starting", None),
        Status::Running => ("running", None),
        Status::Stopped => ("stopped", None),
        Status::Finished => ("finished", None),
        Status::Failed { reason } => ("failed", Some(reason)),
    };
    json!({
        "name": job.name,
        "status": status,
        "reason": reason,
        "process": job.process,
        "starts": job.starts,
    })
}

/// Runs a statement that returns no rows.
fn done(api: &Api, text: &str, cancelled: &Cancelled) -> Result<(String, Vec<String>), Refusal> {
    let mut session = api.backend.session();
    let mut last = (String::new(), Vec::new());
    for statement in session.parse(text)? {
        // The client has not written this text, so a place in it tells nothing.
        let answer = session
            .run(&statement, &[], cancelled)
            .map_err(|refusal| Refusal {
                position: None,
                ..refusal
            })?;
        if let Answer::Done { tag, notices } = answer {
            last = (tag, notices);
        }
    }
    Ok(last)
}

/// What becomes of a job.
#[derive(Debug, Default)]
struct Change {
    /// Whether it runs from now on.
    runs: Option<bool>,
    settings: Vec<(String, String)>,
}

impl Change {
    fn of(body: &[u8]) -> Result<Change, Refusal> {
        let hint = r#"send {"status": "stopped"} or {"settings": {"latency_target": "50 ms"}}"#;
        let refuse = |message: String| Refusal::new(Kind::Value, message).hint(hint);
        let value = serde_json::from_slice::<Value>(body);
        let value =
            value.map_err(|error| refuse(format!("the body is not valid JSON: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(refuse("the body is not an object".to_string()));
        };
        let mut change = Change::default();
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("status", Value::String(word)) if word == "running" => change.runs = Some(true),
                ("status", Value::String(word)) if word == "stopped" => change.runs = Some(false),
                ("status", other) => {
                    let message = format!("status {other} is neither \"running\" nor \"stopped\"");
                    return Err(refuse(message));
                }
                ("settings", Value::Object(settings)) => {
                    for (key, value) in settings {
                        let value = match value {
                            Value::String(text) => text,
                            Value::Bool(_) | Value::Number(_) => value.to_string(),
                            _ => return Err(refuse(format!("setting '{key}' is not a text"))),
                        };
                        change.settings.push((key, value));
                    }
                }
                _ => return Err(refuse(format!("'{name}' can't be changed"))),
            }
        }
        match change.runs.is_none() && change.settings.is_empty() {
            true => Err(refuse("nothing is to be changed".to_string())),
            false => Ok(change),
        }
    }
}
