//! What follows from a round: servers are found, verified and observed; then all is decided.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use slackwater_control::power::energy::{By, Span};
use slackwater_control::power::{Busy, InstanceId, Observation, Order, Role, Seen};

use super::grip::HandLost;
use super::page::Served;
use super::{Head, LIVELY_NS, LONG_NS, Phase, SHORT_NS, SILENT_LOOK_NS, SILENT_NS, shown};
use crate::cores::{self, Cores};
use crate::facts::RoleSaid;
use crate::message::{Code, Report, Request};
use crate::process;
use crate::system;

/// What was measured last, for differences.
#[derive(Debug, Default)]
pub struct Meters {
    /// CPU time of instances, and when.
    cpu: BTreeMap<InstanceId, (u64, u64)>,
    /// Microjoules of packages, once they were read.
    packages: Vec<Option<u64>>,
    pub(super) joules: Option<f64>,
    /// Beats of instances.
    pub(super) beats: BTreeMap<InstanceId, u64>,
    offsets: u64,
}

impl Meters {
    /// Nothing was measured yet; there are so many packages.
    pub fn new(packages: usize) -> Self {
        Self {
            packages: vec![None; packages],
            ..Self::default()
        }
    }

    /// Adds what a package has used.
    fn package(&mut self, package: usize, now_uj: u64, range_uj: u64) {
        let Some(before) = self
            .packages
            .get_mut(package)
            .and_then(|uj| uj.replace(now_uj))
        else {
            return;
        };
        // The counter starts over at its range.
        let used_uj = match now_uj >= before {
            true => now_uj - before,
            false => range_uj.saturating_sub(before) + now_uj,
        };
        *self.joules.get_or_insert(0.0) += used_uj as f64 / 1e6;
    }
}

impl Head {
    /// What was answered is looked at, and what follows from it is done. True if the rounds are over.
    pub(super) fn decide(&mut self, now: u64, all: bool) -> Result<bool, HandLost> {
        self.discover(now);
        self.verify(now)?;
        let observation = self.observe(now);
        let orders = self.manager.tick(&observation);
        if !orders.is_empty() {
            self.lively_until = now + LIVELY_NS;
        }
        if self.is_any_late(&observation) {
            self.lively_until = self.lively_until.max(now + LONG_NS);
        }
        self.obey(&orders)?;
        let is_silent = self.is_silent(now);
        if all && (!is_silent || self.next_look <= now || self.rounds.is_some()) {
            self.next_look = now + SILENT_LOOK_NS;
            self.look(now)?;
        }
        if let Some(rounds) = self.rounds.as_mut().filter(|_| all) {
            *rounds = rounds.saturating_sub(1);
            if *rounds == 0 {
                return Ok(true);
            }
        }
        let pause = match now < self.lively_until {
            true => SHORT_NS,
            false if is_silent => SILENT_NS,
            false => LONG_NS,
        };
        self.phase = Phase::Idle { next: now + pause };
        Ok(false)
    }

    /// Whether a replica is behind by more than it may be, or nobody knows.
    fn is_any_late(&self, observation: &Observation) -> bool {
        let lag_ns = self.settings.limits.guard_ns();
        observation.instances.iter().any(|seen| {
            let lag = self.manager.lag_ns(seen.instance);
            matches!(seen.role, Role::Replica { .. }) && lag.is_none_or(|lag| lag > lag_ns)
        })
    }

    /// Finds servers that others name, and forgets those that nobody names any longer.
    fn discover(&mut self, now: u64) {
        let mut named = Vec::new();
        for server in self.servers.values() {
            match &server.role {
                Some(RoleSaid::Master { replicas, .. }) => {
                    named.extend(
                        replicas
                            .iter()
                            .map(|replica| (*replica, server.login.clone())),
                    );
                }
                Some(RoleSaid::Replica { .. } | RoleSaid::Sentinel) | None => {}
            }
        }
        for (master, replica) in self.masters() {
            let login = self
                .servers
                .get(&replica)
                .and_then(|server| server.login.clone());
            named.push((master, login));
        }
        for (address, login) in named {
            self.found(address, login.as_ref(), now);
        }
        let seeds = &self.seeds;
        self.servers.retain(|address, server| {
            seeds.contains(address) || server.instance.is_some() || !server.is_forgotten(now)
        });
    }

