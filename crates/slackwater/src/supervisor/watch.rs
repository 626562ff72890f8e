//! Watches a running query: handles its events, and calls the tuner, the rebalancer and the coordinator.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use slackwater_engine::Error;
use slackwater_engine::barrier::{Barrier, Purpose};
use slackwater_engine::deploy::Deployment;
use slackwater_engine::instance::SinkResult;
use slackwater_engine::protocol::{Command, WorkerEvent};
use slackwater_engine::runtime::Costs;
use slackwater_sql::program::Program;
use slackwater_sql::settings::Rescale;

use super::coordinator::{Coordinator, Stored, Verdict};
use super::events::RunEvent;
use super::looks::Looks;
use super::questions::Questions;
use crate::catalog::ProgramCatalog;
use crate::cluster::{Judged, Orchestrator};
use crate::hosts::{Execution, Host, HostCommand, HostEvent};
use crate::live::Live;
use crate::metrics::{Gatherer, Spread};
use crate::plan::Plan;
use crate::progress::{Due, Progress};
use crate::rebalancer::Rebalancer;
use crate::standby::Door;
use crate::targets::Targets;
use crate::traces::Traces;
use crate::tuner::Tuner;

/// How long a stopped query may take to write the rows that are on their way: longer than a slow pipeline
/// needs to empty full links, and shorter than service managers wait (10 s).
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long after a host has joined it is used, so that hosts that join together are used together.
const RESCALE_AFTER: Duration = Duration::from_secs(10);

/// Signals that follow the first one within this time count as the same.
const SAME_SIGNAL: Duration = Duration::from_millis(50);

/// A running query.
pub struct Watch<'a> {
    /// The host that runs the query.
    pub host: &'a Execution,
    /// The compiled program.
    pub program: &'a Program,
    /// The engine's form of the plan.
    pub deployment: &'a Deployment,
    /// The plan.
    pub plan: &'a Plan,
    /// What waiting costs on this host.
    pub costs: Costs,
    /// The latency targets of the sinks.
    pub targets: &'a Targets,
    /// Where its control events are traced.
    pub traces: &'a Traces,
    /// The sources and sinks.
    pub catalog: &'a ProgramCatalog<'a>,
    /// The time at which the first incarnation was started.
    pub started: Instant,
    /// The number of instances that have not ended.
    pub running: usize,
    /// The instances that have ended.
    pub ended: BTreeSet<usize>,
    /// The measurements of sinks that have ended.
    pub sinks: Vec<SinkResult>,
    /// Why the query fails.
    pub error: Option<Error>,
    /// The memory limit per process, if operators hold more.
    pub over: Option<u64>,
    /// The time of the first signal.
    pub signalled: Option<Instant>,
    /// The time by which the query must have stopped.
    pub stop_by: Option<Instant>,
    /// Where hosts join, if there are several.
    pub orchestrator: Option<&'a Orchestrator>,
    /// The hosts of this attempt; home is the first.
    pub hosts: &'a [Arc<dyn Host>],
    /// Whether it is stopped so that the query goes on with other hosts.
    pub yields: bool,
    /// Where a standby reaches this run.
    pub door: Option<&'a Door>,
    /// The process that follows, as far as this run has acted on that.
    pub standby: Option<u32>,
    /// Whether it is stopped so that the standby goes on.
    pub hands_over: bool,
    /// The folder of its state.
    pub folder: Option<&'a Path>,
    /// When hosts that have joined are to be used.
    pub rescale_at: Option<Instant>,
    /// The time after which workers that have not dropped the query are abandoned.
    pub abandon_by: Option<Instant>,
    /// The progress line.
    pub shown: Progress,
    /// Prints a line per second, if requested.
    pub live: Option<Live>,
    /// Keeps latency targets, if there are any.
    pub tuner: Option<Tuner<'a>>,
    /// Moves keys between instances, if there are several.
    pub rebalancer: Option<Rebalancer<'a>>,
    /// Takes checkpoints, if the query takes any.
    pub coordinator: Option<Coordinator>,
    /// Answers those who look at the run.
    pub looks: Looks,
    /// What sources have said of their partitions, and who asks why nothing comes out.
    pub questions: Questions,
    /// Whether a reader waits for the rows of a materialized view.
    pub is_read: bool,
}

