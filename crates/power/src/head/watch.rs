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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use crate::{resp, system};

    /// A Sentinel that wants a password.
    fn answer(mut stream: TcpStream) {
        let (mut input, mut part, mut is_known) = (Vec::new(), [0; 1_024], false);
        while let Ok(read @ 1..) = stream.read(&mut part) {
            input.extend_from_slice(&part[..read]);
            while let Ok(Some((command, length))) = resp::parse(&input) {
                input.drain(..length);
                let words = command.array().unwrap_or_default().iter();
                let words = words.filter_map(Reply::text).collect::<Vec<&str>>();
                is_known |= words == ["AUTH", "hidden"];
                let text: &[u8] = match words[0] {
                    "AUTH" if is_known => b"+OK\r\n",
                    "SENTINEL" if is_known => b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n",
                    "PSUBSCRIBE" if is_known => b"*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:1\r\n",
                    _ => b"-NOAUTH Authentication required.\r\n",
                };
                let _ = stream.write_all(text);
            }
        }
    }

    #[test]
    fn a_sentinel_that_wants_a_password_gets_that_of_its_servers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(stream));
            }
        });
        let seed = Seed::parse(&format!("sentinel://{address}/mymaster")).unwrap();
        let login = Login {
            user: None,
            password: "hidden".to_string(),
        };
        for (server, sentinel) in [(Some(&login), None), (None, Some(&login)), (None, None)] {
            let logins = Logins {
                server: server.cloned(),
                sentinel: sentinel.cloned(),
            };
            let is_known = server.or(sentinel).is_some();
            let mut watch = Watch::new(seed.clone(), logins);
            loop {
                watch.ask(system::now_ns());
                let heard = watch.step(system::now_ns());
                if heard.contains(&Heard::Servers(vec!["127.0.0.1:6379".parse().unwrap()])) {
                    assert!(is_known && watch.trouble.is_none());
                    break;
                }
                if let Some(trouble) = watch.trouble.as_ref().filter(|_| !is_known) {
                    assert!(trouble.contains("NOAUTH"), "{trouble}");
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}