    /// Who follows whom: addresses of master and replica.
    pub(super) fn masters(&mut self) -> Vec<(SocketAddr, SocketAddr)> {
        let said = self
            .servers
            .values()
            .filter_map(|server| match &server.role {
                Some(RoleSaid::Replica { master, .. }) => Some((master.clone(), server.address)),
                Some(RoleSaid::Master { .. } | RoleSaid::Sentinel) | None => None,
            });
        let said = said.collect::<Vec<((String, u16), SocketAddr)>>();
        let pairs = said.into_iter();
        pairs
            .filter_map(|(master, replica)| Some((self.master_address(&master)?, replica)))
            .collect()
    }

    /// Instances that follow the master at an address.
    pub(super) fn followers(&mut self, master: SocketAddr) -> Vec<InstanceId> {
        let pairs = self
            .masters()
            .into_iter()
            .filter(|(address, _)| *address == master);
        let replicas = pairs.filter_map(|(_, replica)| self.servers.get(&replica)?.instance);
        replicas.map(|(instance, _)| instance).collect()
    }

    /// Has the hand verify processes that are new.
    fn verify(&mut self, now: u64) -> Result<(), HandLost> {
        let addresses = self.servers.keys().copied().collect::<Vec<SocketAddr>>();
        for address in addresses {
            let Some(server) = self.servers.get_mut(&address) else {
                continue;
            };
            let Some(uptime_s) = server.unverified(now) else {
                continue;
            };
            // Another process under the same address is another instance.
            if let Some((instance, _)) = server.instance.take() {
                self.grip.ask(Request::Forget { instance })?;
                self.setting.forget(instance);
            }
            let instance = self.next_instance;
            let (mut why, mut pids) = (String::new(), Vec::new());
            match server.candidates(&self.sysfs) {
                Ok(candidates) => pids = candidates,
                Err(none) => why = none,
            }
            for pid in pids {
                let answer = self.grip.ask(Request::Adopt {
                    instance,
                    pid,
                    uptime_s,
                    address,
                })?;
                if answer.code == Code::Done {
                    self.next_instance += 1;
                    server.instance = Some((instance, pid));
                    self.lively_until = now + LIVELY_NS;
                    break;
                }
                why = format!("process {pid} is left alone: {}", answer.reason());
            }
            if server.instance.is_none() {
                server.trouble = Some(why.clone());
                self.say(address, why);
            }
        }
        Ok(())
    }

    fn observe(&mut self, now: u64) -> Observation {
        let masters = self
            .masters()
            .into_iter()
            .map(|(master, replica)| (replica, master));
        let masters = masters.collect::<BTreeMap<SocketAddr, SocketAddr>>();
        let mut instances = Vec::new();
        let mut offsets = 0;
        for server in self.servers.values() {
            let Some((instance, pid)) = server.instance else {
                continue;
            };
            let master = masters
                .get(&server.address)
                .and_then(|master| self.servers.get(master));
            let (role, offset) = server.seen(master);
            offsets += offset;
            let waited = master.is_some_and(|master| master.waits_for_replicas(now));
            let is_replica = matches!(role, Role::Replica { .. });
            let cpu = match is_replica {
                true => self.manager.setting(instance).and_then(|order| order.cpu),
                // A master is not pinned, so its core's clock is that of where it ran last.
                false if self.has_clocks => process::ran_on(pid),
                false => None,
            };
            instances.push(Seen {
                instance,
                role,
                busy: server.busy().or(waited.then_some(Busy::IsWaitedFor)),
                cpu_ns: system::cpu_time_ns(pid).unwrap_or(0),
                offset,
                reads: if is_replica { server.reads() } else { 0 },
                mean_khz: cpu.and_then(|cpu| cores::measured_khz(&self.sysfs, cpu)),
            });
        }
        // Pings of masters are 14 bytes every ten seconds: they are not what is meant by writes.
        const PING_BYTES: u64 = 1_024;
        let pings = PING_BYTES * instances.len().max(1) as u64;
        if offsets.abs_diff(self.meters.offsets) > pings {
            self.written = now;
            self.meters.offsets = offsets;
        }
        Observation {
            now_ns: now,
            oversleep_p99_ns: self.oversleep_ns,
            instances,
        }
    }

