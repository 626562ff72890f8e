//! Who says where servers are, and that roles change: sentinels and nodes of clusters.

use std::net::SocketAddr;

use crate::client::{Client, Login, Lost};
use crate::facts::{self, SentinelSaid};
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
    /// How to log in to the servers that it names; clusters' nodes are servers themselves.
    pub login: Option<Login>,
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
    pub fn new(seed: Seed, login: Option<Login>) -> Self {
        Self {
            seed,
            login,
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
            login,
            asks,
            events,
            ..
        } = self;
        // A sentinel has users of its own, which are rarely set up.
        let login = match seed.kind {
            Kind::Sentinel(_) => None,
            Kind::Server | Kind::Cluster => login.as_ref(),
        };
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

    fn lost(&mut self, why: &Lost, now: u64) {
        (self.asks, self.events) = (None, None);
        self.trouble = Some(why.to_string());
        self.next = now + RETRY_NS;
    }
}
