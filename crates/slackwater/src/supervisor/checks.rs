//! Checks before an incarnation is claimed, and when its checkpoint is known.

use slackwater_checkpoint::Error;
use slackwater_checkpoint::manifest::Manifest;
use slackwater_checkpoint::recovery::Input;
use slackwater_engine::sink::Delivery;
use slackwater_sql::SqlError;
use slackwater_sql::node::SinkSpec;
use slackwater_sql::program::Program;

use super::Supervisor;
use super::query::{Query, Refused};
use crate::bound::FILES;
use crate::checkpoints::{Members, Survival, resumes};

impl Supervisor<'_, '_, '_> {
    /// Rejects what would be rejected later, before anything is written.
    pub(super) fn check_before_claim(&mut self) -> Result<(), Input> {
        let failed = |error: Error| Input::ClaimFailed {
            is_fatal: true,
            reason: error.to_string(),
        };
        let is_fresh = self.runner.run(self.store.is_fresh()).map_err(failed)?;
        if self.state.from_scratch || is_fresh {
            if let Err(refused) = self.query.check_sinks(self.catalog) {
                self.refused = Some(refused);
            }
        } else {
            let found = self.runner.run(self.store.newest(None)).map_err(failed)?;
            match &found.manifest {
                Some(manifest) => {
                    self.check_passed_over(&found.warnings, Some(manifest.number));
                    self.check_compatible(manifest);
                }
                None => {
                    self.unreadable = found.warnings;
                    self.check_readable();
                }
            }
        }
        Ok(())
    }

    /// The same check before this run starts another incarnation.
    pub(super) fn check_before_next(
        &mut self,
        epoch: u64,
        before: Option<u64>,
    ) -> Result<(), Error> {
        // Otherwise this run would take over from the run that has taken over from it.
        self.runner.run(self.store.check_latest(epoch))?;
        let found = self.runner.run(self.store.newest(before))?;
        if let Some(manifest) = &found.manifest {
            self.check_passed_over(&found.warnings, Some(manifest.number));
        }
        Ok(())
    }

    /// Refuses to skip damaged checkpoints if rows would be written again. `before` is the checkpoint that
    /// would be used instead, if it is known.
    pub(super) fn check_passed_over(&mut self, damaged: &[String], before: Option<u64>) {
        if self.state.accepts_duplicates || self.refused.is_some() {
            return;
        }
        let refused = passed_over(self.query.program, &self.state.place, damaged, before);
        self.refused = refused.map(|reason| {
            let error = format!("{}: {reason}", self.query.script.name());
            match self.attempts {
                0 => Refused::Usage(error),
                _ => Refused::Query(error),
            }
        });
    }

    /// Refuses to start over if there are checkpoints but none can be read, because that would write
    /// everything again.
    pub(super) fn check_readable(&mut self) {
        if !self.unreadable.is_empty() {
            let reason = unreadable(&self.state.place, &self.unreadable);
            let name = self.query.script.name();
            self.refused = Some(Refused::Usage(format!("{name}: {reason}")));
        }
    }

    pub(super) fn check_compatible(&mut self, manifest: &Manifest) {
        let Query {
            program, members, ..
        } = self.query;
        let survival = Survival::of(program, members, manifest, &self.state.place);
        if let Some(refused) = survival.refusal(self.query.script.name()) {
            self.refused = Some(Refused::Usage(refused));
            return;
        }
        if let Err(error) = check_hosts(program, members, manifest) {
            self.refused = Some(Refused::Usage(self.query.script.render(&error)));
        }
    }
}

/// Refuses to resume tables whose files only some hosts have without these hosts.
fn check_hosts(program: &Program, members: &Members, manifest: &Manifest) -> Result<(), SqlError> {
    for (node, source) in program.sources() {
        let key = members.key(node);
        let saved = key.and_then(|key| manifest.node(key));
        let Some(saved) = saved.filter(|_| !source.connector.describe().spread.is_empty()) else {
            continue;
        };
        let table = &source.table;
        let checked = source.connector.check_resume(&resumes(&saved.partitions));
        checked.map_err(|error| {
            let place = table.option_places.get(FILES).copied();
            let (place, reason) = (place.unwrap_or(table.span), &error.reason);
            SqlError::new(format!("table '{}', {}: {reason}", table.name, error.place))
                .at(place)
                .hint(error.hint.clone())
        })?;
    }
    Ok(())
}

