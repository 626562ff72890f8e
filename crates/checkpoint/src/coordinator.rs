//! Decides when a checkpoint is taken, when it is stored, and when it may be committed.
//!
//! A pure state machine: no clock, no I/O. The caller, who has both, calls [`Coordinator::handle`] with each
//! event, carries out the outputs, and calls it with [`Input::Tick`] at [`Coordinator::next_ns`], which is
//! `None` while there is nothing to wait for (I7). One coordinator serves one incarnation; when that fails
//! the coordinator is dropped, and events that arrive for it later are ignored.
//!
//! - **When.** A checkpoint starts one interval after the first change that is in no checkpoint yet, but not
//!   before half an interval has passed since the last one ended. So rows wait not much longer than an
//!   interval for their checkpoint, a slow store doesn't make the query take checkpoints all the time, and
//!   without a change there is no checkpoint.
//! - **One at a time.** Events of a barrier that is no longer in flight are ignored.
//! - **Order.** Every member has taken its snapshot, and every part is stored → the manifest is stored →
//!   sinks commit → old checkpoints are removed. Never in another order.
//! - **Aborts.** A barrier that takes longer than the time-out is aborted, as is one whose snapshot or
//!   storing failed. Sinks keep what they have prepared, and report it as pending at the next barrier: a
//!   manifest whose storing seemed to fail may exist after all. The next attempt follows after a tenth of the
//!   interval, doubled each time up to the interval. From the second attempt on every member writes a base,
//!   because the parts that an increment would build upon may be gone. After [`Settings::failures_max`]
//!   failures in a row the query ends.
//! - **The end.** A member that has ended is not asked any more; its last report counts at every later
//!   barrier, with the parts that it has stored at its end: only a materialized view has state then. When
//!   all have ended, one last checkpoint says so, its commits are made, and then the query is
//!   finished.
//! - **A stop.** The next barrier ends the sources, and it is the last one, whatever was read before it
//!   reached them: members that are stopped report nothing at their end, so a later barrier would wait for
//!   them until its time-out.
//! - **Jumps of the clock.** See [`crate::clock`]: a jump counts for at most an interval or a quarter of the
//!   time-out.

use std::collections::BTreeSet;

use crate::chain::{Chain, ChainRule};
use crate::clock::Elapsed;
use crate::manifest::{Identity, Manifest, Node, NodeKind, Part, Partition};

mod cut;
mod message;

pub use message::{Costs, Input, Output, Report};

/// The shortest time to the next attempt, as a fraction of the interval; it doubles with each failure.
const RETRY_SHARE: u64 = 10;

/// How many times as many parts a chain may have that a standby stores: it makes bases by the usual rule.
const RELAYED_PARTS: usize = 4;

/// How a query takes checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The time from the first change to the barrier.
    pub interval_ns: u64,
    /// The longest time from the barrier to the stored manifest.
    pub timeout_ns: u64,
    /// How many checkpoints in a row may fail; the next failure ends the query.
    pub failures_max: u32,
    /// When an instance writes a base.
    pub chain: ChainRule,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval_ns: 10_000_000_000,
            timeout_ns: 600_000_000_000,
            failures_max: 5,
            chain: ChainRule::default(),
        }
    }
}

/// The members of an incarnation's checkpoints: every instance of every node that has positions, state or
/// commits. Members are named by their index in [`Plan::members`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Buckets that keys fall into.
    pub buckets: u32,
    /// The nodes.
    pub nodes: Vec<Identity>,
    /// The instances: the index of the node, and the number among its instances.
    pub members: Vec<(usize, u32)>,
    /// Partitions that the restored checkpoint had, by index of the node: those that no source reports (a
    /// file that is missing for now) stay in later checkpoints.
    pub restored: Vec<(usize, Partition)>,
}

/// A member, and what it has reported.
#[derive(Debug, Clone, Default)]
struct Member {
    node: usize,
    instance: u32,
    /// The member's parts in the last stored checkpoint.
    parts: Vec<Part>,
    chain: Chain,
    /// Whether it has other buckets than at its last base.
    has_moved: bool,
    /// Its report at its end, and the last barrier that it answered before.
    ended: Option<(u64, Report)>,
    /// The parts that it has stored at its end, which are in all later checkpoints.
    last_parts: Vec<Part>,
}

