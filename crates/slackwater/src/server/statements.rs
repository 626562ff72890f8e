//! Statements that change what a server has declared.

use std::collections::BTreeMap;
use std::time::Duration;

use slackwater_serve::backend::{Kind as Wrong, Refusal, Status};
use slackwater_sql::program::declared;
use slackwater_sql::settings::Settings;
use slackwater_sql::statement::server::{Drop, Named};
use slackwater_sql::statement::{Body, CreateFunction, query_of};

use super::catalog::Kind;
use super::declared::{Known, New, refusal};
use super::log::Level;
use super::{STOP_PATIENCE, Server};
use crate::catalog::{BuiltIn, written};

/// How long CREATE waits until the job runs: one that takes longer goes on starting.
pub(super) const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What the user should know.
    pub notices: Vec<String>,
}

impl Server {
    /// Declares something, and starts it if it is a job.
    ///
    /// # Errors
    ///
    /// If the name is taken, the statement is not valid, it can't be kept, or the job fails at once.
    pub(super) fn create(&self, new: &New<'_>, if_not_exists: bool) -> Result<Done, Refusal> {
        let changing = self.change();
        let (known, mut notices) = {
            let mut declared = self.declared();
            if let Some(other) = declared.known.get(new.name) {
                let message = format!(
                    "there is already a {} '{}'",
                    other.object.kind.name(),
                    new.name
                );
                return match if_not_exists {
                    true => Ok(Done {
                        notices: vec![message],
                    }),
                    false => Err(Refusal::new(Wrong::Duplicate, message)),
                };
            }
            let mut examined = declared.examine(new)?;
            let notices = std::mem::take(&mut examined.warnings);
            let added = declared
                .catalog
                .add(new.name, new.kind, new.text, new.settings);
            let known = Known::of(added.map_err(not_kept)?, examined);
            declared.known.insert(new.name.to_string(), known.clone());
            declared.version += 1;
            (known, notices)
        };
        if !new.kind.is_job() {
            return Ok(Done { notices });
        }
        let started = self.add_job(&known, Status::Starting);
        // Others may declare something while it starts.
        drop(changing);
        let started = started.and_then(|job| {
            let running = job.wait_until_running(BEGIN_PATIENCE);
            match (running, job.state().status) {
                (Err(_), Status::Starting) => {
                    notices.push(format!(
                        "job '{}' has not begun in {} s; SHOW JOBS says when it has",
                        new.name,
                        BEGIN_PATIENCE.as_secs()
                    ));
                    Ok(())
                }
                (Err(_), Status::Failed { reason }) => Err(Refusal::new(Wrong::System, reason)),
                (running, _) => running,
            }
        });
        if let Err(refusal) = started {
            let _changing = self.change();
            self.forget(&[known])?;
            return Err(refusal);
        }
        Ok(Done { notices })
    }

    /// Checks a function before it is declared: its text is loaded once.
    ///
    /// # Errors
    ///
    /// If the server takes none, or the function is not valid.
    pub(super) fn check_function(
        &self,
        name: &str,
        create: &CreateFunction,
        text: &str,
        settings: &[(String, String)],
    ) -> Result<(), Refusal> {
        let script = {
            let declared = self.declared();
            declared.allows_function(name)?;
            declared.script(name, text)?
        };
        if let Body::File(_) = create.body {
            let message =
                format!("function '{name}': a server does not read the files of functions");
            let refusal = Refusal::new(Wrong::Syntax, message);
            return Err(refusal.hint("write its text into the statement: AS $$ … $$"));
        }
        let refused = |error| refusal(&script, &error, text);
        let session = declared(script.text(), settings, &BuiltIn).map_err(refused)?;
        let function = session.declared_function(name);
        // Nothing is locked meanwhile: it may import large libraries.
        function.map_or(Ok(()), |function| function.start(false).map_err(refused))
    }

    /// The table of a `CREATE TABLE … AS query`, and the INSERT that writes it.
    ///
    /// # Errors
    ///
    /// If the statement is not valid.
    pub(super) fn table_of_query(
        &self,
        name: &str,
        text: &str,
        settings: &[(String, String)],
    ) -> Result<(String, String), Refusal> {
        let script = self.declared().script(name, text)?;
        let refused = |error| refusal(&script, &error, text);
        let session = declared(script.text(), settings, &BuiltIn).map_err(refused)?;
        let begin = query_of(text).map_err(refused)?;
        let table = session.tables.get(name).map(|table| written(table));
        let table =
            table.ok_or_else(|| Refusal::new(Wrong::Internal, "the table was not declared"))?;
        let query = text[begin..].trim_end().trim_end_matches(';');
        let quoted = name.replace('"', "\"\"");
        Ok((table, format!("INSERT INTO \"{quoted}\" {query}")))
    }

