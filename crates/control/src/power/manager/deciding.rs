//! From what instances want to what their cores are set to.

use std::collections::BTreeMap;

use super::{Manager, fast};
use crate::power::speed::{Pace, Wish};
use crate::power::{Cpu, InstanceId, Obstacle, Order, Reason};

impl Manager {
    /// From what instances want to what their cores are set to, and to orders for what has changed.
    pub(super) fn decide(&mut self, now_ns: u64) -> Vec<Order> {
        let is_fast = |id: &InstanceId| self.wants.get(id).is_none_or(|want| want.wish.is_none());
        let owners = self.ones.iter();
        let owners = owners.filter_map(|(id, one)| Some((*id, one.cpu?, is_fast(id))));
        let owners = owners.collect::<Vec<(InstanceId, Cpu, bool)>>();
        let roams = self.ones.iter().filter(|(_, one)| one.cpu.is_none());
        let roams = roams.map(|(id, _)| *id).find(is_fast);
        let obstacles = owners.iter().filter_map(|(id, cpu, _)| {
            let obstacle = self.domains.obstacle(*cpu, &owners, roams);
            Some((*id, obstacle.or_else(|| self.disturbed(*cpu))?))
        });
        let obstacles = obstacles.collect::<BTreeMap<InstanceId, Obstacle>>();
        self.set_domains(now_ns, &owners, &obstacles);

        let mut orders = Vec::new();
        for (id, one) in &mut self.ones {
            let want = self.wants.get(id).copied();
            let want = want.unwrap_or_else(|| fast(Reason::Unknown));
            let pace = one.cpu.map(|cpu| self.domains.domain(cpu));
            let pace = pace.and_then(|domain| self.paces.get(&domain));
            let obstacle = match one.cpu {
                Some(_) => obstacles.get(id).copied(),
                None => Some(Obstacle::NoCore),
            };
            let reason = match (want.reason, obstacle) {
                (Reason::Follows, Some(obstacle)) => Reason::NotSlowed(obstacle),
                (reason, _) => reason,
            };
            let order = Order {
                instance: *id,
                cpu: one.cpu,
                khz: pace.and_then(|pace| pace.speed().khz()),
                beat_ns: want.beat_ns,
                reason,
            };
            let set = |order: &Order| (order.cpu, order.khz, order.beat_ns);
            if one.order.as_ref().map(set) != Some(set(&order)) {
                orders.push(order);
            }
            one.order = Some(order);
        }
        orders.sort_by_key(|order| order.khz.is_some());
        orders
    }

    /// The frequency of each clock domain: what all of its instances can live with.
    fn set_domains(
        &mut self,
        now_ns: u64,
        owners: &[(InstanceId, Cpu, bool)],
        obstacles: &BTreeMap<InstanceId, Obstacle>,
    ) {
        let mut wishes = BTreeMap::<Cpu, (Cpu, Wish)>::new();
        for (id, cpu, _) in owners {
            let want = self.wants.get(id).and_then(|want| want.wish);
            let wish = match obstacles.contains_key(id) {
                true => Wish::HIGHEST,
                false => want.unwrap_or(Wish::HIGHEST),
            };
            let domain = wishes.entry(self.domains.domain(*cpu));
            let both = |(_, other): &mut (Cpu, Wish)| *other = other.and(wish);
            domain.and_modify(both).or_insert((*cpu, wish));
        }
        self.paces.retain(|domain, _| wishes.contains_key(domain));
        for (domain, (cpu, wish)) in wishes {
            let steps = self.steps.get(&cpu).map_or(&[][..], Vec::as_slice);
            let pace = self.paces.entry(domain).or_insert(Pace::HIGHEST);
            let before = pace.speed();
            if pace.next(now_ns, wish, steps) < before {
                self.neighbors.slowed(now_ns, domain);
            }
        }
    }

    /// The master whose clock falls if a core is slowed.
    fn disturbed(&self, cpu: Cpu) -> Option<Obstacle> {
        let master = self.neighbors.disturbs(self.domains.domain(cpu))?;
        Some(Obstacle::SlowsMaster { cpu, master })
    }
}
