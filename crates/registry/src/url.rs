//! The URL of a registry.

use crate::Registry;
use crate::error::{Error, Kind, Result};

const FORMS: &str =
    "write sqlite:PATH, or zk://HOST:2181,HOST:2181/PATH for the servers of ZooKeeper";

/// A URL that was read.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Sqlite(&'a str),
    /// The servers, separated by commas, and the path, which starts with a slash.
    ZooKeeper(&'a str, &'a str),
}

/// Opens the registry at `url`, `sqlite:PATH` or `zk://HOST:PORT,…/PATH`, and makes it if it is not there.
///
/// # Errors
///
/// For a URL that is none, for a kind that this build lacks, and when the registry can't be used.
pub fn open(url: &str) -> Result<Box<dyn Registry>> {
    opened(url, true)
}

/// Opens the registry at `url` if it is there: for those who only look.
///
/// # Errors
///
/// As of [`open`], and [`Kind::Unavailable`] if nothing is there.
pub fn open_existing(url: &str) -> Result<Box<dyn Registry>> {
    opened(url, false)
}

fn opened(url: &str, may_make: bool) -> Result<Box<dyn Registry>> {
    match place(url)? {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(path) => Ok(Box::new(crate::sqlite::Sqlite::open(
            path.as_ref(),
            may_make,
        )?)),
        #[cfg(not(feature = "sqlite"))]
        Place::Sqlite(_) => Err(lacks(url, may_make, "SQLite", "sqlite")),
        #[cfg(feature = "zookeeper")]
        Place::ZooKeeper(servers, path) => Ok(Box::new(crate::zookeeper::ZooKeeper::open(
            servers, path, may_make,
        )?)),
        #[cfg(not(feature = "zookeeper"))]
        Place::ZooKeeper(..) => Err(lacks(url, may_make, "ZooKeeper", "zookeeper")),
    }
}

#[cfg(not(all(feature = "sqlite", feature = "zookeeper")))]
fn lacks(url: &str, _: bool, kind: &str, feature: &str) -> Error {
    Error::new(
        Kind::Invalid,
        url,
        format!("this build has no registry in {kind}"),
    )
    .hint(format!("build it with --features {feature}"))
}

fn place(url: &str) -> Result<Place<'_>> {
    let refused = |what: &str| Err(Error::new(Kind::Invalid, url, what).hint(FORMS));
    if let Some(rest) = url.strip_prefix("zk://") {
        let (servers, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/');
        let is_path = |path: &str| {
            let mut names = path.split('/').skip(1);
            names.all(|name| crate::key::check_key(name).is_ok()) && path.starts_with('/')
        };
        return match servers.split(',').all(is_server) {
            false => refused("is not a list of servers with their ports"),
            true if path.is_empty() => refused("has no path, which is the query's own"),
            true if !is_path(path) => refused("is not a valid path of ZooKeeper"),
            true => Ok(Place::ZooKeeper(servers, path)),
        };
    }
    let Some(path) = url.strip_prefix("sqlite:") else {
        return refused(match url.contains("://") {
            true => "is of a kind that there is no registry for",
            false => "does not say of which kind the registry is",
        });
    };
    match path {
        "" => refused("names no file"),
        path if path.contains('\0') => refused("is not a valid path"),
        path if path.starts_with("//") => refused("has two slashes too many"),
        path => Ok(Place::Sqlite(path)),
    }
}

/// Whether it is `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
fn is_server(server: &str) -> bool {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (
                "ip",
                port.strip_prefix(':').or(port.is_empty().then_some("2181")),
            ),
            _ => return false,
        },
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, Some("2181")),
        },
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && host.chars().all(is_host) && port.is_some_and(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_paths_or_servers() {
        let sqlite = |path| Ok(Place::Sqlite(path));
        assert_eq!(place("sqlite:a/b.db"), sqlite("a/b.db"));
        assert_eq!(place("sqlite:/a/b.db"), sqlite("/a/b.db"));
        assert_eq!(place("sqlite:a:b"), sqlite("a:b"));
        let servers = "h1:2181,10.0.0.1,[::1]:2182";
        let zk = Ok(Place::ZooKeeper(servers, "/slackwater/q"));
        assert_eq!(place(&format!("zk://{servers}/slackwater/q")), zk);
        assert_eq!(place(&format!("zk://{servers}/slackwater/q/")), zk);
    }

    #[test]
    fn other_urls_are_refused_with_the_forms() {
        for url in [
            "",
            "sqlite:",
            "sqlite:///a",
            "sqlite://a",
            "etcd://h:2379/a",
            "zk://",
            "zk:///a",
            "zk://h",
            "zk://h/",
            "zk://h:0/a",
            "zk://h:99999/a",
            "zk://h,,g/a",
            "zk://h:2181/a//b",
            "zk://h/a/../b",
            "zk://tcp+tls:2181/a b",
            "zk://[::1/a",
            "zk://h h/a",
        ] {
            let error = place(url).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid, "{url}");
            assert!(error.to_string().contains("sqlite:PATH"), "{error}");
        }
    }
}
