//! A query with checkpoints: one incarnation after the other, until it has come to its end.
//!
//! ```text
//! Supervisor ─► attempt ─► Execution, and what watches it: coordinator of checkpoints, tuner, rebalancer
//! ```
//!
//! `slackwater_checkpoint::recovery` decides the steps, and this module executes them: claim the store, read
//! the checkpoint, commit what it has pending, run, and start again after a failure.

mod attempt;
pub mod checks;
mod coordinator;
mod events;
mod followed;
mod looks;
mod query;
mod questions;
mod retarget;
mod standing_by;
mod start;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use slackwater_checkpoint::manifest::{Manifest, NodeKind};
use slackwater_checkpoint::recovery::{Input, Limits, Output, Recovery};
use slackwater_checkpoint::{Error, Kind, Runner, Store};
use slackwater_engine::sink::Delivery;
use slackwater_engine::time::now_ns;

pub use attempt::Attempted;
use attempt::{Claimed, Prepared};
use coordinator::Verdict;
use events::RunEvent;
pub use events::{Retarget, Signals};
pub use query::{Query, Refused};
pub use questions::Asker;
pub use standing_by::{Stood, stand_by};

use crate::catalog::ProgramCatalog;
use crate::checkpoints::{Incarnation, Suspected};
use crate::standby::Replica;
use crate::tally::Totals;

/// Where and how a query keeps its checkpoints.
#[derive(Debug, Clone)]
pub struct StateOptions {
    /// A directory, or the URL of a folder of an object store.
    pub place: String,
    /// Whether to start over instead of resuming.
    pub from_scratch: bool,
    /// Whether to resume from an earlier checkpoint if the newest one is damaged, although rows that were
    /// committed since are then written again.
    pub accepts_duplicates: bool,
}

/// How a query with checkpoints ended.
pub struct Ended {
    /// The last incarnation; `None` if there was nothing to do.
    pub last: Option<Attempted>,
    /// The checkpoint from which this run resumed.
    pub restored_from: Option<u64>,
    /// The number of restarts after failures.
    pub restarts: u64,
    /// How often it went on with other hosts on purpose.
    pub rescales: u64,
    /// The rows that were counted up to the checkpoint from which the last incarnation resumed, in this run.
    pub before: Totals,
    /// Why the query can't continue.
    pub error: Option<String>,
}

/// Runs a query with checkpoints; `replica` is what a standby holds that goes on.
///
/// # Errors
///
/// If the options are not valid for the query.
pub fn run_saved(
    query: &mut Query<'_>,
    catalog: &mut ProgramCatalog<'_>,
    state: &StateOptions,
    replica: Option<Box<Replica>>,
) -> Result<Ended, Refused> {
    let usage = |error: Error| Refused::Usage(format!("--state: {error}"));
    let mut supervisor = Supervisor {
        query,
        catalog,
        state,
        store: Store::open(&state.place).map_err(usage)?,
        runner: Runner::new().map_err(usage)?,
        claimed: None,
        prepared: None,
        epoch: None,
        attempts: 0,
        yielded: 0,
        restored_from: None,
        last: None,
        before: Totals::default(),
        counted: BTreeMap::new(),
        suspects: Vec::new(),
        failure: None,
        refused: None,
        unreadable: Vec::new(),
        finished: None,
        replica,
    };
    supervisor.run_to_the_end()
}

/// Starts a query, and restarts it after a failure.
struct Supervisor<'a, 'b, 'q> {
    query: &'a mut Query<'q>,
    catalog: &'a mut ProgramCatalog<'b>,
    state: &'a StateOptions,
    store: Store,
    runner: Runner,
    claimed: Option<Claimed>,
    /// The host that prepares to run the query.
    prepared: Option<Prepared>,
    /// The last incarnation of this run.
    epoch: Option<u64>,
    /// The number of incarnations that ran.
    attempts: usize,
    /// How many of them ended because others were to go on.
    yielded: usize,
    restored_from: Option<u64>,
    last: Option<Attempted>,
    before: Totals,
    /// The rows of this run up to each of the last checkpoints, by incarnation and barrier.
    counted: BTreeMap<(u64, u64), Totals>,
    suspects: Vec<Suspected>,
    /// The last failure.
    failure: Option<String>,
    /// Why the query can't resume from what is stored, or must not start.
    refused: Option<Refused>,
    /// What is wrong with skipped checkpoints.
    unreadable: Vec<String>,
    /// The last checkpoint of a query that had finished before.
    finished: Option<Manifest>,
    /// What this run has held while it stood by.
    replica: Option<Box<Replica>>,
}

