//! When a round asks whom.

use super::grip::HandLost;
use super::server::Server;
use super::{APART_MIN_NS, COLLECT_NS, Head, LONG_NS, Phase, SHORT_NS, SILENCE_NS};
use crate::facts::RoleSaid;

impl Head {
    /// Takes the round a step further if it is time to. True if the rounds are over.
    pub(super) fn advance(&mut self, now: u64) -> Result<bool, HandLost> {
        let answered = !self.servers.values().any(Server::waits);
        match self.phase {
            Phase::Idle { next } if next <= now => {
                self.begin(now);
                Ok(false)
            }
            Phase::First { since, until } if until <= now => {
                self.note_sent(since);
                self.ask_all(now);
                Ok(false)
            }
            Phase::Second { all, until } if until <= now && answered => self.decide(now, all),
            Phase::Idle { .. } | Phase::First { .. } | Phase::Second { .. } => Ok(false),
        }
    }

    /// Whether nothing has been written for a while, and nothing has changed.
    pub(super) fn is_silent(&self, now: u64) -> bool {
        now >= self.lively_until && now.saturating_sub(self.written) > SILENCE_NS
    }

    fn begin(&mut self, now: u64) {
        if self.is_silent(now) {
            self.ask_all(now);
            return;
        }
        let servers = self.servers.values_mut();
        for server in servers.filter(|server| server.is_asked_first()) {
            server.ask(false, now);
        }
        let pause_ns = match now < self.lively_until {
            true => SHORT_NS,
            false => LONG_NS,
        };
        let lag_ns = self.settings.limits.guard_ns();
        self.phase = Phase::First {
            since: now,
            until: now + lag_ns.clamp(APART_MIN_NS, pause_ns / 2),
        };
    }

    fn ask_all(&mut self, now: u64) {
        let all = self.next_all <= now;
        if all {
            self.next_all = now + LONG_NS - SHORT_NS / 2;
            for watch in &mut self.watches {
                watch.ask(now);
            }
        }
        for server in self.servers.values_mut() {
            server.ask(all, now);
        }
        self.phase = Phase::Second {
            all,
            until: now + COLLECT_NS,
        };
    }

    /// What masters had sent when they were asked first.
    fn note_sent(&mut self, since: u64) {
        for (master, replica) in self.masters() {
            let Some(master) = self.servers.get(&master).filter(|master| !master.waits()) else {
                continue;
            };
            let replica = self
                .servers
                .get(&replica)
                .and_then(|server| server.instance);
            if let (Some(RoleSaid::Master { offset, .. }), Some((instance, _))) =
                (&master.role, replica)
            {
                self.manager.sent(instance, since, *offset);
            }
        }
    }
}
