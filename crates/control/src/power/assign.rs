//! Which core each instance gets, and which cores may be slowed.
//!
//! - Each instance has a core of its own, or none: then the system puts it where it likes.
//! - Instances that lead are packed into as few clock domains as possible, and replicas into others, so that
//!   whole domains can be slowed. A replica is pinned next to a fast instance's clock only where the
//!   configuration lists its core.
//! - The NUMA node of an instance comes first. Then come full domains, and then the core that it has.
//! - **A core is slowed only if all cores of its domain belong to slowed instances or to nobody**
//!   ([`Domains::obstacle`]). A core that another one names in its domain is in one domain with it, even if
//!   the system names it in one direction only.

use std::collections::{BTreeMap, BTreeSet};

use super::roles::Kind;
use super::{Core, Cpu, InstanceId, Obstacle};

/// The most cores: what the largest machines have, four times. Sets of domains are small, so this is 1 MB.
pub const CORES_MAX: usize = 8_192;

/// The cores that the configuration gives; an empty list gives none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// Cores for masters, never slowed.
    pub fast: BTreeSet<Cpu>,
    /// Cores for replicas.
    pub slow: BTreeSet<Cpu>,
}

/// Why lists and cores can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A core is in both lists.
    Both(Cpu),
    /// A listed core isn't there, or must not be used.
    Missing(Cpu),
    /// A core was given twice.
    Twice(Cpu),
    /// A core's lowest frequency is zero, or above its highest; or its steps don't ascend within them.
    Frequencies(Cpu),
    /// There are more cores than [`CORES_MAX`].
    TooMany,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Both(cpu) => write!(f, "cpu{cpu} is listed as fast and as slow"),
            Wrong::Missing(cpu) => write!(
                f,
                "cpu{cpu} is listed, but is not there or must not be used"
            ),
            Wrong::Twice(cpu) => write!(f, "cpu{cpu} was found twice"),
            Wrong::Frequencies(cpu) => write!(f, "the frequencies of cpu{cpu} are not in order"),
            Wrong::TooMany => write!(f, "there are more than {CORES_MAX} cores"),
        }
    }
}

impl std::error::Error for Wrong {}

/// An instance that needs a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The instance.
    pub instance: InstanceId,
    /// Whether it leads or follows.
    pub kind: Kind,
    /// The NUMA node of its memory, if that is known.
    pub node: Option<u32>,
    /// The core that it has.
    pub cpu: Option<Cpu>,
}

/// The cores, their clock domains and the lists.
#[derive(Debug, Clone)]
pub struct Domains {
    cores: BTreeMap<Cpu, Core>,
    /// The lowest core of each core's domain, which names it.
    domain: BTreeMap<Cpu, Cpu>,
    lists: Lists,
}

impl Domains {
    /// Checks the cores and the lists.
    pub fn new(cores: Vec<Core>, lists: Lists) -> Result<Domains, Wrong> {
        if cores.len() > CORES_MAX {
            return Err(Wrong::TooMany);
        }
        let mut found = BTreeMap::new();
        for core in cores {
            let cpu = core.cpu;
            if let Some((low, high)) = core.khz {
                let ascend = core.steps_khz.windows(2).all(|pair| pair[0] < pair[1]);
                let within = core.steps_khz.iter().all(|khz| (low..=high).contains(khz));
                if low == 0 || low > high || !ascend || !within {
                    return Err(Wrong::Frequencies(cpu));
                }
            }
            if found.insert(cpu, core).is_some() {
                return Err(Wrong::Twice(cpu));
            }
        }
        if let Some(cpu) = lists.fast.intersection(&lists.slow).next() {
            return Err(Wrong::Both(*cpu));
        }
        let mut listed = lists.fast.union(&lists.slow);
        if let Some(cpu) = listed.find(|cpu| !found.contains_key(cpu)) {
            return Err(Wrong::Missing(*cpu));
        }
        Ok(Domains {
            domain: join(&found),
            cores: found,
            lists,
        })
    }

    /// All cores.
    pub fn cores(&self) -> impl Iterator<Item = &Core> {
        self.cores.values()
    }

    /// A core.
    pub fn core(&self, cpu: Cpu) -> Option<&Core> {
        self.cores.get(&cpu)
    }

    /// The domain of a core, named by its lowest core.
    pub fn domain(&self, cpu: Cpu) -> Cpu {
        self.domain.get(&cpu).copied().unwrap_or(cpu)
    }

    /// The highest frequency of any core.
    pub fn top_khz(&self) -> Option<u32> {
        let cores = self.cores.values();
        cores.filter_map(|core| core.khz.map(|khz| khz.1)).max()
    }