/// The checkpoints for which it is known what was counted before them: more than are kept.
const COUNTED_MAX: usize = 16;

/// The consequence of skipping a checkpoint, for messages.
const AGAIN: &str =
    "the previous checkpoint is used, and rows committed since then may be written again";

impl Supervisor<'_, '_, '_> {
    fn run_to_the_end(&mut self) -> Result<Ended, Refused> {
        let mut recovery = Recovery::new(Limits {
            restarts_max: self.query.program.settings.restarts,
            ..Limits::default()
        });
        let mut open = VecDeque::from(recovery.handle(now_ns(), Input::Start));
        let mut error = None;
        loop {
            let input = match open.pop_front() {
                Some(Output::Claim { before }) => Some(self.claim(before)),
                Some(Output::Restore { epoch, .. }) => Some(self.restore(epoch)),
                Some(Output::Recommit { epoch, .. }) => Some(self.recommit(epoch)),
                Some(Output::Run { epoch }) => match self.run(epoch) {
                    Some(input) => Some(input),
                    // The query was stopped.
                    None => break,
                },
                // It was already stopped when it failed.
                Some(Output::Stop { epoch }) => {
                    (self.claimed, self.prepared) = (None, None);
                    Some(Input::Stopped { epoch })
                }
                Some(Output::Kill { .. }) => None,
                Some(Output::End) => break,
                Some(Output::GiveUp { reason }) => {
                    self.look_who_leads();
                    error = Some(reason);
                    break;
                }
                None => match self.wait(recovery.next_ns()) {
                    true => Some(Input::Tick),
                    false => {
                        error = Some(match &self.failure {
                            Some(reason) => {
                                format!("stopped while waiting to be restarted: {reason}")
                            }
                            None => "stopped".to_string(),
                        });
                        break;
                    }
                },
            };
            if let Some(refused) = self.refused.take() {
                return Err(refused);
            }
            if let Some(Input::Failed { reason, .. } | Input::ClaimFailed { reason, .. }) = &input {
                self.failure = Some(reason.clone());
            }
            open.extend(
                input
                    .into_iter()
                    .flat_map(|input| recovery.handle(now_ns(), input)),
            );
        }
        if let Some(manifest) = self.finished.take().filter(|_| error.is_none()) {
            self.show_views(manifest)
                .map_err(|error| Refused::Query(error.to_string()))?;
        }
        Ok(Ended {
            last: self.last.take(),
            restored_from: self.restored_from,
            restarts: self.attempts.saturating_sub(1 + self.yielded) as u64,
            rescales: self.yielded as u64,
            before: std::mem::take(&mut self.before),
            error,
        })
    }

    /// The store may know before the registry that another orchestrator leads.
    fn look_who_leads(&self) {
        let (Some(leadership), Some(epoch)) = (&self.query.leadership, self.epoch) else {
            return;
        };
        match self.runner.run(self.store.check_latest(epoch)) {
            Err(error) if error.kind == Kind::Fenced => leadership.replaced(&error.to_string()),
            Ok(()) | Err(_) => {}
        }
    }

    /// Waits until the next attempt; returns false if the query is stopped or its time is over.
    fn wait(&self, until_ns: Option<u64>) -> bool {
        let Some(until_ns) = until_ns else {
            return false;
        };
        let until = Instant::now() + Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        let (_sender, events) = self.query.signals.listen();
        let end = self.query.duration;
        let end = end.map(|duration| self.query.started + duration);
        loop {
            if end.is_some_and(|end| end <= Instant::now()) {
                return false;
            }
            let next = end.map_or(until, |end| end.min(until));
            let patience = next.saturating_duration_since(Instant::now());
            match events.recv_timeout(patience) {
                Ok(RunEvent::Signal) => return false,
                Ok(
                    RunEvent::Host(_)
                    | RunEvent::Stored(_)
                    | RunEvent::Look(_)
                    | RunEvent::Why(_)
                    | RunEvent::Retarget(_)
                    | RunEvent::Read
                    | RunEvent::Door
                    | RunEvent::Active(_)
                    | RunEvent::Hosts,
                ) => {}
                Err(RecvTimeoutError::Timeout) if next < until => {}
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn claim(&mut self, before: Option<u64>) -> Input {
        let failed = |error: Error| Input::ClaimFailed {
            is_fatal: !matches!(error.kind, Kind::Unavailable | Kind::Missing),
            reason: error.to_string(),
        };
        let is_first = self.epoch.is_none();
        if let Err(reason) = self.query.gather() {
            return Input::ClaimFailed {
                is_fatal: true,
                reason,
            };
        }
        // Another run that starts finds this claim, or nothing of what is done before it.
        let beginning = match self.store.beginning() {
            Ok(beginning) => beginning,
            Err(error) => return failed(error),
        };
        let checked = match self.epoch {
            None => self.check_before_claim(),
            Some(epoch) => self.check_before_next(epoch, before).map_err(failed),
        };
        if let Err(input) = checked {
            return input;
        }
        if self.refused.is_some() {
            return Input::Tick;
        }
        let leadership = self.query.leadership.as_ref();
        let is_stopped = || self.query.signals.is_raised();
        let checked = leadership.map(|leadership| leadership.check(is_first, &is_stopped));
        if let Some(Err(reason)) = checked {
            return Input::ClaimFailed {
                is_fatal: true,
                reason,
            };
        }
        let begun = match is_first && self.state.from_scratch {
            true => self.runner.run(self.store.begin_from_scratch()),
            false => self.runner.run(self.store.begin(before)),
        };
        drop(beginning);
        let (writer, found) = match begun {
            Ok(begun) => begun,
            Err(error) => return failed(error),
        };
        let epoch = writer.epoch();
        self.epoch = Some(epoch);
        let manifest = found.manifest;
        for reason in found.healed {
            eprintln!("warning: {reason}; it was repaired from its second copy");
        }
        for reason in found.warnings {
            eprintln!("warning: {reason}; {AGAIN}");
            self.unreadable.push(reason);
        }
        if manifest.is_none() && !(is_first && self.state.from_scratch) {
            self.check_readable();
        }
        let restore = manifest.as_ref().map(|manifest| manifest.number);
        let finished = manifest.as_ref().is_some_and(|manifest| manifest.finished);
        if self.attempts == 0 {
            self.restored_from = restore;
            self.finished = manifest
                .as_ref()
                .filter(|manifest| manifest.finished)
                .cloned();
        }
        if let Some(manifest) = &manifest {
            self.check_compatible(manifest);
        }
        if is_first && self.refused.is_none() && !finished {
            self.open_door(restore);
        }
        self.claimed = Some(Claimed {
            incarnation: Incarnation {
                place: self.state.place.clone(),
                epoch,
                manifest,
                suspects: self.suspects.clone(),
            },
            writer,
        });
        Input::Claimed {
            epoch,
            restore,
            finished,
        }
    }

    fn manifest(&self) -> Option<&Manifest> {
        let claimed = self.claimed.as_ref()?;
        claimed.incarnation.manifest.as_ref()
    }

    fn suspicion(&self, suspect: &Suspected) -> String {
        let source = self.query.program.nodes[suspect.node].as_source();
        let name = source.map_or("", |source| &source.table.name);
        let Suspected {
            partition,
            first,
            last,
            ..
        } = suspect;
        let place = format!("table '{name}', partition {partition}");
        match first == last {
            true => format!(
                "{place}: row {first} crashed a process for the second time: it is rejected"
            ),
            false => format!(
                "{place}: a process died while it processed rows {first} to {last}: they are now processed \
                 one by one"
            ),
        }
    }

    /// Runs the incarnation; `None` if it was stopped.
    fn run(&mut self, epoch: u64) -> Option<Input> {
        let (claimed, prepared) = (self.claimed.take(), self.prepared.take());
        self.attempts += 1;
        let restored = claimed
            .as_ref()
            .and_then(|claimed| claimed.incarnation.manifest.as_ref());
        // What was counted after it is read and counted again.
        let before =
            restored.and_then(|manifest| self.counted.get(&(manifest.epoch, manifest.barrier)));
        self.before = before.cloned().unwrap_or_default();
        let sinks = self.last.take().map_or(Vec::new(), |last| last.sinks);
        let begun = SystemTime::now();
        let attempted = self.query.attempt(self.catalog, claimed, prepared, sinks);
        let error = match &attempted {
            Ok(attempted) => attempted.error.as_ref(),
            Err(error) => Some(error),
        };
        let error = error.map(ToString::to_string);
        self.query.trace(begun, Some(epoch), error);
        let attempted = match attempted {
            Ok(attempted) => attempted,
            Err(error) => {
                return Some(self.not_started(epoch, error.to_string(), error.is_final));
            }
        };
        for (barrier, mut totals) in attempted.counted.iter().cloned() {
            totals.add(&self.before);
            self.counted.insert((epoch, barrier), totals);
        }
        while self.counted.len() > COUNTED_MAX {
            self.counted.pop_first();
        }
        for suspect in &attempted.suspects {
            if !self.suspects.contains(suspect) {
                eprintln!("warning: {}", self.suspicion(suspect));
                self.suspects.push(*suspect);
            }
        }
        let input = match (&attempted.error, &attempted.verdict) {
            (None, Some(Verdict::Finished)) => Some(Input::Finished { epoch }),
            (None, Some(Verdict::Saved)) if attempted.yields => {
                self.yielded += 1;
                Some(Input::Yielded { epoch })
            }
            (None, Some(Verdict::Saved)) => None,
            (None, _) => {
                let from = attempted.resumes_from();
                let reason = format!(
                    "stopped before a last checkpoint: the same command resumes from {from} and \
                     reads \
                     again what came after it"
                );
                Some(Input::Fatal { epoch, reason })
            }
            (Some(error), Some(Verdict::Fatal(_))) => Some(Input::Fatal {
                epoch,
                reason: error.to_string(),
            }),
            (Some(error), _) if error.is_final => Some(Input::Fatal {
                epoch,
                reason: error.to_string(),
            }),
            (Some(error), _) => {
                let reason = error.to_string();
                let from = attempted.resumes_from();
                eprintln!("warning: {reason}: the query resumes from {from}");
                Some(Input::Failed { epoch, reason })
            }
        };
        self.last = Some(attempted);
        input
    }
}

/// Warnings about rows that may be lost or duplicated after a crash.
pub fn warnings(query: &Query<'_>, catalog: &ProgramCatalog<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let members = &query.members;
    let nodes = members.nodes.iter().zip(&members.graph_nodes);
    for (_, &node) in nodes.filter(|(identity, _)| identity.kind == NodeKind::Source) {
        let Some(source) = query.program.nodes[node].as_source() else {
            continue;
        };
        let described = source.connector.describe();
        if described.redelivers {
            warnings.push(format!(
                "table '{}': if the query crashes, what {} delivered since the last checkpoint is delivered \
                 again",
                source.table.name, described.connector
            ));
        } else if !described.replayable {
            warnings.push(format!(
                "table '{}': if the query crashes, what {} delivered since the last checkpoint is lost",
                source.table.name, described.connector
            ));
        }
    }
    for (_, sink) in catalog.sinks() {
        if sink.connector.capabilities().delivery == Delivery::AtLeastOnce {
            warnings.push(format!(
                "{}: if the query crashes, rows written since the last checkpoint are written again",
                sink.connector.describe()
            ));
        }
    }
    warnings
}
