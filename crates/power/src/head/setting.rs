//! From orders to requests: what is wanted, what is set, and what has to be asked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use slackwater_control::power::{Core, Cpu, InstanceId, Order, Reason};

use super::grip::{Grip, HandLost};
use crate::message::{Answer, Code, Request};

/// Where an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    Found,
    Pinned(Cpu),
    KeptAway,
}

/// What is set at present, as far as the hand has answered.
#[derive(Debug, Default)]
pub struct Setting {
    orders: BTreeMap<InstanceId, Order>,
    homes: BTreeMap<InstanceId, Home>,
    beats: BTreeMap<InstanceId, (SocketAddr, u64)>,
    caps: BTreeMap<Cpu, u32>,
    /// What hinders an instance.
    pub troubles: BTreeMap<InstanceId, String>,
    /// What hinders a core.
    pub refused: BTreeMap<Cpu, String>,
}

impl Setting {
    /// Takes orders.
    pub fn order(&mut self, orders: &[Order]) {
        for order in orders {
            match order.reason {
                Reason::Gone => {
                    self.orders.remove(&order.instance);
                }
                _ => {
                    self.orders.insert(order.instance, *order);
                }
            }
        }
    }

    /// The core, frequency and beat that are set for an instance.
    pub fn beat_ns(&self, instance: InstanceId) -> Option<u64> {
        self.beats.get(&instance).map(|(_, beat_ns)| *beat_ns)
    }

    /// The frequency to which a core is set.
    pub fn khz(&self, cpu: Cpu) -> Option<u32> {
        self.caps.get(&cpu).copied()
    }

    /// The core to which an instance is pinned.
    pub fn pinned(&self, instance: InstanceId) -> Option<Cpu> {
        match self.homes.get(&instance) {
            Some(Home::Pinned(cpu)) => Some(*cpu),
            Some(Home::KeptAway | Home::Found) | None => None,
        }
    }

    /// The instance is no longer there; the hand has undone what was set for it.
    pub fn forget(&mut self, instance: InstanceId) {
        self.orders.remove(&instance);
        self.homes.remove(&instance);
        self.beats.remove(&instance);
        self.troubles.remove(&instance);
    }

    /// Cores have come or gone, and the hand has restored all frequencies.
    pub fn restored(&mut self) {
        self.caps.clear();
        self.refused.clear();
    }

    /// The connection of an instance is closed: a beat has to start over on the next one.
    pub fn closed(&mut self, instance: InstanceId) {
        self.beats.remove(&instance);
    }

    /// Asks for whatever is not yet as it was ordered; what makes faster comes first. `masters` are the
    /// addresses of those that instances follow.
    pub fn apply(
        &mut self,
        grip: &mut Grip,
        cores: &[Core],
        masters: &BTreeMap<InstanceId, SocketAddr>,
    ) -> Result<(), HandLost> {
        let caps = self.wanted_caps(cores);
        self.raise(grip, &caps)?;
        self.set_beats(grip, masters)?;
        self.set_homes(grip)?;
        self.slow(grip, &caps)
    }

    /// One frequency for each core of a domain in which an instance runs: a sibling or a core of the same
    /// clock that stays fast keeps the others fast.
    fn wanted_caps(&self, cores: &[Core]) -> BTreeMap<Cpu, u32> {
        let mut caps = BTreeMap::<Cpu, Option<u32>>::new();
        for order in self.orders.values() {
            let Some(core) = order
                .cpu
                .and_then(|cpu| cores.iter().find(|core| core.cpu == cpu))
            else {
                continue;
            };
            for cpu in &core.domain {
                caps.entry(*cpu)
                    .and_modify(|cap| *cap = cap.zip(order.khz).map(|(one, other)| one.max(other)))
                    .or_insert(order.khz);
            }
        }
        caps.into_iter()
            .filter_map(|(cpu, khz)| Some((cpu, khz?)))
            .collect()
    }

