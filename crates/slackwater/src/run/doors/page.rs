//! The page of one running query, and what it asks for. A server has the same paths for all its jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use slackwater_engine::time::parse_duration_ns;
use slackwater_serve::http::{Answer, Asked, Method, Reply, Routes, StatusCode};
use slackwater_serve::page;

use crate::metrics::{Board, Look};
use crate::run::problem::problem;
use crate::supervisor::{Retarget, Signals};

/// How often an open page gets the counts.
const EVERY: Duration = Duration::from_secs(1);

/// The bytes of a change: a target and a name.
const CHANGE_BYTES_MAX: usize = 4 * 1024;

/// A change of a job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// The settings, with the names that `SET` knows: `latency_target`, or `latency_target.NAME` for the sink
    /// of one table.
    settings: BTreeMap<String, String>,
}

/// The setting that can be changed.
const TARGET: &str = "latency_target";

/// Adds the page and its paths to those of a run.
pub fn routes(routes: Routes, board: &Arc<Board>, signals: &Arc<Signals>) -> Routes {
    let listed = Arc::clone(board);
    let routes = page::routes(routes).get("/v1/jobs", move |_, reply| {
        let list = json!([{
            "name": listed.name(),
            "status": listed.status(),
            "process": std::process::id(),
            "is_run": true,
        }]);
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
                        Ok(targets) => changing.retarget(Retarget {
                            targets,
                            done: Box::new(move || {
                                let done = json!({"done": "ALTER JOB", "notices": []});
                                reply.send(Answer::json(StatusCode::OK, done.to_string()));
                            }),
                        }),
                        Err((reason, hint)) => {
                            reply.send(problem(
                                StatusCode::BAD_REQUEST,
                                "value",
                                &reason,
                                &hint,
                                None,
                            ));
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
    reply.send(problem(
        StatusCode::NOT_FOUND,
        "no_such_job",
        &reason,
        &hint,
        None,
    ));
}

/// The nodes of the sinks whose targets are to change, with the targets in nanoseconds; or what is wrong, and
/// what to do.
fn retarget(board: &Board, body: &[u8]) -> Result<Vec<(usize, u64)>, (String, String)> {
    let example = || "send {\"settings\": {\"latency_target\": \"20 ms\"}}".to_string();
    let change: Change =
        serde_json::from_slice(body).map_err(|error| (error.to_string(), example()))?;
    if change.settings.is_empty() {
        return Err(("there is nothing to change".to_string(), example()));
    }
    let sinks = &board.job().sinks;
    let mut targets = Vec::new();
    // In alphabetical order: the target of one sink comes after that of all.
    for (setting, value) in &change.settings {
        let wanted = match setting.strip_prefix(TARGET) {
            Some("") => None,
            Some(table) if table.starts_with('.') => Some(&table[1..]),
            _ => {
                let reason = format!("'{setting}' can't be changed while the query runs");
                return Err((reason, format!("{TARGET} can")));
            }
        };
        let target_ns = parse_duration_ns(value).filter(|ns| *ns > 0);
        let target_ns = target_ns.ok_or_else(|| {
            let reason = format!("'{value}' is not a latency target");
            (
                reason,
                "use a duration above zero, such as '20 ms'".to_string(),
            )
        })?;
        let own = sinks
            .iter()
            .filter(|(_, table)| wanted.is_none_or(|wanted| wanted == table));
        let before = targets.len();
        targets.extend(own.map(|(node, _)| (*node, target_ns)));
        if targets.len() == before {
            let tables = sinks.iter().map(|(_, table)| format!("'{table}'"));
            let tables = tables.collect::<Vec<_>>().join(", ");
            let reason = format!("there is no sink '{}'", wanted.unwrap_or_default());
            return Err((reason, format!("the sinks are {tables}")));
        }
    }
    Ok(targets)
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
        let all = retarget(r#"{"settings": {"latency_target": "2.5 ms"}}"#);
        assert_eq!(all, Ok([4, 7, 9].map(|node| (node, 2_500_000)).to_vec()));
        let one = retarget(r#"{"settings": {"latency_target.slow": "1 s"}}"#);
        assert_eq!(one, Ok([4, 9].map(|node| (node, 1_000_000_000)).to_vec()));
        let both = r#"{"settings": {"latency_target.quick": "1 s", "latency_target": "2 s"}}"#;
        assert_eq!(retarget(both).unwrap().last(), Some(&(7, 1_000_000_000)));
        let set = |setting: &str, value: &str| {
            format!("{{\"settings\": {{\"{setting}\": \"{value}\"}}}}")
        };
        let cases = [
            (String::new(), "EOF", "send {"),
            ("{}".to_string(), "missing field `settings`", "send {"),
            (
                r#"{"settings": {}}"#.to_string(),
                "nothing to change",
                "send {",
            ),
            (r#"{"a": 1}"#.to_string(), "unknown field", "send {"),
            (
                r#"{"settings": {"latency_target": 5}}"#.to_string(),
                "invalid type",
                "send {",
            ),
            (
                set("parallelism", "2"),
                "'parallelism' can't be changed",
                "latency_target can",
            ),
            (
                set("latency_targets", "2 s"),
                "'latency_targets' can't",
                "latency_target can",
            ),
            (set("latency_target", "0 ms"), "'0 ms' is not", "above zero"),
            (set("latency_target", "soon"), "'soon' is not", "above zero"),
            (
                set("latency_target.o", "1 s"),
                "there is no sink 'o'",
                "'slow', 'quick'",
            ),
        ];
        for (wrong, reason, hint) in &cases {
            let (found, proposed) = retarget(wrong).unwrap_err();
            assert!(found.contains(*reason), "{wrong}: {found}");
            assert!(proposed.contains(*hint), "{wrong}: {proposed}");
        }
    }
}
