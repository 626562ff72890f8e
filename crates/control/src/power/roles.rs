//! Which instances may be slow: a state machine for each.
//!
//! ```text
//! Unknown ─► Fast ◄──── master │ link not up │ busy │ master lost │ promoted │ can't be asked
//!              │ settled: a replica, its link up, its lag below a quarter of what is allowed, for `settle`
//!              ▼
//!            Slow ──lag too long twice, or grown three times──► Boost ──for a while, lag short──► Slow
//! ```
//!
//! - **Up before it serves.** Whoever may be promoted is fast before that can happen: when a master ends, or
//!   can't be asked, all that followed it are raised by the same call, whatever they say of themselves.
//! - **Raising is never delayed**; the way down is. The time that a role must last doubles with each change
//!   of the last ten minutes, up to ten minutes: a role that flaps costs few changes.
//! - **Whoever can't be asked is fast.**

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{InstanceId, Reason, ReplicaLink, Role, Seen};

/// For how long a change of role is remembered, and the longest time that a role must last before a core is
/// slowed, in nanoseconds: ten minutes.
pub const REMEMBERED_NS: u64 = 600_000_000_000;

/// Changes that are remembered of an instance. The shortest time that makes sense, 1 ms, doubled 20 times is
/// 17 minutes, which is above [`REMEMBERED_NS`].
const CHANGES_MAX: usize = 20;

/// A lag counts as short below the allowed one divided by this.
pub const SHORT: u64 = 4;

/// How often in a row a lag is too long before the instance is boosted. One may be a stall of the host.
const LATE_MAX: u32 = 2;

/// How often in a row a lag has grown, beyond what a beat explains, before the instance is boosted.
const GROWN_MAX: u32 = 3;

/// How long a boost lasts at least, in nanoseconds.
pub const BOOST_NS: u64 = 10_000_000_000;

/// How often in a row the lag of a slow instance may be unknown.
const UNMEASURED_MAX: u32 = 3;

/// What an instance may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// It was not asked, or could not be asked; as fast as can be.
    #[default]
    Unknown,
    /// As fast as can be.
    Fast,
    /// As slow as its load allows.
    Slow,
    /// As fast as can be, until it has caught up.
    Boost,
}

/// What cores are given by; it changes much less often than the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A master, or a replica that was one and isn't settled, or nobody knows.
    Leads,
    /// A replica.
    Follows,
}

/// How far an instance is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// The lag, if it could be measured, in nanoseconds.
    pub lag_ns: Option<u64>,
    /// What its beat explains of it.
    pub explained_ns: u64,
    /// What is allowed.
    pub allowed_ns: u64,
}

/// The roles of all instances.
#[derive(Debug, Clone)]
pub struct Roles {
    settle_ns: u64,
    ones: BTreeMap<InstanceId, One>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Never,
    Master,
    Replica { master: Option<InstanceId> },
}

#[derive(Debug, Clone)]
struct One {
    phase: Phase,
    reason: Reason,
    kind: Kind,
    /// The last role that it has said.
    last: Last,
    /// Since when it follows, with a short lag.
    calm_since_ns: Option<u64>,
    /// When its role has changed, the oldest first.
    changes: VecDeque<u64>,
    boosted_until_ns: u64,
    late: u32,
    grown: u32,
    unmeasured: u32,
    lag_ns: u64,
}

impl Roles {
    /// No instance is known. A role must last for `settle_ns` before a core is slowed.
    pub fn new(settle_ns: u64) -> Roles {
        Roles {
            settle_ns,
            ones: BTreeMap::new(),
        }
    }

    /// Takes what instances said. `now_ns` never goes back.
    pub fn tick(
        &mut self,
        now_ns: u64,
        seen: &BTreeMap<InstanceId, Seen>,
        lags: &BTreeMap<InstanceId, Lag>,
    ) {
        let leads = |id: &InstanceId| seen.get(id).is_some_and(|seen| seen.role == Role::Master);
        let lost = self.ones.iter();
        let lost = lost.filter(|(id, one)| one.last == Last::Master && !leads(id));
        let lost = lost.map(|(id, _)| *id).collect::<BTreeSet<InstanceId>>();
        self.ones.retain(|id, _| seen.contains_key(id));
        let answers = |id: InstanceId| match seen.get(&id).map(|seen| seen.role) {
            Some(Role::Master | Role::Replica { .. }) => !lost.contains(&id),
            Some(Role::Unknown) | None => false,
        };
        for (id, seen) in seen {
            let one = self.ones.entry(*id).or_insert_with(One::new);
            // What it followed until now counts as well as what it says by now.
            let now = match seen.role {
                Role::Replica { master, .. } => master,
                Role::Unknown | Role::Master => None,
            };
            let before = one.master().filter(|master| lost.contains(master));
            let is_lost = before.is_some() || now.is_some_and(|master| !answers(master));
            let lag = lags.get(id).copied();
            one.look(now_ns, seen, lag, is_lost, self.settle_ns);
        }
    }

    /// A master is lost: raises all that follow it, and returns them.
    pub fn master_lost(&mut self, master: InstanceId, now_ns: u64) -> Vec<InstanceId> {
        let mut raised = Vec::new();
        for (id, one) in &mut self.ones {
            if one.master() == Some(master) {
                one.raise(now_ns, Reason::MasterLost);
                raised.push(*id);
            }
        }
        raised
    }

    /// The caller is about to promote an instance: it is raised. Whether there is such an instance.
    pub fn promote(&mut self, instance: InstanceId, now_ns: u64) -> bool {
        let Some(one) = self.ones.get_mut(&instance) else {
            return false;
        };
        one.raise(now_ns, Reason::Promoted);
        true
    }

