//! A query that one of several orchestrators directs: it stands by, leads, and stands by again if another one
//! has taken over.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::gathering::compile_with;
use super::{Failure, Outcome, RunOptions, run_with};
use crate::cluster::{Candidate, ClusterOptions, Leadership, Led, Stood, stand};
use crate::script::Script;
use crate::supervisor::Signals;
use crate::terminal::say;

/// The registry of a query, with its other options for hosts.
pub fn registry(options: &RunOptions) -> Option<(&str, &ClusterOptions)> {
    let cluster = options.cluster.as_ref()?;
    Some((cluster.registry.as_deref()?, cluster))
}

/// By which right an orchestrator leads.
pub fn right(leadership: Option<&Arc<Leadership>>, signals: &Arc<Signals>) -> Led {
    let Some(leadership) = leadership.cloned() else {
        return Led::alone();
    };
    let (signals, leads) = (Arc::clone(signals), Arc::clone(&leadership));
    Led {
        term: Box::new(move || leads.term()),
        hands_over: Box::new(move || signals.was_raised() || leadership.lost().is_some()),
    }
}

/// Runs a query when it is this orchestrator's turn.
pub fn run(
    script: &Script,
    options: &RunOptions,
    (registry, cluster): (&str, &ClusterOptions),
) -> Result<Outcome, Failure> {
    // What is wrong is said now, and not when this one has to take over.
    compile_with(script, options, &BTreeMap::new())
        .map_err(|error| Failure::Usage(script.render(&error)))?;
    let signals = &options.asker.signals;
    let me = Candidate {
        name: cluster.name.clone(),
        address: cluster.listen,
        pid: std::process::id(),
        id: fastrand::u64(..),
        query: script.name().to_string(),
        job: job(script, options),
    };
    loop {
        let told = Arc::clone(signals);
        let changed = move |is_lost| match is_lost {
            true => told.stop(),
            false => told.hosts(),
        };
        let secret = cluster.secret.as_ref();
        let stood = stand(registry, me.clone(), secret, changed, &|| signals.wait());
        let leadership = match stood.map_err(Failure::Usage)? {
            Stood::Leads(leadership) => leadership,
            Stood::Stopped | Stood::Over(None) => return Ok(Outcome::Explained(String::new())),
            Stood::Over(Some(error)) => return Err(Failure::Query(error, None)),
        };
        let result = run_with(script, options, Some(&leadership));
        if let Some(reason) = leadership.lost() {
            say(&format!("{}: {reason}\n", me.place()));
            signals.resume();
            continue;
        }
        if !signals.was_raised() {
            let error = match &result {
                Ok(_) => None,
                Err(Failure::Usage(error) | Failure::Query(error, _)) => Some(error.as_str()),
            };
            leadership.conclude(error);
        }
        return result;
    }
}

/// Tells a query from others: a number of its text and its settings, the place of its state among them.
fn job(script: &Script, options: &RunOptions) -> u64 {
    let mut hasher = DefaultHasher::new();
    script.text().hash(&mut hasher);
    options.settings.hash(&mut hasher);
    hasher.finish()
}
