//! All decisions together: from what was found out to what is to be set.
//!
//! The caller observes about ten times a second while there is lag or a role has changed, and less often
//! otherwise, and calls [`Manager::tick`]. When the connection to a master ends, it calls
//! [`Manager::master_lost`] at once: between two ticks nobody else raises.
//!
//! - **Orders are given for changes only**, those that make faster first.
//! - **One frequency for a clock domain**: the highest that any instance in it needs. If one of them has to
//!   be fast, all are.
//! - **Time never goes back** inside: a clock that jumps back stands still, and one that jumps ahead, or a
//!   machine that slept, is ahead by ten seconds at most (`clock`).
//! - Memory: what is kept of an instance is bounded, an instance that is not observed is forgotten, and the
//!   instances are [`INSTANCES_MAX`].

mod clock;
mod deciding;

use std::collections::BTreeMap;

use super::assign::{Domains, Lists, Needs, Wrong};
use super::beat::{Allowed, Beat};
use super::costs::{Costs, Counters, Law, Under};
use super::lag::Sent;
use super::neighbors::Neighbors;
use super::roles::{Lag, Phase, Roles, SHORT};
use super::speed::{self, Floor, Need, Pace, Speed, Wish};
use super::{Core, Cpu, InstanceId, Limits, Observation, Order, Reason, Role, Seen};

use clock::Clock;

/// The most instances that are managed; of more, those with the lowest numbers. Each takes about 2 KB, so
/// this is 8 MB.
pub const INSTANCES_MAX: usize = 4_096;

/// The frequency that counts where none can be set or measured, in kHz: only ratios of it matter then.
const ANY_KHZ: u32 = 1_000_000;

/// Decides for all instances of a host.
#[derive(Debug, Clone)]
pub struct Manager {
    limits: Limits,
    domains: Domains,
    /// What the configuration lists, cores that are not there among them.
    lists: Lists,
    steps: BTreeMap<Cpu, Vec<u32>>,
    clock: Clock,
    roles: Roles,
    ones: BTreeMap<InstanceId, One>,
    paces: BTreeMap<Cpu, Pace>,
    /// What was decided about each instance at the last tick, before its clock domain is looked at.
    wants: BTreeMap<InstanceId, Want>,
    /// Whom cores were given to at last: as long as that is the same, so is what they are given.
    needs: Vec<Needs>,
    neighbors: Neighbors,
    oversleep_ns: u64,
}

/// What is kept of an instance.
#[derive(Debug, Clone, Default)]
struct One {
    costs: Costs,
    sent: Sent,
    lag_ns: Option<u64>,
    beat: Beat,
    floor: Floor,
    node: Option<u32>,
    cpu: Option<Cpu>,
    order: Option<Order>,
    is_boosted: bool,
    /// Whether it was a master when it said last what it is.
    is_master: bool,
}

/// What an instance wants of its core and its connection.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Want {
    /// Nothing if it has to be fast.
    wish: Option<Wish>,
    beat_ns: Option<u64>,
    reason: Reason,
}

impl Manager {
    /// A manager that has seen nothing yet. `cores` are those that may be used, `lists` what the
    /// configuration says about them.
    pub fn new(limits: Limits, cores: Vec<Core>, lists: Lists) -> Result<Manager, Wrong> {
        let domains = Domains::new(cores, lists.clone())?;
        let steps = domains.cores().map(|core| (core.cpu, speed::steps(core)));
        Ok(Manager {
            lists,
            steps: steps.collect(),
            roles: Roles::new(limits.settle_ns),
            domains,
            limits,
            clock: Clock::default(),
            ones: BTreeMap::new(),
            paces: BTreeMap::new(),
            wants: BTreeMap::new(),
            needs: Vec::new(),
            neighbors: Neighbors::default(),
            oversleep_ns: 0,
        })
    }

    /// Cores have come or gone, and none is slowed by now: whoever is to be slow is slowed anew. Cores that
    /// the configuration lists may be missing.
    pub fn set_cores(&mut self, cores: Vec<Core>, now_ns: u64) -> Result<Vec<Order>, Wrong> {
        let is_there = |cpu: &&Cpu| cores.iter().any(|core| core.cpu == **cpu);
        let lists = Lists {
            fast: self.lists.fast.iter().filter(is_there).copied().collect(),
            slow: self.lists.slow.iter().filter(is_there).copied().collect(),
        };
        let domains = Domains::new(cores, lists)?;
        let steps = domains.cores().map(|core| (core.cpu, speed::steps(core)));
        self.steps = steps.collect();
        self.domains = domains;
        self.paces.clear();
        self.neighbors = Neighbors::default();
        self.needs.clear();
        for one in self.ones.values_mut() {
            one.cpu = None;
        }
        self.give_cores();
        let now_ns = self.clock.at(now_ns);
        // Nobody is slowed at once.
        for want in self.wants.values_mut() {
            want.wish = want.wish.map(|_| Wish::HIGHEST);
        }
        Ok(self.decide(now_ns))
    }

