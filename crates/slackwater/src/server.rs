//! The server: it keeps what was declared, and runs each job in a process of its own.
//!
//! ```text
//! front doors (slackwater-serve) ─► Backend ─► Session ─► Server ─┬─ Declared: catalog in SQLite
//!                                                                 └─ Job ─► process: run, views
//! ```
//!
//! - A statement that declares something is checked with all that it uses, kept, and then takes effect; a job
//!   that can't start is forgotten again, and the statement is an error.
//! - A job's program is made from the statements in the catalog each time it starts. Its state lies below the
//!   server's folder, and a process that dies is started again from its last checkpoint.
//! - The server's end closes the sockets of its jobs, which then save their state and end. A new server
//!   starts them again; the store of checkpoints keeps an old process from writing once the new one has
//!   begun.
//! - While nothing happens no thread wakes up (I7).

mod alter;
mod answers;
mod catalog;
mod child;
mod declared;
mod job;
mod listings;
mod log;
mod not_running;
mod process;
mod protocol;
mod pushes;
mod reading;
mod session;
mod statements;
mod subscription;
mod talk;
mod views_rows;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use slackwater_secure::Secret;
use slackwater_serve::backend::{
    Backend, JobState, Kind, Object, ObjectKind, Pushed, Refusal, Session, Status,
};

use slackwater_sql::settings::Hosts;

pub use log::{Format, Level, Log};
pub(crate) use process::main as job_main;

use crate::cluster::Lobby;
use catalog::Catalog;
use declared::{Declared, Known};
use job::Job;
use protocol::{Ask, Begin, JobHosts};
use session::Conversation;

/// How long a job may take to save its state and end.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A server.
pub struct Server {
    /// For the closures of jobs.
    this: Weak<Server>,
    folder: PathBuf,
    log: Log,
    declared: Mutex<Declared>,
    jobs: Mutex<BTreeMap<String, Arc<Job>>>,
    /// Where agents wait for jobs; `None` if all jobs run on this host.
    lobby: Option<Arc<Lobby>>,
    /// What agents know, and the name of this host.
    admits: Admits,
    /// Held while a statement changes what is declared: one at a time.
    changing: Mutex<()>,
}

/// Which hosts may join a server.
#[derive(Debug, Clone, Default)]
pub struct Admits {
    /// Where they join; `None` if all jobs run on this host.
    pub listen: Option<SocketAddr>,
    /// What they have to know; `None` on loopback only.
    pub secret: Option<Secret>,
    /// The name of this host.
    pub name: String,
}

impl Server {
    /// A server of what was declared in a folder, which is made if it is not there. Its jobs start. Functions
    /// of jobs run with the rights of the server, if it takes any.
    ///
    /// # Errors
    ///
    /// If the folder can't be used, or another server uses it.
    pub fn start(
        folder: &Path,
        log: Log,
        admits: Admits,
        allows_functions: bool,
    ) -> Result<Arc<Server>, String> {
        let lobby = admits.listen.map(|address| {
            let tell = move |message: &str| log.server(Level::Info, message);
            let lobby = Lobby::new(address, admits.secret.clone(), &admits.name, tell);
            lobby.map_err(|error| format!("--listen {address}: {error}"))
        });
        let lobby = lobby.transpose()?.map(Arc::new);
        let catalog = Catalog::open(folder)?;
        let (declared, wrong) = Declared::of(catalog, allows_functions)?;
        for (name, refusal) in wrong {
            log.server(Level::Error, &format!("'{name}' can't be used: {refusal}"));
        }
        let server = Arc::new_cyclic(|this| Server {
            this: this.clone(),
            folder: folder.to_owned(),
            log,
            declared: Mutex::new(declared),
            jobs: Mutex::default(),
            lobby,
            admits,
            changing: Mutex::default(),
        });
        let known = server.declared().known.clone();
        for known in known.values().filter(|known| known.object.kind.is_job()) {
            let object = &known.object;
            let status = match (&object.ended, object.is_wanted) {
                (_, false) => Status::Stopped,
                // Its rows can be read.
                (Some(why), true) if why.is_empty() && !stays(known) => Status::Finished,
                (Some(why), true) if !why.is_empty() => Status::Failed {
                    reason: why.clone(),
                },
                _ => Status::Starting,
            };
            if let Err(refusal) = server.add_job(known, status) {
                let message = format!("job '{}' can't start: {refusal}", object.name);
                log.server(Level::Error, &message);
            }
        }
        Ok(server)
    }

    /// Makes all jobs save their state and end.
    pub fn stop(&self) {
        let jobs = std::mem::take(&mut *self.jobs());
        jobs.values().for_each(|job| job.ask_to_stop());
        let by = Instant::now() + STOP_PATIENCE;
        for (name, job) in jobs {
            let patience = by.saturating_duration_since(Instant::now());
            if !job.wait_until_stopped(patience) {
                let message = format!(
                    "job '{name}' did not save its state in time: it resumes from its last checkpoint"
                );
                self.log.server(Level::Warning, &message);
            }
            job.remove(STOP_PATIENCE);
        }
    }

