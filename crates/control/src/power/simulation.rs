//! All decisions over a random host: loads change, roles flap, masters end, answers are lost, late or
//! overtake each other, the clock jumps.
//!
//! A seed is one run; `SLACKWATER_SEED=17` runs it alone.

mod flapping;
mod host;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use host::MS;
use world::World;

use super::beat::BEAT_MIN_NS;
use super::manager::Manager;
use super::{InstanceId, Limits, Observation, Obstacle, Order, Reason, ReplicaLink, Role, Seen};

/// The ticks of a run: a minute or more, five of those that tick once a second.
const TICKS: u32 = 300;

/// A lag may be too long at so many ticks, if the highest frequency suffices.
const LATE_TICKS_MAX: u32 = 3;

/// If it suffices, one tick in so many may be late, and some more for chance.
const LATE_SHARE_MAX: u32 = 50;
const LATE_TICKS: u32 = 6;

/// Seeds of an ordinary test.
const SEEDS: u64 = 300;
const SEEDS_LONG: u64 = 10_000;

#[test]
fn nobody_who_must_be_fast_is_slow() {
    run_seeds(SEEDS);
}

#[test]
#[ignore = "takes minutes"]
fn nobody_who_must_be_fast_is_slow_with_many_seeds() {
    run_seeds(SEEDS_LONG);
}

/// What has to happen in some seed, or the simulation no longer simulates what it is for.
const EVENTS: [&str; 25] = [
    "slowed",
    "lowest",
    "raised",
    "beats",
    "masters lost",
    "masters lost by call",
    "promoted",
    "overtaken",
    "late",
    "undisturbed",
    "master",
    "unknown",
    "master lost",
    "not following",
    "busy",
    "settling",
    "not measured",
    "boosted",
    "follows",
    "needs speed",
    "no core",
    "not settable",
    "shares a clock",
    "listed fast",
    "roams",
];

type Happened = BTreeMap<&'static str, u64>;

fn run_seeds(count: u64) {
    let only = std::env::var("SLACKWATER_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().expect("SLACKWATER_SEED is a number"));
    let mut happened = Happened::new();
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        if let Err(reason) = Run::new(seed).run(&mut happened) {
            panic!("SLACKWATER_SEED={seed}: {reason}");
        }
    }
    println!("{happened:?}");
    let missing = EVENTS.iter().filter(|event| !happened.contains_key(*event));
    let missing = missing.collect::<Vec<&&str>>();
    assert!(only.is_some() || missing.is_empty(), "never: {missing:?}");
}

/// A reason, as an event.
fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Master => "master",
        Reason::Unknown => "unknown",
        Reason::MasterLost => "master lost",
        Reason::Promoted => "to be promoted",
        Reason::NotFollowing => "not following",
        Reason::Busy(_) => "busy",
        Reason::Settling => "settling",
        Reason::NotMeasured => "not measured",
        Reason::Lag => "boosted",
        Reason::Follows => "follows",
        Reason::NeedsSpeed => "needs speed",
        Reason::NotSlowed(Obstacle::NoCore) => "no core",
        Reason::NotSlowed(Obstacle::NotSettable { .. }) => "not settable",
        Reason::NotSlowed(Obstacle::SharesClock { .. }) => "shares a clock",
        Reason::NotSlowed(Obstacle::ListedFast { .. }) => "listed fast",
        Reason::NotSlowed(Obstacle::Roams { .. }) => "roams",
        Reason::NotSlowed(Obstacle::SlowsMaster { .. }) => "slows a master",
        Reason::Gone => "gone",
    }
}