/// A barrier in flight.
#[derive(Debug, Clone)]
struct Flight {
    barrier: u64,
    begun_ns: u64,
    /// Members that write a base at this barrier.
    bases: BTreeSet<usize>,
    /// The report of each member; `None` for those that have not answered.
    reports: Vec<Option<Report>>,
    /// Parts that were stored, with their members.
    parts: Vec<(usize, Part)>,
    /// When all members had taken their snapshots.
    aligned_ns: Option<u64>,
    /// When the manifest was passed to the store.
    storing: bool,
    /// Whether it is the last one.
    is_final: bool,
}

#[derive(Debug, Clone)]
enum State {
    /// No barrier is in flight.
    Waiting,
    Flying(Box<Flight>),
    /// The last checkpoint is stored; these members must still commit.
    Committing(u64, BTreeSet<usize>),
    /// The query has ended.
    Over,
}

/// Whether the query should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    /// With the next barrier, as soon as it can be sent.
    Wanted,
    /// The barrier that stops the sources was sent, or they have reached their ends.
    Sent,
}

/// Takes the checkpoints of one incarnation.
#[derive(Debug, Clone)]
pub struct Coordinator {
    settings: Settings,
    plan: Plan,
    members: Vec<Member>,
    clock: Elapsed,
    state: State,
    /// The last barrier that was sent, and the last one whose checkpoint is stored.
    barrier: u64,
    stored: Option<u64>,
    /// When the next checkpoint is due; `None` without a change.
    due_ns: Option<u64>,
    stop: Stop,
    /// When the last checkpoint ended.
    ended_ns: Option<u64>,
    failures: u32,
    costs: Costs,
    is_relayed: bool,
    /// A mistake that the simulation must notice.
    #[cfg(test)]
    pub(crate) takes_any_base: bool,
}

impl Coordinator {
    /// A coordinator for a new incarnation.
    ///
    /// # Panics
    ///
    /// If the plan has no members, or a member of a node that it doesn't have.
    pub fn new(settings: Settings, plan: Plan) -> Coordinator {
        assert!(!plan.members.is_empty(), "a query without a source");
        let step_max_ns = settings.interval_ns.min(settings.timeout_ns / 4);
        let members = plan.members.iter().map(|&(node, instance)| {
            assert!(node < plan.nodes.len(), "member of node {node}");
            Member {
                node,
                instance,
                ..Member::default()
            }
        });
        Coordinator {
            members: members.collect(),
            settings,
            plan,
            clock: Elapsed::new(step_max_ns),
            state: State::Waiting,
            barrier: 0,
            stored: None,
            due_ns: None,
            stop: Stop::No,
            ended_ns: None,
            failures: 0,
            costs: Costs::default(),
            is_relayed: false,
            #[cfg(test)]
            takes_any_base: false,
        }
    }

    /// What checkpoints have cost so far.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The barrier in flight.
    pub fn in_flight(&self) -> Option<u64> {
        match &self.state {
            State::Flying(flight) => Some(flight.barrier),
            _ => None,
        }
    }

    /// The time at which it must be called at the latest, on the caller's clock; `None` while there is
    /// nothing to wait for.
    pub fn next_ns(&self) -> Option<u64> {
        let due_ns = match &self.state {
            State::Waiting => self.due_ns?,
            State::Flying(flight) => flight.begun_ns.saturating_add(self.settings.timeout_ns),
            State::Committing(..) | State::Over => return None,
        };
        Some(self.clock.clock_ns(due_ns))
    }

    /// Whether a standby stores what changes. It also makes the bases ([`Input::PartStored`]), so that
    /// members make one only if there is nothing to build upon, or the standby has made none for long.
    pub fn set_relayed(&mut self, is_relayed: bool) {
        self.is_relayed = is_relayed;
    }

    /// Changes the time from a change to its checkpoint, also for a change that waits for one already.
    pub fn set_interval(&mut self, interval_ns: u64) {
        self.settings.interval_ns = interval_ns;
        let latest_ns = self.clock.ns().saturating_add(interval_ns);
        self.due_ns = self.due_ns.map(|due_ns| due_ns.min(latest_ns));
    }

