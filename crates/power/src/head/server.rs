//! A server: its connection, what it says, and whether its process was verified.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use slackwater_control::power::{Busy, InstanceId, ReplicaLink, Role};

use crate::client::{Client, Login, Lost};
use crate::config::Process;
use crate::facts::{self, Info, RoleSaid};
use crate::process::group;
use crate::resp::Reply;

/// How long until a server that is not there is tried again, and at most, when it stays away.
const RETRY_NS: u64 = 200_000_000;
const RETRY_MAX_NS: u64 = 5_000_000_000;
/// How long a replica is fast after somebody has waited for its acknowledgement.
const WAITED_NS: u64 = 10_000_000_000;
/// How long until a process that was not verified is looked at again.
const VERIFY_NS: u64 = 5_000_000_000;
/// For how long nobody has to name a server until it is forgotten.
const NAMED_NS: u64 = 60_000_000_000;

/// The sections of INFO that a server is asked for, with ROLE before them: an offset should be new.
const SECTIONS: [&str; 5] = [
    "server",
    "persistence",
    "stats",
    "replication",
    "commandstats",
];

/// A server.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// How to log in.
    pub login: Option<Login>,
    /// Whether it runs on this host.
    pub is_here: bool,
    /// What it said about itself.
    pub info: Info,
    /// What it said of its role, with its last answer.
    pub role: Option<RoleSaid>,
    /// The number of its process, once that was verified.
    pub instance: Option<(InstanceId, u32)>,
    /// Why it is left alone, or can't be asked.
    pub trouble: Option<String>,
    /// Its process, if the configuration names it.
    pub process: Option<Process>,
    client: Option<Client>,
    asks_all: bool,
    next_try: u64,
    retry: u64,
    next_verify: u64,
    named: u64,
    waits: Option<u64>,
    waited: Option<u64>,
}

impl Server {
    /// A server that was not asked yet.
    pub fn new(address: SocketAddr, login: Option<Login>, now: u64) -> Self {
        Self {
            address,
            login,
            is_here: is_here(address),
            info: Info::default(),
            role: None,
            instance: None,
            trouble: None,
            process: None,
            client: None,
            asks_all: false,
            next_try: now,
            retry: RETRY_NS,
            next_verify: now,
            named: now,
            waits: None,
            waited: None,
        }
    }

    /// Somebody has named it.
    pub fn name(&mut self, now: u64) {
        self.named = now;
    }

    /// Whether nobody has named it for long.
    pub fn is_forgotten(&self, now: u64) -> bool {
        now.saturating_sub(self.named) > NAMED_NS
    }

    /// Whether it says that it is a master, or has not said anything: those are asked first.
    pub fn is_asked_first(&self) -> bool {
        !matches!(self.role, Some(RoleSaid::Replica { .. }))
    }

    /// Its connection.
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Whether an answer is missing.
    pub fn waits(&self) -> bool {
        self.client.as_ref().is_some_and(Client::waits)
    }

    /// Asks for its role, or for everything. Connects if it has to, and if it is time to.
    pub fn ask(&mut self, all: bool, now: u64) {
        let is_new = self.client.is_none();
        if is_new {
            if now < self.next_try {
                return;
            }
            match Client::connect(self.address, self.login.as_ref(), now) {
                Ok(client) => self.client = Some(client),
                Err(error) => {
                    self.lost(&Lost::System(error), now);
                    return;
                }
            }
        }
        let Some(client) = self.client.as_mut().filter(|client| !client.waits()) else {
            return;
        };
        self.asks_all = all || is_new;
        let info = SECTIONS.map(|section| ["INFO", section]);
        let role: &[&str] = &["ROLE"];
        let commands = std::iter::once(role).chain(info.iter().map(|words| &words[..]));
        let count = if self.asks_all { 1 + SECTIONS.len() } else { 1 };
        client.ask(&commands.take(count).collect::<Vec<&[&str]>>(), now);
    }

    /// Writes what could not be written when it was asked: it was not connected yet.
    pub fn send(&mut self) {
        if let Some(client) = self.client.as_mut().filter(|client| client.writes()) {
            client.send();
        }
    }

