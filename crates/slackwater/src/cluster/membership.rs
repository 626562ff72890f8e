//! The hosts that have joined an orchestrator.
//!
//! ```text
//! door ─► greeting ─► members ─► JoinedHost, with a thread that hears its agent
//!                       └─ watch: one thread that gives up hosts whose beats have stopped
//! ```
//!
//! Without beats that are due, no thread wakes up (I7).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use slackwater_control::lease::Terms;
use slackwater_engine::time::now_ns;
use slackwater_link::LinkError;
use slackwater_secure::{Door, Refusals, Secret, Stream};

use super::joined::{Joined, JoinedHost};
use super::messages::{ClockKnown, Hello, ToAgent};
use super::session::{Beside, Receiver, Session};
use super::traffic::{Bytes, Counted};
use crate::hosts::{Build, Host};
use crate::terminal::say;

/// The kernel breaks a silent session so long after its other end has gone: 5 s + 3 × 2 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_COUNT: u32 = 3;

/// How long agents may take to hear that the query is over.
const DISMISS_PATIENCE: Duration = Duration::from_secs(1);

/// How often strangers are told of.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// The shortest wait for a beat.
const MS_NS: u64 = 1_000_000;

/// The most hosts: the kernel of the orchestrator's host opens a connection and three threads for each.
pub const HOSTS_MAX: usize = 256;

/// The hosts that have joined. Dropping it tells their agents that the query is over.
pub struct Membership {
    shared: Arc<Shared>,
    door: Door,
}

struct Shared {
    name: String,
    term: u64,
    build: Build,
    host_timeout: Duration,
    /// Called when a host has joined or is to leave.
    told: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    hosts: BTreeMap<String, Arc<JoinedHost>>,
    /// Messages of earlier incarnations, of hosts that have joined again since.
    fenced: u64,
    is_over: bool,
}

