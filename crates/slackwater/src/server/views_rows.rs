//! The rows of views for readers, from the processes of their jobs.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use slackwater_serve::backend::{Cancelled, Kind, Refusal};

use super::Server;
use super::answers::written;
use super::declared::refusal;
use super::protocol::{Ask, Told};
use super::reading::rows;
use super::talk::Talk;
use crate::reads::{self, AtCut, Failed, Limits, Reads, Rows, Scan};
use crate::script::Script;

/// How old the rows may be that a reader sees: readers within that time share a cut, so that many of them
/// cost the query no more than a few.
const AGE: Duration = Duration::from_millis(25);

/// How long a reader without a limit of time waits for rows.
const PATIENCE: Duration = Duration::from_secs(60);

/// The rows of all views of a server, for one statement.
pub struct ServerRows {
    pub server: Arc<Server>,
    pub ends: Arc<Ends>,
}

/// The most reads that a session keeps prepared.
const PREPARED_MAX: usize = 256;

/// The reads of a session, for the views that there are.
#[derive(Default)]
pub struct Reading(Option<Prepared>);

/// Reads, and those that are prepared.
pub struct Prepared {
    /// The version of what was declared.
    version: u64,
    pub reads: Reads,
    prepared: HashMap<String, Arc<reads::Prepared>>,
}

impl Reading {
    /// Whether a read has been planned for the views that there are now.
    pub fn has(&self, server: &Server, text: &str) -> bool {
        let own = self.0.as_ref().filter(|own| own.has(text));
        own.is_some_and(|own| own.version == server.declared().version)
    }

    /// The reads of the views that there are now.
    ///
    /// # Errors
    ///
    /// If a view is not valid any more.
    pub fn renewed(&mut self, server: &Server) -> Result<&mut Prepared, Refusal> {
        let declared = server.declared();
        let is_new = self
            .0
            .as_ref()
            .is_none_or(|own| own.version != declared.version);
        if is_new {
            let (views, text) = declared.readable();
            let failed = |failed: Failed| Refusal::new(Kind::Internal, failed.to_string());
            let mut reads = Reads::new(views).map_err(failed)?;
            if !text.is_empty() {
                reads.define(&text).map_err(failed)?;
            }
            self.0 = Some(Prepared {
                version: declared.version,
                reads,
                prepared: HashMap::new(),
            });
        }
        let missing = || Refusal::new(Kind::Internal, "there are no reads");
        self.0.as_mut().ok_or_else(missing)
    }
}

impl Prepared {
    /// Whether a read has been planned.
    pub fn has(&self, text: &str) -> bool {
        self.prepared.contains_key(text)
    }

    /// A read, which is planned once.
    ///
    /// # Errors
    ///
    /// If it is not valid.
    pub fn prepared(
        &mut self,
        server: &Server,
        text: &str,
    ) -> Result<Arc<reads::Prepared>, Refusal> {
        if let Some(prepared) = self.prepared.get(text) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = self.reads.prepare(text);
        let prepared = prepared.map_err(|failed| server.explained(refused_read(&failed, text)))?;
        let prepared = Arc::new(prepared);
        if self.prepared.len() >= PREPARED_MAX {
            self.prepared.clear();
        }
        self.prepared
            .insert(text.to_string(), Arc::clone(&prepared));
        Ok(prepared)
    }
}

impl Server {
    /// The error of a read that names something which is not kept.
    fn explained(&self, refusal: Refusal) -> Refusal {
        let declared = self.declared();
        let mut known = declared.known.values();
        let named = known.find(|known| {
            refusal
                .message
                .ends_with(&format!(" '{}'", known.object.name))
        });
        match named {
            Some(known) if refusal.kind == Kind::Undefined => {
                let (name, kind) = (&known.object.name, known.object.kind.name());
                let message =
                    format!("the rows of {kind} '{name}' are not kept, so they can't be read");
                Refusal { message, ..refusal }.hint(format!(
                    "CREATE MATERIALIZED VIEW v AS SELECT … FROM {name} keeps the rows of a query"
                ))
            }
            _ => refusal,
        }
    }
}

/// The refusal of a read.
pub fn refused_read(failed: &Failed, text: &str) -> Refusal {
    match failed {
        Failed::Sql(error) => refusal(&Script::new("", text), error, text),
        Failed::NotRead(reason) => Refusal::new(Kind::NotRunning, reason.clone()),
        Failed::Query(reason) => Refusal::new(Kind::Value, reason.clone()),
        Failed::Cancelled => {
            Refusal::new(Kind::Cancelled, "canceling statement due to user request")
        }
        Failed::TimedOut(_) => Refusal::new(Kind::Cancelled, failed.to_string()),
        Failed::Memory(_) => Refusal::new(Kind::Limit, failed.to_string()),
    }
}

/// Ends the conversations of a statement when it is cancelled.
#[derive(Default)]
pub struct Ends(Mutex<Vec<OwnedFd>>);

