//! Addresses in options.

use std::net::{SocketAddr, ToSocketAddrs};

/// The first address that an option's `host:port` stands for.
///
/// # Errors
///
/// If there is none; `fix` says what to use instead.
pub fn resolve(option: &str, text: &str, fix: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs();
    let found = found.ok().and_then(|mut addresses| addresses.next());
    found.ok_or_else(|| {
        let name = text.rsplit_once(':');
        let name = name.filter(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        match name {
            Some((name, _)) => format!("{option} {text}: no host is called '{name}'"),
            None => format!("{option}: '{text}' is not an address\n  = use {fix}"),
        }
    })
}
