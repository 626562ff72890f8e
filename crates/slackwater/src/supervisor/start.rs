//! The start of an incarnation: its host reads what is to be restored and commits what is pending.

use slackwater_checkpoint::Error;
use slackwater_checkpoint::manifest::Manifest;
use slackwater_checkpoint::recovery::Input;
use slackwater_engine::Error as EngineError;
use slackwater_engine::checkpoint::restore;
use slackwater_engine::operator::Stateful;
use slackwater_engine::operator::changelog::view::{View, ViewSpec};
use slackwater_engine::state::{BucketSet, KeyedState};

use super::{AGAIN, Supervisor};
use crate::checkpoints::Restored;
use crate::hosts::{Pending, Phase, recommit};
use crate::terminal::say;

impl Supervisor<'_, '_, '_> {
    /// Reads what is to be restored, so that damage is found before anything is committed. If the query
    /// starts from nothing, its sinks start, too.
    pub(super) fn restore(&mut self, epoch: u64) -> Input {
        // Worker processes read their own state.
        let reads = self.query.plan.processes == 1;
        let manifest = self.manifest().filter(|_| reads).cloned();
        let keys = self.query.members.keys();
        let restored =
            manifest.map(|manifest| Restored::new(&self.state.place, manifest, keys.clone()));
        let restored: Option<Restored> = match restored.transpose() {
            Ok(restored) => restored,
            Err(error) => {
                let error: Error = error;
                return self.not_begun(epoch, error.to_string(), false);
            }
        };
        self.catalog.begin(epoch, restored);
        if let Some(manifest) = self.manifest().filter(|_| reads).cloned() {
            self.adopt(&manifest);
        }
        let incarnation = self.claimed.as_ref().map(|claimed| &claimed.incarnation);
        let prepared = match self.query.prepare(incarnation) {
            Ok(prepared) => prepared,
            Err(error) => return self.not_started(epoch, error.to_string(), error.is_final),
        };
        let work = self.query.work(incarnation);
        let mut phase = prepared.host.restore(&work, self.catalog);
        if phase == Phase::Done && self.manifest().is_none() {
            // The first incarnation has checked whether there is data of others.
            let sinks = self.catalog.sinks().map(|(node, _)| Pending {
                node,
                commits: None,
                is_new: false,
            });
            let sinks = sinks.collect::<Vec<Pending>>();
            phase = prepared.host.recommit(&work, self.catalog, epoch, &sinks);
        }
        self.prepared = Some(prepared);
        self.ended(epoch, phase, Input::Restored { epoch })
    }

    /// Gives instances what this run has held while it stood by. It may be behind the checkpoint: then it
    /// gets what was added since.
    fn adopt(&mut self, manifest: &Manifest) {
        let Some(mut replica) = self.replica.take() else {
            return;
        };
        let held = replica.number();
        match replica.sync(self.catalog, &self.query.members, manifest) {
            Ok(anew) => {
                let from = match (held, anew) {
                    (_, 0) => "which it holds",
                    (None, _) => "which it has read",
                    (Some(_), _) => "of which it has read what it did not hold",
                };
                say(&format!(
                    "standby: resumes from checkpoint {}, {from}\n",
                    manifest.number
                ));
                self.catalog.adopt(replica.into_held());
            }
            // Reading it as any run does shows what is wrong, and what can be done.
            Err(error) => {
                eprintln!("warning: standby: what it holds can't be used: {error}");
            }
        }
    }

    /// Makes the views of a query readable that had finished before.
    ///
    /// # Errors
    ///
    /// If their rows can't be read from the checkpoint.
    pub(super) fn show_views(&self, manifest: Manifest) -> Result<(), EngineError> {
        let program = self.query.program;
        if program.views.is_empty() || self.query.plan.processes > 1 {
            return Ok(());
        }
        let unreadable = |error: Error| EngineError::new("checkpoints", error.to_string());
        let keys = self.query.members.keys();
        let restored = Restored::new(&self.state.place, manifest, keys).map_err(unreadable)?;
        program.cuts.begin(&vec![1; program.views.len()]);
        for view in &program.views {
            let make = || {
                let spec = ViewSpec {
                    schema: view.schema.clone(),
                    key: view.key.clone(),
                    // At the end, nothing remained that had expired.
                    retention: None,
                };
                View::new(spec, view.cuts.clone())
            };
            let mut rows = make()?;
            let boxed =
                || -> slackwater_engine::Result<Box<dyn Stateful>> { Ok(Box::new(make()?)) };
            let chains = restored.chains(view.node, None)?;
            restore(&mut rows, &boxed, chains, &BucketSet::all())?;
            rows.publish(u64::MAX);
        }
        Ok(())
    }

    /// Commits what the checkpoint has pending. Sinks whose prepared rows may be lost come first: if they
    /// are, nothing is committed, and the previous checkpoint is used.
    pub(super) fn recommit(&mut self, epoch: u64) -> Input {
        let Some(manifest) = self.manifest().cloned() else {
            return Input::Recommitted { epoch };
        };
        // A file is still there, but a broker may have aborted its transaction.
        for may_lose in [true, false] {
            let sinks = self
                .catalog
                .sinks()
                .filter(|(_, sink)| sink.connector.capabilities().may_lose_prepared == may_lose);
            let sinks = sinks.map(|(node, _)| self.pending(&manifest, node));
            let sinks = sinks.collect::<Vec<Pending>>();
            let phase = match &self.prepared {
                Some(prepared) => {
                    let incarnation = self.claimed.as_ref().map(|claimed| &claimed.incarnation);
                    let work = self.query.work(incarnation);
                    prepared.host.recommit(&work, self.catalog, epoch, &sinks)
                }
                // A finished query has no host.
                None => recommit(self.catalog, epoch, &sinks),
            };
            if phase != Phase::Done {
                return self.ended(epoch, phase, Input::Recommitted { epoch });
            }
        }
        Input::Recommitted { epoch }
    }

    /// What a sink has pending in a checkpoint.
    fn pending(&self, manifest: &Manifest, node: usize) -> Pending {
        let keys = self.query.members.keys();
        let saved = keys.get(&node).and_then(|key| manifest.node(key));
        let commits = saved.map(|saved| {
            let commits = saved
                .pending
                .iter()
                .filter_map(|pending| pending.commit.as_str());
            commits.map(str::to_string).collect()
        });
        Pending {
            node,
            // The sink is new in this version of the query.
            is_new: commits.is_none(),
            commits,
        }
    }

    /// The input for recovery after a phase has ended; `done` if it succeeded.
    fn ended(&mut self, epoch: u64, phase: Phase, done: Input) -> Input {
        if phase != Phase::Done {
            // The host is ended before the failure is reported.
            self.prepared = None;
        }
        match phase {
            Phase::Done => done,
            Phase::Corrupt { reason } => {
                self.check_passed_over(std::slice::from_ref(&reason), None);
                if self.refused.is_some() {
                    return Input::Tick;
                }
                eprintln!("warning: {reason}; {AGAIN}");
                self.unreadable.push(reason.clone());
                Input::Corrupt { epoch, reason }
            }
            Phase::Unreadable { reason } => self.not_begun(epoch, reason, false),
            Phase::Rejected { node, error } => {
                let sink = self.catalog.sinks().find(|(sink, _)| *sink == node);
                self.refused = sink.map(|(_, sink)| self.query.rejected(sink, error));
                Input::Tick
            }
            Phase::Lost { node } => self.lost(epoch, node),
            Phase::Failed(error) => self.not_begun(epoch, error.to_string(), error.is_final),
            Phase::Died(error) if error.is_final => self.not_begun(epoch, error.to_string(), true),
            Phase::Died(error) => {
                // Handled as if the process had died a moment later.
                self.attempts += 1;
                let number = self.manifest().map(|manifest| manifest.number);
                let from = number.map(|number| format!("checkpoint {number}"));
                let from = from.unwrap_or_else(|| "the beginning".to_string());
                let reason = error.to_string();
                eprintln!("warning: {reason}: the query resumes from {from}");
                Input::Failed { epoch, reason }
            }
        }
    }

    /// A step of the start has failed. The first time it is final, so that the user can fix it.
    fn not_begun(&self, epoch: u64, reason: String, is_final: bool) -> Input {
        match is_final || self.attempts == 0 {
            true => Input::Fatal { epoch, reason },
            false => {
                eprintln!("warning: {reason}: trying again");
                Input::Failed { epoch, reason }
            }
        }
    }

    /// Threads or processes could not be started.
    pub(super) fn not_started(&self, epoch: u64, reason: String, is_final: bool) -> Input {
        if is_final {
            return Input::Fatal { epoch, reason };
        }
        eprintln!("warning: {reason}: starting again");
        Input::Failed { epoch, reason }
    }

    /// What a checkpoint had prepared in a sink is lost.
    fn lost(&self, epoch: u64, node: usize) -> Input {
        let sink = self.catalog.sinks().find(|(sink, _)| *sink == node);
        let (Some((_, sink)), Some(manifest)) = (sink, self.manifest()) else {
            return self.not_begun(epoch, format!("there is no sink {node}"), true);
        };
        let place = sink.connector.describe().to_string();
        let number = manifest.number;
        let commits = self.pending(manifest, node).commits;
        let prepared = commits.map_or(0, |commits| commits.len());
        let is_first = match self.runner.run(self.store.is_first(number)) {
            Ok(is_first) => is_first,
            Err(error) => return self.not_begun(epoch, error.to_string(), false),
        };
        // If several things were prepared, one of them may be committed.
        let is_first = is_first && prepared == 1;
        let follows = match is_first {
            true => "it was the first checkpoint, so the query starts over",
            false => "the previous checkpoint is used",
        };
        eprintln!(
            "warning: {place}: what checkpoint {number} had prepared there no longer exists; {follows}"
        );
        Input::Lost { epoch, is_first }
    }
}