    /// What an instance may be, and why.
    pub fn phase(&self, instance: InstanceId) -> (Phase, Reason) {
        let one = self.ones.get(&instance);
        one.map_or((Phase::Unknown, Reason::Unknown), |one| {
            (one.phase, one.reason)
        })
    }

    /// What cores are given by.
    pub fn kind(&self, instance: InstanceId) -> Kind {
        let one = self.ones.get(&instance);
        one.map_or(Kind::Leads, |one| one.kind)
    }

    /// The master that an instance has followed last, as far as that runs on this host.
    pub fn master(&self, instance: InstanceId) -> Option<InstanceId> {
        self.ones.get(&instance).and_then(One::master)
    }
}

impl One {
    fn new() -> One {
        One {
            phase: Phase::Unknown,
            reason: Reason::Unknown,
            kind: Kind::Leads,
            last: Last::Never,
            calm_since_ns: None,
            changes: VecDeque::new(),
            boosted_until_ns: 0,
            late: 0,
            grown: 0,
            unmeasured: 0,
            lag_ns: 0,
        }
    }

    fn master(&self) -> Option<InstanceId> {
        match self.last {
            Last::Replica { master } => master,
            Last::Never | Last::Master => None,
        }
    }

    fn look(&mut self, now_ns: u64, seen: &Seen, lag: Option<Lag>, is_lost: bool, settle_ns: u64) {
        match seen.role {
            Role::Unknown => {
                self.raise(now_ns, Reason::Unknown);
                self.phase = Phase::Unknown;
            }
            Role::Master => {
                self.kind = Kind::Leads;
                self.last = Last::Master;
                self.raise(now_ns, Reason::Master);
            }
            Role::Replica { master, link, .. } => {
                let before = self.last;
                self.last = Last::Replica { master };
                if before == Last::Never {
                    self.kind = Kind::Follows;
                }
                let is_other = before != Last::Never && before != self.last;
                match (link, seen.busy) {
                    _ if is_lost => self.raise(now_ns, Reason::MasterLost),
                    (ReplicaLink::Down | ReplicaLink::Syncing, _) => {
                        self.raise(now_ns, Reason::NotFollowing);
                    }
                    (ReplicaLink::Up, _) if is_other => self.raise(now_ns, Reason::Settling),
                    (ReplicaLink::Up, Some(busy)) => {
                        // What an instance does now and then is no change of its role.
                        self.hurry(Reason::Busy(busy));
                    }
                    (ReplicaLink::Up, None) => self.follow(now_ns, lag, settle_ns),
                }
            }
        }
    }

    /// Makes it fast, for its role has changed.
    fn raise(&mut self, now_ns: u64, reason: Reason) {
        if self.calm_since_ns.is_some() {
            if self.changes.len() == CHANGES_MAX {
                self.changes.pop_front();
            }
            self.changes.push_back(now_ns);
        }
        self.hurry(reason);
    }

    /// Makes it fast, for other reasons.
    fn hurry(&mut self, reason: Reason) {
        self.phase = Phase::Fast;
        self.reason = reason;
        self.calm_since_ns = None;
    }

    /// How long its role must last.
    fn settle_ns(&mut self, now_ns: u64, settle_ns: u64) -> u64 {
        self.changes
            .retain(|at_ns| now_ns.saturating_sub(*at_ns) < REMEMBERED_NS);
        let doubled = settle_ns.saturating_mul(1 << self.changes.len());
        doubled.min(REMEMBERED_NS.max(settle_ns))
    }

    /// It follows, with its link up.
    fn follow(&mut self, now_ns: u64, lag: Option<Lag>, settle_ns: u64) {
        let lag_ns = lag.and_then(|lag| lag.lag_ns);
        let (Some(lag), Some(lag_ns)) = (lag, lag_ns) else {
            self.unmeasured = self.unmeasured.saturating_add(1);
            match self.phase {
                Phase::Unknown | Phase::Fast => self.hurry(Reason::NotMeasured),
                Phase::Slow | Phase::Boost if self.unmeasured > UNMEASURED_MAX => {
                    self.hurry(Reason::NotMeasured);
                }
                Phase::Slow | Phase::Boost => {}
            }
            return;
        };
        self.unmeasured = 0;
        let is_short = lag_ns < lag.allowed_ns.div_ceil(SHORT);
        let before_ns = std::mem::replace(&mut self.lag_ns, lag_ns);
        match self.phase {
            Phase::Unknown | Phase::Fast => {
                self.phase = Phase::Fast;
                self.reason = Reason::Settling;
                if !is_short {
                    self.calm_since_ns = None;
                    return;
                }
                let since_ns = *self.calm_since_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(since_ns) >= self.settle_ns(now_ns, settle_ns) {
                    self.slow();
                }
            }
            Phase::Slow => {
                let is_late = lag_ns > lag.allowed_ns;
                self.late = if is_late { self.late + 1 } else { 0 };
                let explained_ns = lag.explained_ns.max(lag.allowed_ns / SHORT);
                let has_grown = lag_ns > before_ns && lag_ns > explained_ns;
                self.grown = if has_grown { self.grown + 1 } else { 0 };
                if self.late >= LATE_MAX || self.grown >= GROWN_MAX {
                    self.phase = Phase::Boost;
                    self.reason = Reason::Lag;
                    self.boosted_until_ns = now_ns.saturating_add(BOOST_NS);
                }
            }
            Phase::Boost => {
                if now_ns >= self.boosted_until_ns && is_short {
                    self.slow();
                }
            }
        }
    }

    fn slow(&mut self) {
        self.phase = Phase::Slow;
        self.reason = Reason::Follows;
        self.kind = Kind::Follows;
        self.late = 0;
        self.grown = 0;
    }
}

#[cfg(test)]
mod tests;
