//! Who has come in through the door of an orchestrator.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use slackwater_control::lease::Terms;
use slackwater_engine::time::now_ns;
use slackwater_sql::settings::Hosts;

use super::greeting::other_program;
use super::joined::JoinedHost;
use super::messages::{Hello, Status, ToAgent};
use super::session::{Beside, Session};

/// The shortest wait for a beat.
const MS_NS: u64 = 1_000_000;

/// The most hosts: the kernel of the orchestrator's host opens a connection and three threads for each.
const HOSTS_MAX: usize = 256;

/// What hosts and others are told of an orchestrator.
pub struct About {
    /// The name of its host.
    pub name: String,
    /// The number of its term.
    pub term: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The query's name.
    pub query: String,
    /// How many hosts the query is to run on.
    pub hosts: Hosts,
    /// Whether the orchestrator's own host is one of them.
    pub here: bool,
    /// The terms of leases.
    pub terms: Terms,
}

/// The hosts that have joined, and whoever else has come in through the door.
pub struct Members {
    /// What is told of the orchestrator.
    pub about: About,
    /// Where it listens.
    pub address: OnceLock<SocketAddr>,
    /// Called when a host has joined or is to leave.
    pub told: Box<dyn Fn() + Send + Sync>,
    /// Whether another orchestrator goes on with the query, so that agents join that one.
    pub hands_over: Box<dyn Fn() -> bool + Send + Sync>,
    /// What changes.
    pub state: Mutex<State>,
    /// Notified when a host has changed.
    pub changed: Condvar,
}

/// Who is there.
#[derive(Default)]
pub struct State {
    /// The hosts, by name.
    pub hosts: BTreeMap<String, Arc<JoinedHost>>,
    /// Messages of earlier incarnations, of hosts that have joined again since.
    fenced: u64,
    /// The connections that were turned away.
    pub refused: u64,
    /// The orchestrators that stand by, by session.
    standbys: BTreeMap<u64, String>,
    /// The number of the last of them.
    last: u64,
    /// Whether the query is over, here.
    pub is_over: bool,
}

impl State {
    /// Messages of earlier incarnations that were dropped.
    pub fn fenced(&self) -> u64 {
        let there = self.hosts.values().map(|host| host.fenced());
        self.fenced + there.sum::<u64>()
    }
}

/// Whether processes can be started on a host.
pub fn is_usable(host: &JoinedHost) -> bool {
    host.is_there() && !host.leaves()
}

/// Gives up hosts whose beats have stopped.
pub fn watch(shared: &Weak<Members>) {
    while let Some(shared) = shared.upgrade() {
        let state = shared.state();
        if state.is_over {
            return;
        }
        let now = now_ns();
        for host in state.hosts.values() {
            if host.due_ns().is_some_and(|due_ns| due_ns <= now) {
                host.look();
            }
        }
        let next = state.hosts.values().filter_map(|host| host.due_ns()).min();
        match next {
            None => drop(shared.changed.wait(state)),
            Some(next) => {
                let left = Duration::from_nanos(next.saturating_sub(now).max(MS_NS));
                drop(shared.changed.wait_timeout(state, left));
            }
        }
    }
}

