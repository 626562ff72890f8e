//! The head: finds servers, asks them, decides, and asks the hand. It has the network and no permissions.
//!
//! ```text
//! sentinels, clusters (watch)  ─► addresses ─► servers (server) ─► Observation ─► Manager ─► orders
//!                                                                                             │
//!                 page ◄── status ◄────────────────────────── setting ─► grip ─► the hand ◄───┘
//! ```
//!
//! A round: masters are asked; as much later as replicas may be behind, all are asked; then all is decided.
//! So a replica that has not applied by then what its master had sent before is late, whatever the rate is.
//! Ten rounds a second while there is lag and after changes, otherwise one, and in silence one every four
//! seconds, which then asks once. Answers are collected for a moment, so that a round takes few wake-ups.
//! Between rounds the end of a master's connection raises its replicas at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_control::power::energy::{Energy, Voltages};
use slackwater_control::power::manager::Manager;
use slackwater_control::power::{Core, Cpu, InstanceId};

use crate::client::Login;
use crate::config::{Logins, Settings};
use crate::cores::Cores;
use crate::error::{Error, Result};
use crate::facts::SentinelSaid;
use crate::seed::{self, Kind};
use crate::system;

mod asking;
mod grip;
mod page;
mod round;
mod server;
mod setting;
mod shown;
mod watch;

pub use grip::Grip;
pub use page::Page;

use grip::HandLost;
use server::Server;
use setting::Setting;
use watch::{Heard, Watch};

/// The most servers that are asked.
const SERVERS_MAX: usize = 512;
/// The time between two rounds while there is lag, or something has changed.
const SHORT_NS: u64 = 100_000_000;
/// The time between two rounds otherwise, and between two rounds that ask for everything.
const LONG_NS: u64 = 1_000_000_000;
/// The time between two rounds while nothing is written.
const SILENT_NS: u64 = 4_000_000_000;
/// The time between two looks of the hand at what is set, while nothing is written.
const SILENT_LOOK_NS: u64 = 12_000_000_000;
/// How long rounds are short after something has changed.
const LIVELY_NS: u64 = 3_000_000_000;
/// How long nothing has been written in a silence.
const SILENCE_NS: u64 = 5_000_000_000;
/// Answers are collected for so long before anybody is woken for them.
const COLLECT_NS: u64 = 2_000_000;
/// The least time between the two questions of a round: answers need some of it.
const APART_MIN_NS: u64 = 2_000_000;

/// Why the head has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A signal came.
    Signal,
    /// The hand is gone; nothing is undone yet.
    Hand,
    /// The given number of rounds is over.
    Rounds,
}

/// What the head is made of.
pub struct Parts {
    /// The hold on the hand.
    pub grip: Grip,
    /// What is wanted.
    pub settings: Settings,
    /// Logins, one for each of the settings' servers.
    pub logins: Vec<Logins>,
    /// The host's cores.
    pub cores: Cores,
    /// The root of sysfs.
    pub sysfs: PathBuf,
    /// Where visitors come in.
    pub page: Page,
    /// Signals that end it.
    pub signals: OwnedFd,
    /// Whether the hand changes nothing.
    pub is_dry: bool,
    /// After so many rounds that asked for everything it ends.
    pub rounds: Option<u32>,
}

/// The head.
pub struct Head {
    grip: Grip,
    settings: Settings,
    manager: Manager,
    /// Cores that the manager may use.
    cores: Vec<Core>,
    /// Why others can't be slowed.
    fixed: BTreeMap<Cpu, String>,
    /// Whether any core's frequency can be set.
    has_clocks: bool,
    sysfs: PathBuf,
    servers: BTreeMap<SocketAddr, Server>,
    watches: Vec<Watch>,
    /// Servers that the configuration names: those are never forgotten.
    seeds: Vec<SocketAddr>,
    /// Names of masters, as their replicas say them.
    names: BTreeMap<(String, u16), SocketAddr>,
    page: Page,
    signals: OwnedFd,
    is_dry: bool,
    rounds: Option<u32>,
    setting: Setting,
    phase: Phase,
    next_all: u64,
    next_look: u64,
    lively_until: u64,
    /// When something was written last.
    written: u64,
    oversleep_ns: u64,
    next_instance: InstanceId,
    energy: Energy,
    meters: round::Meters,
    boosts: BTreeMap<&'static str, u64>,
    conflicts: BTreeMap<Cpu, u64>,
    said: BTreeMap<SocketAddr, String>,
}

/// Where a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next one begins then.
    Idle { next: u64 },
    /// Masters were asked; all are asked then.
    First { since: u64, until: u64 },
    /// All were asked; answers are not looked at until then.
    Second { all: bool, until: u64 },
}

