//! Rows that are pushed into a table: every job that reads it gets them.

use std::sync::Arc;
use std::time::Instant;

use slackwater_connect::push::PUSH_BYTES_MAX;
use slackwater_serve::api;
use slackwater_serve::backend::{Kind as Wrong, Pushed, Refusal};

use super::Server;
use super::job::{Job, START_PATIENCE};
use super::protocol::{Ask, Told};

/// The connector of tables into which rows are pushed.
const PUSHED: &str = "http";

/// Both doors accept the same.
const _: () = assert!(api::PUSH_BYTES_MAX == PUSH_BYTES_MAX);

impl Server {
    /// Pushes rows to all jobs that read a table and are to run. One that is stopped, or has ended, does not
    /// take part.
    ///
    /// # Errors
    ///
    /// If there is no such table, no job that is to run reads it, or one of them starts for too long: no job
    /// has the rows then. Or if one of them does not accept the rows: others may have them, and the message
    /// says so.
    pub(super) fn push(
        &self,
        table: &str,
        rows: &[u8],
        producer: Option<(String, u64)>,
    ) -> Result<Pushed, Refusal> {
        let known = self.known(table)?;
        if known.connector.as_deref() != Some(PUSHED) {
            let message = format!("'{table}' is not a table into which rows can be pushed");
            return Err(Refusal::new(Wrong::Undefined, message)
                .hint("that is a table with 'connector' = 'http'"));
        }
        let ask = Ask::Push {
            table: table.to_string(),
            producer,
        };
        let mut all = Pushed::default();
        let mut done = Vec::<String>::new();
        for (name, job) in self.readers(table)? {
            match push_to(&job, &ask, rows) {
                Ok(pushed) => {
                    // Jobs may read different columns, so a row can be bad for one of them only.
                    all = Pushed {
                        rows: all.rows.max(pushed.rows),
                        rejected: all.rejected.max(pushed.rejected),
                        repeated: pushed.repeated && (done.is_empty() || all.repeated),
                    };
                    done.push(name);
                }
                Err(refusal) if done.is_empty() => return Err(refusal),
                Err(refusal) => return Err(half_done(&name, &done, refusal)),
            }
        }
        Ok(all)
    }

    /// The jobs that read a table and run, after those that start have started.
    fn readers(&self, table: &str) -> Result<Vec<(String, Arc<Job>)>, Refusal> {
        let names = {
            let declared = self.declared();
            let readers = declared.dependents(table).into_iter();
            let readers = readers.filter(|reader| reader.object.kind.is_job());
            readers
                .map(|reader| reader.object.name.clone())
                .collect::<Vec<String>>()
        };
        if names.is_empty() {
            let message = format!("no job reads table '{table}', so nothing would keep the rows");
            return Err(Refusal::new(Wrong::NotRunning, message).hint(format!(
                "CREATE MATERIALIZED VIEW v AS SELECT … FROM {table}"
            )));
        }
        let until = Instant::now() + START_PATIENCE;
        let mut readers = Vec::with_capacity(names.len());
        for name in &names {
            let job = self.job(name)?;
            if job.wait_if_starting(until)? {
                readers.push((name.clone(), job));
            }
        }
        if readers.is_empty() {
            let message = format!(
                "no job that reads table '{table}' runs ({} {}), so nothing would keep the rows",
                names.join(", "),
                if names.len() == 1 {
                    "does not"
                } else {
                    "do not"
                }
            );
            let hint = format!("START JOB {} starts it again", names[0]);
            return Err(Refusal::new(Wrong::NotRunning, message).hint(hint));
        }
        Ok(readers)
    }
}

/// Pushes rows to a job.
fn push_to(job: &Job, ask: &Ask, rows: &[u8]) -> Result<Pushed, Refusal> {
    let talk = job.talk()?;
    talk.ask(ask, rows)?;
    let told = talk
        .told()
        .map_err(|refusal| match refusal.hint.as_deref() {
            // The process ended after it was asked.
            Some(super::talk::TRY_AGAIN) => Refusal {
                kind: Wrong::Unconfirmed,
                ..refusal
            },
            _ => refusal,
        })?;
    job.keep(talk);
    match told.message {
        Told::Pushed {
            rows,
            rejected,
            repeated,
        } => Ok(Pushed {
            rows,
            rejected,
            repeated,
        }),
        _ => Err(Refusal::new(
            Wrong::Internal,
            "the job answers a push with something else",
        )),
    }
}

/// One of several jobs has not accepted a push.
fn half_done(name: &str, done: &[String], refusal: Refusal) -> Refusal {
    let message = format!(
        "job '{name}': {}; other jobs have the rows ({})",
        refusal.message,
        done.join(", ")
    );
    let mut hint = refusal.hint.clone().unwrap_or_default();
    if !hint.is_empty() {
        hint.push_str("; ");
    }
    hint.push_str(
        "a push with ?producer=NAME&sequence=NUMBER can be repeated: no job reads it twice",
    );
    Refusal { message, ..refusal }.hint(hint)
}
