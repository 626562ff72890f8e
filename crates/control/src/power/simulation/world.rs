//! A small host in simulated time: servers that take writes, replicas that follow with the cores that they
//! are given, and a network that loses and delays answers.

use std::collections::{BTreeMap, VecDeque};

use super::host::{self, MS, S, Trouble};
use crate::power::assign::Lists;
use crate::power::{
    Busy, Core, Cpu, InstanceId, Limits, Observation, Order, ReplicaLink, Role, Seen,
};

/// A server.
#[derive(Debug, Clone)]
pub struct Server {
    pub id: InstanceId,
    /// The servers that have the same data; one of them leads.
    pub group: usize,
    pub is_alive: bool,
    pub link: ReplicaLink,
    pub busy: Option<Busy>,
    /// Bytes that it has applied, and what of them it shows: not those that wait for its beat.
    applied: f64,
    shown: u64,
    cpu_ns: f64,
    reads: f64,
    /// How far it is behind, and how long that has been too much at ticks that were not disturbed.
    pub lag_ns: u64,
    pub late_ticks: u32,
    /// How many ticks were counted, and at how many of them it was late.
    pub counted: u32,
    pub late: u32,
    /// Ticks that are not counted, for an answer was disturbed.
    pub disturbed: u32,
}

/// Servers with the same data.
#[derive(Debug, Clone)]
pub struct Group {
    /// Who leads, if anybody does.
    pub master: Option<InstanceId>,
    /// Whether the master runs on another host.
    pub is_elsewhere: bool,
    sent: f64,
    /// Times and what was sent until then, for exact lags.
    history: VecDeque<(u64, f64)>,
    /// Bytes per nanosecond, and reads per nanosecond at each replica.
    rate: f64,
    read_rate: f64,
    /// Nanoseconds per byte at the highest frequency, of the master and of replicas.
    master_cost: f64,
    cost: f64,
    /// What of the cost of a byte is left with a beat, and which part waits for memory.
    beaten: f64,
    memory: f64,
    read_cost: f64,
    /// What a beat adds to the lag besides its length, in nanoseconds.
    excess_ns: f64,
}

