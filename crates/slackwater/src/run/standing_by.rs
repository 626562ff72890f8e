//! A run that stands by, and one that may be followed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use slackwater_secure::Secret;
use slackwater_sql::program::Program;

use super::{Failure, StateOptions};
use crate::catalog::ProgramCatalog;
use crate::standby::{Place, Readers, Remote, Replica};
use crate::supervisor::checks::check_checkpoints;
use crate::supervisor::{Query, Stood, stand_by};

/// How a run stands by, or is followed.
#[derive(Debug, Clone, Default)]
pub struct StandbyOptions {
    /// Whether standbys may follow it.
    pub may_be_followed: bool,
    /// Where standbys on other hosts reach it.
    pub at: Option<SocketAddr>,
    /// Whether it stands by until the one that runs the query is gone.
    pub stands_by: bool,
    /// Where that one is reached, if not in the folder of the state.
    pub active: Option<SocketAddr>,
    /// What all hosts know.
    pub secret: Option<Secret>,
    /// Whether it runs the query itself if nobody does for a while.
    pub runs_if_alone: bool,
}

/// How long a run that takes over tries to open a listener: the kernel may not have closed that of the run
/// before it yet.
const LISTENER_PATIENCE: Duration = Duration::from_secs(1);

/// The pause between two attempts.
const LISTENER_PAUSE: Duration = Duration::from_millis(10);

/// Opens a listener. A run that has stood by goes on without it if it can't be opened: the rows count more.
pub(super) fn opened_by<T>(
    has_stood_by: bool,
    open: impl Fn() -> Result<T, String>,
) -> Result<Option<T>, String> {
    let until = Instant::now() + LISTENER_PATIENCE;
    loop {
        match open() {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) if !has_stood_by => return Err(error),
            Err(_) if Instant::now() < until => std::thread::sleep(LISTENER_PAUSE),
            Err(error) => {
                eprintln!("warning: the query runs without it: {error}");
                return Ok(None);
            }
        }
    }
}

impl StandbyOptions {
    fn remote(&self, address: SocketAddr, program: &Program) -> Remote {
        Remote {
            address,
            secret: self.secret.clone(),
            timeout: Duration::from_nanos(program.settings.standby_timeout_ns),
        }
    }

    /// Where standbys on other hosts reach a run of this program.
    pub(super) fn followed_at(&self, program: &Program) -> Option<Remote> {
        self.at.map(|address| self.remote(address, program))
    }

    /// The folder in which standbys may follow a run.
    pub(super) fn followed_in(&self, state: Option<&StateOptions>) -> Option<PathBuf> {
        let state = state.filter(|state| self.may_be_followed && !state.place.contains("://"));
        state.map(|state| PathBuf::from(&state.place))
    }
}

/// Stands by, and shows `readers` what it holds; returns that when it continues, or `None` if it was stopped
/// before.
pub(super) fn stood_by(
    query: &mut Query<'_>,
    catalog: &ProgramCatalog<'_>,
    state: &StateOptions,
    options: &StandbyOptions,
    readers: Option<&dyn Readers>,
) -> Result<Option<Box<Replica>>, Failure> {
    let usage = |reason: &str| Failure::Usage(format!("--standby: {reason}"));
    let active = match options.active {
        Some(address) => Place::Address(options.remote(address, query.program)),
        None if state.place.contains("://") => {
            let reason = format!(
                "{} is not a folder, in which it would find the run to follow\n  \
                 = say where that is: --standby-at ADDRESS there, --join ADDRESS here",
                state.place
            );
            return Err(usage(&reason));
        }
        None => Place::Folder(PathBuf::from(&state.place)),
    };
    if query.plan.processes > 1 {
        return Err(usage(
            "it runs in one process, and 'processes' is larger\n  \
             = run it with --processes 1: the active may have more",
        ));
    }
    let checked = check_checkpoints(query.program, query.plan.processes);
    checked.map_err(|error| Failure::Usage(query.script.render(&error)))?;
    let alone = Duration::from_nanos(query.program.settings.standby_timeout_ns);
    let alone = options.runs_if_alone.then_some(alone);
    match stand_by(query, catalog, state, &active, alone, readers)? {
        Stood::Goes(replica) => {
            query.started = Instant::now();
            Ok(Some(replica))
        }
        Stood::Stopped => Ok(None),
    }
}