    /// Reads what has come. An error is the end of the connection.
    pub fn step(&mut self, now: u64) -> Result<(), Lost> {
        let Some(client) = self.client.as_mut() else {
            return Ok(());
        };
        if let Some(replies) = client.step(now)? {
            self.retry = RETRY_NS;
            self.take(&replies, now);
        }
        Ok(())
    }

    fn take(&mut self, replies: &[Reply], now: u64) {
        self.trouble = None;
        let role = replies.first();
        self.role = role.and_then(facts::role);
        if self.role.is_none() {
            let said = role
                .and_then(Reply::error)
                .unwrap_or("an answer to ROLE that has another form");
            self.trouble = Some(format!("says: {}", printable(said)));
        }
        if !self.asks_all {
            return;
        }
        let mut info = Info::default();
        for reply in &replies[1..] {
            match (reply.text(), reply.error()) {
                (Some(text), _) => info.add(Info::of(text)),
                (None, said) => {
                    let said = said.unwrap_or("an answer to INFO that is not text");
                    self.trouble = Some(format!("says: {}", printable(said)));
                }
            }
        }
        self.info = info;
        let waits = self.info.calls("wait") + self.info.calls("waitaof");
        if self
            .waits
            .replace(waits)
            .is_some_and(|before| waits > before)
        {
            self.waited = Some(now);
        }
    }

    /// The connection has ended; true if it was a master's.
    pub fn lost(&mut self, why: &Lost, now: u64) -> bool {
        self.client = None;
        self.trouble = Some(why.to_string());
        self.next_try = now + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MAX_NS);
        matches!(self.role.take(), Some(RoleSaid::Master { .. }))
    }

    /// For how long it says that it has run, if its process has to be verified, and if it is time to.
    pub fn unverified(&mut self, now: u64) -> Option<u64> {
        let pid = u32::try_from(self.info.number("process_id")?).ok()?;
        let uptime_s = self.info.number("uptime_in_seconds")?;
        let is_verified = self
            .instance
            .is_some_and(|(_, verified)| verified == pid || self.process.is_some());
        // A server in a container may have an address that is none of this host's.
        let is_here = self.is_here || self.process.is_some();
        if !is_here || self.role.is_none() || is_verified || now < self.next_verify {
            return None;
        }
        self.next_verify = now + VERIFY_NS;
        Some(uptime_s)
    }

    /// Processes that it may be: the one that it names, or those that the configuration names; else why there
    /// are none.
    pub fn candidates(&self, sysfs: &Path) -> Result<Vec<u32>, String> {
        match &self.process {
            None => {
                let pid = self.info.number("process_id");
                let pid = pid.and_then(|pid| u32::try_from(pid).ok());
                Ok(pid.into_iter().collect())
            }
            Some(Process::Pid(pid)) => Ok(vec![*pid]),
            Some(Process::Unit(unit)) => group::of_unit(sysfs, unit),
            Some(Process::Cgroup(path)) => group::of_cgroup(sysfs, path),
        }
    }

    /// Its process has ended, or is another one.
    pub fn unverify(&mut self, now: u64) {
        self.instance = None;
        self.next_verify = now;
    }

    /// What it is and its offset, as far as its master is known too.
    pub fn seen(&self, master: Option<&Server>) -> (Role, u64) {
        match &self.role {
            Some(RoleSaid::Master { offset, .. }) => (Role::Master, *offset),
            Some(RoleSaid::Replica { state, offset, .. }) => {
                let master_offset = master.and_then(|master| match &master.role {
                    Some(RoleSaid::Master { offset, .. } | RoleSaid::Replica { offset, .. }) => {
                        Some(*offset)
                    }
                    Some(RoleSaid::Sentinel) | None => None,
                });
                let role = Role::Replica {
                    master: master
                        .and_then(|master| master.instance)
                        .map(|(instance, _)| instance),
                    link: link(state),
                    master_offset,
                };
                (role, *offset)
            }
            Some(RoleSaid::Sentinel) | None => (Role::Unknown, 0),
        }
    }

    /// Why it has to be fast, as far as it says so.
    pub fn busy(&self) -> Option<Busy> {
        let is_set = |name: &str| self.info.is_set(name);
        if is_set("loading") || is_set("async_loading") {
            return Some(Busy::Loads);
        }
        if is_set("rdb_bgsave_in_progress") || is_set("aof_rewrite_in_progress") {
            return Some(Busy::Saves);
        }
        None
    }

    /// Whether its replicas are waited for: by clients, or because it takes no writes without them.
    pub fn waits_for_replicas(&self, now: u64) -> bool {
        let lately = self
            .waited
            .is_some_and(|at| now.saturating_sub(at) < WAITED_NS);
        lately || self.info.get("min_slaves_good_slaves").is_some()
    }

    /// Reads of clients. A replica counts hits and misses for what clients ask, not for what it applies.
    pub fn reads(&self) -> u64 {
        let number = |name: &str| self.info.number(name).unwrap_or(0);
        number("keyspace_hits").saturating_add(number("keyspace_misses"))
    }
}

