//! The part of a program that uses the two state machines: it carries out their actions.

use std::collections::VecDeque;

use super::agent::Agent;
use super::ledger::Transaction;
use super::mutation::Mutation;
use super::pipeline::{self, Member, Shape};
use super::replica::Replica;
use super::world::{After, Command, Event, Owner, World, positions};
use crate::chain::ChainRule;
use crate::compatible::{Wanted, compare, unequal};
use crate::coordinator::{self, Coordinator, Plan, Settings};
use crate::manifest::{Identity, Manifest, Meaning, NodeKind};
use crate::recovery::{self, Limits, Recovery};
use crate::store::CheckpointWriter;
use crate::{Error, Kind};

/// Checkpoints that are kept.
const KEEP: usize = 2;

/// When bases are written, by members and by standbys.
pub const CHAIN: ChainRule = ChainRule {
    small_bytes: 2_000,
    parts_max: 6,
};

/// The node with state.
pub const SUMS: &str = "sums";

const NODES: [(&str, NodeKind); 3] = [
    ("numbers", NodeKind::Source),
    (SUMS, NodeKind::Stateful),
    ("ledger", NodeKind::Sink),
];

/// A supervisor and what it runs.
pub struct Deployment {
    pub index: usize,
    pub over: bool,
    pub tick: Option<u64>,
    recovery: Recovery,
    pub run: Option<usize>,
    /// The standby that follows it.
    pub standby: Option<usize>,
    /// What it has held while it stood by.
    pub replica: Option<Box<Replica>>,
}

/// An incarnation.
pub struct Run {
    pub deployment: usize,
    pub epoch: u64,
    pub over: bool,
    pub tick: Option<u64>,
    pub members: Vec<Member>,
    pub shape: Shape,
    pub restored: Option<Manifest>,
    pub coordinator: Coordinator,
    pub interval_ns: u64,
    /// Its agents, by process.
    pub agents: Vec<Agent>,
    /// The standby that its agents were told of.
    pub standby: Option<usize>,
    incarnation: Option<Box<CheckpointWriter>>,
    jobs: VecDeque<Job>,
    pub running: bool,
    /// The barrier that stops it, and how many members have committed it.
    stop: Option<(u64, usize)>,
}

enum Job {
    Manifest(Box<Manifest>),
    Sweep,
}

fn identity(node: usize) -> Identity {
    Identity {
        key: NODES[node].0.to_string(),
        kind: NODES[node].1,
        meaning: Meaning::State("key".into()),
    }
}

impl World {
    /// Starts the query; `replica` is what the run has held while it stood by.
    pub fn deploy(&mut self, replica: Option<Box<Replica>>) {
        let limits = Limits {
            restarts_max: 1_000,
            window_ns: 1_000_000,
            wait_min_ns: 20,
            wait_max_ns: 300,
            stop_ns: 200,
        };
        let index = self.deployments.len();
        self.deployments.push(Deployment {
            index,
            over: false,
            tick: None,
            recovery: Recovery::new(limits),
            run: None,
            standby: None,
            replica,
        });
        self.seen.deployments += 1;
        self.tell_recovery(index, recovery::Input::Start);
    }

    pub fn tell_recovery(&mut self, index: usize, input: recovery::Input) {
        let clock = self.clock();
        let deployment = &mut self.deployments[index];
        if deployment.over {
            return;
        }
        let outputs = deployment.recovery.handle(clock, input);
        for output in outputs {
            self.recover(index, output);
        }
        let deployment = &self.deployments[index];
        let next = deployment.recovery.next_ns().filter(|_| !deployment.over);
        if let Some(next) = next
            && deployment.tick != Some(next)
        {
            self.deployments[index].tick = Some(next);
            let delay = next.saturating_sub(clock);
            self.at(delay, Event::TickRecovery { deployment: index });
        }
    }