    /// Has the hand do what was decided.
    pub(super) fn obey(&mut self, orders: &[Order]) -> Result<(), HandLost> {
        self.setting.order(orders);
        for order in orders {
            if let Some(reason) = shown::boost(order) {
                *self.boosts.entry(reason).or_default() += 1;
            }
        }
        let masters = self.masters().into_iter().filter_map(|(master, replica)| {
            let (instance, _) = self.servers.get(&replica)?.instance?;
            Some((instance, master))
        });
        let masters = masters
            .collect::<Vec<(InstanceId, SocketAddr)>>()
            .into_iter()
            .collect();
        self.setting.apply(&mut self.grip, &self.cores, &masters)?;
        for order in orders {
            let server = self.servers.values();
            let mut server =
                server.filter(|server| server.instance.is_some_and(|(of, _)| of == order.instance));
            if let Some(address) = server.next().map(|server| server.address) {
                let what = self.line(order);
                self.say(address, what);
            }
        }
        Ok(())
    }

    fn line(&self, order: &Order) -> String {
        let mut parts = Vec::new();
        if let Some(cpu) = order.cpu {
            parts.push(format!("cpu{cpu}"));
        }
        if let Some(khz) = order.khz {
            parts.push(crate::units::frequency_text(khz));
        }
        if let Some(beat_ns) = order.beat_ns {
            parts.push(format!("beat {}", crate::units::duration_text(beat_ns)));
        }
        if parts.is_empty() {
            parts.push("as it was found".to_string());
        }
        format!("{}: {}", parts.join(", "), shown::reason(&order.reason))
    }

    /// Once a second: whether all is as it was set, and what it costs.
    fn look(&mut self, now: u64) -> Result<(), HandLost> {
        let packages = self.meters.packages.len() as u32;
        let instances = self.servers.values().filter_map(|server| server.instance);
        let instances = instances.collect::<Vec<(InstanceId, u32)>>();
        let beaten = instances.iter().map(|(instance, _)| *instance);
        let beaten = beaten.filter(|instance| self.setting.beat_ns(*instance).is_some());
        let beaten = beaten.collect::<Vec<InstanceId>>();
        let mut requests = vec![Request::Look];
        requests.extend((0..packages).map(|package| Request::Energy { package }));
        requests.extend(beaten.iter().map(|&instance| Request::Count { instance }));
        let mut answers = self.grip.look(&requests)?.into_iter();
        self.oversleep_ns = answers.next().map_or(0, |answer| answer.value);
        for package in 0..packages as usize {
            let answer = answers.next().filter(|answer| answer.code == Code::Done);
            if let Some(answer) = answer {
                self.meters.package(package, answer.value, answer.more);
            }
        }
        for (instance, answer) in beaten.into_iter().zip(answers) {
            self.meters.beats.insert(instance, answer.value);
        }
        for (instance, pid) in instances {
            self.meter(now, instance, pid);
        }
        self.told(now)
    }

    /// Adds what an instance's core did to the model.
    fn meter(&mut self, now: u64, instance: InstanceId, pid: u32) {
        let Some(cpu_ns) = system::cpu_time_ns(pid) else {
            return;
        };
        let Some((since, before)) = self.meters.cpu.insert(instance, (now, cpu_ns)) else {
            return;
        };
        let cpu = self.manager.setting(instance).and_then(|order| order.cpu);
        let core = cpu.and_then(|cpu| self.cores.iter().find(|core| core.cpu == cpu));
        let Some((core, (_, top_khz))) = core.and_then(|core| Some((core, core.khz?))) else {
            return;
        };
        let khz = cores::measured_khz(&self.sysfs, core.cpu);
        self.energy.add(&Span {
            time_ns: now.saturating_sub(since),
            busy_ns: cpu_ns.saturating_sub(before),
            khz,
            top_khz,
            by: By::Frequency,
            cost_at_top: khz.and_then(|khz| self.manager.cost_at_top(instance, khz)),
        });
    }