impl Phase {
    /// Until when answers are collected, and nobody is woken for them.
    fn collects(self, now: u64) -> Option<u64> {
        match self {
            Self::Idle { .. } => None,
            Self::First { until, .. } | Self::Second { until, .. } => {
                Some(until).filter(|until| now < *until)
            }
        }
    }
}

/// The cores that the manager may use, and why those of them that can't be slowed can't.
fn usable(grip: &Grip, cores: &Cores) -> (Vec<Core>, BTreeMap<Cpu, String>) {
    let settable = grip.settable().collect::<BTreeSet<Cpu>>();
    let mut fixed = BTreeMap::new();
    let mut usable = Vec::new();
    for described in &cores.cores {
        let mut core = described.core.clone();
        // The hand sends each file once, with the first of its cores.
        let has_file = core.domain.iter().any(|cpu| settable.contains(cpu));
        if core.khz.is_some() && !has_file {
            core.khz = None;
            core.steps_khz = Vec::new();
            let why = "may not be set, or its file can't be opened for writing";
            fixed.insert(core.cpu, why.to_string());
        } else if let Some(why) = &described.fixed {
            fixed.insert(core.cpu, why.clone());
        }
        usable.push(core);
    }
    (usable, fixed)
}

impl Head {
    /// A head that has found nothing yet.
    pub fn new(parts: Parts) -> Result<Self> {
        let mut settings = parts.settings;
        if !settings.batches {
            settings.limits.lag_ns = None;
        }
        let (cores, fixed) = usable(&parts.grip, &parts.cores);
        let manager = Manager::new(
            settings.limits.clone(),
            cores.clone(),
            settings.lists.clone(),
        );
        let manager = manager.map_err(|wrong| {
            Error::usage("[cores]", wrong).hint("slackwater-power check lists this host's cores")
        })?;
        let packages = crate::cores::packages(&parts.sysfs).len();
        let now = system::now_ns();
        let (mut servers, mut watches) = (BTreeMap::new(), Vec::new());
        for (server, logins) in settings.servers.iter().zip(parts.logins) {
            if server.seed.kind == Kind::Server {
                let address = server.seed.address().map_err(|error| {
                    Error::failed(&server.seed, error)
                        .hint("name a host that resolves, or an IP address")
                })?;
                let mut one = Server::new(address, logins.server, now);
                one.process = server.process.clone();
                servers.insert(address, one);
            } else {
                watches.push(Watch::new(server.seed.clone(), logins));
            }
        }
        Ok(Self {
            grip: parts.grip,
            seeds: servers.keys().copied().collect(),
            settings,
            manager,
            has_clocks: cores.iter().any(|core| core.khz.is_some()),
            cores,
            fixed,
            sysfs: parts.sysfs,
            servers,
            watches,
            names: BTreeMap::new(),
            page: parts.page,
            signals: parts.signals,
            is_dry: parts.is_dry,
            rounds: parts.rounds,
            setting: Setting::default(),
            phase: Phase::Idle { next: now },
            next_all: now,
            next_look: now,
            lively_until: now + LIVELY_NS,
            written: now,
            oversleep_ns: 0,
            next_instance: 1,
            energy: Energy::new(Voltages::paper()),
            meters: round::Meters::new(packages),
            boosts: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            said: BTreeMap::new(),
        })
    }

    /// Works until a signal comes, the hand is gone, or the rounds are over.
    pub fn run(&mut self) -> End {
        loop {
            let (signal, hand) = self.wait();
            if signal {
                return End::Signal;
            }
            match self.turn(hand) {
                Ok(false) => {}
                Ok(true) => return End::Rounds,
                Err(HandLost) => return End::Hand,
            }
        }
    }

    /// What the hand needs to be undone with.
    pub fn into_grip(self) -> Grip {
        self.grip
    }

    /// One turn: what has come is read, and what is due is done. True if the rounds are over.
    fn turn(&mut self, hand: bool) -> std::result::Result<bool, HandLost> {
        let now = system::now_ns();
        if hand {
            self.told(now)?;
        }
        match self.phase.collects(now) {
            None => self.read(now)?,
            Some(_) => self.read_ends(now)?,
        }
        self.watch(now)?;
        let is_over = self.advance(now)?;
        self.serve(now)?;
        Ok(is_over)
    }