impl Watch<'_> {
    /// Watches the query until it has ended, was stopped, or has failed.
    pub fn until_end(&mut self, events: &mpsc::Receiver<RunEvent>, duration: Option<Duration>) {
        let mut end_at = duration.map(|duration| self.started + duration);
        self.restore_targets();
        self.look_at_standby(Instant::now());
        if let Some(tuner) = &mut self.tuner {
            tuner.begin();
        }
        if let Some(rebalancer) = &mut self.rebalancer {
            rebalancer.begin();
        }
        while !self.is_over() {
            let tick = self.tuner.as_ref().and_then(Tuner::next);
            let tick = tick.map(|after| Instant::now() + after);
            let look = self.rebalancer.as_ref().and_then(Rebalancer::next);
            let look = look.map(|after| Instant::now() + after);
            let live = self.live.as_ref().map(Live::next);
            let shown = self.shown.next();
            let save = self.coordinator.as_ref().and_then(Coordinator::next);
            let save = save.map(|after| Instant::now() + after);
            let forget = self.program.cuts.forget_at();
            let ends = [end_at, self.stop_by, self.abandon_by, save, forget];
            let others = [shown, tick, look, live, self.rescale_at];
            let answers = [self.looks.next(), self.questions.next()];
            let deadlines = ends.into_iter().chain(others).chain(answers);
            let received = match deadlines.flatten().min() {
                // There are only events to wait for, so no timer runs (I7).
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let now = Instant::now();
            match received {
                Ok(event) => self.hear(event, now),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if tick.is_some_and(|at| at <= now)
                && let Some(tuner) = &mut self.tuner
            {
                let may_move = self.rebalancer.as_ref().is_none_or(Rebalancer::is_settled);
                tuner.tick(may_move);
            }
            if look.is_some_and(|at| at <= now)
                && let Some(rebalancer) = &mut self.rebalancer
            {
                let is_settled = self.tuner.as_ref().is_none_or(Tuner::is_settled);
                let is_saved = !self
                    .coordinator
                    .as_ref()
                    .is_some_and(Coordinator::is_taking);
                rebalancer.tick(is_settled && is_saved);
            }
            if save.is_some_and(|at| at <= now)
                && let Some(coordinator) = &mut self.coordinator
            {
                coordinator.tick(self.host);
            }
            self.answer_looks(now);
            if forget.is_some_and(|at| at <= now) {
                self.program.cuts.forget();
            }
            self.balance_behind_checkpoints();
            self.publish();
            self.judge(now);
            self.questions.answer(self.program, self.deployment, now);
            if self.rescale_at.is_some_and(|at| at <= now) {
                self.rescale_at = None;
                self.give_way(now);
            }
            if end_at.is_some_and(|at| at <= now) {
                end_at = None;
                self.stop(now);
            }
            if self.abandon_by.is_some_and(|at| at <= now) {
                break;
            }
            if self.abandon_by.is_none() && self.stop_by.is_some_and(|at| at <= now) {
                self.remove(now);
            }
            if live.is_some_and(|at| at <= now)
                && let Some(live) = &mut self.live
            {
                if let Some(tuner) = &mut self.tuner {
                    // What the host did belongs to the second in which it did it.
                    let may_move = self.rebalancer.as_ref().is_none_or(Rebalancer::is_settled);
                    tuner.look(may_move);
                }
                let workers = self.tuner.as_ref().map(Tuner::workers_used);
                let late = self.tuner.as_ref().map(Tuner::late);
                let late = late.unwrap_or_default();
                live.go_on(self.host, self.catalog, workers.as_ref(), late);
            }
            match self.shown.due(now) {
                Due::Nothing => {}
                Due::Count => self.host.count(self.catalog),
                Due::Show => {
                    let counters = self.host.counters();
                    self.host.store_bytes_read(self.catalog);
                    self.shown
                        .show(now, self.program, self.catalog, counters, self.started);
                }
            }
        }
    }

    /// Handles a signal: the first stops the query, the next one drops it. A terminal and a parent process
    /// may both send the same signal.
    fn signal(&mut self, now: Instant) {
        // It is not to go on anywhere.
        let gave_way = std::mem::take(&mut self.yields);
        match self.signalled {
            Some(at) if now.duration_since(at) < SAME_SIGNAL => {}
            Some(_) => self.remove(now),
            None => {
                self.signalled = Some(now);
                // The query may have been stopped by its duration and take too long.
                match self.stop_by {
                    Some(_) if gave_way => {}
                    Some(_) => self.remove(now),
                    None => self.stop(now),
                }
            }
        }
    }

    fn answer_looks(&mut self, now: Instant) {
        let gatherer = Gatherer {
            program: self.program,
            deployment: self.deployment,
            catalog: self.catalog,
            targets: self.targets,
            spread: self.orchestrator.map(|orchestrator| Spread {
                orchestrator,
                hosts: self.hosts,
                plan: self.plan,
            }),
        };
        let coordinator = self.coordinator.as_ref();
        let (questions, program, deployment) = (&self.questions, self.program, self.deployment);
        let known = || questions.known(program, deployment);
        self.looks
            .answer(&gatherer, self.host, coordinator, self.door, known, now);
    }

    fn is_over(&self) -> bool {
        // What was prepared has to be committed by the sinks that prepared it.
        let is_kept = match &self.coordinator {
            Some(coordinator) if self.error.is_none() && self.abandon_by.is_none() => {
                *coordinator.verdict() == Verdict::Running
            }
            _ => false,
        };
        self.running == 0 && !is_kept
    }

    /// Resumes moves of buckets that waited for a checkpoint.
    fn balance_behind_checkpoints(&mut self) {
        let (Some(rebalancer), Some(coordinator)) = (&mut self.rebalancer, &mut self.coordinator)
        else {
            return;
        };
        if !coordinator.is_taking() {
            rebalancer.go_on();
        }
        if let Some(node) = rebalancer.take_moved() {
            coordinator.moved(node, self.host);
        }
    }

    /// Sends the barrier at which views publish their rows, if a reader waits for it: not while an instance
    /// changes its worker, because a source on its way would miss the barrier. A query that is being stopped
    /// publishes its rows at the end.
    fn publish(&mut self) {
        let is_settled = self.tuner.as_ref().is_none_or(Tuner::is_settled);
        if !self.is_read || !is_settled || self.stop_by.is_some() {
            return;
        }
        self.is_read = false;
        if let Some(number) = self.program.cuts.issue() {
            let purpose = Purpose::Publish;
            let barrier = Command::Barrier(Barrier { number, purpose });
            self.host.tell(HostCommand::Workers(barrier));
        }
    }

    /// Acts on the coordinator's verdict.
    fn judge(&mut self, now: Instant) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        let reason = match coordinator.verdict() {
            Verdict::Failed(reason) | Verdict::Fatal(reason) => reason.clone(),
            Verdict::Running | Verdict::Finished | Verdict::Saved => return,
        };
        if self.error.is_none() {
            self.error = Some(Error::new("", reason));
            self.remove(now);
        }
    }

    /// A host has joined, or is to leave.
    fn look_at_hosts(&mut self, now: Instant) {
        let Some(orchestrator) = self.orchestrator.filter(|_| self.stop_by.is_none()) else {
            return;
        };
        match orchestrator.judge(self.hosts, self.coordinator.is_some()) {
            Judged::Same => {}
            Judged::Leave => {
                self.give_way(now);
            }
            Judged::More if self.program.settings.rescale == Rescale::Auto => {
                self.rescale_at = Some(now + RESCALE_AFTER);
            }
            Judged::More => {}
        }
    }

    /// Saves everything, so that the query goes on with other hosts.
    fn give_way(&mut self, now: Instant) {
        let is_needed = self
            .orchestrator
            .is_some_and(|orchestrator| !orchestrator.are_there(self.hosts));
        if is_needed && self.coordinator.is_some() && self.stop_by.is_none() {
            self.yields = true;
            self.stop(now);
        }
    }

    pub(super) fn stop(&mut self, now: Instant) {
        if self.stop_by.is_some() {
            return;
        }
        self.stop_by = Some(now + STOP_PATIENCE);
        let coordinator = self.coordinator.as_mut();
        let is_saving = coordinator.is_some_and(|coordinator| coordinator.stop(self.host));
        if !is_saving {
            self.host.tell(HostCommand::Workers(Command::Stop));
        }
    }

    fn hear(&mut self, event: RunEvent, now: Instant) {
        match event {
            RunEvent::Host(HostEvent::Worker(event)) => self.take(event, now),
            RunEvent::Host(HostEvent::Relocated { instance }) => {
                if let Some(tuner) = &mut self.tuner {
                    tuner.relocated(instance);
                }
            }
            RunEvent::Host(HostEvent::Observed(seen)) => {
                if let Some(tuner) = &mut self.tuner {
                    tuner.observed(seen);
                }
            }
            RunEvent::Host(HostEvent::Checkpoint(event)) => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.hear(event, self.host);
                }
            }
            RunEvent::Stored(stored) => {
                let stored_one = match &stored {
                    Stored::Manifest { number, .. } => Some(*number),
                    _ => None,
                };
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.stored(stored, self.host);
                }
                if let Some((door, number)) = self.door.zip(stored_one) {
                    door.stored(number);
                }
            }
            RunEvent::Host(HostEvent::Measured(measured)) => self.looks.measured(measured, now),
            RunEvent::Look(look) => {
                // What sources say of their partitions is shown to the next look.
                if self.looks.examines(&look, now) {
                    self.host.tell(HostCommand::Workers(Command::Examine));
                }
                self.looks.ask(look, self.host, self.catalog, now);
            }
            RunEvent::Retarget(retarget) => self.retarget(retarget),
            RunEvent::Signal => self.signal(now),
            RunEvent::Read => self.is_read = true,
            RunEvent::Hosts => self.look_at_hosts(now),
            RunEvent::Why(reply) => self.ask(reply, now),
            RunEvent::Door => self.look_at_standby(now),
            RunEvent::Active(_) => {}
        }
    }

    /// Asks all source instances that have not ended.
    fn ask(&mut self, reply: mpsc::SyncSender<String>, now: Instant) {
        let instances = self.deployment.instances.iter().enumerate();
        let sources = instances.filter(|(_, instance)| instance.source().is_some());
        let missing = sources.map(|(number, _)| number);
        let missing = missing.filter(|number| !self.ended.contains(number));
        if self.questions.add(missing.collect(), reply, now) {
            self.host.tell(HostCommand::Workers(Command::Examine));
        }
    }

    fn remove(&mut self, now: Instant) {
        if self.abandon_by.is_none() {
            self.abandon_by = Some(now + self.host.remove_patience());
            self.stop_by = self.abandon_by;
            self.host.tell(HostCommand::Workers(Command::Remove));
        }
    }

    fn take(&mut self, event: WorkerEvent, now: Instant) {
        match event {
            WorkerEvent::Active => {
                if let Some(tuner) = &mut self.tuner {
                    tuner.wake();
                }
                if let Some(rebalancer) = &mut self.rebalancer {
                    rebalancer.wake();
                }
            }
            WorkerEvent::Moved { barrier, .. } => {
                let is_saved = !self
                    .coordinator
                    .as_ref()
                    .is_some_and(Coordinator::is_taking);
                if let Some(rebalancer) = &mut self.rebalancer {
                    rebalancer.moved(barrier, is_saved);
                }
            }
            WorkerEvent::OverBudget { limit, .. } => {
                if self.over.is_none() {
                    self.over = Some(limit);
                    // What has been read is saved, if the query takes checkpoints.
                    match self.coordinator.is_some() {
                        true => self.stop(now),
                        false => self.remove(now),
                    }
                }
            }
            WorkerEvent::Examined {
                instance,
                partitions,
            } => self.questions.hear(instance, partitions),
            // The host handles these.
            WorkerEvent::Snapshot { .. }
            | WorkerEvent::Changed
            | WorkerEvent::Handover(_)
            | WorkerEvent::Detached { .. } => {}
            WorkerEvent::Ended { sinks, instance } => {
                self.has_ended(instance);
                self.sinks.extend(sinks);
            }
            WorkerEvent::Failed {
                sinks,
                error,
                instance,
            } => {
                self.has_ended(instance);
                self.sinks.extend(sinks);
                // A consequence of another failure is reported only if there is nothing better.
                let known = self.error.as_ref();
                if known.is_none_or(|known| known.consequence && !error.consequence) {
                    self.error = Some(error);
                }
                self.remove(now);
            }
        }
    }
}

impl Watch<'_> {
    fn has_ended(&mut self, instance: usize) {
        self.running -= 1;
        self.ended.insert(instance);
        self.questions.ended(instance);
        if let Some(tuner) = &mut self.tuner {
            tuner.ended(instance);
        }
        if let Some(rebalancer) = &mut self.rebalancer {
            rebalancer.ended(instance);
        }
    }
}