/// How a replica's connection is, in ROLE's words.
fn link(state: &str) -> ReplicaLink {
    match state {
        "connected" => ReplicaLink::Up,
        "sync" => ReplicaLink::Syncing,
        _ => ReplicaLink::Down,
    }
}

/// Whether an address is one of this host's: only then can a socket be bound to it.
fn is_here(address: SocketAddr) -> bool {
    address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok()
}

/// What a server said, for people: the beginning of it, without control characters.
fn printable(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let characters = text.chars().take(CHARACTERS_MAX);
    characters
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(server: &mut Server, info: &str, now: u64) {
        server.asks_all = true;
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let role = Reply::Array(vec![
            bulk("master"),
            Reply::Integer(7),
            Reply::Array(Vec::new()),
        ]);
        server.take(&[role, bulk(info)], now);
    }

    #[test]
    fn a_master_whose_replicas_are_waited_for_is_noticed() {
        let mut server = Server::new("127.0.0.1:1".parse().unwrap(), None, 0);
        assert!(server.is_here && server.is_asked_first());
        answered(&mut server, "cmdstat_wait:calls=3,usec=1\r\n", 0);
        assert!(!server.waits_for_replicas(1));
        answered(&mut server, "cmdstat_wait:calls=4,usec=1\r\n", 1);
        assert!(server.waits_for_replicas(WAITED_NS));
        assert!(!server.waits_for_replicas(1 + WAITED_NS));
        answered(&mut server, "min_slaves_good_slaves:1\r\nloading:1\r\n", 2);
        assert!(server.waits_for_replicas(u64::MAX));
        assert_eq!(server.busy(), Some(Busy::Loads));
        assert!(server.lost(&Lost::Closed, 3));
        assert!(!server.lost(&Lost::Closed, 3));
    }

    #[test]
    fn a_process_is_verified_once_and_again_if_it_is_another() {
        let mut server = Server::new("127.0.0.1:1".parse().unwrap(), None, 0);
        assert_eq!(server.unverified(0), None);
        answered(&mut server, "process_id:7\r\nuptime_in_seconds:9\r\n", 0);
        assert_eq!(server.unverified(0), Some(9));
        assert_eq!(server.candidates(Path::new("/missing")), Ok(vec![7]));
        assert_eq!(server.unverified(1), None);
        server.instance = Some((1, 7));
        assert_eq!(server.unverified(u64::MAX), None);
        answered(&mut server, "process_id:8\r\nuptime_in_seconds:0\r\n", 0);
        assert_eq!(server.unverified(VERIFY_NS), Some(0));
        // Where the configuration names it, what the server says is of another namespace.
        server.process = Some(Process::Pid(4_711));
        assert_eq!(server.candidates(Path::new("/missing")), Ok(vec![4_711]));
        server.instance = Some((2, 4_711));
        assert_eq!(server.unverified(u64::MAX), None);
        let far = Server::new("192.0.2.1:1".parse().unwrap(), None, 0);
        assert!(!far.is_here);
    }

    #[test]
    fn an_error_instead_of_a_role_is_said() {
        let mut server = Server::new("127.0.0.1:1".parse().unwrap(), None, 0);
        server.take(
            &[Reply::Error(
                "NOAUTH Authentication\u{7} required".to_string(),
            )],
            0,
        );
        assert_eq!(
            server.trouble.as_deref(),
            Some("says: NOAUTH Authentication  required")
        );
        assert_eq!(server.role, None);
    }
}
