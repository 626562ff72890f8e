//! The hosts that have joined an orchestrator.
//!
//! ```text
//! door ─► greeting ─► members ─► JoinedHost, with a thread that hears its agent
//!                       └─ watch: one thread that gives up hosts whose beats have stopped
//! ```
//!
//! Without beats that are due, no thread wakes up (I7).

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use slackwater_secure::{Door, Secret};

use super::admission::admit;
use super::greeting::strangers;
use super::joined::{Joined, JoinedHost};
use super::members::{About, Members, is_usable, watch};
use super::messages::ClockKnown;
use super::traffic::Bytes;
use crate::hosts::Host;
use crate::terminal::say;

/// How long agents may take to hear that the query is over.
const DISMISS_PATIENCE: Duration = Duration::from_secs(1);

/// The hosts that have joined. Dropping it tells their agents that the query is over.
pub struct Membership {
    members: Arc<Members>,
    door: Door,
}

impl Membership {
    /// Listens at `address` for agents that know the secret. `told` is called when a host has joined or is to
    /// leave. At the end, agents are told that the query is over, unless it `hands_over` to another
    /// orchestrator.
    ///
    /// # Errors
    ///
    /// If the address can't be listened at.
    pub fn new(
        address: SocketAddr,
        secret: Option<Secret>,
        about: About,
        told: impl Fn() + Send + Sync + 'static,
        hands_over: impl Fn() -> bool + Send + Sync + 'static,
    ) -> io::Result<Membership> {
        let members = Arc::new(Members {
            about,
            address: OnceLock::new(),
            told: Box::new(told),
            hands_over: Box::new(hands_over),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let admitting = Arc::downgrade(&members);
        let admit_one = move |stream, peer| {
            if let Some(members) = admitting.upgrade() {
                admit(&members, stream, peer);
            }
        };
        let counting = Arc::downgrade(&members);
        let count = move || {
            if let Some(members) = counting.upgrade() {
                members.turned_away();
            }
        };
        let tell = |what: &str, hint: &str| say(&format!("warning: {what}\n  = {hint}\n"));
        let door = Door::bind(address, secret, admit_one, strangers(count, tell))?;
        let _ = members.address.set(door.local_address());
        let watching = Arc::downgrade(&members);
        std::thread::Builder::new()
            .name("hosts".to_string())
            .spawn(move || watch(&watching))?;
        Ok(Membership { members, door })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.door.local_address()
    }

    /// The hosts that were asked to leave.
    pub fn leaving(&self) -> Vec<Arc<JoinedHost>> {
        let state = self.members.state();
        let there = state.hosts.values().filter(|host| host.is_there());
        there.filter(|host| host.leaves()).cloned().collect()
    }

    /// What a host knows of the clock of this one.
    pub fn clock(&self, name: &str) -> Option<ClockKnown> {
        let state = self.members.state();
        state.hosts.get(name).and_then(|host| host.clock())
    }

    /// The bytes of messages to the agent of a host and from it.
    pub fn traffic(&self, name: &str) -> Bytes {
        let host = self.members.state().hosts.get(name).cloned();
        host.map_or_else(Bytes::default, |host| host.traffic())
    }

    /// The messages of earlier incarnations that were dropped.
    pub fn fenced(&self) -> u64 {
        self.members.state().fenced()
    }

    /// The connections that were turned away.
    pub fn refused(&self) -> u64 {
        self.members.state().refused
    }

    /// The hosts that are there, by name.
    pub fn hosts(&self) -> Vec<Arc<dyn Host>> {
        let state = self.members.state();
        let there = state.hosts.values().filter(|host| is_usable(host));
        let there = there.map(|host| Arc::new(Joined(Arc::clone(host))) as Arc<dyn Host>);
        there.collect()
    }

    /// Counts the hosts that are there, on any thread and also when the membership is over.
    pub fn counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let members = Arc::downgrade(&self.members);
        move || {
            members.upgrade().map_or(0, |members| {
                let state = members.state();
                state.hosts.values().filter(|host| is_usable(host)).count()
            })
        }
    }

    /// Waits until so many hosts are there, and those with these names; returns false if that takes too long.
    pub fn wait_for(&self, count: usize, names: &[&str], until: Instant) -> bool {
        let mut state = self.members.state();
        loop {
            let there = state.hosts.values().filter(|host| is_usable(host));
            let mut names = names.iter();
            let is_there = |name: &&str| state.hosts.get(*name).is_some_and(|host| is_usable(host));
            if there.count() >= count && names.all(is_there) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.members.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no thread panics under it");
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.members.state();
        state.is_over = true;
        let hands_over = (self.members.hands_over)();
        for host in state.hosts.values() {
            match hands_over {
                true => host.give_up("another orchestrator goes on with the query"),
                false => host.dismiss(),
            }
        }
        self.members.changed.notify_all();
        // Until agents have read it: this process may end.
        let until = Instant::now() + DISMISS_PATIENCE;
        while state.hosts.values().any(|host| host.is_there()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.members.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no thread panics under it");
        }
    }
}
