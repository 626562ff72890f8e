//! `POST /v1/tables/{name}`: rows for a table with the connector `http`.
//!
//! A push sleeps until the query has its rows, so each has a thread of its own while it does. They are
//! bounded.

use std::sync::Arc;

use serde_json::{Map, Value};
use slackwater_connect::push::{self, NotPushed, PUSH_BYTES_MAX, Producer, Push, Pushed};
use slackwater_serve::http::{Answer, Asked, Method, Reply, Routes, StatusCode};
use slackwater_sql::program::Program;

use super::problem::problem;
use super::{Failure, RunOptions};
use crate::catalog::connector_of;
use crate::script::Script;

/// The pushes at work: as many as a server has connections, so at most 64 × [`PUSH_BYTES_MAX`] = 256 MiB,
/// which is reached only if all clients push as much as they may at the same time.
const PUSHES_MAX: usize = 64;

/// Bytes of the stack of a thread that pushes: parsing needs a few pages.
const STACK_BYTES: usize = 1024 * 1024;

/// Rejects tables into which nothing could push rows.
pub(super) fn check(
    script: &Script,
    program: &Program,
    options: &RunOptions,
    processes: usize,
) -> Result<(), Failure> {
    let mut sources = program.sources().map(|(_, source)| &source.table);
    let is_pushed = |kind: &slackwater_connect::ConnectorKind| kind.is_pushed;
    let Some(table) = sources.find(|table| connector_of(table).is_some_and(is_pushed)) else {
        return Ok(());
    };
    let (file, table) = (script.name(), &table.name);
    if options.doors.is_none() && !options.takes_pushes {
        return Err(Failure::Usage(format!(
            "{file}: table '{table}' has 'connector' = 'http', but nothing can push rows into it\n  \
             = add --metrics 127.0.0.1:9464, and push to http://127.0.0.1:9464/v1/tables/{table}"
        )));
    }
    if processes > 1 {
        return Err(Failure::Usage(format!(
            "{file}: table '{table}' has 'connector' = 'http', which is read in one process only\n  \
             = leave out --processes"
        )));
    }
    Ok(())
}

/// Adds the route.
pub(super) fn mount(routes: Routes) -> Routes {
    let places = Arc::new(());
    routes.on(
        Method::POST,
        "/v1/tables/{name}",
        PUSH_BYTES_MAX,
        move |asked, reply| {
            let place = Arc::clone(&places);
            if Arc::strong_count(&places) > PUSHES_MAX + 1 {
                reply.send(refused(&NotPushed::Busy));
                return;
            }
            let work = move || {
                reply_to(asked, reply);
                drop(place);
            };
            let thread = std::thread::Builder::new().name("push".to_string());
            // Without a thread the reply is dropped, which answers that the server is busy.
            let _ = thread.stack_size(STACK_BYTES).spawn(work);
        },
    )
}

fn reply_to(asked: Asked, reply: Reply) {
    let encoding = asked.headers.get("content-encoding");
    if encoding.is_some_and(|encoding| encoding != "identity") {
        let reason = "the body is compressed, which is not supported";
        reply.send(problem(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "value",
            reason,
            "send it as it is",
            None,
        ));
        return;
    }
    let producer = match producer(asked.query.as_deref().unwrap_or_default()) {
        Ok(producer) => producer,
        Err(reason) => {
            let hint = "use ?producer=NAME&sequence=NUMBER, both or none of them";
            reply.send(problem(
                StatusCode::BAD_REQUEST,
                "value",
                &reason,
                hint,
                None,
            ));
            return;
        }
    };
    let table = asked.parts.first().map_or("", String::as_str);
    let rows = asked.body;
    reply.send(match push::push(table, Push { rows, producer }) {
        Ok(pushed) => accepted(pushed),
        Err(reason) => refused(&reason),
    });
}

/// The producer in a query `producer=NAME&sequence=NUMBER`.
fn producer(query: &str) -> Result<Option<Producer>, String> {
    let (mut name, mut sequence) = (None, None);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("producer", value)) => name = Some(value.to_string()),
            Some(("sequence", value)) => {
                let number = value.parse::<u64>();
                let wrong = |_| format!("the sequence '{value}' is not a whole number from 0");
                sequence = Some(number.map_err(wrong)?);
            }
            _ => return Err(format!("'{part}' is not a parameter of a push")),
        }
    }
    match (name, sequence) {
        (Some(name), Some(sequence)) => Ok(Some(Producer { name, sequence })),
        (None, None) => Ok(None),
        (Some(_), None) => Err("there is a producer without a sequence".to_string()),
        (None, Some(_)) => Err("there is a sequence without a producer".to_string()),
    }
}

fn accepted(pushed: Pushed) -> Answer {
    let mut fields = Map::new();
    fields.insert("rows".to_string(), pushed.rows.into());
    if pushed.rejected > 0 {
        fields.insert("rejected".to_string(), pushed.rejected.into());
    }
    if pushed.repeated {
        fields.insert("repeated".to_string(), true.into());
    }
    json_answer(StatusCode::OK, &Value::Object(fields))
}

fn refused(reason: &NotPushed) -> Answer {
    let (status, kind) = match reason {
        NotPushed::NoTable(_) => (StatusCode::NOT_FOUND, "undefined"),
        NotPushed::NotRunning => (StatusCode::SERVICE_UNAVAILABLE, "not_running"),
        NotPushed::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "limit"),
        NotPushed::BadName | NotPushed::BadRow { .. } => (StatusCode::BAD_REQUEST, "value"),
        NotPushed::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        NotPushed::Unconfirmed => (StatusCode::SERVICE_UNAVAILABLE, "unconfirmed"),
    };
    let line = match reason {
        NotPushed::BadRow { line, .. } => Some(*line),
        _ => None,
    };
    problem(status, kind, &reason.to_string(), &reason.hint(), line)
}

fn json_answer(status: StatusCode, value: &Value) -> Answer {
    Answer::json(status, format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_has_a_name_and_a_sequence() {
        assert_eq!(producer(""), Ok(None));
        let own = Producer {
            name: "a-1".to_string(),
            sequence: 7,
        };
        assert_eq!(producer("producer=a-1&sequence=7"), Ok(Some(own)));
        for wrong in [
            "producer=a",
            "sequence=7",
            "producer=a&sequence=-1",
            "producer=a&sequence=",
            "producer=a&sequence=1&rows=2",
            "producer",
        ] {
            assert!(producer(wrong).is_err(), "{wrong}");
        }
    }
}
