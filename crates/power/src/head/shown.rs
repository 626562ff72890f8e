//! What is known and done at present, for people and programs.

use slackwater_control::power::energy::{Modelled, PAPER_WORDS};
use slackwater_control::power::{Busy, Cpu, Obstacle, Order, Reason};

use super::Head;
use super::server::Server;
use crate::cores;
use crate::facts::RoleSaid;
use crate::status::{CoreStatus, EnergyStatus, ServerStatus, Status};
use crate::system;

impl Head {
    /// What is known and done at present.
    pub fn status(&self) -> Status {
        let servers = self
            .servers
            .values()
            .map(|server| self.server_status(server));
        let cores = self.cores.iter().map(|core| self.core_status(core.cpu));
        let pair = |modelled: &Modelled| (modelled.used_s, modelled.all_fast_s);
        Status {
            servers: servers.collect(),
            cores: cores.collect(),
            energy: EnergyStatus {
                rapl_joules: self.meters.joules,
                modelled_sigma_one: pair(&self.energy.modelled().0),
                modelled_sigma_zero: pair(&self.energy.modelled().1),
                voltages: Some(PAPER_WORDS.to_string()),
            },
            boosts: self
                .boosts
                .iter()
                .map(|(reason, count)| (reason.to_string(), *count))
                .collect(),
            troubles: self
                .watches
                .iter()
                .filter_map(|watch| Some(format!("{}: {}", watch.seed, watch.trouble.as_ref()?)))
                .collect(),
            dry_run: self.is_dry,
        }
    }

    fn server_status(&self, server: &Server) -> ServerStatus {
        let instance = server.instance.map(|(instance, _)| instance);
        let order = instance.and_then(|instance| self.manager.setting(instance));
        let cpu = instance.and_then(|instance| self.setting.pinned(instance));
        let set_khz = cpu.and_then(|cpu| self.setting.khz(cpu));
        let beat_ns = instance.and_then(|instance| self.setting.beat_ns(instance));
        let classes = [
            ("frequency", set_khz.is_some()),
            ("pin", cpu.is_some()),
            ("batch", beat_ns.is_some()),
        ];
        let lag_bytes = match &server.role {
            Some(RoleSaid::Replica { master, offset, .. }) => {
                let master = self
                    .names
                    .get(master)
                    .and_then(|master| self.servers.get(master));
                match master.and_then(|master| master.role.as_ref()) {
                    Some(RoleSaid::Master { offset: sent, .. }) => {
                        Some(sent.saturating_sub(*offset))
                    }
                    Some(RoleSaid::Replica { .. } | RoleSaid::Sentinel) | None => None,
                }
            }
            Some(RoleSaid::Master { .. } | RoleSaid::Sentinel) | None => None,
        };
        let reason = match (order, server.is_here) {
            (Some(order), _) => reason(&order.reason),
            (None, false) => "it runs on another host".to_string(),
            (None, true) => "it is left alone".to_string(),
        };
        ServerStatus {
            address: server.address.to_string(),
            product: server.info.product(),
            role: match server.role {
                Some(RoleSaid::Master { .. }) => "master",
                Some(RoleSaid::Replica { .. }) => "replica",
                Some(RoleSaid::Sentinel) => "sentinel",
                None => "unknown",
            }
            .to_string(),
            pid: server.instance.map(|(_, pid)| pid),
            cpu,
            set_khz,
            beat_ns,
            beats: instance
                .and_then(|instance| self.meters.beats.get(&instance).copied())
                .unwrap_or(0),
            lag_bytes,
            lag_ns: instance.and_then(|instance| self.manager.lag_ns(instance)),
            cpu_ns: server
                .instance
                .and_then(|(_, pid)| system::cpu_time_ns(pid)),
            reason,
            classes: classes
                .iter()
                .filter(|(_, is)| *is)
                .map(|(class, _)| class.to_string())
                .collect(),
            trouble: server
                .trouble
                .clone()
                .or_else(|| self.setting.troubles.get(&instance?).cloned()),
        }
    }

    fn core_status(&self, cpu: Cpu) -> CoreStatus {
        let why = self
            .fixed
            .get(&cpu)
            .or_else(|| self.setting.refused.get(&cpu));
        CoreStatus {
            cpu,
            class: if why.is_none() { "frequency" } else { "none" }.to_string(),
            set_khz: self.setting.khz(cpu),
            measured_khz: cores::measured_khz(&self.sysfs, cpu),
            conflicts: self.conflicts.get(&cpu).copied().unwrap_or(0),
            why: why.cloned(),
        }
    }
}

/// Why an instance is as fast as it is, for people.
pub(super) fn reason(reason: &Reason) -> String {
    match reason {
        Reason::Master => "it is a master",
        Reason::Unknown => "its role is not known",
        Reason::MasterLost => "its master was lost, it may be promoted",
        Reason::Promoted => "it may be promoted",
        Reason::NotFollowing => "its connection is down, or it receives a snapshot",
        Reason::Busy(Busy::Loads) => "it loads its data",
        Reason::Busy(Busy::Saves) => "it saves a snapshot",
        Reason::Busy(Busy::IsWaitedFor) => "somebody waits for its acknowledgements",
        Reason::Settling => "its role is not settled",
        Reason::NotMeasured => "what it needs was not measured yet",
        Reason::Lag => "it is behind by more than what is allowed",
        Reason::Follows => "it follows",
        Reason::NeedsSpeed => "it follows, and no slower core would keep up",
        Reason::NotSlowed(Obstacle::NotSettable { .. }) => {
            "it follows; its core's frequency can't be set"
        }
        Reason::NotSlowed(Obstacle::NoCore) => "it follows; no core is left that can be slowed",
        Reason::NotSlowed(obstacle) => return format!("it follows, but is not slowed: {obstacle}"),
        Reason::Gone => "it is no longer there",
    }
    .to_string()
}

/// The name by which a raise is counted.
pub(super) fn boost(order: &Order) -> Option<&'static str> {
    match order.reason {
        Reason::Lag => Some("lag"),
        Reason::Promoted => Some("promoted"),
        Reason::NotFollowing => Some("not_following"),
        Reason::Busy(_) => Some("busy"),
        // Counted once for all that follow it.
        Reason::MasterLost
        | Reason::Master
        | Reason::Unknown
        | Reason::Settling
        | Reason::NotMeasured
        | Reason::Follows
        | Reason::NeedsSpeed
        | Reason::NotSlowed(_)
        | Reason::Gone => None,
    }
}