    fn recover(&mut self, index: usize, output: recovery::Output) {
        use recovery::Output;
        let run = self.deployments[index].run;
        match output {
            Output::Claim { before } => {
                let store = self.store.clone();
                self.start(Owner::Supervisor, async move {
                    After::Begun {
                        deployment: index,
                        result: store.begin(before).await,
                    }
                });
            }
            Output::Restore { .. } => {
                let run = run.expect("it was claimed");
                self.seen.restores += u64::from(self.runs[run].restored.is_some());
                match self.runs[run].restored {
                    Some(_) => self.adopt(run),
                    None => self.restore(run),
                }
            }
            Output::Recommit { .. } => {
                let run = run.expect("it was restored");
                self.soon(Event::Recommit { run, next: 0 });
            }
            Output::Run { .. } => {
                let run = run.expect("it was restored");
                self.runs[run].running = true;
                for member in 0..self.runs[run].members.len() {
                    self.wake(run, member);
                }
                self.look_at_standby(index);
            }
            Output::Stop { .. } | Output::Kill { .. } => {
                let run = run.expect("it has begun");
                self.stop(run);
            }
            Output::End => {
                self.ends += 1;
                self.deployments[index].over = true;
                self.leave_standby(index);
                if let Some(run) = run {
                    self.runs[run].over = true;
                }
            }
            Output::GiveUp { .. } => {
                self.deployments[index].over = true;
                self.leave_standby(index);
                if let Some(run) = run {
                    self.stop(run);
                }
            }
        }
    }

    /// Reads what the incarnation resumes from.
    pub fn restore(&mut self, run: usize) {
        let store = self.store.clone();
        let node = self.runs[run].restored.as_ref();
        let node = node.and_then(|manifest| manifest.node(SUMS));
        let parts = node.map(|node| node.parts.clone()).unwrap_or_default();
        self.start(Owner::Run(run), async move {
            let mut batches = Vec::new();
            for part in &parts {
                match store.read_part(part).await {
                    Ok(read) => batches.extend(read),
                    Err(error) => {
                        let result = Err(error);
                        return After::Restored { run, result };
                    }
                }
            }
            let result = Ok(pipeline::sums(&batches));
            After::Restored { run, result }
        });
    }

    fn stop(&mut self, run: usize) {
        self.runs[run].over = true;
        self.abandon(Owner::Run(run));
        for process in 0..self.runs[run].shape.processes {
            self.soon(Event::StopProcess { run, process });
        }
        self.at(450, Event::Stopped { run });
    }

    pub fn kill_process(&mut self, run: usize, process: usize) {
        let members = self.runs[run].members.iter_mut();
        for member in members.filter(|member| member.process == process) {
            member.alive = false;
        }
    }

    /// A process dies, and its supervisor notices.
    pub fn lose_process(&mut self, run: usize, process: usize) {
        self.kill_process(run, process);
        let (deployment, epoch) = (self.runs[run].deployment, self.runs[run].epoch);
        let reason = format!("process {process} was lost");
        let lost = coordinator::Input::Lost {
            reason: reason.clone(),
        };
        self.soon(Event::ToCoordinator { run, input: lost });
        let input = recovery::Input::Failed { epoch, reason };
        self.soon(Event::ToRecovery { deployment, input });
    }

    /// The supervisor dies; the processes that it leaves behind continue for a while.
    pub fn kill_deployment(&mut self, index: usize) {
        self.deployments[index].over = true;
        self.leave_standby(index);
        if let Some(run) = self.deployments[index].run {
            self.runs[run].over = true;
            self.abandon(Owner::Run(run));
            for process in 0..self.runs[run].shape.processes {
                let delay = self.random.between(1, 2_000);
                self.at(delay, Event::StopProcess { run, process });
            }
        }
    }