    /// The NUMA node on which most of an instance's memory lies, of an instance that was seen; it is
    /// considered from the next tick on.
    pub fn is_at(&mut self, instance: InstanceId, node: u32) {
        if let Some(one) = self.ones.get_mut(&instance) {
            one.node = Some(node);
        }
    }

    /// What the master of an instance had sent at a time before the next tick: if the instance has not
    /// applied that by then, it is behind by the time in between at least, whatever the rate is.
    pub fn sent(&mut self, instance: InstanceId, at_ns: u64, offset: u64) {
        let at_ns = self.clock.at(at_ns);
        let allowed_ns = self.limits.guard_ns();
        if let Some(one) = self.ones.get_mut(&instance) {
            one.sent.note(at_ns, offset, allowed_ns);
        }
    }

    /// Takes what was found out, and returns what is to be changed.
    pub fn tick(&mut self, observation: &Observation) -> Vec<Order> {
        let now_ns = self.clock.at(observation.now_ns);
        self.oversleep_ns = observation.oversleep_p99_ns;
        let seen = by_number(&observation.instances);
        let gone = self.ones.keys().filter(|id| !seen.contains_key(id));
        let gone = gone.copied().collect::<Vec<InstanceId>>();
        let gone = gone.into_iter().filter_map(|id| self.forget(id));
        let mut orders = gone.collect::<Vec<Order>>();
        for (id, seen) in &seen {
            self.measure(now_ns, *id, seen);
        }
        let is_master = |id| seen.get(&id).is_some_and(|seen| seen.role == Role::Master);
        self.neighbors.keep(is_master);
        for (id, seen) in seen.iter().filter(|(id, _)| is_master(**id)) {
            self.neighbors.seen(now_ns, *id, seen.mean_khz, seen.cpu_ns);
        }
        self.neighbors.compare(now_ns);
        let lags = seen.keys().map(|id| (*id, self.lag(*id)));
        let lags = lags.collect::<BTreeMap<InstanceId, Lag>>();
        self.roles.tick(now_ns, &seen, &lags);
        self.give_cores();
        for id in seen.keys() {
            let want = self.want(now_ns, *id);
            self.wants.insert(*id, want);
        }
        orders.extend(self.decide(now_ns));
        orders
    }

    /// A master is lost, as the end of its connection shows before any answer does: raises all that follow
    /// it.
    pub fn master_lost(&mut self, instance: InstanceId, now_ns: u64) -> Vec<Order> {
        let now_ns = self.clock.at(now_ns);
        for id in self.roles.master_lost(instance, now_ns) {
            self.raise(now_ns, id);
        }
        self.decide(now_ns)
    }

    /// The caller is about to promote an instance: raises it.
    pub fn promote(&mut self, instance: InstanceId, now_ns: u64) -> Vec<Order> {
        let now_ns = self.clock.at(now_ns);
        if self.roles.promote(instance, now_ns) {
            self.raise(now_ns, instance);
        }
        self.decide(now_ns)
    }

    /// The present setting of an instance, with the newest reason.
    pub fn setting(&self, instance: InstanceId) -> Option<&Order> {
        self.ones.get(&instance).and_then(|one| one.order.as_ref())
    }

    /// How far an instance is behind, if it could be measured at the last tick, in nanoseconds.
    pub fn lag_ns(&self, instance: InstanceId) -> Option<u64> {
        self.ones.get(&instance).and_then(|one| one.lag_ns)
    }

    /// What an instance's work costs at the highest frequency, as a share of what it costs at `khz`, if that
    /// was learned: for `energy::Span::cost_at_top`.
    pub fn cost_at_top(&self, instance: InstanceId, khz: u32) -> Option<f64> {
        let one = self.ones.get(&instance)?;
        let law = one.costs.per_byte(is_beaten(one))?;
        let share = law.at(self.top_khz(one)) / law.at(khz);
        Some(share).filter(|share| share.is_finite())
    }