    /// What the hand has told.
    pub(super) fn told(&mut self, now: u64) -> Result<(), HandLost> {
        for report in self.grip.reports()? {
            match report {
                Report::Closed { instance } => {
                    self.setting.closed(instance);
                    self.lively_until = now + LIVELY_NS;
                }
                Report::Gone { instance } => {
                    self.setting.forget(instance);
                    self.meters.cpu.remove(&instance);
                    self.meters.beats.remove(&instance);
                    self.lively_until = now + LIVELY_NS;
                    let server = self.servers.values_mut();
                    let mut server = server
                        .filter(|server| server.instance.is_some_and(|(of, _)| of == instance));
                    let Some(server) = server.next() else {
                        continue;
                    };
                    server.unverify(now);
                    let address = server.address;
                    let orders = self.manager.master_lost(instance, now);
                    self.obey(&orders)?;
                    self.say(address, "its process has ended".to_string());
                }
                Report::Conflict { cpu, khz } => {
                    *self.conflicts.entry(cpu).or_default() += 1;
                    self.setting
                        .refused
                        .insert(cpu, crate::status::CONFLICT.to_string());
                    eprintln!(
                        "slackwater-power: cpu{cpu}: {khz} kHz: {}",
                        crate::status::CONFLICT
                    );
                }
                Report::Cores => self.cores_again(now)?,
                Report::Answer(_) | Report::File { .. } | Report::Socket { .. } | Report::Ended => {
                }
            }
        }
        Ok(())
    }

    /// Cores have come or gone: whoever is to be slow is slowed anew.
    fn cores_again(&mut self, now: u64) -> Result<(), HandLost> {
        self.grip.files_again()?;
        let read = Cores::read(&self.sysfs);
        let (cores, fixed) = super::usable(&self.grip, &read);
        match self.manager.set_cores(cores.clone(), now) {
            Ok(orders) => {
                (self.cores, self.fixed) = (cores, fixed);
                self.has_clocks = read.any_clock();
                self.setting.restored();
                self.lively_until = now + LIVELY_NS;
                eprintln!(
                    "slackwater-power: cores have come or gone: now cpu{}",
                    cores::online(&self.sysfs)
                );
                self.obey(&orders)
            }
            Err(wrong) => {
                eprintln!("slackwater-power: cores have come or gone: {wrong}");
                Ok(())
            }
        }
    }

    /// Serves visitors of the page.
    pub(super) fn serve(&mut self, now: u64) -> Result<(), HandLost> {
        for (visitor, asked) in self.page.read(now) {
            let served = match asked.path.as_str() {
                "/metrics" => Served::text(self.status().metrics()),
                "/status" => match serde_json::to_string(&self.status()) {
                    Ok(text) => Served::json(text),
                    Err(error) => Served::wrong(&error.to_string()),
                },
                path => match path.strip_prefix("/raise/").filter(|_| asked.is_private) {
                    Some(address) => self.raise(address, now)?,
                    None => Served::missing(),
                },
            };
            self.page.answer(visitor, &served);
        }
        Ok(())
    }

    /// Makes a server fast that somebody is about to promote.
    fn raise(&mut self, address: &str, now: u64) -> Result<Served, HandLost> {
        let server = address.parse::<SocketAddr>().ok();
        let server = server.and_then(|address| self.servers.get(&address));
        let Some((instance, _)) = server.and_then(|server| server.instance) else {
            return Ok(Served::wrong("it is not managed here"));
        };
        let orders = self.manager.promote(instance, now);
        self.obey(&orders)?;
        self.lively_until = now + LIVELY_NS;
        if matches!(self.phase, Phase::Idle { .. }) {
            self.phase = Phase::Idle {
                next: now + SHORT_NS,
            };
        }
        Ok(Served::text("raised\n".to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_added_also_when_its_counter_starts_over() {
        let mut meters = Meters::new(1);
        for (now_uj, joules) in [
            (9_000_000, None),
            (9_500_000, Some(0.5)),
            (1_500_000, Some(3.0)),
        ] {
            meters.package(0, now_uj, 10_500_000);
            meters.package(7, now_uj, 10_500_000);
            assert_eq!(meters.joules, joules);
        }
    }
}