/// Why damaged checkpoints may not be skipped: there are exactly-once sinks, and rows that were committed
/// since would be written again. `before` is the checkpoint that would be used instead, if it is known.
pub fn passed_over(
    program: &Program,
    place: &str,
    damaged: &[String],
    before: Option<u64>,
) -> Option<String> {
    let once = program
        .sinks()
        .filter(|(_, sink)| sink.connector.capabilities().delivery == Delivery::ExactlyOnce);
    let places = once.map(|(_, sink)| sink.connector.describe().to_string());
    let places = places.collect::<Vec<String>>();
    if damaged.is_empty() || places.is_empty() {
        return None;
    }
    let reasons = damaged.iter().map(|reason| format!("\n  {reason}"));
    let before = match before {
        Some(number) => format!("checkpoint {number}"),
        None => "the previous checkpoint".to_string(),
    };
    Some(format!(
        "the newest checkpoint in {place} is damaged:{}\n  \
         = restore the file and run the query again, or use --accept-duplicates to resume from {before}: \
         rows committed since then are written again to {}",
        reasons.collect::<String>(),
        places.join(", ")
    ))
}

/// Why a query is not started over if none of its checkpoints can be read.
pub fn unreadable(place: &str, reasons: &[String]) -> String {
    let reasons = reasons.iter();
    let reasons = reasons.map(|reason| format!("\n  {reason}"));
    format!(
        "no checkpoint in {place} can be read:{}\n  \
         = restore what is missing or changed, or use --from-scratch to start over, which reads and writes \
         everything again",
        reasons.collect::<String>()
    )
}

/// Rejects queries that can't be checkpointed, run in so many `processes`.
///
/// # Errors
///
/// Why, at its place in the SQL.
pub fn check_checkpoints(program: &Program, processes: usize) -> Result<(), SqlError> {
    let units = program.sources().find_map(|(_, source)| {
        let place = source.table.option_places.get("unit_of_work");
        place.map(|place| (source, *place))
    });
    // Parts of files are committed one by one, and again after a crash.
    let exactly_once = |(_, sink): (usize, &SinkSpec)| {
        let table = sink.table.clone();
        table.filter(|_| sink.connector.capabilities().may_lose_prepared)
    };
    let transactional = program.sinks().filter_map(exactly_once);
    let transactional = transactional.collect::<Vec<_>>();
    if let [one, other, ..] = &transactional[..] {
        let reason = format!(
            "tables '{}' and '{}' are both written in transactions: a crash could commit one and not \
             the other",
            one.name, other.name
        );
        let error = SqlError::new(reason).at(other.span);
        let hint = "write them in two queries with a --state each, or write one of them with \
                    'delivery' = 'at_least_once'";
        return Err(error.hint(hint));
    }
    let beside = program.sinks().find_map(|(_, sink)| {
        let is_beside = sink.connector.capabilities().delivery == Delivery::ExactlyOnce
            && !sink.connector.capabilities().may_lose_prepared;
        sink.table.clone().filter(|_| is_beside)
    });
    if let (Some(one), Some(other)) = (transactional.first(), beside)
        && processes > 1
    {
        let reason = format!(
            "table '{}' is written in transactions, and '{}' is also written exactly once: with two \
             processes, \
             a crash could commit one and not the other",
            one.name, other.name
        );
        let hint = format!(
            "use one process, or write '{}' with 'delivery' = 'at_least_once'",
            one.name
        );
        return Err(SqlError::new(reason).at(other.span).hint(hint));
    }
    if let Some((source, place)) = units {
        let reason = format!(
            "table '{}' has 'unit_of_work', which is not supported with --state",
            source.table.name
        );
        let error = SqlError::new(reason).at(place);
        return Err(error.hint("remove one of the two"));
    }
    Ok(())
}