    fn wait(&self) -> (bool, bool) {
        let now = system::now_ns();
        let collects = self.phase.collects(now);
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.grip, PollFlags::IN),
        ];
        let mut due = match (self.phase, collects) {
            (Phase::Idle { next }, _) => Some(next),
            (_, Some(until)) => Some(until),
            // Without anybody who has to answer, the next step is due.
            (Phase::First { .. } | Phase::Second { .. }, None) => {
                let is_over = matches!(self.phase, Phase::First { .. });
                (is_over || !self.servers.values().any(Server::waits)).then_some(now)
            }
        };
        let watched = self
            .watches
            .iter()
            .flat_map(Watch::clients)
            .map(|client| (client, false));
        let servers = self.servers.values().filter_map(Server::client);
        for (client, collects) in watched.chain(servers.map(|client| (client, collects.is_some())))
        {
            let mut flags = PollFlags::RDHUP;
            flags.set(PollFlags::IN, !collects);
            flags.set(PollFlags::OUT, client.writes());
            fds.push(PollFd::from_borrowed_fd(client.as_fd(), flags));
            due = due.into_iter().chain(client.deadline()).min();
        }
        for (socket, writes) in self.page.waits() {
            let flags = if writes {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            fds.push(PollFd::from_borrowed_fd(socket, flags));
        }
        due = due.into_iter().chain(self.page.due()).min();
        let left = due.map(|due| Duration::from_nanos(due.saturating_sub(now)));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let _ = poll(&mut fds, left.as_ref());
        (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
    }

    /// Reads what servers have answered.
    fn read(&mut self, now: u64) -> std::result::Result<(), HandLost> {
        let mut lost = Vec::new();
        for server in self.servers.values_mut() {
            if let Err(why) = server.step(now) {
                if server.lost(&why, now) {
                    lost.push(server.address);
                }
                self.lively_until = now + LIVELY_NS;
            }
        }
        self.masters_lost(&lost, now)
    }

    /// While answers are collected: asks whoever has just been connected to, and reads of servers whose
    /// connection has ended.
    fn read_ends(&mut self, now: u64) -> std::result::Result<(), HandLost> {
        for server in self.servers.values_mut() {
            server.send();
        }
        let ended = self
            .servers
            .values()
            .filter_map(Server::client)
            .any(|client| {
                let mut fds = [PollFd::new(client, PollFlags::RDHUP)];
                let none = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                matches!(poll(&mut fds, Some(&none)), Ok(1..))
            });
        if ended { self.read(now) } else { Ok(()) }
    }

    /// Raises whoever follows these masters.
    fn masters_lost(
        &mut self,
        masters: &[SocketAddr],
        now: u64,
    ) -> std::result::Result<(), HandLost> {
        if masters.is_empty() {
            return Ok(());
        }
        self.lively_until = now + LIVELY_NS;
        for master in masters {
            let mut orders = Vec::new();
            let instance = self.servers.get(master).and_then(|server| server.instance);
            if let Some((instance, _)) = instance {
                orders.extend(self.manager.master_lost(instance, now));
            }
            // Those of a master on another host, or of one that was not verified.
            for replica in self.followers(*master) {
                let is_raised = orders.iter().any(|order| order.instance == replica);
                if instance.is_none() && !is_raised {
                    orders.extend(self.manager.promote(replica, now));
                }
            }
            self.obey(&orders)?;
            let count = self.boosts.entry("master_lost").or_default();
            *count += 1;
            self.say(
                *master,
                "its connection has ended: its replicas here are fast".to_string(),
            );
        }
        Ok(())
    }

    /// What sentinels and clusters say.
    fn watch(&mut self, now: u64) -> std::result::Result<(), HandLost> {
        let mut lost = Vec::new();
        for at in 0..self.watches.len() {
            let login = self.watches[at].login.clone();
            for heard in self.watches[at].step(now) {
                match heard {
                    Heard::Servers(addresses) => {
                        for address in addresses {
                            self.found(address, login.as_ref(), now);
                        }
                    }
                    Heard::Sentinel(SentinelSaid::MasterDown(master)) => lost.push(master),
                    Heard::Sentinel(SentinelSaid::Changes) => {
                        self.lively_until = now + LIVELY_NS;
                        self.next_all = now;
                        if matches!(self.phase, Phase::Idle { .. }) {
                            self.phase = Phase::Idle { next: now };
                        }
                    }
                }
            }
        }
        self.masters_lost(&lost, now)
    }

    /// Somebody names a server.
    fn found(&mut self, address: SocketAddr, login: Option<&Login>, now: u64) {
        if let Some(server) = self.servers.get_mut(&address) {
            server.name(now);
        } else if self.servers.len() < SERVERS_MAX {
            self.servers
                .insert(address, Server::new(address, login.cloned(), now));
            self.lively_until = now + LIVELY_NS;
        }
    }

    /// The address of a master, as a replica says it; a name is looked up once.
    fn master_address(&mut self, master: &(String, u16)) -> Option<SocketAddr> {
        const NAMES_MAX: usize = 1_024;
        if let Some(address) = self.names.get(master) {
            return Some(*address);
        }
        let address = seed::resolve(&master.0, master.1).ok()?;
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(master.clone(), address);
        Some(address)
    }

    /// Tells people, once, until something else is to be said of the same server.
    fn say(&mut self, address: SocketAddr, what: String) {
        if self.said.get(&address) != Some(&what) {
            eprintln!("slackwater-power: {address}: {what}");
            self.said.insert(address, what);
        }
    }
}