    fn forget(&mut self, id: InstanceId) -> Option<Order> {
        self.wants.remove(&id);
        let order = self.ones.remove(&id).and_then(|one| one.order)?;
        let is_set = order.cpu.is_some() || order.khz.is_some() || order.beat_ns.is_some();
        is_set.then_some(Order {
            cpu: None,
            khz: None,
            beat_ns: None,
            reason: Reason::Gone,
            instance: id,
        })
    }

    fn raise(&mut self, now_ns: u64, id: InstanceId) {
        if let Some(one) = self.ones.get_mut(&id) {
            one.beat.stop(now_ns);
        }
        let want = fast(self.roles.phase(id).1);
        self.wants.insert(id, want);
    }

    /// Learns costs and lag of what was seen of an instance.
    fn measure(&mut self, now_ns: u64, id: InstanceId, seen: &Seen) {
        let allowed_ns = self.limits.guard_ns();
        let mut one = self.ones.remove(&id).unwrap_or_default();
        let is_master = seen.role == Role::Master;
        if seen.role != Role::Unknown && is_master != one.is_master {
            // A byte costs a master more than its replica.
            one.costs = Costs::default();
            one.is_master = is_master;
        }
        let sent = match seen.role {
            Role::Replica { master_offset, .. } => master_offset,
            Role::Master | Role::Unknown => None,
        };
        one.lag_ns = match seen.role {
            Role::Replica { .. } => sent.and_then(|sent| {
                let sent = sent.max(seen.offset);
                one.sent.lag_ns(now_ns, sent, seen.offset, allowed_ns)
            }),
            Role::Master => {
                one.sent.forget();
                None
            }
            Role::Unknown => None,
        };
        if seen.role != Role::Unknown {
            let counters = Counters {
                cpu_ns: seen.cpu_ns,
                bytes: seen.offset,
                reads: match seen.role {
                    Role::Replica { .. } => seen.reads,
                    // A master's commands are what its bytes come from, above all.
                    Role::Master | Role::Unknown => 0,
                },
                arrived: sent.unwrap_or(seen.offset).max(seen.offset),
            };
            let under = Under {
                khz: seen.mean_khz.unwrap_or_else(|| self.set_khz(&one)).max(1),
                is_beaten: is_beaten(&one),
            };
            one.costs.take(now_ns, counters, under);
        }
        self.ones.insert(id, one);
    }

    fn lag(&self, id: InstanceId) -> Lag {
        let allowed_ns = self.limits.guard_ns();
        let one = self.ones.get(&id);
        one.map_or(
            Lag {
                lag_ns: None,
                explained_ns: 0,
                allowed_ns,
            },
            |one| Lag {
                lag_ns: one.lag_ns,
                explained_ns: one.beat.explained_ns(self.busy(one), self.oversleep_ns),
                allowed_ns,
            },
        )
    }

    fn give_cores(&mut self) {
        let needs = self.ones.iter().map(|(id, one)| Needs {
            instance: *id,
            kind: self.roles.kind(*id),
            node: one.node,
            cpu: one.cpu,
        });
        let needs = needs.collect::<Vec<Needs>>();
        if needs == self.needs {
            return;
        }
        let cores = self.domains.assign(&needs);
        self.needs = needs;
        for (id, one) in &mut self.ones {
            one.cpu = cores.get(id).copied();
        }
    }

    /// What an instance wants, by its role, its load and its lag.
    fn want(&mut self, now_ns: u64, id: InstanceId) -> Want {
        let (phase, reason) = self.roles.phase(id);
        let master = self.roles.master(id);
        let master = master.and_then(|master| self.ones.get(&master));
        let master_byte = master.and_then(|one| one.costs.per_byte(false));
        let mut one = self.ones.remove(&id).unwrap_or_default();
        let was_boosted = std::mem::replace(&mut one.is_boosted, phase == Phase::Boost);
        let want = match phase {
            Phase::Unknown | Phase::Fast | Phase::Boost => {
                let slow_khz = one.order.and_then(|order| order.khz);
                if let (Phase::Boost, false, Some(khz)) = (phase, was_boosted, slow_khz) {
                    one.floor.raise(now_ns, khz);
                }
                // A longer lag has other causes than the way from the master.
                if one
                    .lag_ns
                    .is_some_and(|lag_ns| lag_ns < self.limits.guard_ns() / SHORT)
                {
                    self.learn_lag(now_ns, &mut one);
                }
                one.beat.stop(now_ns);
                fast(reason)
            }
            Phase::Slow => self.want_slow(now_ns, &mut one, master_byte),
        };
        self.ones.insert(id, one);
        want
    }