    /// Gives cores to instances, by the rules of this module. Without a list, and without a core whose
    /// frequency can be set, nobody gets one: that would slow down, and save nothing.
    pub fn assign(&self, instances: &[Needs]) -> BTreeMap<InstanceId, Cpu> {
        let mut plan = Plan {
            domains: self,
            cores: BTreeMap::new(),
            taken: BTreeSet::new(),
            fast: self
                .lists
                .fast
                .iter()
                .map(|cpu| self.domain(*cpu))
                .collect(),
            slow: BTreeSet::new(),
        };
        let is_listed = !self.lists.fast.is_empty() || !self.lists.slow.is_empty();
        if !is_listed && self.top_khz().is_none() {
            return plan.cores;
        }
        for kind in [Kind::Leads, Kind::Follows] {
            for needs in instances.iter().filter(|needs| needs.kind == kind) {
                plan.give(needs);
            }
        }
        plan.cores
    }

    /// Why a core can't be slowed, if it can't. `owners` are all instances with a core, and whether each has
    /// to be fast; `roams` is an instance without a core that has to be fast.
    pub fn obstacle(
        &self,
        cpu: Cpu,
        owners: &[(InstanceId, Cpu, bool)],
        roams: Option<InstanceId>,
    ) -> Option<Obstacle> {
        if self.core(cpu).is_none_or(|core| core.khz.is_none()) {
            return Some(Obstacle::NotSettable { cpu });
        }
        if let Some(fast) = roams {
            return Some(Obstacle::Roams { fast });
        }
        let shares = |other: Cpu| self.domain(other) == self.domain(cpu);
        let mut fast = owners.iter().filter(|owner| owner.2);
        if let Some(&(fast, with, _)) = fast.find(|owner| shares(owner.1)) {
            return Some(Obstacle::SharesClock { cpu, with, fast });
        }
        let with = self.lists.fast.iter().copied().find(|other| shares(*other));
        with.map(|with| Obstacle::ListedFast { cpu, with })
    }
}

/// The domain of each core: whoever names another one is in one domain with it.
fn join(cores: &BTreeMap<Cpu, Core>) -> BTreeMap<Cpu, Cpu> {
    let mut domain = BTreeMap::new();
    for core in cores.values() {
        for other in &core.domain {
            domain.entry(*other).or_insert(*other);
        }
        domain.insert(core.cpu, core.cpu);
    }
    // Each round passes the lowest name on; there are at most as many as cores.
    loop {
        let mut is_changed = false;
        for core in cores.values() {
            let members = core.domain.iter().chain([&core.cpu]);
            let Some(lowest) = members.clone().map(|cpu| domain[cpu]).min() else {
                continue;
            };
            for cpu in members {
                is_changed |= domain.insert(*cpu, lowest) != Some(lowest);
            }
        }
        if !is_changed {
            return domain;
        }
    }
}

struct Plan<'a> {
    domains: &'a Domains,
    cores: BTreeMap<InstanceId, Cpu>,
    taken: BTreeSet<Cpu>,
    /// Domains in which a fast instance is or may be, and those with a replica.
    fast: BTreeSet<Cpu>,
    slow: BTreeSet<Cpu>,
}

impl Plan<'_> {
    fn give(&mut self, needs: &Needs) {
        let cores = self.domains.cores.values();
        let cores = cores.filter(|core| self.may_have(needs, core));
        let Some(core) = cores.min_by_key(|core| self.order(needs, core)) else {
            return;
        };
        let domain = self.domains.domain(core.cpu);
        let domains = match needs.kind {
            Kind::Leads => &mut self.fast,
            Kind::Follows => &mut self.slow,
        };
        domains.insert(domain);
        self.taken.insert(core.cpu);
        self.cores.insert(needs.instance, core.cpu);
    }

    fn may_have(&self, needs: &Needs, core: &Core) -> bool {
        let Lists { fast, slow } = &self.domains.lists;
        let is_listed = match needs.kind {
            Kind::Leads if !fast.is_empty() => fast.contains(&core.cpu),
            Kind::Leads => !slow.contains(&core.cpu),
            Kind::Follows if !slow.is_empty() => slow.contains(&core.cpu),
            Kind::Follows => {
                let can_be_slowed = !self.fast.contains(&self.domains.domain(core.cpu));
                core.khz.is_some() && can_be_slowed
            }
        };
        is_listed && !self.taken.contains(&core.cpu)
    }

    /// What comes first is given first.
    fn order(&self, needs: &Needs, core: &Core) -> (bool, bool, bool, bool, bool, Cpu) {
        let domain = self.domains.domain(core.cpu);
        let (alike, other) = match needs.kind {
            Kind::Leads => (&self.fast, &self.slow),
            Kind::Follows => (&self.slow, &self.fast),
        };
        let has_domain = needs.cpu.map(|cpu| self.domains.domain(cpu)) == Some(domain);
        (
            other.contains(&domain),
            needs.node.is_some_and(|node| node != core.node),
            !alike.contains(&domain),
            !has_domain,
            needs.cpu != Some(core.cpu),
            core.cpu,
        )
    }
}

#[cfg(test)]
mod tests;