    /// Handles an event, and returns what to do, in that order.
    pub fn handle(&mut self, now_ns: u64, input: Input) -> Vec<Output> {
        self.clock.advance(now_ns);
        let mut outputs = Vec::new();
        if matches!(self.state, State::Over) {
            return outputs;
        }
        match input {
            Input::Tick => {}
            Input::Changed => {
                let due_ns = self.clock.ns().saturating_add(self.settings.interval_ns);
                self.due_ns.get_or_insert(self.not_too_soon(due_ns));
            }
            Input::Stop if self.stop == Stop::No => self.stop = Stop::Wanted,
            Input::Stop => {}
            Input::Moved { node } => self.forget_chains(&node),
            Input::Done {
                barrier,
                member,
                report,
            } => self.done(barrier, member, report, &mut outputs),
            Input::PartStored {
                barrier,
                member,
                part,
            } => self.part_stored(barrier, member, part, &mut outputs),
            Input::Failed { barrier, reason } => {
                if self.in_flight() == Some(barrier) {
                    self.abort(reason, &mut outputs);
                }
            }
            Input::Ended {
                member,
                last_barrier,
                report,
            } => self.member_ended(member, last_barrier, report, &mut outputs),
            Input::ManifestStored { barrier } => self.manifest_stored(barrier, &mut outputs),
            Input::Committed { barrier, member } => self.committed(barrier, member, &mut outputs),
            Input::Lost { reason } => {
                if let Some(barrier) = self.in_flight() {
                    self.costs.aborted += 1;
                    let reason = Some(reason);
                    outputs.push(Output::Abort { barrier, reason });
                }
                self.state = State::Over;
            }
            Input::Fenced { reason } => {
                self.state = State::Over;
                outputs.push(Output::Stop { reason });
            }
        }
        self.time_out(&mut outputs);
        self.begin(&mut outputs);
        outputs
    }

    /// The time of the next checkpoint that is due at `due_ns`.
    fn not_too_soon(&self, due_ns: u64) -> u64 {
        let ended_ns = self.ended_ns.unwrap_or(0);
        due_ns.max(ended_ns.saturating_add(self.settings.interval_ns / 2))
    }

    /// The next snapshot of these instances can't build upon what they have stored, because they have other
    /// buckets.
    fn forget_chains(&mut self, node: &str) {
        let nodes = &self.plan.nodes;
        for member in &mut self.members {
            member.has_moved |= nodes[member.node].key == node;
        }
    }

    fn all_ended(&self) -> bool {
        self.members.iter().all(|member| member.ended.is_some())
    }

    /// Whether any member would send a barrier.
    fn has_sources(&self) -> bool {
        let is_source = |member: &Member| self.plan.nodes[member.node].kind == NodeKind::Source;
        let mut sources = self.members.iter().filter(|member| is_source(member));
        sources.any(|member| member.ended.is_none())
    }

    /// Starts a checkpoint if one is due and nothing prevents it.
    fn begin(&mut self, outputs: &mut Vec<Output>) {
        let is_due = self.due_ns.is_some_and(|due_ns| due_ns <= self.clock.ns());
        let stops = self.stop == Stop::Wanted;
        if !(is_due || stops) || !matches!(self.state, State::Waiting) {
            return;
        }
        let were_stopped = self.stop == Stop::Sent;
        let is_final = self.all_ended();
        self.due_ns = None;
        if stops {
            self.stop = Stop::Sent;
        }
        if !is_final && (were_stopped || !self.has_sources()) {
            // The other members report when they end.
            return;
        }
        self.barrier += 1;
        let rule = &self.settings.chain;
        let is_due = |chain: &Chain| match self.is_relayed {
            true => chain.parts == 0 || chain.parts >= rule.parts_max * RELAYED_PARTS,
            false => chain.needs_base(rule),
        };
        let is_stateful = |member: &Member| self.plan.nodes[member.node].kind == NodeKind::Stateful;
        let members = self.members.iter().enumerate();
        let bases = members.filter(|(_, member)| {
            let needs = member.has_moved || is_due(&member.chain);
            is_stateful(member) && needs
        });
        let bases = bases.map(|(index, _)| index).collect::<BTreeSet<usize>>();
        for &index in &bases {
            self.members[index].has_moved = false;
        }
        let flight = Flight {
            barrier: self.barrier,
            begun_ns: self.clock.ns(),
            bases,
            reports: vec![None; self.members.len()],
            parts: Vec::new(),
            aligned_ns: None,
            storing: false,
            is_final,
        };
        if !is_final {
            outputs.push(Output::Inject {
                barrier: flight.barrier,
                since: self.stored,
                bases: flight.bases.iter().copied().collect(),
                stops,
            });
        }
        self.state = State::Flying(Box::new(flight));
        self.advance(outputs);
    }

