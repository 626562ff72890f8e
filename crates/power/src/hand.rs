//! The hand: the only process that changes anything. It has no network, and parses nothing that servers or
//! people have written; it knows the cores that may be set, and does what the head asks within them.
//!
//! Invariants
//! - Before a change the journal says what was found.
//! - When the head is gone, or a signal ends the hand, everything is restored.
//! - The head has a descriptor of everything that slows a core or delays a replica, so that it restores them
//!   if the hand is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use slackwater_control::power::assign::Lists;
use slackwater_control::power::{Cpu, InstanceId};

use crate::cores::{self, Cores};
use crate::journal::Journal;
use crate::message::{Answer, Channel, Code, Received, Report, Request, Text};
use crate::process;
use crate::system;

mod beats;
pub mod clocks;
mod hotplug;
mod lateness;
pub mod pace;

pub mod link;
pub mod threads;
mod waits;

use clocks::Clocks;
use lateness::Lateness;
use link::Link;
use pace::Reading;
use threads::Threads;
use waits::Waits;

/// The most instances that are managed on a host: one for each core of a large one.
pub const INSTANCES_MAX: usize = 256;
/// The most requests that are answered before the beats are looked after again.
const REQUESTS_MAX: usize = 64;

/// Why the hand has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The head is gone.
    Head,
    /// A signal came.
    Signal,
}

/// The hand.
#[derive(Debug)]
pub struct Hand {
    journal: Journal,
    sysfs: PathBuf,
    /// What the host says which cores are online.
    online: String,
    may_set: fn(&Cores, &Lists) -> BTreeSet<Cpu>,
    lists: Lists,
    cores: Cores,
    clocks: Clocks,
    /// Servers whose process the configuration names.
    named: BTreeSet<std::net::SocketAddr>,
    packages: Vec<PathBuf>,
    instances: BTreeMap<InstanceId, Adopted>,
    channel: Channel,
    /// Signals that end it.
    _signals: OwnedFd,
    waits: Waits,
    late: Lateness,
    reading: Reading,
    /// Nothing is changed, and all is answered as if it was.
    is_dry: bool,
}

/// An instance whose process was verified.
#[derive(Debug)]
struct Adopted {
    pid: u32,
    started: u64,
    handle: OwnedFd,
    threads: Threads,
    /// The core that it is pinned to.
    core: Option<Cpu>,
    is_kept_away: bool,
    link: Option<Link>,
}

/// What the hand is made of.
pub struct Parts {
    /// The journal, locked, and empty.
    pub journal: Journal,
    /// The root of sysfs.
    pub sysfs: PathBuf,
    /// The host's cores.
    pub cores: Cores,
    /// Those of them that may be set, by what the configuration lists.
    pub may_set: fn(&Cores, &Lists) -> BTreeSet<Cpu>,
    /// What the configuration lists.
    pub lists: Lists,
    /// Where servers listen whose process the configuration names: it may be in another PID namespace.
    pub named: BTreeSet<std::net::SocketAddr>,
    /// Folders of packages whose energy may be read.
    pub packages: Vec<PathBuf>,
    /// The end of the socket pair.
    pub channel: Channel,
    /// Signals that end it.
    pub signals: OwnedFd,
    /// Whether nothing is changed.
    pub is_dry: bool,
}

impl Hand {
    /// Opens every file that may be written.
    pub fn new(parts: Parts) -> std::io::Result<Self> {
        let waits = Waits::new(&parts.channel, &parts.signals)?;
        Ok(Self {
            clocks: Clocks::open(&parts.cores, &(parts.may_set)(&parts.cores, &parts.lists)),
            online: cores::online(&parts.sysfs),
            sysfs: parts.sysfs,
            may_set: parts.may_set,
            lists: parts.lists,
            journal: parts.journal,
            cores: parts.cores,
            named: parts.named,
            packages: parts.packages,
            instances: BTreeMap::new(),
            channel: parts.channel,
            _signals: parts.signals,
            waits,
            late: Lateness::default(),
            reading: Reading::default(),
            is_dry: parts.is_dry,
        })
    }

    /// Why cores that may be set can't be.
    pub fn refused(&self) -> &BTreeMap<Cpu, String> {
        &self.clocks.refused
    }

