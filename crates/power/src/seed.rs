//! Where servers are found: one URL suffices.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

/// What is asked at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A server, master or replica.
    Server,
    /// A sentinel, for the master of this name.
    Sentinel(String),
    /// A node of a cluster.
    Cluster,
}

/// Where servers are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// What is asked there.
    pub kind: Kind,
    /// The host's name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user, if the URL names one.
    pub user: Option<String>,
}

/// The port of a Sentinel, if none is given.
const SENTINEL_PORT: u16 = 26_379;
/// The longest name of a host or master.
const NAME_MAX: usize = 253;

impl Seed {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or("it has no scheme, such as redis://")?;
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path),
            None => (rest, ""),
        };
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        if login.is_some_and(|login| login.contains(':')) {
            return Err(
                "a password in a URL can be read by every user of this host: put it into a file \
                        (password_file) or into $SLACKWATER_POWER_PASSWORD"
                    .to_string(),
            );
        }
        let kind = match (scheme, path) {
            ("redis" | "valkey", "") => Kind::Server,
            ("cluster", "") => Kind::Cluster,
            ("sentinel", "") => {
                return Err("it names no master: sentinel://host:port/name".to_string());
            }
            ("sentinel", name) if is_name(name) => Kind::Sentinel(name.to_string()),
            ("redis" | "valkey" | "cluster" | "sentinel", path) => {
                return Err(format!("'/{path}' is not valid here"));
            }
            ("rediss", _) => return Err("TLS is not supported".to_string()),
            (scheme, _) => return Err(format!("'{scheme}' is not supported")),
        };
        let default = match kind {
            Kind::Sentinel(_) => SENTINEL_PORT,
            Kind::Server | Kind::Cluster => 6_379,
        };
        let (host, port) = split(host, default)?;
        Ok(Self {
            kind,
            host,
            port,
            user: login.filter(|user| !user.is_empty()).map(str::to_string),
        })
    }

    /// The host and port of a Sentinel, from `host:port`.
    pub fn sentinel_address(text: &str) -> Result<(String, u16), String> {
        let wrong = |what| format!("'{text}' is not the address of a Sentinel: {what}");
        if text.contains("://") || text.contains('@') {
            return Err(wrong("write host:port alone".to_string()));
        }
        split(text, SENTINEL_PORT).map_err(wrong)
    }

    /// A Sentinel that is asked for a master of this name.
    pub fn of_sentinel(host: String, port: u16, name: &str) -> Self {
        Self {
            kind: Kind::Sentinel(name.to_string()),
            host,
            port,
            user: None,
        }
    }

    /// Whether a text may be the name of a master.
    pub fn is_name(text: &str) -> bool {
        is_name(text)
    }

    /// The address; the first one if a name has several.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        resolve(&self.host, self.port)
    }
}

/// The address of a name, or of an address as text.
pub fn resolve(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    let address = (host, port).to_socket_addrs()?.next();
    let address = address.ok_or_else(|| std::io::Error::other("the name has no address"))?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn split(text: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("'[' has no ']'")?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if !is_name(host) {
        return Err("it has no valid host".to_string());
    }
    let port = match port {
        None => default,
        Some(port) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            port.ok_or_else(|| format!("'{}' has no valid port", text))?
        }
    };
    Ok((host.to_string(), port))
}

fn is_name(text: &str) -> bool {
    let is_valid = |c: char| c.is_alphanumeric() || ".-_:%".contains(c);
    !text.is_empty() && text.len() <= NAME_MAX && text.chars().all(is_valid)
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match &self.kind {
            Kind::Server => write!(f, "redis://{host}:{}", self.port),
            Kind::Cluster => write!(f, "cluster://{host}:{}", self.port),
            Kind::Sentinel(name) => write!(f, "sentinel://{host}:{}/{name}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, shown) in [
            ("redis://127.0.0.1:7000", "redis://127.0.0.1:7000"),
            ("valkey://localhost", "redis://localhost:6379"),
            ("redis://power@h:1/", "redis://h:1"),
            ("redis://[::1]:7000", "redis://[::1]:7000"),
            ("sentinel://h/mymaster", "sentinel://h:26379/mymaster"),
            ("cluster://h:7000", "cluster://h:7000"),
        ] {
            assert_eq!(Seed::parse(url).unwrap().to_string(), shown);
        }
        assert_eq!(
            Seed::parse("redis://power@h").unwrap().user.as_deref(),
            Some("power")
        );
        let address = Seed::parse("redis://127.0.0.1:7000").unwrap().address();
        assert_eq!(address.unwrap(), "127.0.0.1:7000".parse().unwrap());
    }

    #[test]
    fn wrong_urls_say_why() {
        for (url, what) in [
            ("127.0.0.1:6379", "has no scheme"),
            ("redis://", "no valid host"),
            ("redis://h:0", "no valid port"),
            ("redis://h:x", "no valid port"),
            ("redis://h:99999", "no valid port"),
            ("redis://h/1", "'/1' is not valid here"),
            ("rediss://h", "TLS is not supported"),
            ("http://h", "'http' is not supported"),
            ("sentinel://h", "names no master"),
            ("redis://u:p@h", "can be read by every user"),
            ("redis://[::1", "'[' has no ']'"),
            ("redis://a b", "no valid host"),
        ] {
            let error = Seed::parse(url).unwrap_err();
            assert!(error.contains(what), "{url}: {error}");
        }
    }
}