    fn want_slow(&self, now_ns: u64, one: &mut One, master_byte: Option<Law>) -> Want {
        self.learn_lag(now_ns, one);
        let beat_ns = match self.limits.lag_ns {
            Some(_) => one.beat.next(now_ns, &self.allowed(one)),
            None => None,
        };
        let steps = one.cpu.map_or(&[][..], |cpu| self.steps(cpu));
        // Costs of the beat that is in force are known; those of a new one are learned under it.
        let need = self.need(one, master_byte);
        let floor_khz = one.floor.khz(now_ns, self.limits.floor_khz);
        let wish = need.map_or(Wish::HIGHEST, |need| need.wish(steps, floor_khz));
        let reason = match (need, wish.needed) {
            // What keeps its core from being slowed is another reason.
            _ if steps.is_empty() => Reason::Follows,
            (None, _) => Reason::NotMeasured,
            (Some(_), Speed::Highest) => Reason::NeedsSpeed,
            (Some(_), Speed::Khz(_)) => Reason::Follows,
        };
        Want {
            wish: Some(wish),
            beat_ns,
            reason,
        }
    }

    fn need(&self, one: &One, master_byte: Option<Law>) -> Option<Need> {
        let policy = self.limits.policy;
        let most_bytes = one.costs.most_bytes();
        let bytes = speed::bytes(policy, master_byte, self.top_khz(one), most_bytes)?;
        let per_byte = one.costs.per_byte(is_beaten(one));
        // Without any byte there is no cost, and without a cost no answer but to the load that there is.
        let per_byte = per_byte.or((bytes == 0.0).then(Law::default))?;
        Some(Need {
            per_byte,
            per_read: one.costs.per_read(),
            idle: one.costs.idle(),
            bytes,
            reads: one.costs.most_reads() * speed::LOAD_ROOM,
            read_delay_ns: self.limits.read_delay_ns,
        })
    }

    fn learn_lag(&self, now_ns: u64, one: &mut One) {
        if let Some(lag_ns) = one.lag_ns {
            let allowed = self.allowed(one);
            one.beat.learn(now_ns, lag_ns, &allowed);
        }
    }

    fn allowed(&self, one: &One) -> Allowed {
        Allowed {
            lag_ns: self.limits.guard_ns(),
            busy: self.busy(one),
            oversleep_ns: self.oversleep_ns,
        }
    }

    /// The busy share of the busiest second of the last minute, at the frequency that is set.
    fn busy(&self, one: &One) -> f64 {
        let need = Need {
            per_byte: one.costs.per_byte(is_beaten(one)).unwrap_or_default(),
            per_read: one.costs.per_read(),
            idle: one.costs.idle(),
            bytes: one.costs.most_bytes(),
            reads: one.costs.most_reads(),
            read_delay_ns: None,
        };
        need.busy(self.set_khz(one)).min(1.0)
    }

    /// The frequencies that a core can be set to.
    fn steps(&self, cpu: Cpu) -> &[u32] {
        self.steps.get(&cpu).map_or(&[], Vec::as_slice)
    }

    fn top_khz(&self, one: &One) -> u32 {
        let core = one.cpu.and_then(|cpu| self.domains.core(cpu));
        let khz = core.and_then(|core| core.khz).map(|khz| khz.1);
        khz.or(self.domains.top_khz()).unwrap_or(ANY_KHZ)
    }

    fn set_khz(&self, one: &One) -> u32 {
        let khz = one.order.and_then(|order| order.khz);
        khz.unwrap_or_else(|| self.top_khz(one))
    }
}

fn fast(reason: Reason) -> Want {
    Want {
        wish: None,
        beat_ns: None,
        reason,
    }
}

fn is_beaten(one: &One) -> bool {
    one.order.is_some_and(|order| order.beat_ns.is_some())
}

/// Instances by their number. Of one that was given twice nobody knows what it is.
fn by_number(instances: &[Seen]) -> BTreeMap<InstanceId, Seen> {
    let mut seen = BTreeMap::<InstanceId, Seen>::new();
    for one in instances {
        let twice = seen.insert(one.instance, one.clone()).is_some();
        if let (true, Some(one)) = (twice, seen.get_mut(&one.instance)) {
            one.role = Role::Unknown;
        }
        if seen.len() > INSTANCES_MAX {
            seen.pop_last();
        }
    }
    seen
}

#[cfg(test)]
mod tests;