impl Ends {
    /// For a statement that may be cancelled.
    pub fn when(cancelled: &Cancelled) -> Arc<Ends> {
        let ends = Arc::new(Ends::default());
        let all = Arc::downgrade(&ends);
        cancelled.when_cancelled(move || {
            if let Some(ends) = all.upgrade() {
                let sockets = ends.0.lock().unwrap_or_else(PoisonError::into_inner);
                sockets.iter().for_each(Talk::end);
            }
        });
        ends
    }

    fn add(&self, talk: &Talk) -> Result<(), Refusal> {
        let socket = talk.socket()?;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(socket);
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl ServerRows {
    /// The reason of a failure: the statement's own end comes before what follows from it.
    fn failed(&self, refusal: Refusal, limits: &Limits) -> Failed {
        let ended = limits.check().err();
        ended.unwrap_or_else(|| Failed::NotRead(refusal.to_string()))
    }

    fn talk(&self, view: &str) -> Result<Talk, Refusal> {
        let talk = self.server.job(view)?.talk()?;
        self.ends.add(&talk)?;
        Ok(talk)
    }

    fn cut(&self, view: &str, limits: &Limits) -> Result<(Talk, u64), Refusal> {
        let talk = self.talk(view)?;
        let ask = Ask::Cut {
            views: vec![view.to_string()],
            max_age_ns: nanoseconds(AGE),
            limit_ns: nanoseconds(limits.left().unwrap_or(PATIENCE)),
        };
        talk.ask(&ask, &[])?;
        match talk.told()?.message {
            Told::Cut(number) => Ok((talk, number)),
            _ => Err(super::talk::gone()),
        }
    }

    fn found(
        &self,
        view: &str,
        key: Vec<ArrayRef>,
        limits: &Limits,
    ) -> Result<RecordBatch, Refusal> {
        let fields = key.iter().enumerate();
        let fields =
            fields.map(|(at, column)| Field::new(at.to_string(), column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(1));
        let key =
            RecordBatch::try_new_with_options(schema, key, &options).and_then(|key| written(&key));
        let key = key.map_err(super::reading::failed)?;
        let job = self.server.job(view)?;
        let talk = job.talk()?;
        let ask = Ask::Get {
            view: view.to_string(),
            max_age_ns: nanoseconds(AGE),
            limit_ns: nanoseconds(limits.left().unwrap_or(PATIENCE)),
        };
        talk.ask(&ask, &key)?;
        let found = talk.told()?;
        job.keep(talk);
        rows(&found.bytes)
    }
}

impl Rows for ServerRows {
    fn at(&self, views: &[String], limits: &Limits) -> Result<Box<dyn AtCut>, Failed> {
        let mut cuts = HashMap::new();
        for view in views {
            let cut = self.cut(view, limits);
            cuts.insert(
                view.clone(),
                cut.map_err(|refusal| self.failed(refusal, limits))?,
            );
        }
        Ok(Box::new(Cuts {
            cuts,
            rows: ServerRows {
                server: Arc::clone(&self.server),
                ends: Arc::clone(&self.ends),
            },
            limits: limits.clone(),
        }))
    }

    fn get(&self, view: &str, key: Vec<ArrayRef>, limits: &Limits) -> Result<RecordBatch, Failed> {
        let found = self.found(view, key, limits);
        found.map_err(|refusal| self.failed(refusal, limits))
    }
}

/// Cuts, which the jobs' processes keep as long as this has the conversations.
struct Cuts {
    cuts: HashMap<String, (Talk, u64)>,
    rows: ServerRows,
    limits: Limits,
}

impl Cuts {
    fn begin(&self, view: &str, columns: &[usize]) -> Result<Talk, Refusal> {
        let (_, cut) = self.cuts.get(view).ok_or_else(super::talk::gone)?;
        let talk = self.rows.talk(view)?;
        let ask = Ask::Scan {
            cut: *cut,
            view: 0,
            columns: Some(columns.to_vec()),
        };
        talk.ask(&ask, &[])?;
        Ok(talk)
    }
}

impl AtCut for Cuts {
    fn scan(&self, view: &str, columns: &[usize]) -> Result<Scan, Failed> {
        let limits = self.limits.clone();
        let failed = move |refusal: Refusal| {
            let ended = limits.check().err();
            ended.unwrap_or_else(|| Failed::NotRead(refusal.to_string()))
        };
        let mut talk = Some(self.begin(view, columns).map_err(&failed)?);
        Ok(Box::new(std::iter::from_fn(move || {
            let told = talk.as_ref()?.told();
            let told = told.and_then(|told| match told.message {
                Told::Rows => rows(&told.bytes).map(Some),
                _ => Ok(None),
            });
            match told {
                Ok(Some(batch)) => Some(Ok(batch)),
                Ok(None) => {
                    talk = None;
                    None
                }
                Err(refusal) => {
                    talk = None;
                    Some(Err(failed(refusal)))
                }
            }
        })))
    }
}
