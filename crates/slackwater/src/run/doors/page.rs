//! The page of one running query, and what it asks for. A server has the same paths for all its jobs.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use slackwater_engine::time::parse_duration_ns;
use slackwater_serve::http::{Answer, Asked, Method, Reply, Routes, StatusCode};
use slackwater_serve::page;

use crate::metrics::{Board, Look};
use crate::supervisor::{Retarget, Signals};

/// How often an open page gets the counts.
const EVERY: Duration = Duration::from_secs(1);

/// The bytes of a change: a target and a name.
const CHANGE_BYTES_MAX: usize = 4 * 1024;

/// A change of a job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// The latency target: `20 ms`.
    latency_target: String,
    /// The table of the sink; all sinks if it is left out.
    sink: Option<String>,
}

/// Adds the page and its paths to those of a run.
pub fn routes(routes: Routes, board: &Arc<Board>, signals: &Arc<Signals>) -> Routes {
    let listed = Arc::clone(board);
    let routes = page::routes(routes).get("/v1/jobs", move |_, reply| {
        let job = json!({"name": listed.name(), "status": listed.status()});
        let list = json!({"version": env!("CARGO_PKG_VERSION"), "server": false, "jobs": [job]});
        reply.send(Answer::json(StatusCode::OK, list.to_string()));
    });
    let (described, asked) = (Arc::clone(board), Arc::clone(signals));
    let (heard, told) = (Arc::clone(board), Arc::clone(signals));
    let (changed, changing) = (Arc::clone(board), Arc::clone(signals));
    routes
        .get("/v1/jobs/{name}", move |request, reply| {
            of_job(&described, request, reply, |_, reply| {
                look(&described, &asked, move |board| {
                    let (job, counts) = (&board.job().json, board.json());
                    let body = format!("{{\"job\":{job},\"counts\":{counts}}}\n");
                    reply.send(Answer::json(StatusCode::OK, body));
                });
            });
        })
        .get("/v1/jobs/{name}/events", move |request, reply| {
            of_job(&heard, request, reply, |_, reply| {
                reply.send(events(&heard, &told));
            });
        })
        .on(
            Method::PATCH,
            "/v1/jobs/{name}",
            CHANGE_BYTES_MAX,
            move |request, reply| {
                of_job(&changed, request, reply, |request, reply| {
                    match retarget(&changed, &request.body) {
                        Ok((nodes, target_ns)) => changing.retarget(Retarget {
                            nodes,
                            target_ns,
                            done: Box::new(move || {
                                let body = json!({"latency_target_ms": target_ns as f64 / 1e6});
                                reply.send(Answer::json(StatusCode::OK, body.to_string()));
                            }),
                        }),
                        Err((reason, hint)) => {
                            reply.send(refusal(StatusCode::BAD_REQUEST, &reason, &hint));
                        }
                    }
                });
            },
        )
}

/// Looks at the query, or at what is known of it if it does not run now.
fn look(board: &Arc<Board>, signals: &Signals, tell: impl FnOnce(&Board) + Send + 'static) {
    let look = Look::new(board, tell).with_partitions();
    if board.is_running() {
        signals.look(look);
    }
}

/// The job, and then its counts again and again.
fn events(board: &Arc<Board>, signals: &Arc<Signals>) -> Answer {
    let (board, signals) = (Arc::clone(board), Arc::clone(signals));
    let mut is_first = true;
    Answer::events(EVERY, move |piece| {
        let is_first = std::mem::replace(&mut is_first, false);
        look(&board, &signals, move |board| {
            let counts = board.json();
            match is_first {
                true => piece.send_all(&[("job", &board.job().json), ("counts", &counts)]),
                false => piece.send("counts", &counts),
            }
        });
    })
}

/// Answers a request about the job, if it has this name.
fn of_job(board: &Board, request: Asked, reply: Reply, answer: impl FnOnce(Asked, Reply)) {
    let name = &request.parts[0];
    if name == board.name() {
        return answer(request, reply);
    }
    let hint = format!("the job is '{}'", board.name());
    let reason = format!("there is no job '{name}'");
    reply.send(refusal(StatusCode::NOT_FOUND, &reason, &hint));
}

/// The sinks whose target is to change, and the target in nanoseconds; or what is wrong, and what to do.
fn retarget(board: &Board, body: &[u8]) -> Result<(Vec<usize>, u64), (String, String)> {
    let example = || "send {\"latency_target\": \"20 ms\"}".to_string();
    let change: Change =
        serde_json::from_slice(body).map_err(|error| (error.to_string(), example()))?;
    let target = &change.latency_target;
    let target_ns = parse_duration_ns(target).filter(|ns| *ns > 0);
    let target_ns = target_ns.ok_or_else(|| {
        let reason = format!("'{target}' is not a latency target");
        (
            reason,
            "use a duration above zero, such as '20 ms'".to_string(),
        )
    })?;
    let sinks = &board.job().sinks;
    let wanted = change.sink.as_deref();
    let nodes = sinks
        .iter()
        .filter(|(_, table)| wanted.is_none_or(|wanted| wanted == table));
    let nodes = nodes.map(|(node, _)| *node).collect::<Vec<_>>();
    if nodes.is_empty() {
        let tables = sinks.iter().map(|(_, table)| format!("'{table}'"));
        let tables = tables.collect::<Vec<_>>().join(", ");
        let reason = format!("there is no sink '{}'", wanted.unwrap_or_default());
        return Err((reason, format!("the sinks are {tables}")));
    }
    Ok((nodes, target_ns))
}

fn refusal(status: StatusCode, reason: &str, hint: &str) -> Answer {
    let body = json!({"error": reason, "hint": hint});
    Answer::json(status, body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Job;

    #[test]
    fn a_target_is_changed_for_all_sinks_or_for_one() {
        let sinks = [(4, "slow"), (7, "quick"), (9, "slow")];
        let job = Job {
            sinks: sinks
                .map(|(node, table)| (node, table.to_string()))
                .to_vec(),
            ..Job::default()
        };
        let board = Board::new("q".to_string(), job);
        let retarget = |body: &str| retarget(&board, body.as_bytes());
        let all = retarget(r#"{"latency_target": "2.5 ms"}"#);
        assert_eq!(all, Ok((vec![4, 7, 9], 2_500_000)));
        let one = retarget(r#"{"latency_target": "1 s", "sink": "slow"}"#);
        assert_eq!(one, Ok((vec![4, 9], 1_000_000_000)));
        for (wrong, reason, hint) in [
            ("", "EOF", "send {"),
            ("{}", "missing field `latency_target`", "send {"),
            (r#"{"latency_target": 5}"#, "invalid type", "send {"),
            (
                r#"{"latency_target": "1 s", "a": 1}"#,
                "unknown field",
                "send {",
            ),
            (
                r#"{"latency_target": "0 ms"}"#,
                "'0 ms' is not",
                "above zero",
            ),
            (
                r#"{"latency_target": "soon"}"#,
                "'soon' is not",
                "above zero",
            ),
            (
                r#"{"latency_target": "1 s", "sink": "o"}"#,
                "there is no sink 'o'",
                "'slow', 'quick'",
            ),
        ] {
            let (found, proposed) = retarget(wrong).unwrap_err();
            assert!(found.contains(reason), "{wrong}: {found}");
            assert!(proposed.contains(hint), "{wrong}: {proposed}");
        }
    }
}