    /// A job of something that is declared.
    fn add_job(&self, known: &Known, status: Status) -> Result<Arc<Job>, Refusal> {
        let begin = self.begin(known)?;
        let this = self.this.clone();
        let ended = move |name: &str, why: &str| {
            if let Some(server) = this.upgrade() {
                server.has_ended(name, why);
            }
        };
        let lobby = self.lobby.clone();
        let wants = move |name: &str, port: Option<u16>, agents: usize| {
            if let Some(lobby) = &lobby {
                match port {
                    Some(port) => lobby.want(name, port, agents),
                    None => lobby.forget(name),
                }
            }
        };
        let job = Job::new(begin, status, self.log, Box::new(ended), Box::new(wants))?;
        let job = Arc::new(job);
        self.jobs()
            .insert(known.object.name.clone(), Arc::clone(&job));
        Ok(job)
    }

    /// What a job runs.
    fn begin(&self, known: &Known) -> Result<Begin, Refusal> {
        let object = &known.object;
        Ok(Begin {
            name: object.name.clone(),
            parts: self.declared().parts(&object.name, &object.text)?,
            settings: object.settings.clone(),
            state: self.folder.join(&object.state).display().to_string(),
            stays: stays(known),
            hosts: self.hosts(known)?,
        })
    }

    /// Where hosts join a job that is to run on several.
    fn hosts(&self, known: &Known) -> Result<Option<JobHosts>, Refusal> {
        let hosts = known.object.settings.iter().rev();
        let hosts = hosts.clone().find(|(key, _)| key == "hosts");
        let Some(hosts) = hosts.and_then(|(_, value)| Hosts::parse(value)) else {
            return Ok(None);
        };
        let refused = |why: &str, hint: &str| {
            let message = format!("'hosts' = '{hosts}': {why}");
            Err(Refusal::new(Kind::Value, message).hint(hint))
        };
        if stays(known) {
            let why = "a materialized view is kept on the server's host";
            return refused(why, "write to a sink: CREATE SINK, or RESET 'hosts'");
        }
        let Some(lobby) = &self.lobby else {
            let why = "this server does not listen for hosts";
            return refused(why, "slackwater serve --listen ADDRESS --secret FILE");
        };
        Ok(Some(JobHosts {
            count: (hosts.min, hosts.max),
            name: self.admits.name.clone(),
            lobby: lobby.address(),
            secret: self.admits.secret.as_ref().map(Secret::text),
        }))
    }

    fn has_ended(&self, name: &str, why: &str) {
        let mut declared = self.declared();
        if let Err(error) = declared.catalog.ended(name, why) {
            self.log.server(
                Level::Error,
                &format!("that '{name}' has ended is not kept: {error}"),
            );
        }
        if let Some(known) = declared.known.get_mut(name) {
            known.object.ended = Some(why.to_string());
        }
    }

    fn job(&self, name: &str) -> Result<Arc<Job>, Refusal> {
        let job = self.jobs().get(name).map(Arc::clone);
        job.ok_or_else(|| {
            let hint = "SHOW JOBS lists the jobs";
            Refusal::new(Kind::NoSuchJob, format!("there is no job '{name}'")).hint(hint)
        })
    }

    fn declared(&self) -> MutexGuard<'_, Declared> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other statement changes what is declared.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the process of a job stays when its inputs have ended, so that its rows can be read.
fn stays(known: &Known) -> bool {
    known.object.kind == catalog::Kind::MaterializedView
}

/// The server as its front doors see it.
pub struct Doors(pub Arc<Server>);

impl Backend for Doors {
    fn session(&self) -> Box<dyn Session> {
        Box::new(Conversation::new(&self.0))
    }

    fn objects(&self) -> Vec<Object> {
        let declared = self.0.declared();
        let known = declared.known.values().filter_map(|known| {
            let kind = match known.object.kind {
                catalog::Kind::Table => ObjectKind::Table,
                catalog::Kind::View => ObjectKind::View,
                catalog::Kind::MaterializedView => ObjectKind::MaterializedView,
                catalog::Kind::Sink => ObjectKind::Sink,
                catalog::Kind::Insert | catalog::Kind::Function => return None,
            };
            Some(Object {
                name: known.object.name.clone(),
                kind,
                columns: known.columns.clone(),
                definition: known.object.text.clone(),
            })
        });
        known.collect()
    }

    fn jobs(&self) -> Vec<JobState> {
        let jobs = self.0.jobs();
        jobs.values().map(|job| job.state()).collect()
    }

    fn report(&self, job: &str) -> Result<String, Refusal> {
        self.0.text(job, &Ask::Look)
    }

    fn why(&self, job: &str) -> Result<String, Refusal> {
        self.0.text(job, &Ask::Why)
    }

    fn retarget(&self, job: &str, sink: Option<&str>, target: &str) -> Result<(), Refusal> {
        self.0.retarget(job, sink, target)
    }

    fn push(
        &self,
        table: &str,
        rows: &[u8],
        producer: Option<(String, u64)>,
    ) -> Result<Pushed, Refusal> {
        self.0.push(table, rows, producer)
    }
}
