//! A run that stands by, and one that may be followed.

use std::path::PathBuf;
use std::time::Instant;

use super::{Failure, RunOptions, StateOptions};
use crate::catalog::ProgramCatalog;
use crate::standby::Replica;
use crate::supervisor::checks::check_checkpoints;
use crate::supervisor::{Query, Stood, stand_by};

/// The folder in which standbys may follow a run.
pub(super) fn followed_in(options: &RunOptions, state: Option<&StateOptions>) -> Option<PathBuf> {
    let state = state.filter(|state| options.may_be_followed && !state.place.contains("://"));
    state.map(|state| PathBuf::from(&state.place))
}

/// Stands by; returns what this run holds when it goes on, or `None` if it was stopped before.
pub(super) fn stood_by(
    query: &mut Query<'_>,
    catalog: &ProgramCatalog<'_>,
    state: &StateOptions,
) -> Result<Option<Box<Replica>>, Failure> {
    let usage = |reason: &str| Failure::Usage(format!("--standby: {reason}"));
    if state.place.contains("://") {
        let reason = format!(
            "{} is not a folder, and a standby follows in one\n  \
             = share a folder among the hosts, or let several orchestrators use a --registry",
            state.place
        );
        return Err(usage(&reason));
    }
    if query.plan.processes > 1 {
        return Err(usage(
            "it runs in one process, and 'processes' is larger\n  \
             = run it with --processes 1: the active may have more",
        ));
    }
    let checked = check_checkpoints(query.program, query.plan.processes);
    checked.map_err(|error| Failure::Usage(query.script.render(&error)))?;
    match stand_by(query, catalog, state)? {
        Stood::Goes(replica) => {
            query.started = Instant::now();
            Ok(Some(replica))
        }
        Stood::Stopped => Ok(None),
    }
}
