//! Who may ask: programs of this machine, or whoever shows the token.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::{Method, StatusCode};

use super::message::Answer;

/// Who may ask.
#[derive(Default)]
pub struct Access {
    token: Option<String>,
}

impl Access {
    /// Only those who show `token`; `None` for every program of this machine.
    pub fn new(token: Option<String>) -> Access {
        Access { token }
    }

    /// Rejects an address beyond this machine if there is no token.
    pub(super) fn check_address(&self, address: SocketAddr) -> io::Result<()> {
        if self.token.as_deref() == Some("") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the token is empty",
            ));
        }
        match self.token.is_some() || address.ip().is_loopback() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{address} can be reached from other machines, which needs a token that requests have \
                     to show"
                ),
            )),
        }
    }

    /// The answer to a request that is not allowed. `is_open`: the route tells nothing, and anybody may ask.
    pub(super) fn refuses(
        &self,
        method: &Method,
        headers: &HeaderMap,
        is_open: bool,
    ) -> Option<Answer> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        match &self.token {
            Some(_) if is_open => {}
            Some(token) => {
                let shown = text(AUTHORIZATION).and_then(bearer);
                if !shown.is_some_and(|shown| is_same(shown.as_bytes(), token.as_bytes())) {
                    let hint = "send the header 'Authorization: Bearer TOKEN'";
                    let status = StatusCode::UNAUTHORIZED;
                    let refused = Answer::deny(status, "the token is missing or wrong", hint);
                    return Some(refused.with("www-authenticate", "Bearer"));
                }
            }
            // A page of another site can make a browser of this machine ask us under the site's own name.
            None => {
                let host = text(HOST).map(host_of);
                if let Some(host) = host.filter(|host| !is_this_machine(host)) {
                    let reason =
                        format!("'{host}' is not a name of this machine's loopback address");
                    let hint = "use localhost or an IP address, or set a token";
                    return Some(Answer::deny(StatusCode::FORBIDDEN, reason, hint));
                }
            }
        }
        let changes = *method != Method::GET && *method != Method::HEAD;
        if changes
            && let Some(origin) = text(ORIGIN)
            && origin.split_once("://").map(|(_, host)| host) != text(HOST)
        {
            let reason = format!("requests of pages from {origin} are not accepted");
            return Some(Answer::deny(StatusCode::FORBIDDEN, reason, ""));
        }
        None
    }
}

/// The token of a header `Bearer TOKEN`.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_matches(' '))
}

/// Compares in a time that depends on the lengths only, so that nobody can guess byte by byte.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).map(|(one, other)| one ^ other);
    one.len() == other.len() && differences.fold(0, |all, bits| all | bits) == 0
}

/// The host of `host:port`, `[::1]:port` or `host`.
fn host_of(header: &str) -> &str {
    match header.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => header.split(':').next().unwrap_or_default(),
    }
}

fn is_this_machine(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let headers = of
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        headers.collect()
    }

    fn status(access: &Access, method: &Method, of: &[(&'static str, &str)]) -> u16 {
        let refused = access.refuses(method, &headers(of), false);
        refused.map_or(200, |answer| answer.status().as_u16())
    }

    #[test]
    fn the_port_of_other_machines_needs_a_token() {
        let open = Access::default();
        let shut = Access::new(Some("secret".to_string()));
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        for address in ["127.0.0.1:1", "[::1]:1"] {
            assert!(open.check_address(at(address)).is_ok());
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.168.0.1:1"] {
            assert!(open.check_address(at(address)).is_err(), "{address}");
            assert!(shut.check_address(at(address)).is_ok(), "{address}");
        }
        let empty = Access::new(Some(String::new()));
        assert!(empty.check_address(at("127.0.0.1:1")).is_err());
    }

    #[test]
    fn only_the_whole_token_counts() {
        let shut = Access::new(Some("secret".to_string()));
        let with = |value: &str| status(&shut, &Method::GET, &[("authorization", value)]);
        assert_eq!(with("Bearer secret"), 200);
        assert_eq!(with("bearer secret"), 200);
        for wrong in [
            "Bearer secre",
            "Bearer secrets",
            "Bearer",
            "secret",
            "Basic secret",
            "",
        ] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(status(&shut, &Method::GET, &[]), 401);
        assert!(
            shut.refuses(&Method::GET, &HeaderMap::new(), true)
                .is_none()
        );
    }

    #[test]
    fn regression_a_page_of_another_site_can_not_ask_through_a_browser() {
        let open = Access::default();
        let get = |host: &str| status(&open, &Method::GET, &[("host", host)]);
        for host in [
            "127.0.0.1:9464",
            "localhost:9464",
            "[::1]:9464",
            "LOCALHOST",
        ] {
            assert_eq!(get(host), 200, "{host}");
        }
        assert_eq!(get("evil.example:9464"), 403);
        let post = |origin: &str| {
            let of = [("host", "127.0.0.1:9464"), ("origin", origin)];
            status(&open, &Method::POST, &of)
        };
        assert_eq!(post("http://127.0.0.1:9464"), 200);
        assert_eq!(post("https://evil.example"), 403);
        assert_eq!(post("null"), 403);
    }
}