impl Membership {
    /// Listens for agents that know the secret at `address`, as the host `name`.
    ///
    /// # Errors
    ///
    /// If the address can't be listened at.
    pub fn new(
        address: SocketAddr,
        secret: Option<Secret>,
        name: &str,
        term: u64,
        host_timeout: Duration,
        told: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Membership> {
        let shared = Arc::new(Shared {
            name: name.to_string(),
            term,
            build: Build::this(),
            host_timeout,
            told: Box::new(told),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let admitting = Arc::downgrade(&shared);
        let admit_one = move |stream, peer| {
            if let Some(shared) = admitting.upgrade() {
                admit(&shared, stream, peer);
            }
        };
        let door = Door::bind(address, secret, admit_one, Strangers::default().teller())?;
        let watching = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("hosts".to_string())
            .spawn(move || watch(&watching))?;
        Ok(Membership { shared, door })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.door.local_address()
    }

    /// The hosts that were asked to leave.
    pub fn leaving(&self) -> Vec<Arc<JoinedHost>> {
        let state = self.shared.state();
        let there = state.hosts.values().filter(|host| host.is_there());
        there.filter(|host| host.leaves()).cloned().collect()
    }

    /// What a host knows of the clock of this one.
    pub fn clock(&self, name: &str) -> Option<ClockKnown> {
        let state = self.shared.state();
        state.hosts.get(name).and_then(|host| host.clock())
    }

    /// The bytes of messages to the agent of a host and from it.
    pub fn traffic(&self, name: &str) -> Bytes {
        let host = self.shared.state().hosts.get(name).cloned();
        host.map_or_else(Bytes::default, |host| host.traffic())
    }

    /// The messages of earlier incarnations that were dropped.
    pub fn fenced(&self) -> u64 {
        let state = self.shared.state();
        let there = state.hosts.values().map(|host| host.fenced());
        state.fenced + there.sum::<u64>()
    }

    /// The connections that were turned away.
    pub fn refused(&self) -> Refusals {
        self.door.refused()
    }

    /// The hosts that are there, by name.
    pub fn hosts(&self) -> Vec<Arc<dyn Host>> {
        let state = self.shared.state();
        let there = state.hosts.values().filter(|host| is_usable(host));
        let there = there.map(|host| Arc::new(Joined(Arc::clone(host))) as Arc<dyn Host>);
        there.collect()
    }

    /// Waits until so many hosts are there; returns false if that takes too long.
    pub fn wait_for(&self, count: usize, until: Instant) -> bool {
        let mut state = self.shared.state();
        loop {
            let there = state.hosts.values().filter(|host| is_usable(host));
            if there.count() >= count {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no thread panics under it");
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        for host in state.hosts.values() {
            host.dismiss();
        }
        self.shared.changed.notify_all();
        // Until agents have read it: this process may end.
        let until = Instant::now() + DISMISS_PATIENCE;
        while state.hosts.values().any(|host| host.is_there()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no thread panics under it");
        }
    }
}

/// Whether processes can be started on a host.
fn is_usable(host: &JoinedHost) -> bool {
    host.is_there() && !host.leaves()
}

/// Tells of strangers: at once of the first, and then once a minute.
#[derive(Default)]
struct Strangers {
    told: Cell<Option<Instant>>,
    since: Cell<u64>,
}

impl Strangers {
    fn teller(self) -> impl Fn(&LinkError) {
        move |refusal| {
            self.since.set(self.since.get() + 1);
            let told = self.told.get();
            if told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
                return;
            }
            let LinkError { peer, reason, hint } = refusal;
            let others = match self.since.take() {
                0 | 1 => String::new(),
                count => format!(" ({} more since the last one)", count - 1),
            };
            say(&format!(
                "warning: {peer} was turned away: it {reason}{others}\n  = {hint}\n"
            ));
            self.told.set(Some(Instant::now()));
        }
    }
}

/// Greets an agent on a thread of its own, which then hears it.
fn admit(shared: &Arc<Shared>, stream: Stream, peer: SocketAddr) {
    let shared = Arc::clone(shared);
    // If there is no thread left, the agent tries again.
    let _ = std::thread::Builder::new()
        .name("session".to_string())
        .spawn(move || {
            // Silent hosts are watched by the kernel.
            if stream
                .keep_alive(KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT)
                .is_err()
            {
                return;
            }
            let Ok(session) = Session::new(stream, &peer.to_string()) else {
                return;
            };
            let mut receiver = Receiver::new(Counted {
                from: session.stream(),
                traffic: &session.traffic,
            });
            let Ok(Some((hello, _))) = receiver.receive::<Hello>() else {
                session.end("no greeting");
                return;
            };
            let name = hello.facts.name.clone();
            match shared.join(hello, &session) {
                Ok(host) => {
                    say(&format!("{name} ({peer}) has joined\n"));
                    shared.has_changed();
                    (shared.told)();
                    let mut leaves = false;
                    let reason = host.hear(&mut receiver, || {
                        shared.has_changed();
                        if std::mem::replace(&mut leaves, host.leaves()) != host.leaves() {
                            (shared.told)();
                        }
                    });
                    if !shared.state().is_over {
                        say(&format!("warning: {name} ({peer}) is lost: {reason}\n"));
                    }
                    shared.has_changed();
                }
                Err(refused) => {
                    if let ToAgent::Refused {
                        reason,
                        try_again: false,
                    } = &refused
                    {
                        say(&format!(
                            "warning: {name} ({peer}) was turned away: {reason}\n"
                        ));
                    }
                    session.send(&refused, Beside::Nothing);
                    session.finish();
                    // Until the agent has read it.
                    let _ = receiver.receive::<serde_json::Value>();
                }
            }
        });
}

/// Gives up hosts whose beats have stopped.
fn watch(shared: &Weak<Shared>) {
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

impl Shared {
    /// Lets an agent join, or says why not.
    fn join(&self, hello: Hello, session: &Arc<Session>) -> Result<Arc<JoinedHost>, ToAgent> {
        let refused = |reason: String, try_again| ToAgent::Refused { reason, try_again };
        let name = hello.facts.name.clone();
        if hello.build != self.build {
            let reason = format!(
                "runs {}, and this host {}\n  = run the same program on every host",
                self.build, hello.build
            );
            return Err(refused(reason, false));
        }
        if hello.term > self.term {
            let reason = format!("leads term {}, which is over", self.term);
            return Err(refused(reason, true));
        }
        let mut state = self.state();
        if state.is_over {
            return Err(ToAgent::Over);
        }
        let known = state.hosts.get(&name).filter(|known| known.is_there());
        if name == self.name || known.is_some() {
            let there = known.map(|known| known.peer());
            let there = there.map_or_else(String::new, |peer| format!(" at {peer}"));
            let reason =
                format!("has a host '{name}'{there} already\n  = choose another name with --name");
            return Err(refused(reason, true));
        }
        if state.hosts.len() >= HOSTS_MAX && !state.hosts.contains_key(&name) {
            return Err(refused(format!("has {HOSTS_MAX} hosts already"), true));
        }
        let welcome = ToAgent::Welcome {
            term: self.term,
            name: self.name.clone(),
            host_timeout_ms: self.host_timeout.as_millis() as u64,
        };
        session.send(&welcome, Beside::Nothing);
        let host_timeout_ns = u64::try_from(self.host_timeout.as_nanos()).unwrap_or(u64::MAX);
        let terms = Terms { host_timeout_ns };
        let host = JoinedHost::new(hello.facts, Arc::clone(session), terms);
        let host = Arc::new(host);
        if let Some(before) = state.hosts.insert(name, Arc::clone(&host)) {
            state.fenced += before.fenced();
        }
        Ok(host)
    }

    /// Wakes whoever waits for a change of a host.
    fn has_changed(&self) {
        // With the lock, so that nobody who has just looked misses it.
        drop(self.state());
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}