    fn raise(&mut self, grip: &mut Grip, wanted: &BTreeMap<Cpu, u32>) -> Result<(), HandLost> {
        let set = self.caps.clone();
        for (cpu, khz) in set {
            match wanted.get(&cpu) {
                None => self.cap(grip, cpu, None)?,
                Some(wanted) if *wanted > khz => self.cap(grip, cpu, Some(*wanted))?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn slow(&mut self, grip: &mut Grip, wanted: &BTreeMap<Cpu, u32>) -> Result<(), HandLost> {
        for (cpu, khz) in wanted {
            if self.caps.get(cpu) != Some(khz) && !self.refused.contains_key(cpu) {
                self.cap(grip, *cpu, Some(*khz))?;
            }
        }
        Ok(())
    }

    fn cap(&mut self, grip: &mut Grip, cpu: Cpu, khz: Option<u32>) -> Result<(), HandLost> {
        let answer = grip.ask(Request::Cap { cpu, khz })?;
        match (answer.code, khz) {
            (Code::Done, Some(khz)) => {
                self.caps.insert(cpu, khz);
            }
            (Code::Done, None) => {
                self.caps.remove(&cpu);
            }
            (_, Some(_)) => {
                self.caps.remove(&cpu);
                self.refused
                    .insert(cpu, format!("is not slowed: {}", answer.reason()));
            }
            // Tried again at the next tick.
            (_, None) => {
                self.refused
                    .insert(cpu, format!("was not restored: {}", answer.reason()));
            }
        }
        Ok(())
    }

    fn set_beats(
        &mut self,
        grip: &mut Grip,
        masters: &BTreeMap<InstanceId, SocketAddr>,
    ) -> Result<(), HandLost> {
        for (instance, order) in self.orders.clone() {
            let master = masters.get(&instance).copied();
            let wanted = master.zip(order.beat_ns);
            let set = self.beats.get(&instance).copied();
            if wanted == set {
                continue;
            }
            // Another master's connection is another socket.
            let is_other =
                set.is_some_and(|(before, _)| wanted.is_none_or(|(master, _)| master != before));
            if let Some((before, _)) = set.filter(|_| is_other) {
                self.beat(grip, instance, before, None)?;
            }
            if let Some((master, beat_ns)) = wanted {
                self.beat(grip, instance, master, Some(beat_ns))?;
            }
        }
        Ok(())
    }

    fn beat(
        &mut self,
        grip: &mut Grip,
        instance: InstanceId,
        master: SocketAddr,
        beat_ns: Option<u64>,
    ) -> Result<(), HandLost> {
        let answer = grip.ask(Request::Beat {
            instance,
            master,
            beat_ns,
        })?;
        match (answer.code, beat_ns) {
            (Code::Done, Some(beat_ns)) => {
                self.beats.insert(instance, (master, beat_ns));
                self.troubles.remove(&instance);
            }
            (Code::Done, None) => {
                self.beats.remove(&instance);
            }
            _ => {
                self.beats.remove(&instance);
                self.trouble(instance, "is not batched", &answer);
            }
        }
        Ok(())
    }

    fn set_homes(&mut self, grip: &mut Grip) -> Result<(), HandLost> {
        for (instance, order) in self.orders.clone() {
            let wanted = match (order.cpu, order.reason) {
                (None, _) => Home::Found,
                (Some(_), Reason::Master | Reason::Promoted) => Home::KeptAway,
                (Some(cpu), _) => Home::Pinned(cpu),
            };
            let set = self.homes.get(&instance).copied().unwrap_or(Home::Found);
            if wanted == set {
                continue;
            }
            let answer = grip.ask(match wanted {
                Home::Found => Request::Unpin { instance },
                Home::Pinned(cpu) => Request::Pin { instance, cpu },
                Home::KeptAway => Request::KeepAway { instance },
            })?;
            // Asked once: a process that can't be pinned now can't be pinned later.
            self.homes.insert(instance, wanted);
            if answer.code != Code::Done {
                self.trouble(instance, "is not pinned", &answer);
            }
        }
        Ok(())
    }

    fn trouble(&mut self, instance: InstanceId, what: &str, answer: &Answer) {
        self.troubles
            .insert(instance, format!("{what}: {}", answer.reason()));
    }
}