    /// Forgets something that was declared, and nothing else.
    ///
    /// # Errors
    ///
    /// If that can't be kept.
    pub(super) fn forget_one(&self, name: &str) -> Result<(), Refusal> {
        let _changing = self.change();
        let known = self.known(name)?;
        self.forget(&[known])
    }

    /// A name for a job that is not taken.
    pub(super) fn free_name(&self, wanted: &str) -> String {
        let declared = self.declared();
        let numbered = (2..).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.to_string()).chain(numbered);
        let free = names.find(|name| !declared.known.contains_key(name));
        free.expect("there are more numbers than names")
    }

    /// Drops things, and their state.
    ///
    /// # Errors
    ///
    /// If one is not there, is something else, or others depend on it.
    pub(super) fn drop_all(&self, drop: &Drop) -> Result<Done, Refusal> {
        let _changing = self.change();
        let mut done = Done::default();
        let mut dropped = BTreeMap::new();
        {
            let declared = self.declared();
            let named = drop.names.iter().map(|name| name.value.as_str());
            let named = named.collect::<Vec<&str>>();
            for &name in &named {
                let known = match declared.known.get(name) {
                    Some(known) if is(known, drop.kind) => known,
                    Some(other) => return Err(other_kind(other, drop.kind)),
                    None if drop.if_exists => {
                        done.notices
                            .push(format!("there is no {} '{name}'", drop.kind.words()));
                        continue;
                    }
                    None => return Err(unknown(drop.kind, name)),
                };
                let dependents = declared.dependents(name);
                let others = dependents
                    .iter()
                    .filter(|other| !named.contains(&other.object.name.as_str()));
                let others = others
                    .map(|other| format!("{} '{}'", other.object.kind.name(), other.object.name));
                let others = others.collect::<Vec<String>>();
                if !drop.cascades && !others.is_empty() {
                    let message = format!(
                        "'{name}' can't be dropped, because others depend on it: {}",
                        others.join(", ")
                    );
                    return Err(Refusal::new(Wrong::Dependent, message)
                        .hint("use CASCADE to drop them too"));
                }
                if !others.is_empty() {
                    done.notices
                        .push(format!("dropped too: {}", others.join(", ")));
                }
                for known in dependents.into_iter().chain([known]) {
                    dropped.insert(known.object.ordinal, known.clone());
                }
            }
        }
        // What depends on others first.
        let dropped = dropped.into_values().rev().collect::<Vec<Known>>();
        self.forget(&dropped)?;
        Ok(done)
    }

    /// Ends jobs, and forgets what was declared, with its state.
    fn forget(&self, dropped: &[Known]) -> Result<(), Refusal> {
        let jobs = dropped.iter().filter_map(|known| {
            let job = self.jobs().get(&known.object.name).cloned();
            job.inspect(|job| job.ask_to_stop())
        });
        for job in jobs.collect::<Vec<_>>() {
            job.remove(STOP_PATIENCE);
        }
        let names = dropped.iter().map(|known| known.object.name.as_str());
        let names = names.collect::<Vec<&str>>();
        let mut declared = self.declared();
        declared.catalog.remove(&names).map_err(not_kept)?;
        declared.version += 1;
        for name in names {
            declared.known.remove(name);
            self.jobs().remove(name);
        }
        std::mem::drop(declared);
        for known in dropped.iter().filter(|known| known.object.kind.is_job()) {
            let state = self.folder.join(&known.object.state);
            match std::fs::remove_dir_all(&state) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let message = format!(
                        "{}: the state of a dropped job is left: {error}",
                        state.display()
                    );
                    self.log.server(Level::Warning, &message);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a job save its state and end.
    ///
    /// # Errors
    ///
    /// If there is no such job, or that can't be kept.
    pub(super) fn stop_job(&self, name: &str) -> Result<Done, Refusal> {
        let _changing = self.change();
        let job = self.job(name)?;
        self.want(name, false)?;
        job.ask_to_stop();
        let mut done = Done::default();
        if !job.wait_until_stopped(STOP_PATIENCE) {
            done.notices.push(format!(
                "job '{name}' did not save its state in {} s and was killed: START JOB resumes it from its \
                last checkpoint",
                STOP_PATIENCE.as_secs()
            ));
        }
        Ok(done)
    }

    /// Starts a job where it was stopped or has failed.
    ///
    /// # Errors
    ///
    /// If there is no such job, that can't be kept, or the job fails at once.
    pub(super) fn start_job(&self, name: &str) -> Result<Done, Refusal> {
        let changing = self.change();
        let job = self.job(name)?;
        let known = self.known(name)?;
        let begin = self.begin(&known)?;
        self.want(name, true)?;
        job.start(begin);
        drop(changing);
        match job.wait_until_running(BEGIN_PATIENCE) {
            Err(_) if job.state().status == Status::Starting => Ok(Done {
                notices: vec![format!("job '{name}' starts; SHOW JOBS says when it runs")],
            }),
            running => running.map(|()| Done::default()),
        }
    }

    fn want(&self, name: &str, is_wanted: bool) -> Result<(), Refusal> {
        let mut declared = self.declared();
        declared.catalog.want(name, is_wanted).map_err(not_kept)?;
        if let Some(known) = declared.known.get_mut(name) {
            (known.object.is_wanted, known.object.ended) = (is_wanted, None);
        }
        Ok(())
    }

    /// What has a name.
    ///
    /// # Errors
    ///
    /// If there is nothing with it.
    pub(super) fn known(&self, name: &str) -> Result<Known, Refusal> {
        let declared = self.declared();
        let known = declared.known.get(name).cloned();
        known.ok_or_else(|| {
            let names = declared.known.keys().cloned().collect::<Vec<String>>();
            let refusal = Refusal::new(
                Wrong::Undefined,
                format!("there is no table, view or job '{name}'"),
            );
            match slackwater_sql::error::nearest(name, &names) {
                Some(near) => refusal.hint(format!("did you mean '{near}'?")),
                None => refusal
                    .hint("SHOW TABLES, SHOW MATERIALIZED VIEWS and SHOW JOBS list what there is"),
            }
        })
    }
}

/// Checks a setting.
///
/// # Errors
///
/// If there is none with the name, it belongs to the server, or the value is not valid.
pub fn check(settings: &mut Settings, key: &str, value: &str) -> Result<(), Refusal> {
    if key == "state" {
        let refusal = Refusal::new(
            Wrong::Syntax,
            "the server decides where the state of its jobs lies",
        );
        return Err(refusal.hint("use --dir of slackwater serve"));
    }
    let set = settings.set(
        key,
        value,
        &slackwater_sql::connectors::Connectors::table_options(&BuiltIn),
    );
    set.map_err(|error| Refusal::new(Wrong::Value, error.message).hint(error.hint))
}

/// Whether something is of the kind that a statement names.
pub(super) fn is(known: &Known, kind: Named) -> bool {
    match kind {
        Named::Table => known.object.kind == Kind::Table,
        Named::View => known.object.kind == Kind::View,
        Named::MaterializedView => known.object.kind == Kind::MaterializedView,
        Named::Sink => known.object.kind == Kind::Sink,
        Named::Job => known.object.kind.is_job(),
        Named::Function => known.object.kind == Kind::Function,
    }
}

pub(super) fn other_kind(known: &Known, kind: Named) -> Refusal {
    let (name, is) = (&known.object.name, known.object.kind.name());
    let refusal = Refusal::new(
        Wrong::Undefined,
        format!("'{name}' is not a {}, but a {is}", kind.words()),
    );
    match known.object.kind {
        Kind::Insert => refusal.hint(format!("use DROP JOB {name}")),
        kind => refusal.hint(format!("use DROP {} {name}", kind.name().to_uppercase())),
    }
}

fn unknown(kind: Named, name: &str) -> Refusal {
    let wrong = match kind {
        Named::Job => Wrong::NoSuchJob,
        _ => Wrong::Undefined,
    };
    Refusal::new(wrong, format!("there is no {} '{name}'", kind.words()))
}

pub(super) fn not_kept(error: String) -> Refusal {
    Refusal::new(Wrong::System, error).hint("nothing was changed")
}
