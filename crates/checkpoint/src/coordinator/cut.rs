//! A checkpoint in flight: which members have answered, and its manifest.

use super::{
    Chain, Coordinator, Flight, Manifest, Member, Node, NodeKind, Output, Part, Partition, Plan,
    Report, State,
};
use crate::manifest::Pending;

/// The most members that are named if a barrier is late.
const NAMED_MAX: usize = 3;

impl Flight {
    /// The reason why the checkpoint has taken too long.
    pub(super) fn late(&self, plan: &Plan, members: &[Member], taken_ns: u64) -> String {
        let seconds = taken_ns as f64 / 1e9;
        if self.storing {
            return format!("the manifest was not stored within {seconds:.1} s");
        }
        let name = |index: usize| {
            let member = &members[index];
            format!("'{}' #{}", plan.nodes[member.node].key, member.instance)
        };
        let missing = self.missing(members);
        if missing.is_empty() {
            return format!("its parts were not stored within {seconds:.1} s");
        }
        let named = missing.iter().take(NAMED_MAX).map(|&index| name(index));
        let mut named = named.collect::<Vec<String>>().join(", ");
        if missing.len() > NAMED_MAX {
            named.push_str(&format!(" and {} more", missing.len() - NAMED_MAX));
        }
        format!("the barrier did not pass {named} within {seconds:.1} s")
    }

    fn missing(&self, members: &[Member]) -> Vec<usize> {
        let missing = |index: &usize| self.answer(*index, &members[*index]).is_none();
        (0..members.len()).filter(missing).collect()
    }

    /// A member's report for this cut: its answer, or its report at its end if that came before the barrier.
    fn answer<'a>(&'a self, index: usize, member: &'a Member) -> Option<&'a Report> {
        let before = member.ended.as_ref();
        let before = before.filter(|(last_barrier, _)| *last_barrier < self.barrier);
        let end = before.map(|(_, report)| report);
        self.reports[index].as_ref().or(end)
    }

    /// Whether a member's parts begin with a base, so that earlier ones are not needed.
    fn has_base(&self, index: usize) -> bool {
        let own = self.parts.iter().filter(|(owner, _)| *owner == index);
        self.bases.contains(&index) || own.into_iter().any(|(_, part)| part.since.is_none())
    }

    /// How many parts of a member are missing. A member that has ended has stored parts at its end, if its
    /// state is kept.
    fn parts_missing(&self, index: usize, member: &Member) -> usize {
        let wanted = self.answer(index, member).map_or(0, |report| report.parts);
        let stored = match self.reports[index] {
            Some(_) => self
                .parts
                .iter()
                .filter(|(owner, _)| *owner == index)
                .count(),
            None => member.last_parts.len(),
        };
        wanted.saturating_sub(stored)
    }
}

impl Coordinator {
    pub(super) fn done(
        &mut self,
        barrier: u64,
        member: usize,
        report: Report,
        outputs: &mut Vec<Output>,
    ) {
        if let State::Flying(flight) = &mut self.state
            && flight.barrier == barrier
            && let Some(place) = flight.reports.get_mut(member)
        {
            place.get_or_insert(report);
            self.advance(outputs);
        }
    }

    pub(super) fn part_stored(
        &mut self,
        barrier: u64,
        member: usize,
        part: Part,
        outputs: &mut Vec<Output>,
    ) {
        // The parts at a member's end belong to the barrier that it would have answered next.
        if let Some(owner) = self.members.get_mut(member)
            && let Some((last_barrier, report)) = &owner.ended
            && report.parts > 0
            && barrier > *last_barrier
        {
            let mut known = owner.last_parts.iter();
            if known.all(|known| known.object != part.object) {
                owner.last_parts.push(part);
            }
            self.advance(outputs);
            return;
        }
        if let State::Flying(flight) = &mut self.state
            && flight.barrier == barrier
            && let Some(owner) = self.members.get(member)
        {
            let is_base = flight.bases.contains(&member);
            let since = if is_base { None } else { self.stored };
            let is_own = part.instance == owner.instance;
            let is_wanted = is_own && (part.barrier, part.since) == (barrier, since);
            // A base that the standby has made of the last checkpoint.
            let is_last = Some(part.barrier) == self.stored;
            #[cfg(test)]
            let is_last = is_last || self.takes_any_base;
            let is_behind = is_own && !is_base && part.since.is_none() && is_last;
            if !is_wanted && !is_behind {
                let reason = format!("'{}' is not the part that was requested", part.object);
                self.abort(reason, outputs);
                return;
            }
            let is_new = flight
                .parts
                .iter()
                .all(|(_, known)| known.object != part.object);
            if is_new {
                flight.parts.push((member, part));
            }
            self.advance(outputs);
        }
    }

