//! Reads: SUBSCRIBE, EXPLAIN, and SELECT over materialized views.

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use slackwater_engine::time::parse_duration_ns;
use slackwater_serve::backend::{Answer, Cancelled, Kind as Wrong, Refusal, Rows};
use slackwater_sql::program::compile;
use slackwater_sql::settings::Settings;
use slackwater_sql::statement::Statement as Sql;

use super::Server;
use super::catalog::{Kind, Object};
use super::declared::{Known, New, refusal};
use super::listings;
use super::protocol::{Ask, Told};
use super::statements::check;
use super::subscription;
use super::talk::Talk;
use crate::catalog::BuiltIn;
use crate::costs::Learned;
use crate::machine::Machine;
use crate::planner::{learns, plan_on};

/// How long a reader waits for a cut.
const CUT_PATIENCE: Duration = Duration::from_secs(30);

/// The rows of an answer in Arrow's IPC format.
///
/// # Errors
///
/// If they are damaged.
pub fn rows(bytes: &[u8]) -> Result<RecordBatch, Refusal> {
    let mut reader = StreamReader::try_new(bytes, None).map_err(failed)?;
    match reader.next() {
        Some(batch) => batch.map_err(failed),
        None => Ok(RecordBatch::new_empty(reader.schema())),
    }
}

/// What Arrow refuses is a bug of ours.
pub fn failed(error: arrow_schema::ArrowError) -> Refusal {
    Refusal::new(Wrong::Internal, error.to_string())
}

impl Server {
    /// What a job answers in words.
    ///
    /// # Errors
    ///
    /// If there is no such job, or it does not run.
    pub(super) fn text(&self, job: &str, ask: &Ask) -> Result<String, Refusal> {
        let job = self.job(job)?;
        let talk = job.talk().map_err(|refusal| match ask {
            // A process that ended has taken its counts with it.
            Ask::Why if refusal.kind == Wrong::NotRunning => {
                let hint = refusal.hint.clone().unwrap_or_default();
                refusal.hint(format!(
                    "{hint}; the server's log has what it said at its end"
                ))
            }
            _ => refusal,
        })?;
        talk.ask(ask, &[])?;
        let told = talk.told()?;
        job.keep(talk);
        Ok(String::from_utf8_lossy(&told.bytes).into_owned())
    }

    /// The metrics of all jobs that run, with the watermark of each partition if it is wanted.
    pub fn metrics(&self, partitions: bool) -> Vec<String> {
        let jobs = self.jobs().keys().cloned().collect::<Vec<String>>();
        let running = jobs.iter().filter(|name| {
            let job = self.job(name).map(|job| job.state().process.is_some());
            job.unwrap_or(false)
        });
        running
            .filter_map(|name| self.text(name, &Ask::Metrics { partitions }).ok())
            .collect()
    }

    /// Changes a latency target while the job runs, and for its next start.
    ///
    /// # Errors
    ///
    /// If there is no such job or sink, the target is not valid, or it can't be kept.
    pub(super) fn retarget(
        &self,
        name: &str,
        sink: Option<&str>,
        target: &str,
    ) -> Result<(), Refusal> {
        let _changing = self.change();
        let job = self.job(name)?;
        let key = match sink {
            Some(sink) => format!("latency_target.{sink}"),
            None => "latency_target".to_string(),
        };
        check(&mut Settings::default(), &key, target)?;
        let target_ns = parse_duration_ns(target).ok_or_else(|| {
            Refusal::new(Wrong::Value, format!("'{target}' is not a duration"))
                .hint("such as '20 ms'")
        })?;
        let mut known = self.known(name)?;
        known.object.settings.retain(|(set, _)| *set != key);
        known.object.settings.push((key, target.to_string()));
        // Refuses a sink that is not there.
        let Object {
            kind,
            text,
            settings,
            ..
        } = &known.object;
        let (kind, new_text) = (*kind, text.as_str());
        let new = New {
            name,
            kind,
            text: new_text,
            settings,
        };
        self.declared().examine(&new).map_err(|refusal| Refusal {
            position: None,
            ..refusal
        })?;
        self.replace(&known)?;
        job.renew(self.begin(&known)?);
        let ask = Ask::Target {
            sink: sink.map(str::to_string),
            target_ns,
        };
        if job.state().process.is_some() {
            self.text(name, &ask)?;
        }
        Ok(())
    }

