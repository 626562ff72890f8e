//! A query that one of several orchestrators directs: it stands by, leads, and stands by again if another one
//! has taken over.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::gathering::compile_with;
use super::{Failure, Outcome, RunOptions, run_with};
use crate::cluster::{Candidate, ClusterOptions, Leadership, Led, Stood, stand};
use crate::script::Script;
use crate::supervisor::Signals;
use crate::terminal::say;

/// The pause between attempts to stand by again while the registry can't be reached.
const AWAY_PAUSE: Duration = Duration::from_millis(500);

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
    let mut has_led = false;
    loop {
        let told = Arc::clone(signals);
        // What is heard after it stands for leader no more would stop the next attempt.
        let stands = Arc::new(Mutex::new(true));
        let heard = Arc::clone(&stands);
        let changed = move |is_lost| {
            let stands = heard.lock().expect("no thread panics under it");
            match is_lost {
                _ if !*stands => {}
                true => told.stop(),
                false => told.hosts(),
            }
        };
        let secret = cluster.secret.as_ref();
        let stood = {
            let news = signals.hear();
            stand(registry, me.clone(), secret, changed, &|| news.wait())
        };
        let leadership = match stood.map_err(Failure::Usage)? {
            Stood::Leads(leadership) => leadership,
            Stood::Stopped | Stood::Over(None) => return Ok(Outcome::Explained(String::new())),
            Stood::Over(Some(error)) => return Err(Failure::Query(error, None)),
            // It was there when this one began: so it comes back.
            Stood::Away(_) if has_led && !signals.is_raised() => {
                std::thread::sleep(AWAY_PAUSE);
                continue;
            }
            Stood::Away(_) if has_led => return Ok(Outcome::Explained(String::new())),
            Stood::Away(reason) => return Err(Failure::Usage(reason)),
        };
        has_led = true;
        let result = run_with(script, options, Some(&leadership));
        let mut lost = leadership.lost();
        if lost.is_none() && !signals.was_raised() {
            let error = match &result {
                Ok(_) => None,
                Err(Failure::Usage(error) | Failure::Query(error, _)) => Some(error.as_str()),
            };
            if !leadership.conclude(error) && result.is_err() {
                lost = Some("another orchestrator has taken over".to_string());
            }
        }
        let Some(reason) = lost else {
            return result;
        };
        say(&format!("{}: {reason}\n", me.place()));
        *stands.lock().expect("no thread panics under it") = false;
        signals.resume();
    }
}

/// Tells a query from others: a number of its text and its settings, the place of its state among them.
fn job(script: &Script, options: &RunOptions) -> u64 {
    let mut hasher = DefaultHasher::new();
    script.text().hash(&mut hasher);
    options.settings.hash(&mut hasher);
    hasher.finish()
}
