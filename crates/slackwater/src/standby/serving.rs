//! Where the runs of one query are read by clients (`'serve'`), and how far each of them is.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use super::replica::Added;

/// What a run tells clients of itself, and of the run that follows it or that it follows.
#[derive(Default)]
pub struct Serving {
    known: Mutex<Known>,
}

/// What is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// Where this run is read.
    pub own: Option<SocketAddr>,
    /// Whether it follows another one.
    pub stands_by: bool,
    /// The checkpoint that it has stored last, or holds.
    pub number: Option<u64>,
    /// Whether the other run is there.
    pub is_connected: bool,
    /// Where the other run is read.
    pub other: Option<SocketAddr>,
    /// The checkpoint that the one that follows holds.
    pub other_number: Option<u64>,
}

impl Serving {
    /// What is known now.
    pub fn known(&self) -> Known {
        *self.lock()
    }

    /// Changes what is known.
    pub fn note(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no thread panics under it")
    }
}

/// Those who read what a run holds while it stands by.
pub trait Readers {
    /// The nodes of the query graph whose rows they read.
    fn nodes(&self) -> Vec<usize>;

    /// Shows them all that a checkpoint has added, at once.
    fn add(&self, added: Vec<Added>);
}

/// An address as others reach it: `any` stands for the host that is at `peer`, or this one.
pub fn reached(at: SocketAddr, peer: Option<IpAddr>) -> SocketAddr {
    match at.ip().is_unspecified() {
        true => SocketAddr::new(peer.unwrap_or(Ipv4Addr::LOCALHOST.into()), at.port()),
        false => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_all_interfaces_is_that_of_its_host() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let peer = Some("10.0.0.2".parse().unwrap());
        assert_eq!(reached(at("0.0.0.0:6380"), peer), at("10.0.0.2:6380"));
        assert_eq!(reached(at("[::]:6380"), None), at("127.0.0.1:6380"));
        assert_eq!(reached(at("10.0.0.3:6380"), peer), at("10.0.0.3:6380"));
    }
}
