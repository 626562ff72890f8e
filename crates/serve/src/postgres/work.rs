//! What a statement asks of the backend and of the catalog: it runs on a thread that may block, while the
//! connection is watched, and its rows are sent piece by piece.

use std::sync::Arc;

use tokio::time::sleep_until;

use crate::backend::{Answer, Cancelled, Refusal, Session};
use crate::lock::lock;

use super::command::Fetch;
use super::conversation::{Asked, Conversation, Fault, Opened, moved};
use super::message::{self, Report};
use super::qualified::unqualified;
use super::rows::{End, Form, Running};
use super::wire::Wire;

/// What a statement has answered, with the first of its rows.
enum Ran {
    Done { tag: String, notices: Vec<String> },
    Rows(Running),
}

impl Conversation {
    pub async fn ask_catalog(
        &mut self,
        wire: &mut Wire,
        asked: Asked<'_>,
    ) -> Result<Running, Fault> {
        let (shared, text) = (Arc::clone(&self.shared), asked.text.to_owned());
        let facts = self.facts.with(&self.settings);
        let parameters = asked.parameters;
        let (batch, notice) = self
            .blocking(wire, &Cancelled::default(), move || {
                shared.catalog.run(&text, &parameters, facts)
            })
            .await??;
        if let Some(notice) = notice {
            Report::notice(notice).write(&mut wire.out);
        }
        Ok(Running::of_batch(batch))
    }

    pub async fn ask_session(
        &mut self,
        wire: &mut Wire,
        asked: Asked<'_>,
    ) -> Result<Opened, Fault> {
        let cancelled = Cancelled::default();
        let text = unqualified(asked.text).into_owned();
        let (before, parameters) = (asked.before, asked.parameters);
        let for_run = cancelled.clone();
        let run = move |session: &mut dyn Session| {
            let mut last = None;
            for statement in session.parse(&text)? {
                let begin = statement.begin;
                let answer = session.run(&statement, &parameters, &for_run);
                last = Some(answer.map_err(|refusal| moved(refusal, begin))?);
            }
            Ok::<_, Refusal>(last.map(|answer| match answer {
                Answer::Rows(rows) => Ran::Rows(Running::new(rows, for_run).fetch_if_short()),
                Answer::Done { tag, notices } => Ran::Done { tag, notices },
            }))
        };
        let answer = self.ask(wire, &cancelled, run).await?;
        match answer {
            Ok(None) => Ok(Opened::Empty),
            // It was done, even if the client did not want it any longer.
            Ok(Some(Ran::Done { tag, notices })) => {
                self.changed = true;
                Ok(Opened::Done { tag, notices })
            }
            Err(refusal) => {
                check(&cancelled)?;
                Err(Report::of(refusal, before).into())
            }
            Ok(Some(Ran::Rows(mut running))) => {
                check(&cancelled)?;
                if running.are_changes {
                    let permit = Arc::clone(&self.shared.streams).try_acquire_owned();
                    let refused = |_| Report {
                        hint: Some("close another one first".to_owned()),
                        ..Report::error("53300", "there are too many SUBSCRIBE at once")
                    };
                    running.permit = Some(permit.map_err(refused)?);
                }
                Ok(Opened::Rows(running))
            }
        }
    }

    /// Calls the session on a thread that may block.
    pub async fn ask<T: Send + 'static>(
        &mut self,
        wire: &mut Wire,
        cancelled: &Cancelled,
        call: impl FnOnce(&mut dyn Session) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let (session, shared) = (self.session.take(), Arc::clone(&self.shared));
        let called = self.blocking(wire, cancelled, move || {
            let mut session = session.unwrap_or_else(|| shared.backend.session());
            let result = call(session.as_mut());
            (session, result)
        });
        let (session, result) = called.await?;
        self.session = Some(session);
        Ok(result)
    }

    /// Calls something on a thread that may block, and watches the connection meanwhile.
    pub async fn blocking<T: Send + 'static>(
        &mut self,
        wire: &mut Wire,
        cancelled: &Cancelled,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        // It stays there until the statement ends: a client may cancel while rows are sent to it, too.
        *lock(&self.slot) = Some(cancelled.clone());
        let deadline = self.deadline;
        let mut task = tokio::task::spawn_blocking(call);
        let done = loop {
            let late = async {
                match deadline {
                    Some(deadline) if !cancelled.is_set() => sleep_until(deadline).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = &mut task => break done,
                // What the client sends meanwhile waits; that it has gone ends what it asked for.
                filled = wire.fill(), if wire.has_room() => if filled.is_err() { cancelled.cancel() },
                () = late => cancelled.cancel(),
            }
        };
        match done {
            Ok(_) if wire.closed => Err(Fault::Gone),
            Ok(value) => Ok(value),
            Err(_) => Err(Report::error("XX000", "the server has failed in this statement").into()),
        }
    }

    /// Sends rows, so many at most. Returns what is left, how many were sent, and whether there are no more.
    pub async fn pump(
        &mut self,
        wire: &mut Wire,
        mut running: Running,
        form: Form,
        rows_max: Option<usize>,
    ) -> Result<(Running, usize, bool), Fault> {
        let (mut rows, form) = (0, Arc::new(form));
        let cancelled = running.cancelled.clone();
        if running.are_changes {
            // The client learns that it listens now: the first change may be long in coming.
            wire.send().await?;
        }
        loop {
            let (form, left) = (Arc::clone(&form), rows_max.map(|max| max - rows));
            let piece;
            if running.is_here() {
                piece = running.piece(&form, left);
            } else {
                let next = move || {
                    let piece = running.piece(&form, left);
                    (running, piece)
                };
                (running, piece) = self.blocking(wire, &cancelled, next).await?;
            }
            rows += piece.rows;
            wire.out.unsplit(piece.bytes);
            check(&cancelled)?;
            match piece.end {
                End::Piece => wire.send().await?,
                End::Limit | End::Last => wire.send_if_full().await?,
                End::Failed(_) => {}
            }
            match piece.end {
                // A cursor on changes shows those that there are.
                End::Piece if running.are_changes && rows_max.is_some() => {
                    return Ok((running, rows, false));
                }
                End::Piece => {}
                End::Limit => return Ok((running, rows, false)),
                End::Last => return Ok((running, rows, true)),
                End::Failed(report) => return Err(report.into()),
            }
        }
    }

    /// Sends the next rows of a cursor, and ends the statement.
    pub async fn fetch(&mut self, wire: &mut Wire, fetch: &Fetch, form: Form) -> Result<(), Fault> {
        let mut rows = 0;
        if let Some(running) = self.portals.take_cursor(&fetch.cursor)? {
            let form = if fetch.moves { Form::Skipped } else { form };
            // Changes have no end: ALL are those that there are.
            let rows_max = fetch.rows.or(running.are_changes.then_some(usize::MAX));
            let (running, sent, ended) = self.pump(wire, running, form, rows_max).await?;
            rows = sent;
            self.portals.put_cursor(&fetch.cursor, running, ended);
        }
        let word = if fetch.moves { "MOVE" } else { "FETCH" };
        message::complete(&mut wire.out, &format!("{word} {rows}"));
        wire.send_if_full().await?;
        Ok(())
    }
}

fn check(cancelled: &Cancelled) -> Result<(), Report> {
    match cancelled.is_set() {
        true => Err(Report::error(
            "57014",
            "canceling statement: it was cancelled, or took too long",
        )),
        false => Ok(()),
    }
}
