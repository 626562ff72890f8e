//! The start of an incarnation: what is to be restored is read, and what is pending is committed, by the host
//! that is going to run it.

use slackwater_checkpoint::Error;
use slackwater_checkpoint::manifest::Manifest;
use slackwater_checkpoint::recovery::Input;

use super::{AGAIN, Supervisor};
use crate::checkpoints::Restored;
use crate::hosts::{Pending, Phase, recommit};

impl Supervisor<'_, '_> {
    /// Reads what is to be restored, so that what is corrupt shows before anything is committed. Where the
    /// query begins from nothing, its sinks do.
    pub(super) fn restore(&mut self, epoch: u64) -> Input {
        // Worker processes read for themselves.
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
        let incarnation = self.claimed.as_ref().map(|claimed| &claimed.incarnation);
        let prepared = match self.query.prepare(incarnation) {
            Ok(prepared) => prepared,
            Err(error) => return self.not_started(epoch, error.to_string(), error.is_final),
        };
        let work = self.query.work(incarnation);
        let mut phase = prepared.host.restore(&work, self.catalog);
        if phase == Phase::Done && self.manifest().is_none() {
            // Whoever began here first has looked whether there is something of others.
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

    /// Commits what the checkpoint has pending. Sinks whose prepared rows may be gone come first: then
    /// nothing is committed, and the checkpoint before is used.
    pub(super) fn recommit(&mut self, epoch: u64) -> Input {
        let Some(manifest) = self.manifest().cloned() else {
            return Input::Recommitted { epoch };
        };
        // A file is where it was; what a broker holds it may have given up.
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
                // Of a query that has come to its end nothing is to be run.
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
            // New in this version of the query.
            is_new: commits.is_none(),
            commits,
        }
    }

    /// What follows from the end of a phase; `done` where it is done.
    fn ended(&mut self, epoch: u64, phase: Phase, done: Input) -> Input {
        if phase != Phase::Done {
            // Nothing of it is left when its failure is told.
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
            Phase::Died(error) => {
                // As if it had died a moment later.
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

    /// A step of the start has failed. The first time the user is there, and can fix it.
    fn not_begun(&self, epoch: u64, reason: String, is_final: bool) -> Input {
        match is_final || self.attempts == 0 {
            true => Input::Fatal { epoch, reason },
            false => {
                eprintln!("warning: {reason}: trying again");
                Input::Failed { epoch, reason }
            }
        }
    }

    /// There can be no threads or processes.
    pub(super) fn not_started(&self, epoch: u64, reason: String, is_final: bool) -> Input {
        if is_final {
            return Input::Fatal { epoch, reason };
        }
        eprintln!("warning: {reason}: starting again");
        Input::Failed { epoch, reason }
    }

    /// What a checkpoint had prepared in a sink is gone.
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
        // Of several things that were prepared one may be committed.
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