    pub fn after(&mut self, after: After) {
        match after {
            After::Begun { deployment, result } => self.begun(deployment, result),
            After::Restored { run, result } => {
                let (deployment, epoch) = (self.runs[run].deployment, self.runs[run].epoch);
                let input = match result {
                    Ok(state) => {
                        let one = &mut self.runs[run];
                        let positions = positions(one.restored.as_ref());
                        one.members =
                            pipeline::members(one.shape, epoch, &self.data, &positions, &state);
                        recovery::Input::Restored { epoch }
                    }
                    Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Missing) => {
                        let reason = error.to_string();
                        recovery::Input::Corrupt { epoch, reason }
                    }
                    Err(error) => recovery::Input::Failed {
                        epoch,
                        reason: error.to_string(),
                    },
                };
                self.soon(Event::ToRecovery { deployment, input });
            }
            After::Adopted {
                run,
                replica,
                result,
            } => self.adopted(run, &replica, result),
            After::Relayed { relay, result } => self.relayed(relay, result),
            After::Standby(done) => self.standby_done(done),
            After::Part {
                run,
                member,
                barrier,
                result,
            } => {
                let input = match result {
                    Ok(part) => coordinator::Input::PartStored {
                        barrier,
                        member,
                        part,
                    },
                    Err(error) => failed(barrier, &error),
                };
                self.soon(Event::ToCoordinator { run, input });
            }
            After::Manifest {
                run,
                barrier,
                incarnation,
                result,
            } => {
                self.runs[run].incarnation = Some(incarnation);
                self.note_fenced(self.runs[run].epoch, result.as_ref().err());
                if let Ok(number) = result {
                    self.tell_standby(self.runs[run].deployment, number);
                }
                let input = match result {
                    Ok(_) => coordinator::Input::ManifestStored { barrier },
                    Err(error) => failed(barrier, &error),
                };
                self.soon(Event::ToCoordinator { run, input });
                self.work(run);
            }
            After::Swept {
                run,
                incarnation,
                result,
            } => {
                self.runs[run].incarnation = Some(incarnation);
                self.note_fenced(self.runs[run].epoch, result.as_ref().err());
                if let Err(error) = result
                    && error.kind == Kind::Fenced
                {
                    let input = failed(0, &error);
                    self.soon(Event::ToCoordinator { run, input });
                }
                self.check_newest();
                self.work(run);
            }
        }
    }

    /// No incarnation may be fenced by its own records.
    fn note_fenced(&mut self, epoch: u64, error: Option<&Error>) {
        if error.is_some_and(|error| error.kind == Kind::Fenced) {
            self.seen.fenced += 1;
            if self.latest_claim() <= epoch {
                self.ledger.complain(format!("{epoch} is fenced by nobody"));
            }
        }
    }

    fn begun(&mut self, index: usize, result: crate::Result<(CheckpointWriter, crate::Found)>) {
        let deployment = index;
        let (incarnation, found) = match result {
            Ok(begun) => begun,
            Err(error) => {
                self.note_fenced(0, Some(&error));
                let reason = error.to_string();
                let is_fatal = !matches!(error.kind, Kind::Unavailable | Kind::Missing);
                let input = recovery::Input::ClaimFailed { reason, is_fatal };
                self.soon(Event::ToRecovery { deployment, input });
                return;
            }
        };
        self.seen.skipped += found.warnings.len() as u64;
        let shape = Shape {
            sources: self.random.between(1, 2) as usize,
            sums: self.random.between(1, 3) as usize,
            sinks: self.random.between(1, 2) as usize,
            processes: self.random.between(1, 3) as usize,
        };
        if let Some(manifest) = &found.manifest {
            let wanted = (0..NODES.len()).map(|node| Wanted {
                identity: identity(node),
                sources: vec![NODES[0].0.to_string()],
                may_begin_empty: false,
            });
            let wanted = wanted.collect::<Vec<Wanted>>();
            let compared = compare(manifest, pipeline::BUCKETS, &wanted, &[], &unequal);
            assert_eq!(compared.reasons().next(), None);
        }
        let counts = [shape.sources, shape.sums, shape.sinks];
        let members = counts.iter().enumerate();
        let members = members.flat_map(|(node, &n)| (0..n as u32).map(move |i| (node, i)));
        let plan = Plan {
            buckets: pipeline::BUCKETS,
            nodes: (0..NODES.len()).map(identity).collect(),
            members: members.collect(),
            restored: Vec::new(),
        };
        let interval_ns = self.random.between(50, 400);
        let settings = Settings {
            interval_ns,
            timeout_ns: 2_000,
            failures_max: 5,
            chain: CHAIN,
        };
        let epoch = incarnation.epoch();
        let restore = found.manifest.as_ref().map(|manifest| manifest.number);
        let finished = found
            .manifest
            .as_ref()
            .is_some_and(|manifest| manifest.finished);
        let mut coordinator = Coordinator::new(settings, plan);
        coordinator.takes_any_base = self.mutation == Some(Mutation::TakesAnyBase);
        self.runs.push(Run {
            deployment,
            epoch,
            over: self.deployments[index].over,
            tick: None,
            members: Vec::new(),
            shape,
            restored: found.manifest,
            coordinator,
            interval_ns,
            agents: vec![Agent::default(); shape.processes],
            standby: None,
            incarnation: Some(Box::new(incarnation)),
            jobs: VecDeque::new(),
            running: false,
            stop: None,
        });
        self.deployments[index].run = Some(self.runs.len() - 1);
        let input = recovery::Input::Claimed {
            epoch,
            restore,
            finished,
        };
        self.tell_recovery(deployment, input);
    }

    pub fn recommit(&mut self, run: usize, next: usize) {
        let one = &self.runs[run];
        if one.over {
            return;
        }
        let nodes = one
            .restored
            .iter()
            .flat_map(|manifest| manifest.nodes.iter());
        let pending = nodes.flat_map(|node| &node.pending);
        let pending = pending.map(|pending| Transaction::of(&pending.commit));
        let pending = pending.collect::<Vec<Transaction>>();
        match pending.get(next) {
            Some(&transaction) => {
                self.commit(transaction);
                let next = next + 1;
                self.soon(Event::Recommit { run, next });
            }
            None => {
                let (deployment, epoch) = (one.deployment, one.epoch);
                self.ledger.give_up(epoch, &pending);
                let input = recovery::Input::Recommitted { epoch };
                self.soon(Event::ToRecovery { deployment, input });
            }
        }
    }

    fn commit(&mut self, transaction: Transaction) {
        let requests = self.requests.lock().unwrap();
        self.ledger.commit(transaction, &requests.durable);
    }

    pub fn tell_coordinator(&mut self, run: usize, input: coordinator::Input) {
        if self.runs[run].over {
            return;
        }
        let clock = self.clock();
        let committed = match &input {
            coordinator::Input::Committed { barrier, .. } => Some(*barrier),
            _ => None,
        };
        let outputs = self.runs[run].coordinator.handle(clock, input);
        for output in outputs {
            self.coordinate(run, output);
        }
        if let Some(barrier) = committed {
            self.look_whether_saved(run, barrier);
        }
        self.tick_coordinator(run);
    }

    pub fn tick_coordinator(&mut self, run: usize) {
        let next = self.runs[run].coordinator.next_ns();
        if let Some(next) = next
            && self.runs[run].tick != Some(next)
        {
            self.runs[run].tick = Some(next);
            let delay = next.saturating_sub(self.clock());
            self.at(delay, Event::TickCoordinator { run });
        }
    }

    /// Once all sinks have committed what was prepared for the barrier that stops a query, its supervisor
    /// exits. The query is then started again.
    fn look_whether_saved(&mut self, run: usize, committed: u64) {
        let one = &mut self.runs[run];
        let Some((barrier, members)) = &mut one.stop else {
            return;
        };
        *members += usize::from(*barrier == committed);
        if *members == one.members.len() {
            self.seen.saved += 1;
            self.exit(run);
        }
    }

    fn exit(&mut self, run: usize) {
        if !self.runs[run].over {
            self.kill_deployment(self.runs[run].deployment);
            let delay = self.random.between(1, 300);
            self.at(delay, Event::Deploy);
        }
    }

    fn coordinate(&mut self, run: usize, output: coordinator::Output) {
        use coordinator::Output;
        let (deployment, epoch) = (self.runs[run].deployment, self.runs[run].epoch);
        match output {
            Output::Inject {
                barrier,
                since,
                bases,
                stops,
            } => {
                if self.runs[run].stop.is_some() {
                    let complaint =
                        format!("barrier {barrier} is sent to sources that have been stopped");
                    self.ledger.complain(complaint);
                }
                if stops {
                    self.runs[run].stop = Some((barrier, 0));
                }
                for member in 0..self.runs[run].shape.sources {
                    let barrier = pipeline::Barrier {
                        number: barrier,
                        since,
                        bases: bases.clone(),
                        stops,
                    };
                    let command = Command::Inject(barrier);
                    self.soon(Event::ToMember {
                        run,
                        member,
                        command,
                    });
                }
            }
            Output::Store(manifest) => {
                self.check_announced(&manifest, epoch);
                self.runs[run].jobs.push_back(Job::Manifest(manifest));
                self.work(run);
            }
            Output::Sweep => {
                self.runs[run].jobs.push_back(Job::Sweep);
                self.work(run);
            }
            Output::Commit { barrier } => {
                self.seen.checkpoints += 1;
                let costs = self.runs[run].coordinator.costs();
                self.seen.increments += u64::from(costs.parts > costs.bases);
                for member in 0..self.runs[run].members.len() {
                    let command = Command::Commit(barrier);
                    self.soon(Event::ToMember {
                        run,
                        member,
                        command,
                    });
                }
            }
            Output::Abort { barrier, reason } => {
                self.seen.aborted += 1;
                let stop = self.runs[run].stop.map(|(barrier, _)| barrier);
                if reason.is_some() && stop == Some(barrier) {
                    // The sources have ended: the query resumes from the checkpoint before.
                    self.exit(run);
                }
            }
            Output::Finished => {
                let input = recovery::Input::Finished { epoch };
                self.soon(Event::ToRecovery { deployment, input });
            }
            Output::Stop { reason } => {
                let input = recovery::Input::Fatal { epoch, reason };
                self.soon(Event::ToRecovery { deployment, input });
            }
        }
    }

    /// Operations on the store run one after the other.
    fn work(&mut self, run: usize) {
        let one = &mut self.runs[run];
        if one.over || one.incarnation.is_none() {
            return;
        }
        let Some(job) = one.jobs.pop_front() else {
            return;
        };
        let mut incarnation = one.incarnation.take().expect("it is there");
        match job {
            Job::Manifest(manifest) => self.start(Owner::Run(run), async move {
                let barrier = manifest.barrier;
                let result = incarnation.put_manifest(*manifest).await;
                After::Manifest {
                    run,
                    barrier,
                    incarnation,
                    result,
                }
            }),
            Job::Sweep => self.start(Owner::Run(run), async move {
                let result = incarnation.sweep(KEEP).await.map(drop);
                After::Swept {
                    run,
                    incarnation,
                    result,
                }
            }),
        }
    }

    pub fn tell_member(&mut self, run: usize, member: usize, command: Command) {
        let one = &mut self.runs[run];
        let Some(place) = one.members.get_mut(member).filter(|member| member.alive) else {
            return;
        };
        match command {
            Command::Inject(barrier) => {
                let said = place.inject(barrier);
                self.said(run, member, said);
            }
            Command::Commit(barrier) => {
                let due = place.commit(barrier);
                for transaction in due {
                    self.commit(transaction);
                }
                let input = coordinator::Input::Committed { barrier, member };
                self.soon(Event::ToCoordinator { run, input });
            }
        }
    }

    pub fn wake(&mut self, run: usize, member: usize) {
        let one = &mut self.runs[run];
        let is_ready = one.running && one.members[member].alive;
        if is_ready && !std::mem::replace(&mut one.members[member].scheduled, true) {
            let delay = self.random.between(1, self.pace);
            self.at(delay, Event::Step { run, member });
        }
    }

    pub fn step(&mut self, run: usize, member: usize) {
        let place = &mut self.runs[run].members[member];
        place.scheduled = false;
        if !place.alive {
            return;
        }
        let mut said = Vec::new();
        let mut goes_on = true;
        for _ in 0..3 {
            goes_on = goes_on && place.step(&mut self.ledger, &mut said);
        }
        self.said(run, member, said);
        if goes_on {
            self.wake(run, member);
        }
    }
}

/// What the coordinator hears if something could not be stored.
pub fn failed(barrier: u64, error: &Error) -> coordinator::Input {
    let reason = error.to_string();
    match error.kind {
        Kind::Fenced => coordinator::Input::Fenced { reason },
        _ => coordinator::Input::Failed { barrier, reason },
    }
}