    pub(super) fn member_ended(
        &mut self,
        member: usize,
        last_barrier: u64,
        report: Report,
        outputs: &mut Vec<Output>,
    ) {
        let Some(place) = self.members.get_mut(member) else {
            return;
        };
        place.ended.get_or_insert((last_barrier, report));
        self.advance(outputs);
        if self.all_ended() {
            match &self.state {
                // The last checkpoint contains all that this one would.
                State::Flying(flight) if !flight.storing => {
                    let barrier = flight.barrier;
                    self.state = State::Waiting;
                    outputs.push(Output::Abort {
                        barrier,
                        reason: None,
                    });
                    self.due_ns = Some(self.clock.ns());
                }
                State::Waiting => self.due_ns = Some(self.clock.ns()),
                _ => {}
            }
        }
    }

    /// Stores the manifest once every member has answered and every part is stored.
    pub(super) fn advance(&mut self, outputs: &mut Vec<Output>) {
        let now_ns = self.clock.ns();
        let State::Flying(flight) = &mut self.state else {
            return;
        };
        if flight.storing || !flight.missing(&self.members).is_empty() {
            return;
        }
        flight.aligned_ns.get_or_insert(now_ns);
        let mut members = self.members.iter().enumerate();
        if members.any(|(index, member)| flight.parts_missing(index, member) > 0) {
            return;
        }
        flight.storing = true;
        let flight = flight.clone();
        let manifest = self.manifest(&flight);
        outputs.push(Output::Store(Box::new(manifest)));
    }

    /// A member's parts, if this checkpoint is stored.
    fn parts_after(&self, flight: &Flight, index: usize) -> Vec<Part> {
        let member = &self.members[index];
        let ended_before = flight.reports[index].is_none();
        let fresh = flight.parts.iter();
        let fresh = fresh.filter(|(owner, _)| *owner == index);
        let mut fresh = fresh.map(|(_, part)| part.clone()).collect::<Vec<Part>>();
        fresh.sort_by(|a, b| (a.barrier, &a.object).cmp(&(b.barrier, &b.object)));
        if ended_before {
            member.last_parts.clone()
        } else if flight.has_base(index) {
            fresh
        } else {
            [member.parts.clone(), fresh].concat()
        }
    }

    fn manifest(&self, flight: &Flight) -> Manifest {
        let nodes = self.plan.nodes.iter().enumerate().map(|(at, identity)| {
            let members = self.members.iter().enumerate();
            let members = members.filter(|(_, member)| member.node == at);
            let mut node = Node {
                identity: identity.clone(),
                instances: 0,
                watermark: None,
                parts: Vec::new(),
                partitions: Vec::new(),
                pending: Vec::new(),
            };
            let mut watermarks = Vec::new();
            for (index, member) in members {
                let report = flight.answer(index, member).cloned().unwrap_or_default();
                node.instances += 1;
                watermarks.push(report.watermark);
                if identity.kind == NodeKind::Stateful {
                    node.parts.extend(self.parts_after(flight, index));
                }
                node.partitions.extend(report.partitions);
                let instance = member.instance;
                let pending = report.pending.into_iter();
                let pending = pending.map(|commit| Pending { instance, commit });
                node.pending.extend(pending);
            }
            // `None` if an instance has none yet: it is behind all others.
            node.watermark = watermarks.into_iter().min().flatten();
            let restored = self.plan.restored.iter().filter(|(node, _)| *node == at);
            carry(
                &mut node.partitions,
                restored.map(|(_, partition)| partition),
            );
            node
        });
        Manifest {
            barrier: flight.barrier,
            buckets: self.plan.buckets,
            finished: flight.is_final,
            nodes: nodes.collect(),
            ..Manifest::default()
        }
    }

    /// Records what the next checkpoint builds upon.
    pub(super) fn keep_chains(&mut self, flight: Flight) {
        for index in 0..self.members.len() {
            let parts = self.parts_after(&flight, index);
            let fresh = |part: &&Part| part.barrier == flight.barrier;
            let fresh_bytes = parts.iter().filter(fresh).map(|part| part.bytes).sum();
            let behind_bytes = match flight.has_base(index) {
                true => parts.iter().map(|part| part.bytes).sum::<u64>() - fresh_bytes,
                false => 0,
            };
            let count = parts.len();
            let member = &mut self.members[index];
            let memory = flight.reports[index].as_ref().map_or(0, |r| r.memory);
            let chain = &mut member.chain;
            if behind_bytes > 0 {
                *chain = Chain {
                    base_bytes: behind_bytes,
                    base_memory: memory,
                    increment_bytes: fresh_bytes,
                    last_bytes: fresh_bytes,
                    ..Chain::default()
                };
            } else if flight.bases.contains(&index) {
                *chain = Chain {
                    base_bytes: fresh_bytes,
                    base_memory: memory,
                    ..Chain::default()
                };
            } else if fresh_bytes > 0 {
                chain.increment_bytes += fresh_bytes;
                chain.last_bytes = fresh_bytes;
            }
            chain.parts = count;
            chain.memory = memory;
            member.parts = parts;
        }
    }
}

/// Partitions that nobody reads now keep the positions that they had.
fn carry<'a>(partitions: &mut Vec<Partition>, restored: impl Iterator<Item = &'a Partition>) {
    let names = partitions.iter().map(|partition| partition.name.clone());
    let names = names.collect::<std::collections::HashSet<String>>();
    let missing = restored.filter(|partition| !names.contains(&partition.name));
    partitions.extend(missing.cloned());
}