struct Run {
    world: World,
    manager: Manager,
    /// What instances have said last: their role, and whom they followed.
    roles: BTreeMap<InstanceId, Role>,
    followed: BTreeMap<InstanceId, InstanceId>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let world = World::new(seed);
        let (limits, cores, lists) = (
            world.limits.clone(),
            world.cores.clone(),
            world.lists.clone(),
        );
        let manager = Manager::new(limits, cores, lists).expect("a manager");
        Run {
            world,
            manager,
            roles: BTreeMap::new(),
            followed: BTreeMap::new(),
        }
    }

    fn run(mut self, happened: &mut Happened) -> Result<(), String> {
        for tick in 0..TICKS {
            self.tick(happened)
                .map_err(|reason| format!("tick {tick}: {reason}; {:?}", self.world.settings))?;
        }
        let servers = self.world.servers.iter().filter(|_| self.world.suffices);
        for server in servers {
            if server.late > server.counted / LATE_SHARE_MAX + LATE_TICKS {
                return Err(format!(
                    "{} is late at {} of {} ticks",
                    server.id, server.late, server.counted
                ));
            }
        }
        Ok(())
    }

    fn tick(&mut self, happened: &mut Happened) -> Result<(), String> {
        let mut count = |event| *happened.entry(event).or_default() += 1;
        let ended = self.world.happen();
        for master in ended {
            if self.world.random.bool() {
                count("masters lost by call");
                let orders = self.manager.master_lost(master, self.world.clock_ns());
                self.apply(orders)?;
                self.are_fast(
                    |run, id| run.followed.get(&id) == Some(&master),
                    "lost by call",
                )?;
                self.check_clocks()?;
            }
        }
        self.world.pass();
        self.check_lags(&mut count)?;
        let observation = self.world.observe();
        if self.world.random.f64() < self.world.troubled().late / 4.0
            && let Some(before) = self.world.before.clone()
        {
            count("overtaken");
            for server in &mut self.world.servers {
                server.disturbed = 5;
            }
            self.take(&observation, &mut count)?;
            self.take(&before, &mut count)?;
        } else {
            self.take(&observation, &mut count)?;
        }
        self.world.before = Some(observation);
        if self.world.random.u16(0..500) == 0 {
            count("promoted");
            let at = self.world.random.usize(0..self.world.servers.len());
            let id = self.world.servers[at].id;
            let orders = self.manager.promote(id, self.world.clock_ns());
            self.apply(orders)?;
            self.are_fast(|_, other| other == id, "promoted")?;
            self.check_clocks()?;
        }
        Ok(())
    }

    /// One observation is taken, and what has to hold afterwards is checked.
    fn take(
        &mut self,
        observation: &Observation,
        count: &mut impl FnMut(&'static str),
    ) -> Result<(), String> {
        let orders = self.manager.tick(observation);
        for order in &orders {
            let before = self.world.settings.get(&order.instance);
            match before.and_then(|before| before.khz).is_some() {
                true if order.khz.is_none() => count("raised"),
                false if order.khz.is_some() => count("slowed"),
                true | false => {}
            }
            if order.khz == Some(1_000_000) {
                count("lowest");
            }
            if order.beat_ns.is_some() {
                count("beats");
            }
        }
        self.apply(orders)?;
        let seen = observation.instances.iter();
        let seen = seen
            .map(|seen| (seen.instance, seen))
            .collect::<BTreeMap<_, &Seen>>();
        self.world.settings.retain(|id, _| seen.contains_key(id));
        let role = |id: &InstanceId| seen.get(id).map(|seen| seen.role);

        // Masters and those of whom nobody knows, and everybody whose link isn't up or who is busy.
        let must_be_fast = |id: InstanceId| match seen.get(&id) {
            None => false,
            Some(seen) => match seen.role {
                Role::Unknown | Role::Master => true,
                Role::Replica { link, .. } => link != ReplicaLink::Up || seen.busy.is_some(),
            },
        };
        self.are_fast(|_, id| must_be_fast(id), "by its role")?;

        let lost = self.roles.iter();
        let lost = lost.filter(|(id, was)| **was == Role::Master && role(id) != Some(Role::Master));
        let lost = lost.map(|(id, _)| *id).collect::<BTreeSet<InstanceId>>();
        if !lost.is_empty() {
            count("masters lost");
        }
        self.are_fast(
            |run, id| {
                run.followed
                    .get(&id)
                    .is_some_and(|master| lost.contains(master))
            },
            "its master is lost",
        )?;
        for (id, seen) in &seen {
            if seen.role != Role::Unknown {
                self.roles.insert(*id, seen.role);
            }
            match seen.role {
                Role::Replica {
                    master: Some(master),
                    ..
                } => drop(self.followed.insert(*id, master)),
                Role::Replica { master: None, .. } | Role::Master => drop(self.followed.remove(id)),
                Role::Unknown => {}
            }
            if let Some(order) = self.manager.setting(*id) {
                count(word(order.reason));
            }
        }
        self.roles.retain(|id, _| seen.contains_key(id));
        self.followed.retain(|id, _| seen.contains_key(id));
        self.check_clocks()?;
        self.check_values()
    }

    fn apply(&mut self, orders: Vec<Order>) -> Result<(), String> {
        for order in orders {
            let before = self.world.settings.insert(order.instance, order);
            let set = |order: Order| (order.cpu, order.khz, order.beat_ns);
            if before.map(set) == Some(set(order)) {
                return Err(format!("an order that changes nothing: {order:?}"));
            }
        }
        Ok(())
    }

    fn are_fast(&self, who: impl Fn(&Run, InstanceId) -> bool, why: &str) -> Result<(), String> {
        for order in self.world.settings.values() {
            if !who(self, order.instance) {
                continue;
            }
            if order.khz.is_some() || order.beat_ns.is_some() {
                return Err(format!("{why}: {order:?} is not fast"));
            }
            let slow = self
                .world
                .settings
                .values()
                .find(|other| other.khz.is_some());
            if let (None, Some(slow), true) = (order.cpu, slow, self.is_settable()) {
                return Err(format!(
                    "{why}: {order:?} has no core, and {slow:?} is slow"
                ));
            }
        }
        Ok(())
    }

    fn is_settable(&self) -> bool {
        self.world.cores.iter().any(|core| core.khz.is_some())
    }

    /// No core is slowed that shares its clock with a fast one, and no two instances have one core.
    fn check_clocks(&self) -> Result<(), String> {
        let orders = self.world.settings.values();
        let orders = orders
            .filter(|order| order.cpu.is_some())
            .collect::<Vec<&Order>>();
        for order in &orders {
            let core = self
                .world
                .cores
                .iter()
                .find(|core| Some(core.cpu) == order.cpu);
            let core = core.ok_or_else(|| format!("no such core: {order:?}"))?;
            let on = |cpu| core.domain.contains(&cpu);
            let listed = &self.world.lists.fast;
            if order.khz.is_some() && listed.iter().any(|cpu| on(*cpu)) {
                return Err(format!("{order:?} slows a core that is listed as fast"));
            }
            for other in &orders {
                if other.instance == order.instance {
                    continue;
                }
                if other.cpu == order.cpu {
                    return Err(format!("{order:?} and {other:?} have one core"));
                }
                if other.cpu.is_some_and(on) && other.khz != order.khz {
                    return Err(format!("{order:?} and {other:?} have one clock"));
                }
            }
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), String> {
        let Limits {
            lag_ns, floor_khz, ..
        } = self.world.limits;
        for order in self.world.settings.values() {
            let core = self
                .world
                .cores
                .iter()
                .find(|core| Some(core.cpu) == order.cpu);
            let range = core.and_then(|core| core.khz);
            let may_be = order.khz.is_none_or(|khz| {
                let within = range.is_some_and(|(low, high)| low <= khz && khz < high);
                within && floor_khz.is_none_or(|floor_khz| khz >= floor_khz)
            });
            let may_beat = order.beat_ns.is_none_or(|beat_ns| {
                lag_ns.is_some_and(|lag_ns| (BEAT_MIN_NS..lag_ns).contains(&beat_ns))
            });
            if !may_be || !may_beat {
                return Err(format!("{order:?} is out of range"));
            }
        }
        Ok(())
    }

    /// If the highest frequency suffices, no lag is too long for long.
    fn check_lags(&mut self, count: &mut impl FnMut(&'static str)) -> Result<(), String> {
        let allowed_ns = self.world.limits.guard_ns();
        let suffices = self.world.suffices;
        for server in &mut self.world.servers {
            let is_counted = server.is_alive && server.link == ReplicaLink::Up;
            if server.disturbed > 0 || !is_counted {
                server.disturbed = server.disturbed.saturating_sub(1);
                server.late_ticks = 0;
                continue;
            }
            count("undisturbed");
            match server.lag_ns > allowed_ns {
                true => server.late_ticks += 1,
                false => server.late_ticks = 0,
            }
            server.counted += 1;
            if server.late_ticks > 0 {
                count("late");
                server.late += 1;
            }
            if suffices && server.late_ticks > LATE_TICKS_MAX {
                let lag_ms = server.lag_ns / MS;
                return Err(format!("{} is late by {lag_ms} ms", server.id));
            }
        }
        Ok(())
    }
}
