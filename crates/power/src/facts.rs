//! What servers say about themselves: INFO, ROLE, Sentinel's messages and Cluster's shards.
//!
//! All of it is foreign: whatever is missing or malformed is none, and the caller decides what that means.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::resp::Reply;

pub mod fuzz;

/// The most lines of INFO that are kept: those of one section of all commands are about 250.
const LINES_MAX: usize = 4_096;
/// The most replicas of a master that are looked at.
pub const REPLICAS_MAX: usize = 256;

/// The lines of INFO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads a reply to INFO.
    pub fn of(text: &str) -> Self {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .take(LINES_MAX);
        let pairs = lines.filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        )
    }

    /// Adds another section.
    pub fn add(&mut self, other: Info) {
        self.0.extend(other.0);
    }

    /// A line by its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number by its name.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// Whether a line says 1.
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name) == Some("1")
    }

    /// How often a command was called.
    pub fn calls(&self, command: &str) -> u64 {
        let line = self.get(&format!("cmdstat_{command}"));
        let calls = line.and_then(|line| line.strip_prefix("calls=")?.split(',').next());
        calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    }

    /// What the server is, for people.
    pub fn product(&self) -> String {
        let valkey = self
            .get("valkey_version")
            .map(|version| format!("Valkey {version}"));
        let redis = || Some(format!("Redis {}", self.get("redis_version")?));
        let own = || Some(format!("Slackwater {}", self.get("slackwater_version")?));
        valkey
            .or_else(own)
            .or_else(redis)
            .unwrap_or_else(|| "a server".to_string())
    }
}

/// What ROLE says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleSaid {
    /// It takes writes, has sent so many bytes, and these follow it.
    Master {
        /// Bytes that were written to its stream.
        offset: u64,
        /// Addresses of those that follow.
        replicas: Vec<SocketAddr>,
    },
    /// It follows.
    Replica {
        /// Whom it follows: a name or an address, and a port.
        master: (String, u16),
        /// How its connection is: `connect`, `connecting`, `sync` or `connected`.
        state: String,
        /// Bytes that it has applied.
        offset: u64,
    },
    /// It watches over masters.
    Sentinel,
}

/// Reads a reply to ROLE.
pub fn role(reply: &Reply) -> Option<RoleSaid> {
    let fields = reply.array()?;
    let text = |at: usize| fields.get(at)?.text();
    let number = |at: usize| fields.get(at)?.number();
    match text(0)? {
        "master" => {
            let replicas = fields.get(2)?.array()?.iter().take(REPLICAS_MAX);
            let replicas = replicas.filter_map(|replica| {
                let fields = replica.array()?;
                let port = u16::try_from(fields.get(1)?.number()?).ok()?;
                socket(fields.first()?.text()?, port)
            });
            Some(RoleSaid::Master {
                offset: u64::try_from(number(1)?).ok()?,
                replicas: replicas.collect(),
            })
        }
        "slave" | "replica" => Some(RoleSaid::Replica {
            master: (text(1)?.to_string(), u16::try_from(number(2)?).ok()?),
            state: text(3)?.to_string(),
            // -1 while it has applied nothing.
            offset: u64::try_from(number(4)?).unwrap_or(0),
        }),
        "sentinel" => Some(RoleSaid::Sentinel),
        _ => None,
    }
}

/// An IP address and a port.
pub fn socket(ip: &str, port: u16) -> Option<SocketAddr> {
    let ip = ip.parse::<IpAddr>().ok()?.to_canonical();
    (port > 0).then(|| SocketAddr::new(ip, port))
}

/// The master's address in a reply to SENTINEL GET-MASTER-ADDR-BY-NAME.
pub fn sentinel_master(reply: &Reply) -> Option<SocketAddr> {
    let fields = reply.array()?;
    let port = u16::try_from(fields.get(1)?.number()?).ok()?;
    socket(fields.first()?.text()?, port)
}

/// What a message of Sentinel is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentinelSaid {
    /// A master may be lost, or is: its address.
    MasterDown(SocketAddr),
    /// Roles change, or have changed: look now.
    Changes,
}

/// Reads a message of a subscription with a pattern; none if it says nothing about roles.
pub fn sentinel_said(reply: &Reply) -> Option<SentinelSaid> {
    let fields = reply.array()?;
    if fields.first()?.text()? != "pmessage" {
        return None;
    }
    let (channel, words) = (fields.get(2)?.text()?, fields.get(3)?.text()?);
    match channel {
        // +sdown master mymaster 127.0.0.1 6379
        "+sdown" | "+odown" => {
            let mut words = words.split(' ');
            if words.next()? != "master" {
                return Some(SentinelSaid::Changes);
            }
            let (ip, port) = (words.nth(1)?, words.next()?.parse().ok()?);
            socket(ip, port).map(SentinelSaid::MasterDown)
        }
        "-sdown" | "-odown" | "+promoted-slave" | "+switch-master" | "+slave" | "-role-change"
        | "+role-change" | "+convert-to-slave" | "+reboot" => Some(SentinelSaid::Changes),
        _ if channel.starts_with("+failover") || channel.starts_with("-failover") => {
            Some(SentinelSaid::Changes)
        }
        _ => None,
    }
}

