//! Checks before an incarnation is claimed, and when its checkpoint is known.

use slackwater_checkpoint::Error;
use slackwater_checkpoint::compatible::map;
use slackwater_checkpoint::manifest::Manifest;
use slackwater_checkpoint::recovery::Input;
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::sink::Delivery;

use super::Supervisor;
use super::query::Refused;
use crate::checkpoints::differs;

impl Supervisor<'_, '_> {
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

    /// Refuses to skip a damaged checkpoint if there are exactly-once sinks, because rows that were committed
    /// since would be written again. `before` is the checkpoint that would be used instead, if it is known.
    pub(super) fn check_passed_over(&mut self, damaged: &[String], before: Option<u64>) {
        let once = self
            .catalog
            .sinks()
            .filter(|(_, sink)| sink.connector.capabilities().delivery == Delivery::ExactlyOnce);
        let places = once.map(|(_, sink)| sink.connector.describe().to_string());
        let places = places.collect::<Vec<String>>();
        if damaged.is_empty()
            || places.is_empty()
            || self.state.accepts_duplicates
            || self.refused.is_some()
        {
            return;
        }
        let reasons = damaged.iter().map(|reason| format!("\n  {reason}"));
        let before = match before {
            Some(number) => format!("checkpoint {number}"),
            None => "the previous checkpoint".to_string(),
        };
        let error = format!(
            "{}: the newest checkpoint in {} is damaged:{}\n  \
             = restore the file and run the query again, or use --accept-duplicates to resume from \
             {before}: rows \
             committed since then are written again to {}",
            self.query.script.name(),
            self.state.place,
            reasons.collect::<String>(),
            places.join(", ")
        );
        self.refused = Some(match self.attempts {
            0 => Refused::Usage(error),
            _ => Refused::Query(error),
        });
    }

    /// Refuses to start over if there are checkpoints but none can be read, because that would write
    /// everything again.
    pub(super) fn check_readable(&mut self) {
        if self.unreadable.is_empty() {
            return;
        }
        let reasons = self.unreadable.iter();
        let reasons = reasons.map(|reason| format!("\n  {reason}"));
        self.refused = Some(Refused::Usage(format!(
            "{}: no checkpoint in {} can be read:{}\n  \
             = restore what is missing or changed, or use --from-scratch to start over, which reads and \
             writes \
             everything again",
            self.query.script.name(),
            self.state.place,
            reasons.collect::<String>()
        )));
    }

    pub(super) fn check_compatible(&mut self, manifest: &Manifest) {
        if manifest.finished
            && let Some((table, connector)) = self.endless()
        {
            self.refused = Some(Refused::Usage(format!(
                "{}: the query in {} has finished, at checkpoint {}, but table '{table}' ({connector}) now \
                 has no \
                 end\n  = --from-scratch starts over, and so does another --state; \
                 docs/connectors/{connector}.md says what ends a table",
                self.query.script.name(),
                self.state.place,
                manifest.number
            )));
            return;
        }
        let wanted = self.query.members.wanted(self.query.program);
        if let Err(reasons) = map(manifest, BUCKETS as u32, &wanted, &[], &differs) {
            let reasons = reasons.iter().map(|reason| format!("\n  {reason}"));
            let reasons = reasons.collect::<String>();
            self.refused = Some(Refused::Usage(format!(
                "{}: the query can't resume from checkpoint {} in {}:{reasons}\n  \
                 = --from-scratch starts over, which reads and writes everything again",
                self.query.script.name(),
                manifest.number,
                self.state.place
            )));
        }
    }

    /// A table that is read until the query is stopped, with its connector.
    fn endless(&self) -> Option<(&str, String)> {
        let nodes = &self.query.members.graph_nodes;
        nodes
            .iter()
            .filter_map(|&node| self.query.program.nodes[node].as_source())
            .find_map(|source| {
                let described = source.connector.describe();
                let is_endless = !described.bounded && !described.ends_with_peer;
                is_endless.then_some((source.table.name.as_str(), described.connector))
            })
    }
}
