//! Who says where servers are, and that roles change: sentinels and nodes of clusters.

use std::net::SocketAddr;

use crate::client::{Client, Login, Lost};
use crate::config::Logins;
use crate::facts::{self, SentinelSaid};
use crate::resp::Reply;
use crate::seed::{Kind, Seed};

/// How often is asked where servers are.
const ASK_NS: u64 = 1_000_000_000;
/// How long until one that is not there is tried again.
const RETRY_NS: u64 = 2_000_000_000;

/// Somebody who knows where servers are.
#[derive(Debug)]
pub struct Watch {
    /// Where it is.
    pub seed: Seed,
    /// How to log in to the servers that it names.
    pub login: Option<Login>,
    /// How to log in to itself. Clusters' nodes are servers; a Sentinel has users of its own, which are
    /// rarely set up.
    own: Option<Login>,
    /// Why it can't be asked.
    pub trouble: Option<String>,
    asks: Option<Client>,
    events: Option<Client>,
    next: u64,
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Servers are at these addresses.
    Servers(Vec<SocketAddr>),
    /// A sentinel said something.
    Sentinel(SentinelSaid),
}

impl Watch {
    /// One that was not asked yet.
    pub fn new(seed: Seed, logins: Logins) -> Self {
        let own = match seed.kind {
            Kind::Sentinel(_) => logins.sentinel,
            Kind::Server | Kind::Cluster => logins.server.clone(),
        };
        Self {
            seed,
            login: logins.server,
            own,
            trouble: None,
            asks: None,
            events: None,
            next: 0,
        }
    }

    /// Asks if it is time to.
    pub fn ask(&mut self, now: u64) {
        if now < self.next {
            return;
        }
        self.next = now + ASK_NS;
        if let Err(error) = self.try_ask(now) {
            self.lost(&Lost::System(error), now);
        }
    }

    fn try_ask(&mut self, now: u64) -> std::io::Result<()> {
        let Self {
            seed,
            own,
            asks,
            events,
            ..
        } = self;
        let login = own.as_ref();
        if asks.is_none() {
            *asks = Some(Client::connect(seed.address()?, login, now)?);
        }
        if events.is_none() && matches!(seed.kind, Kind::Sentinel(_)) {
            let mut client = Client::connect(seed.address()?, login, now)?;
            client.subscribe("*", now);
            *events = Some(client);
        }
        let Some(asks) = asks.as_mut().filter(|asks| !asks.waits()) else {
            return Ok(());
        };
        match &seed.kind {
            Kind::Sentinel(name) => {
                asks.ask(&[&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]], now);
            }
            Kind::Server | Kind::Cluster => asks.ask(&[&["CLUSTER", "SHARDS"]], now),
        }
        Ok(())
    }

    /// Its connections.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.asks.iter().chain(&self.events)
    }

    /// Reads what has come.
    pub fn step(&mut self, now: u64) -> Vec<Heard> {
        match self.try_step(now) {
            Ok(heard) => heard,
            Err(why) => {
                self.lost(&why, now);
                Vec::new()
            }
        }
    }

    fn try_step(&mut self, now: u64) -> Result<Vec<Heard>, Lost> {
        let mut heard = Vec::new();
        if let Some(replies) = self
            .asks
            .as_mut()
            .map(|client| client.step(now))
            .transpose()?
            .flatten()
        {
            self.trouble = None;
            let servers = match (&self.seed.kind, &replies[0]) {
                (_, reply) if reply.error().is_some() => {
                    self.log_in_as_servers(reply, now);
                    self.trouble = reply.error().map(|said| format!("says: {said}"));
                    Vec::new()
                }
                (Kind::Sentinel(name), reply) => {
                    let master = facts::sentinel_master(reply);
                    if master.is_none() {
                        self.trouble = Some(format!("knows no master '{name}'"));
                    }
                    master.into_iter().collect()
                }
                (Kind::Server | Kind::Cluster, reply) => facts::shards(reply),
            };
            heard.push(Heard::Servers(servers));
        }
        let events = self
            .events
            .as_mut()
            .map(|client| client.step(now))
            .transpose()?;
        for message in events.flatten().unwrap_or_default() {
            heard.extend(facts::sentinel_said(&message).map(Heard::Sentinel));
        }
        Ok(heard)
    }

    /// A Sentinel that wants a password, and has none in the configuration, gets that of its servers.
    fn log_in_as_servers(&mut self, reply: &Reply, now: u64) {
        let is_wanted = reply.error().is_some_and(|said| said.starts_with("NOAUTH"));
        if is_wanted && self.own.is_none() && self.login.is_some() {
            self.own = self.login.clone();
            (self.asks, self.events) = (None, None);
            self.next = now;
        }
    }

    fn lost(&mut self, why: &Lost, now: u64) {
        (self.asks, self.events) = (None, None);
        self.trouble = Some(why.to_string());
        self.next = now + RETRY_NS;
    }
}