    /// Works until the head is gone or a signal comes. Nothing is restored yet: see [`Self::restore`].
    pub fn run(&mut self) -> End {
        loop {
            let due = self.due();
            let before = system::now_ns();
            let ready = self.waits.wait(due);
            let now = system::now_ns();
            // What was due already was held up by work of this process, not by a sleep.
            if let Some(due) = due.filter(|due| (before..=now).contains(due)) {
                self.late.add(now - due);
            }
            if ready.signal {
                return End::Signal;
            }
            for instance in ready.ended {
                self.forget(instance);
                if self.report(&Report::Gone { instance }) {
                    return End::Head;
                }
            }
            if self.beat(now, &ready.connections) || (ready.channel && self.requests()) {
                return End::Head;
            }
        }
    }

    /// Restores all that was found, and tells the head, which then has nothing to undo.
    pub fn restore(mut self) -> crate::undo::Undone {
        // By descriptors and handles that are open: the quickest, and right even if paths have changed.
        for adopted in self.instances.values_mut() {
            if let Some(link) = adopted.link.as_mut() {
                let _ = link.stop();
            }
        }
        let cpus = self.cores.cores.iter().map(|described| described.core.cpu);
        for cpu in cpus.collect::<Vec<Cpu>>() {
            self.clocks.cap(&mut self.journal, cpu, None);
        }
        let instances = self.instances.keys().copied().collect::<Vec<InstanceId>>();
        for instance in instances {
            self.forget(instance);
        }
        let left = self.journal.entries().clone();
        let undone = crate::undo::undo(&mut self.journal, left);
        if undone.failed.is_empty() {
            self.report(&Report::Ended);
        }
        undone
    }

    fn report(&self, report: &Report) -> bool {
        self.channel.send(report, None).is_err()
    }