/// The servers of a reply to CLUSTER SHARDS.
pub fn shards(reply: &Reply) -> Vec<SocketAddr> {
    let field = |fields: &[Reply], name: &str| -> Option<Reply> {
        let mut pairs = fields.chunks_exact(2);
        pairs
            .find(|pair| pair[0].text() == Some(name))
            .map(|pair| pair[1].clone())
    };
    let mut servers = Vec::new();
    for shard in reply.array().unwrap_or_default() {
        let nodes = shard.array().and_then(|fields| field(fields, "nodes"));
        for node in nodes.as_ref().and_then(Reply::array).unwrap_or_default() {
            let Some(fields) = node.array() else { continue };
            let ip = field(fields, "ip");
            let port = field(fields, "port").and_then(|port| u16::try_from(port.number()?).ok());
            let address = ip.as_ref().and_then(Reply::text).zip(port);
            servers.extend(address.and_then(|(ip, port)| socket(ip, port)));
        }
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::parse;

    fn reply(text: &str) -> Reply {
        parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn strings(words: &[&str]) -> Reply {
        Reply::Array(
            words
                .iter()
                .map(|word| Reply::Bulk(word.as_bytes().to_vec()))
                .collect(),
        )
    }

    #[test]
    fn info_is_lines() {
        let mut info = Info::of(
            "# Server\r\nredis_version:7.0.15\r\nprocess_id:4711\r\nloading:0\r\n\r\nodd\r\n",
        );
        info.add(Info::of(
            "cmdstat_wait:calls=7,usec=1\r\nasync_loading:1\r\n",
        ));
        assert_eq!(info.product(), "Redis 7.0.15");
        assert_eq!(info.number("process_id"), Some(4711));
        assert_eq!(info.number("redis_version"), None);
        assert!(info.is_set("async_loading") && !info.is_set("loading") && !info.is_set("odd"));
        assert_eq!((info.calls("wait"), info.calls("get")), (7, 0));
    }

    #[test]
    fn roles_are_read() {
        let master = reply(
            "*3\r\n$6\r\nmaster\r\n:3129659\r\n*2\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9001\r\n$7\r\n3129242\r\n\
             *3\r\n$4\r\nhost\r\n$4\r\n9002\r\n$7\r\n3129543\r\n",
        );
        let expected = RoleSaid::Master {
            offset: 3_129_659,
            replicas: vec!["127.0.0.1:9001".parse().unwrap()],
        };
        assert_eq!(role(&master), Some(expected));
        let replica =
            reply("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:9000\r\n$9\r\nconnected\r\n:-1\r\n");
        let expected = RoleSaid::Replica {
            master: ("127.0.0.1".to_string(), 9000),
            state: "connected".to_string(),
            offset: 0,
        };
        assert_eq!(role(&replica), Some(expected));
        assert_eq!(role(&strings(&["sentinel"])), Some(RoleSaid::Sentinel));
        for odd in [
            strings(&["master"]),
            strings(&["king"]),
            Reply::Nil,
            Reply::Array(Vec::new()),
        ] {
            assert_eq!(role(&odd), None);
        }
    }

    #[test]
    fn sentinel_messages_are_read() {
        let said = |channel: &str, words: &str| {
            sentinel_said(&strings(&["pmessage", "*", channel, words]))
        };
        let down = Some(SentinelSaid::MasterDown("127.0.0.1:6379".parse().unwrap()));
        assert_eq!(said("+sdown", "master mymaster 127.0.0.1 6379"), down);
        assert_eq!(
            said("+odown", "master mymaster 127.0.0.1 6379 #quorum 2/2"),
            down
        );
        let slave = said(
            "+sdown",
            "slave 127.0.0.1:6380 127.0.0.1 6380 @ mymaster 127.0.0.1 6379",
        );
        assert_eq!(slave, Some(SentinelSaid::Changes));
        assert_eq!(
            said("+failover-state-select-slave", "x"),
            Some(SentinelSaid::Changes)
        );
        assert_eq!(
            said("+switch-master", "m 1.1.1.1 1 1.1.1.2 1"),
            Some(SentinelSaid::Changes)
        );
        assert_eq!(said("+sdown", "master"), None);
        assert_eq!(said("+tilt", "#tilt mode entered"), None);
        assert_eq!(sentinel_said(&strings(&["psubscribe", "*", "1"])), None);
        let address = sentinel_master(&strings(&["10.0.0.1", "6379"]));
        assert_eq!(address, Some("10.0.0.1:6379".parse().unwrap()));
        assert_eq!(sentinel_master(&Reply::Nil), None);
        assert_eq!(sentinel_master(&strings(&["10.0.0.1", "99999"])), None);
    }

    #[test]
    fn shards_are_read() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let node = |ip: &str, port| {
            Reply::Array(vec![
                bulk("id"),
                bulk("x"),
                bulk("port"),
                Reply::Integer(port),
                bulk("ip"),
                bulk(ip),
            ])
        };
        let nodes = Reply::Array(vec![
            node("127.0.0.1", 7000),
            node("127.0.0.1", 0),
            node("?", 1),
            Reply::Nil,
        ]);
        let shard = Reply::Array(vec![
            bulk("slots"),
            Reply::Array(vec![]),
            bulk("nodes"),
            nodes,
        ]);
        let servers = shards(&Reply::Array(vec![shard, Reply::Nil, strings(&["nodes"])]));
        assert_eq!(servers, ["127.0.0.1:7000".parse().unwrap()]);
    }
}