    fn time_out(&mut self, outputs: &mut Vec<Output>) {
        let State::Flying(flight) = &self.state else {
            return;
        };
        let taken_ns = self.clock.ns().saturating_sub(flight.begun_ns);
        if taken_ns >= self.settings.timeout_ns {
            let reason = flight.late(&self.plan, &self.members, taken_ns);
            self.abort(reason, outputs);
        }
    }

    fn abort(&mut self, reason: String, outputs: &mut Vec<Output>) {
        let State::Flying(flight) = std::mem::replace(&mut self.state, State::Waiting) else {
            return;
        };
        let barrier = flight.barrier;
        self.costs.aborted += 1;
        self.failures += 1;
        for (index, member) in self.members.iter_mut().enumerate() {
            // A checkpoint that fails twice may fail because of the parts that it builds upon.
            member.has_moved |= self.failures > 1 || flight.bases.contains(&index);
        }
        self.ended_ns = Some(self.clock.ns());
        let text = reason.clone();
        let reason = Some(reason);
        outputs.push(Output::Abort { barrier, reason });
        if self.failures > self.settings.failures_max {
            self.state = State::Over;
            let reason = format!(
                "{} checkpoints in a row failed; the last: {text}",
                self.failures
            );
            outputs.push(Output::Stop { reason });
            return;
        }
        let interval_ns = self.settings.interval_ns;
        let doubled = (interval_ns / RETRY_SHARE).saturating_mul(1 << (self.failures - 1).min(16));
        self.due_ns = Some(self.clock.ns().saturating_add(doubled.min(interval_ns)));
    }

    fn manifest_stored(&mut self, barrier: u64, outputs: &mut Vec<Output>) {
        if self.in_flight() != Some(barrier) {
            return;
        }
        let State::Flying(flight) = std::mem::replace(&mut self.state, State::Waiting) else {
            return;
        };
        if !flight.storing {
            self.state = State::Flying(flight);
            return;
        }
        self.failures = 0;
        self.stored = Some(barrier);
        self.ended_ns = Some(self.clock.ns());
        self.due_ns = self.due_ns.map(|due_ns| self.not_too_soon(due_ns));
        self.costs.add(&flight, self.clock.ns());
        let is_final = flight.is_final;
        self.keep_chains(*flight);
        outputs.push(Output::Commit { barrier });
        outputs.push(Output::Sweep);
        if is_final {
            let members = self.members.iter().enumerate();
            let pending = members.filter(|(_, member)| {
                let last = member.ended.as_ref();
                last.is_some_and(|(_, report)| !report.pending.is_empty())
            });
            let pending = pending.map(|(index, _)| index).collect::<BTreeSet<usize>>();
            self.state = State::Committing(barrier, pending);
            self.finish(outputs);
        } else if self.all_ended() {
            self.due_ns = Some(self.clock.ns());
        }
    }

    fn committed(&mut self, barrier: u64, member: usize, outputs: &mut Vec<Output>) {
        if let State::Committing(last, pending) = &mut self.state
            && *last == barrier
        {
            pending.remove(&member);
            self.finish(outputs);
        }
    }

    fn finish(&mut self, outputs: &mut Vec<Output>) {
        if matches!(&self.state, State::Committing(_, pending) if pending.is_empty()) {
            self.state = State::Over;
            outputs.push(Output::Finished);
        }
    }
}

#[cfg(test)]
mod tests;
