//! The doors of one running query: metrics for Prometheus, and whether it is alive and ready.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use slackwater_serve::http::{Access, Answer, Limits, Routes, Server, StatusCode};

use super::STANDARD_INPUT;
use crate::metrics::{Board, Look};
use crate::script::Script;
use crate::supervisor::Signals;

/// Where others may look at a running query.
#[derive(Clone)]
pub struct Doors {
    /// The address to listen at.
    pub address: String,
    /// The token that requests have to show; `None` for those of this machine.
    pub token: Option<String>,
}

impl std::fmt::Debug for Doors {
    /// Without the token.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Doors").field(&self.address).finish()
    }
}

/// Open doors, which close when this is dropped.
pub struct Opened {
    /// What is shown.
    pub board: Arc<Board>,
    _server: Server,
}

impl Doors {
    /// Opens the doors of a run of `script`; `signals` passes requests on to the query.
    pub fn open(&self, script: &Script, signals: &Arc<Signals>) -> Result<Opened, String> {
        let failed = |error: std::io::Error| {
            let hint = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "set SLACKWATER_TOKEN or --token, or use 127.0.0.1"
                }
                std::io::ErrorKind::AddrInUse => "use another port; 0 takes any that is free",
                _ => "use an address of this machine, such as 127.0.0.1:9464",
            };
            format!("--metrics {}: {error}\n  = {hint}", self.address)
        };
        let address = self.resolve()?;
        let board = Arc::new(Board::new(pipeline(script.name())));
        let (scraped, signals) = (Arc::clone(&board), Arc::clone(signals));
        let ready = Arc::clone(&board);
        let routes = Routes::default()
            .get("/metrics", move |_, reply| {
                let look = Look::new(&scraped, reply);
                // Otherwise it is dropped, which answers it with what is known.
                if scraped.is_running() {
                    signals.look(look);
                }
            })
            .get("/healthz", |_, reply| {
                reply.send(Answer::text(StatusCode::OK, "ok\n").closing());
            })
            .open()
            .get("/readyz", move |_, reply| {
                let answer = match ready.is_running() {
                    true => Answer::text(StatusCode::OK, "ready\n"),
                    false => Answer::text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
                };
                reply.send(answer.closing());
            })
            .open();
        let access = Access::new(self.token.clone());
        let server = Server::start(address, access, routes, Limits::default()).map_err(failed)?;
        if address.port() == 0 {
            eprintln!("metrics at http://{}/metrics", server.address());
        }
        Ok(Opened {
            board,
            _server: server,
        })
    }

    fn resolve(&self) -> Result<SocketAddr, String> {
        let found = self.address.to_socket_addrs();
        let found = found.ok().and_then(|mut addresses| addresses.next());
        found.ok_or_else(|| {
            format!(
                "--metrics: '{}' is not an address\n  = use one such as 127.0.0.1:9464",
                self.address
            )
        })
    }
}

/// The name of a run: that of its file, without folder and ending.
fn pipeline(name: &str) -> String {
    let stem = Path::new(name)
        .file_stem()
        .map(|stem| stem.to_string_lossy());
    match stem {
        // Statements of the command line or of standard input.
        Some(stem) if stem != STANDARD_INPUT && !stem.starts_with("-e") => stem.into_owned(),
        _ => "query".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_after_its_file() {
        let names = [
            "examples/flights.sql",
            "day.curve.sql",
            "q",
            "-",
            "-e",
            "-e 2",
            "",
        ];
        let named = names.map(pipeline);
        let expected = [
            "flights",
            "day.curve",
            "q",
            "query",
            "query",
            "query",
            "query",
        ];
        assert_eq!(named, expected);
    }
}