    /// Answers what the head asks; true if it is gone.
    fn requests(&mut self) -> bool {
        for _ in 0..REQUESTS_MAX {
            match self.channel.receive::<Request>() {
                Received::Nothing => return false,
                Received::End => return true,
                Received::Message(request, _) => {
                    let answer = self.answer(request);
                    if self.report(&Report::Answer(answer)) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Hello => self.hello(),
            Request::Adopt {
                instance,
                pid,
                uptime_s,
                address,
            } => match self.adopt(instance, pid, uptime_s, address) {
                Ok(()) => Answer::DONE,
                Err(answer) => answer,
            },
            Request::Forget { instance } => {
                self.forget(instance);
                Answer::DONE
            }
            Request::Cap { khz: Some(khz), .. } if self.is_dry => Answer::value(u64::from(khz)),
            Request::Cap { cpu, khz } => self.clocks.cap(&mut self.journal, cpu, khz),
            Request::Pin { instance, cpu } => self.pin(instance, Some(cpu), false),
            Request::KeepAway { instance } => self.pin(instance, None, true),
            Request::Unpin { instance } => self.pin(instance, None, false),
            Request::Beat {
                instance,
                master,
                beat_ns,
            } => match self.set_beat(instance, master, beat_ns) {
                Ok(()) => Answer::DONE,
                Err(answer) => answer,
            },
            Request::Look => self.look(),
            Request::Energy { package } => self.energy(package),
            Request::Count { instance } => {
                let link = self
                    .instances
                    .get(&instance)
                    .and_then(|adopted| adopted.link.as_ref());
                let counts = link.map(|link| link.counts).unwrap_or_default();
                Answer {
                    more: counts.slow,
                    ..Answer::value(counts.beats)
                }
            }
        }
    }

    fn hello(&self) -> Answer {
        for undoable in self.clocks.undoable() {
            let Some(found) = Text::new(undoable.found) else {
                continue;
            };
            let report = Report::File {
                cpu: undoable.cpu,
                found,
            };
            // There may be more of them than the socket pair holds at a time.
            if let Err(error) = self.channel.send_soon(&report, undoable.file.as_fd()) {
                return Answer::refused(&error);
            }
        }
        Answer::DONE
    }

    fn adopt(
        &mut self,
        instance: InstanceId,
        pid: u32,
        uptime_s: u64,
        address: std::net::SocketAddr,
    ) -> Result<(), Answer> {
        if self.instances.len() >= INSTANCES_MAX && !self.instances.contains_key(&instance) {
            return Err(Answer::of(Code::TooMany));
        }
        // First the handle, then the checks: what was checked is then what the handle means.
        let handle = process::handle(pid).ok_or(Answer::of(Code::NoProcess))?;
        let is_named = self.named.contains(&address);
        process::verify(pid, uptime_s, address, is_named).map_err(Answer::of)?;
        let started = process::started(pid).ok_or(Answer::of(Code::NoProcess))?;
        let threads = Threads::of(pid).map_err(|error| Answer::refused(&error))?;
        self.forget(instance);
        self.waits
            .process(instance, handle.as_fd())
            .map_err(|error| Answer::refused(&error))?;
        let adopted = Adopted {
            pid,
            started,
            handle,
            threads,
            core: None,
            is_kept_away: false,
            link: None,
        };
        self.instances.insert(instance, adopted);
        Ok(())
    }

    fn forget(&mut self, instance: InstanceId) {
        self.close(instance);
        if let Some(mut adopted) = self.instances.remove(&instance) {
            self.waits.forget_process(adopted.handle.as_fd());
            adopted.threads.restore(&mut self.journal);
        }
    }

    fn pin(&mut self, instance: InstanceId, core: Option<Cpu>, is_kept_away: bool) -> Answer {
        if core.is_some_and(|cpu| self.cores.get(cpu).is_none()) {
            return Answer::of(Code::NotAllowed);
        }
        let Some(adopted) = self.instances.get_mut(&instance) else {
            return Answer::of(Code::NotAdopted);
        };
        (adopted.core, adopted.is_kept_away) = (core, is_kept_away);
        if self.is_dry {
            return Answer::DONE;
        }
        let answer = match core {
            Some(cpu) => adopted
                .threads
                .set(&mut self.journal, BTreeSet::from([cpu])),
            None if !is_kept_away => adopted.threads.restore(&mut self.journal),
            None => Answer::DONE,
        };
        self.keep_away();
        answer
    }

    /// Keeps instances off the clocks of those that are pinned.
    fn keep_away(&mut self) {
        let pinned = self.instances.values().filter_map(|adopted| adopted.core);
        let domains = pinned.filter_map(|cpu| self.cores.get(cpu));
        let taken = domains.flat_map(|described| &described.core.domain);
        let taken = taken.copied().collect::<BTreeSet<Cpu>>();
        for adopted in self
            .instances
            .values_mut()
            .filter(|adopted| adopted.is_kept_away)
        {
            let left = adopted.threads.home().difference(&taken).copied();
            adopted.threads.set(&mut self.journal, left.collect());
        }
    }

    /// Looks whether all is as it was set; says how late sleeps are.
    fn look(&mut self) -> Answer {
        let now = system::now_ns();
        self.look_at_cores();
        for left in self.clocks.look(&mut self.journal, now) {
            let report = Report::Conflict {
                cpu: left.cpu,
                khz: left.khz,
            };
            self.report(&report);
        }
        if !self.is_dry {
            for adopted in self.instances.values_mut() {
                adopted.threads.look(&mut self.journal, now);
            }
            // Retried at the next look.
            let _ = threads::forget_ended(&mut self.journal);
        }
        let instances = self.instances.iter();
        let lost = instances
            .filter(|(_, adopted)| adopted.link.as_ref().is_some_and(|link| !link.is_held()));
        for instance in lost
            .map(|(instance, _)| *instance)
            .collect::<Vec<InstanceId>>()
        {
            self.close(instance);
        }
        Answer::value(self.late.p99())
    }

    fn energy(&self, package: u32) -> Answer {
        let Some(folder) = self.packages.get(package as usize) else {
            return Answer::of(Code::NoPackage);
        };
        let number = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name))?;
            text.trim().parse::<u64>().map_err(std::io::Error::other)
        };
        match (number("energy_uj"), number("max_energy_range_uj")) {
            (Ok(value), Ok(more)) => Answer {
                more,
                ..Answer::value(value)
            },
            (Err(error), _) | (_, Err(error)) => Answer::refused(&error),
        }
    }
}