    /// A materialized view.
    ///
    /// # Errors
    ///
    /// If there is none with the name.
    pub(super) fn view(&self, name: &str) -> Result<Known, Refusal> {
        let known = self.known(name)?;
        if known.object.kind == Kind::MaterializedView {
            return Ok(known);
        }
        let message = format!(
            "'{name}' is not a materialized view, but a {}",
            known.object.kind.name()
        );
        Err(Refusal::new(Wrong::Undefined, message).hint(
            "only the rows of materialized views are kept: CREATE MATERIALIZED VIEW … AS SELECT …",
        ))
    }

    /// The rows of a view, and then its changes.
    ///
    /// # Errors
    ///
    /// If there is no such view, its job does not run, or there is no cut in time.
    pub(super) fn subscribe(&self, name: &str, cancelled: &Cancelled) -> Result<Answer, Refusal> {
        let known = self.view(name)?;
        let talk = self.job(name)?.talk()?;
        talk.end_when(cancelled)?;
        let ask = Ask::Subscribe {
            view: name.to_string(),
            limit_ns: u64::try_from(CUT_PATIENCE.as_nanos()).unwrap_or(u64::MAX),
        };
        talk.ask(&ask, &[])?;
        talk.wait_without_end()?;
        Ok(Answer::Rows(Rows {
            schema: subscription::columns(&known.schema()),
            batches: Box::new(Answered {
                talk: Some(talk),
                cancelled: cancelled.clone(),
            }),
            are_changes: true,
        }))
    }

    /// How a statement would run.
    ///
    /// # Errors
    ///
    /// If it is not valid.
    pub(super) fn explain(
        &self,
        inner: &Sql,
        text: &str,
        settings: &[(String, String)],
    ) -> Result<Answer, Refusal> {
        let name = match inner {
            Sql::CreateMaterializedView(view) => view.name.value.as_str(),
            _ => "",
        };
        let script = self.declared().script(name, text)?;
        let refused = |error| refusal(&script, &error, text);
        let mut compiled = compile(script.text(), settings, &BuiltIn).map_err(refused)?;
        script.warn(&mut compiled.explain);
        let learned = match learns(&compiled.explain) {
            true => Learned::load(),
            false => Learned::default(),
        };
        let plan = plan_on(&compiled.explain, &Machine::this(), &learned).map_err(refused)?;
        let explained = crate::explain::explain(&compiled.explain, &plan);
        let lines = explained.lines().map(|line| vec![Some(line.to_string())]);
        let schema = listings::strings(&["plan"]);
        let batch = listings::rows(&schema, &lines.collect::<Vec<_>>());
        Ok(Answer::Rows(Rows {
            schema,
            batches: Box::new(std::iter::once(Ok(batch))),
            are_changes: false,
        }))
    }
}

/// The rows that a process sends, until it says that there are no more.
struct Answered {
    talk: Option<Talk>,
    cancelled: Cancelled,
}

impl Iterator for Answered {
    type Item = Result<RecordBatch, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let talk = self.talk.as_ref()?;
        let told = talk.told().and_then(|told| match told.message {
            Told::Rows => rows(&told.bytes).map(Some),
            _ => Ok(None),
        });
        match told {
            Ok(Some(batch)) => return Some(Ok(batch)),
            Ok(None) => self.talk = None,
            Err(refusal) => {
                self.talk = None;
                // The end of the conversation is what was asked for.
                if self.cancelled.is_set() {
                    return Some(Err(Refusal::new(
                        Wrong::Cancelled,
                        "canceling statement due to user request",
                    )));
                }
                return Some(Err(refusal));
            }
        }
        None
    }
}
