//! ALTER.

use slackwater_serve::backend::{Kind as Wrong, Refusal, Status};
use slackwater_sql::settings::Settings;
use slackwater_sql::statement::query_of;
use slackwater_sql::statement::server::{Alter, Change};

use super::catalog::Object;
use super::declared::{Known, New};
use super::statements::{BEGIN_PATIENCE, Done, check, is, not_kept, other_kind};
use super::{STOP_PATIENCE, Server};

/// The hint where a query can't go on with the state.
const ANOTHER: &str =
    "create another materialized view with the new query, and drop this one later";

impl Server {
    /// Changes a job's settings or query. It goes on with its state.
    ///
    /// # Errors
    ///
    /// If there is no such job, the change is not valid, its state does not fit, or it can't be kept.
    pub(super) fn alter(&self, alter: &Alter, text: &str) -> Result<Done, Refusal> {
        let changing = self.change();
        let name = alter.name.value.as_str();
        let old = self.known(name)?;
        if !is(&old, alter.kind) {
            return Err(other_kind(&old, alter.kind));
        }
        if !old.object.kind.is_job() {
            let message = format!("a {} can't be altered", old.object.kind.name());
            return Err(Refusal::new(Wrong::Syntax, message)
                .hint("drop it with CASCADE, and create it again with what uses it"));
        }
        let (new_text, settings) = match &alter.change {
            Change::Query(begin) => (
                self.with_query(&old, &text[*begin..])?,
                old.object.settings.clone(),
            ),
            change => (
                old.object.text.clone(),
                changed(&old.object.settings, change)?,
            ),
        };
        let new = New {
            name,
            kind: old.object.kind,
            text: &new_text,
            settings: &settings,
        };
        let mut examined = {
            let declared = self.declared();
            let dependents = declared.dependents(name);
            if matches!(alter.change, Change::Query(_)) && !dependents.is_empty() {
                let others = dependents.iter().map(|other| other.object.name.as_str());
                let message = format!(
                    "'{name}' can't be altered, because others compute with its query: {}",
                    others.collect::<Vec<&str>>().join(", ")
                );
                return Err(Refusal::new(Wrong::Dependent, message)
                    .hint("drop them first, and create them again"));
            }
            declared
                .examine(&new)
                .map_err(|refusal| match alter.change {
                    // The place is one of the statement that is made of both.
                    Change::Query(begin) => Refusal {
                        position: refusal
                            .position
                            .and_then(|at| moved(at, &new_text, text, begin)),
                        ..refusal
                    },
                    _ => Refusal {
                        position: None,
                        ..refusal
                    },
                })?
        };
        let mut done = Done {
            notices: std::mem::take(&mut examined.warnings),
        };
        let job = self.job(name)?;
        let runs = !matches!(job.state().status, Status::Stopped);
        let mut object = old.object.clone();
        (object.text, object.settings, object.ended) = (new_text, settings, None);
        let known = Known::of(object, examined);
        if matches!(alter.change, Change::Query(_)) {
            done.notices.extend(self.surviving(&known)?);
        }
        job.ask_to_stop();
        job.wait_until_stopped(STOP_PATIENCE);
        self.replace(&known)?;
        if runs {
            job.start(self.begin(&known)?);
            let running = job.wait_until_running(BEGIN_PATIENCE);
            if let Status::Failed { reason } = job.state().status {
                // As it was.
                self.replace(&old)?;
                job.start(self.begin(&old)?);
                // The advice of the command line is none for a server.
                let reason = reason
                    .split("\n  = --from-scratch")
                    .next()
                    .unwrap_or_default();
                let message = format!("'{name}' stays as it was, and goes on: {reason}");
                return Err(Refusal::new(Wrong::System, message).hint(ANOTHER));
            }
            if running.is_err() {
                done.notices
                    .push(format!("job '{name}' starts; SHOW JOBS says when it runs"));
            }
        }
        drop(changing);
        Ok(done)
    }

    /// What a changed job finds in the last checkpoint of what it was, before anything is changed.
    fn surviving(&self, known: &Known) -> Result<Vec<String>, Refusal> {
        let Object { name, text, .. } = &known.object;
        let begin = self.begin(known)?;
        let script = self.declared().script(name, text)?;
        // Without a checkpoint, nothing is lost.
        let Ok(survival) = crate::check::check(&script, &begin.settings, &begin.state) else {
            return Ok(Vec::new());
        };
        if !survival.resumes {
            let reasons = survival.reasons().collect::<Vec<_>>().join("; ");
            let message =
                format!("'{name}' stays as it is, because its state does not fit: {reasons}");
            return Err(Refusal::new(Wrong::System, message).hint(ANOTHER));
        }
        let nodes = survival.nodes.iter();
        Ok(nodes
            .map(|node| format!("{} {}", node.key, node.words()))
            .collect())
    }

    /// The statement of a materialized view with another query.
    fn with_query(&self, old: &Known, query: &str) -> Result<String, Refusal> {
        let text = &old.object.text;
        let begin = query_of(text);
        let begin = begin.map_err(|error| Refusal::new(Wrong::Internal, error.to_string()))?;
        Ok(format!(
            "{}{}",
            &text[..begin],
            query.trim_end().trim_end_matches(';')
        ))
    }

    pub(super) fn replace(&self, known: &Known) -> Result<(), Refusal> {
        let mut declared = self.declared();
        let object = &known.object;
        let replaced = declared
            .catalog
            .replace(&object.name, &object.text, &object.settings);
        replaced.map_err(not_kept)?;
        declared.known.insert(object.name.clone(), known.clone());
        declared.version += 1;
        Ok(())
    }

    /// Changes the settings of new sessions.
    ///
    /// # Errors
    ///
    /// If one is not valid, or they can't be kept.
    pub(super) fn alter_system(&self, change: &Change) -> Result<Done, Refusal> {
        let mut declared = self.declared();
        match change {
            Change::Set(set) => {
                let mut checked = Settings::default();
                for (key, value) in set {
                    check(&mut checked, key, value)?;
                }
                for (key, value) in set {
                    declared.catalog.set(key, Some(value)).map_err(not_kept)?;
                }
            }
            Change::Reset(keys) => {
                for key in keys {
                    declared.catalog.set(key, None).map_err(not_kept)?;
                }
            }
            Change::Query(_) => {}
        }
        Ok(Done::default())
    }
}

/// Settings after a change.
fn changed(
    settings: &[(String, String)],
    change: &Change,
) -> Result<Vec<(String, String)>, Refusal> {
    let mut settings = settings.to_vec();
    match change {
        Change::Set(set) => {
            let mut checked = Settings::default();
            for (key, value) in set {
                check(&mut checked, key, value)?;
                settings.retain(|(known, _)| known != key);
                settings.push((key.clone(), value.clone()));
            }
        }
        Change::Reset(keys) => settings.retain(|(key, _)| !keys.contains(key)),
        Change::Query(_) => {}
    }
    Ok(settings)
}

/// The place in an ALTER … AS of a place in the statement that is made of it.
fn moved(at: usize, made: &str, text: &str, begin: usize) -> Option<usize> {
    let query = text[begin..]
        .trim_end()
        .trim_end_matches(';')
        .chars()
        .count();
    let before = made.chars().count().checked_sub(query)?;
    Some(at.checked_sub(before)? + text[..begin].chars().count())
}