pub struct World {
    pub random: fastrand::Rng,
    pub limits: Limits,
    pub cores: Vec<Core>,
    pub lists: Lists,
    pub servers: Vec<Server>,
    pub groups: Vec<Group>,
    trouble: Trouble,
    pub tick_ns: u64,
    /// True time, and by how much the clock is wrong.
    now_ns: u64,
    clock_ns: u64,
    oversleep_ns: u64,
    measures: bool,
    /// Whether the highest frequency suffices.
    pub suffices: bool,
    pub settings: BTreeMap<InstanceId, Order>,
    last: BTreeMap<InstanceId, Seen>,
    pub before: Option<Observation>,
    /// Whether anything is disturbed for now.
    is_troubled: bool,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let cores = host::cores(&mut random);
        let lists = host::lists(&mut random, &cores);
        let trouble = host::trouble(&mut random);
        let limits = host::limits(&mut random);
        let mut world = World {
            limits,
            cores,
            lists,
            servers: Vec::new(),
            groups: Vec::new(),
            trouble,
            tick_ns: [100 * MS, 250 * MS, 500 * MS, S][random.usize(0..4)],
            now_ns: 0,
            clock_ns: random.u64(0..1_000) * S,
            oversleep_ns: random.u64(0..MS),
            measures: random.bool(),
            suffices: random.u8(0..4) > 0,
            settings: BTreeMap::new(),
            last: BTreeMap::new(),
            before: None,
            is_troubled: false,
            random,
        };
        for group in 0..world.random.usize(1..4) {
            world.add_group(group);
        }
        world
    }

    fn add_group(&mut self, group: usize) {
        let random = &mut self.random;
        let count = random.u64(1..5);
        let first = group as u64 * 10;
        for id in first..first + count {
            self.servers.push(Server {
                id,
                group,
                is_alive: true,
                link: ReplicaLink::Up,
                busy: None,
                applied: 0.0,
                shown: 0,
                cpu_ns: 0.0,
                reads: 0.0,
                lag_ns: 0,
                late_ticks: 0,
                counted: 0,
                late: 0,
                disturbed: 0,
            });
        }
        let is_elsewhere = random.u8(0..5) == 0;
        let master_cost = 20.0 + random.f64() * 80.0;
        self.groups.push(Group {
            master: (!is_elsewhere).then_some(first),
            is_elsewhere,
            sent: 0.0,
            history: VecDeque::new(),
            rate: 0.0,
            read_rate: 0.0,
            master_cost,
            cost: master_cost * (0.05 + random.f64() * 0.95),
            beaten: 0.2 + random.f64() * 0.8,
            memory: random.f64() * 0.5,
            excess_ns: match random.u8(0..4) {
                0 => random.f64() * 0.4 * self.limits.guard_ns() as f64,
                _ => 0.0,
            },
            read_cost: 5_000.0 + random.f64() * 50_000.0,
        });
        self.new_load(group);
    }

    /// Another load: what is left of a core at its highest frequency is a half, if that is to suffice.
    pub fn new_load(&mut self, group: usize) {
        let random = &mut self.random;
        let group = &mut self.groups[group];
        let most = if self.suffices { 0.5 } else { 1.5 };
        let reads = if random.u8(0..3) == 0 {
            random.f64() * 0.5
        } else {
            0.0
        };
        let level = match random.u8(0..5) {
            0 => 0.0,
            1 => 0.01,
            _ => random.f64(),
        };
        group.read_rate = most * reads * level / group.read_cost;
        let rate = most * (1.0 - reads) * level / group.cost;
        group.rate = rate.min(0.95 / group.master_cost);
    }

    pub fn is_replica(&self, server: &Server) -> bool {
        self.groups[server.group].master != Some(server.id)
    }

    pub fn khz(&self, id: InstanceId) -> u32 {
        let order = self.settings.get(&id);
        let khz = order.and_then(|order| order.khz);
        khz.unwrap_or_else(|| self.top_khz(order.and_then(|order| order.cpu)))
    }

    fn top_khz(&self, cpu: Option<Cpu>) -> u32 {
        let core = self.cores.iter().find(|core| Some(core.cpu) == cpu);
        let khz = core.and_then(|core| core.khz);
        khz.map_or(2_200_000, |khz| khz.1)
    }

    /// Time passes until the next tick.
    pub fn pass(&mut self) {
        let tick_ns = self.tick_ns as f64;
        self.now_ns += self.tick_ns;
        self.clock_ns += self.tick_ns;
        for group in &mut self.groups {
            if group.master.is_some() || group.is_elsewhere {
                group.sent += group.rate * tick_ns;
            }
            group.history.push_back((self.now_ns, group.sent));
            if group.history.len() > 100 {
                group.history.pop_front();
            }
        }
        for at in 0..self.servers.len() {
            let server = &self.servers[at];
            let group = &self.groups[server.group];
            let is_replica = self.is_replica(server);
            let order = self.settings.get(&server.id).copied();
            let khz = f64::from(self.khz(server.id));
            let slower = f64::from(self.top_khz(order.and_then(|order| order.cpu))) / khz;
            let slower = group.memory + (1.0 - group.memory) * slower;
            let beat_ns = order.and_then(|order| order.beat_ns).filter(|_| is_replica);
            let noise = 0.95 + self.random.f64() * 0.1;
            let cost = match (is_replica, beat_ns) {
                (false, _) => group.master_cost,
                (true, None) => group.cost,
                (true, Some(_)) => group.cost * group.beaten,
            };
            let cost = cost * slower * noise;
            let (sent, rate, excess_ns) = (group.sent, group.rate, group.excess_ns);
            let reads = if is_replica {
                group.read_rate * tick_ns
            } else {
                0.0
            };
            let reads_ns = (reads * group.read_cost * slower).min(tick_ns);
            let server = &mut self.servers[at];
            if !server.is_alive {
                continue;
            }
            if server.link != ReplicaLink::Up && is_replica {
                // A full synchronization brings all that was missed.
                server.applied = sent;
                server.shown = server.shown.max(sent as u64);
                continue;
            }
            let bytes = (sent - server.applied)
                .min((tick_ns - reads_ns) / cost)
                .max(0.0);
            let used_ns = bytes * cost;
            server.applied += bytes;
            server.reads += reads;
            server.cpu_ns += used_ns + reads_ns + tick_ns * 0.001 * slower;
            let busy = (used_ns + reads_ns) / tick_ns;
            let held_ns = match beat_ns {
                Some(beat_ns) => {
                    let over_ns = self.oversleep_ns as f64 * self.random.f64();
                    beat_ns as f64 * self.random.f64() * (1.0 + busy) + over_ns + excess_ns
                }
                None => self.random.f64() * 0.3 * MS as f64,
            };
            let shown = (server.applied - rate * held_ns).max(0.0) as u64;
            server.shown = server.shown.max(shown);
            let lag_ns = if is_replica { self.true_lag_ns(at) } else { 0 };
            self.servers[at].lag_ns = lag_ns;
        }
    }

    /// The age of the oldest byte that isn't applied.
    fn true_lag_ns(&self, at: usize) -> u64 {
        let server = &self.servers[at];
        let history = &self.groups[server.group].history;
        let mut newer = self.now_ns;
        let mut sent_newer = self.groups[server.group].sent;
        let shown = server.shown as f64 + 1.0;
        for &(at_ns, sent) in history.iter().rev() {
            if sent <= shown {
                let share = (shown - sent) / (sent_newer - sent).max(1.0);
                let since_ns = at_ns + ((newer - at_ns) as f64 * share.clamp(0.0, 1.0)) as u64;
                return self.now_ns - since_ns;
            }
            (newer, sent_newer) = (at_ns, sent);
        }
        self.now_ns - newer
    }

    /// What happens besides: loads change, roles flap, masters end, servers are busy.
    pub fn happen(&mut self) -> Vec<InstanceId> {
        let mut ended = Vec::new();
        if self.random.f64() < 0.01 {
            self.is_troubled = !self.is_troubled;
        }
        for at in 0..self.groups.len() {
            if self.random.f64() < 0.01 {
                self.new_load(at);
            }
            let members = self.servers.iter().filter(|server| server.group == at);
            let members = members.map(|server| server.id).collect::<Vec<InstanceId>>();
            let Trouble { flaps, fails, .. } = self.troubled();
            if !self.groups[at].is_elsewhere && self.random.f64() < flaps {
                // Roles change as fast as can be: somebody else leads.
                let next = members[self.random.usize(0..members.len())];
                self.lead(at, next);
            }
            if self.random.f64() < fails {
                match self.groups[at].master.take() {
                    Some(master) => {
                        self.server(master).is_alive = false;
                        for id in &members {
                            self.server(*id).link = ReplicaLink::Down;
                        }
                        ended.push(master);
                    }
                    None if !self.groups[at].is_elsewhere => {
                        let next = members[self.random.usize(0..members.len())];
                        self.lead(at, next);
                    }
                    None => {}
                }
            }
        }
        for at in 0..self.servers.len() {
            let busy = [
                None,
                Some(Busy::Loads),
                Some(Busy::Saves),
                Some(Busy::IsWaitedFor),
            ];
            if self.random.f64() < self.troubled().busy {
                self.servers[at].busy = busy[self.random.usize(0..4)];
            } else if self.random.f64() < 0.1 {
                self.servers[at].busy = None;
            }
            if self.servers[at].link != ReplicaLink::Up && self.random.f64() < 0.3 {
                let has_master = {
                    let group = &self.groups[self.servers[at].group];
                    group.master.is_some() || group.is_elsewhere
                };
                if has_master {
                    self.servers[at].link = ReplicaLink::Up;
                    self.servers[at].applied = self.groups[self.servers[at].group].sent;
                }
            }
        }
        ended
    }

    /// How much is disturbed for now.
    pub fn troubled(&self) -> Trouble {
        match self.is_troubled {
            true => self.trouble,
            false => Trouble::default(),
        }
    }

    fn lead(&mut self, group: usize, next: InstanceId) {
        self.groups[group].master = Some(next);
        let sent = self.groups[group].sent;
        for server in self
            .servers
            .iter_mut()
            .filter(|server| server.group == group)
        {
            server.is_alive = true;
            server.applied = sent;
            server.shown = server.shown.max(sent as u64);
            server.disturbed = 5;
        }
        self.server(next).link = ReplicaLink::Up;
    }

    pub fn server(&mut self, id: InstanceId) -> &mut Server {
        let server = self.servers.iter_mut().find(|server| server.id == id);
        server.expect("a server")
    }

    pub fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// What is found out at this tick.
    pub fn observe(&mut self) -> Observation {
        if self.random.f64() < self.troubled().jumps {
            let by_ns = self.random.u64(0..4_000) * S;
            self.clock_ns = match self.random.bool() {
                true => self.clock_ns + by_ns,
                false => self.clock_ns.saturating_sub(by_ns),
            };
            for server in &mut self.servers {
                server.disturbed = 5;
            }
        }
        let mut instances = Vec::new();
        for at in 0..self.servers.len() {
            let server = self.servers[at].clone();
            let mut seen = self.seen(&server);
            if !server.is_alive {
                // A process that has ended is found to be gone sooner or later.
                if self.random.bool() {
                    instances.push(seen);
                }
                self.servers[at].disturbed = 5;
                continue;
            }
            if self.random.f64() < self.troubled().lost {
                seen.role = Role::Unknown;
                self.disturb(server.group);
            } else if self.random.f64() < self.troubled().late
                && let Some(last) = self.last.get(&server.id)
            {
                seen = last.clone();
                self.disturb(server.group);
            } else {
                self.last.insert(server.id, seen.clone());
            }
            instances.push(seen);
        }
        Observation {
            now_ns: self.clock_ns,
            oversleep_p99_ns: self.oversleep_ns,
            instances,
        }
    }

    fn disturb(&mut self, group: usize) {
        for server in self
            .servers
            .iter_mut()
            .filter(|server| server.group == group)
        {
            server.disturbed = 5;
        }
    }

    fn seen(&mut self, server: &Server) -> Seen {
        let group = &self.groups[server.group];
        let role = match (server.is_alive, self.is_replica(server)) {
            (false, _) => Role::Unknown,
            (true, false) => Role::Master,
            (true, true) => Role::Replica {
                master: group.master,
                link: server.link,
                master_offset: Some(group.sent as u64),
            },
        };
        let khz = f64::from(self.khz(server.id)) * (0.99 + self.random.f64() * 0.02);
        Seen {
            instance: server.id,
            role,
            busy: server.busy,
            cpu_ns: server.cpu_ns as u64,
            offset: if self.is_replica(server) {
                server.shown
            } else {
                self.groups[server.group].sent as u64
            },
            reads: server.reads as u64,
            mean_khz: self.measures.then_some(khz as u32),
        }
    }
}