impl Members {
    /// Lets an agent join, or says why not.
    pub fn join(&self, hello: Hello, session: &Arc<Session>) -> Result<Arc<JoinedHost>, ToAgent> {
        // For now: it tries again.
        let refused = |reason: String| ToAgent::Refused {
            reason,
            try_again: true,
        };
        let name = hello.facts.name.clone();
        if let Some(refused) = other_program(&hello) {
            return Err(refused);
        }
        let term = (self.about.term)();
        if hello.term > term {
            let reason = format!("leads term {term}, which is over");
            return Err(refused(reason));
        }
        let mut state = self.state();
        if state.is_over && (self.hands_over)() {
            let reason = "leads no more: another orchestrator goes on".to_string();
            return Err(refused(reason));
        }
        if state.is_over {
            return Err(ToAgent::Over { is_drained: false });
        }
        let known = state.hosts.get(&name).filter(|known| known.is_there());
        if name == self.about.name || known.is_some() {
            let there = known.map(|known| known.peer());
            let there = there.map_or_else(String::new, |peer| format!(" at {peer}"));
            let reason =
                format!("has a host '{name}'{there} already\n  = choose another name with --name");
            return Err(refused(reason));
        }
        if state.hosts.len() >= HOSTS_MAX && !state.hosts.contains_key(&name) {
            return Err(refused(format!("has {HOSTS_MAX} hosts already")));
        }
        let welcome = ToAgent::Welcome {
            term,
            name: self.about.name.clone(),
            host_timeout_ns: self.about.terms.host_timeout_ns,
        };
        session.send(&welcome, Beside::Nothing);
        let host = JoinedHost::new(hello.facts, Arc::clone(session), self.about.terms);
        let host = Arc::new(host);
        if let Some(before) = state.hosts.insert(name, Arc::clone(&host)) {
            state.fenced += before.fenced();
        }
        Ok(host)
    }

    /// An orchestrator stands by; returns the number of its session.
    pub fn stands_by(&self, name: String) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.standbys.insert(number, name);
        number
    }

    /// It doesn't any more.
    pub fn left(&self, standby: u64) {
        self.state().standbys.remove(&standby);
    }

    /// A connection was turned away.
    pub fn turned_away(&self) {
        self.state().refused += 1;
    }

    /// A host that has joined.
    pub fn host(&self, name: &str) -> Option<Arc<JoinedHost>> {
        let state = self.state();
        let host = state.hosts.get(name).filter(|host| host.is_there());
        host.cloned()
    }

    /// Whether the query is over.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// How the orchestrator stands.
    pub fn status(&self) -> Status {
        let About {
            name,
            term,
            query,
            hosts,
            here,
            ..
        } = &self.about;
        let state = self.state();
        let there = state.hosts.values().filter(|host| host.is_there());
        let unknown = || SocketAddr::from(([0, 0, 0, 0], 0));
        Status {
            name: name.clone(),
            address: self.address.get().copied().unwrap_or_else(unknown),
            pid: std::process::id(),
            term: term(),
            query: query.clone(),
            hosts_min: hosts.min,
            hosts_max: hosts.max,
            here: *here,
            hosts: there.map(|host| host.status()).collect(),
            standbys: state.standbys.values().cloned().collect(),
            fenced: state.fenced(),
            refused: state.refused,
        }
    }

    /// Wakes whoever waits for a change of a host.
    pub fn has_changed(&self) {
        // With the lock, so that nobody who has just looked misses it.
        drop(self.state());
        self.changed.notify_all();
    }

    /// Who is there.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}

#[cfg(test)]
mod tests {
    use super::super::session::tests::sessions;
    use super::*;
    use crate::hosts::{Build, Facts};
    use crate::machine::Machine;

    fn ended(hands_over: bool) -> Members {
        let about = About {
            name: "o1".to_string(),
            term: Box::new(|| 1),
            query: "query.sql".to_string(),
            hosts: Hosts { min: 1, max: 1 },
            here: false,
            terms: Terms {
                host_timeout_ns: 3_000_000_000,
            },
        };
        let state = State {
            is_over: true,
            ..State::default()
        };
        Members {
            about,
            address: OnceLock::new(),
            told: Box::new(|| {}),
            hands_over: Box::new(move || hands_over),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    #[test]
    fn an_agent_that_comes_while_a_query_is_handed_over_tries_again() {
        let [session, _agent] = sessions();
        let join = |hands_over| {
            let hello = Hello {
                build: Build::this(),
                facts: Facts::here("h2", [127, 0, 0, 1].into(), &Machine::this()),
                term: 1,
            };
            ended(hands_over).join(hello, &session).unwrap_err()
        };
        let later = join(true);
        assert!(
            matches!(
                later,
                ToAgent::Refused {
                    try_again: true,
                    ..
                }
            ),
            "{later:?}"
        );
        assert!(matches!(join(false), ToAgent::Over { .. }));
    }
}
