//! The doors of one running query: metrics for Prometheus, whether it is alive and ready, and the page.

mod browser;
mod page;

pub use browser::open as open_browser;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use slackwater_serve::http::{Access, Answer, Limits, Routes, Server, StatusCode};
use slackwater_serve::prometheus::CONTENT_TYPE;

use super::STANDARD_INPUT;
use crate::address::resolve;
use crate::metrics::{Board, Look};
use crate::script::Script;
use crate::supervisor::Signals;

/// What an address looks like.
const ADDRESS: &str = "one such as 127.0.0.1:9464";

/// Where others may look at a running query.
#[derive(Clone, Default)]
pub struct Doors {
    /// The address of the metrics.
    pub metrics: Option<String>,
    /// The address of the page, which has the metrics as well.
    pub page: Option<String>,
    /// Whether to open the page in a browser.
    pub opens_browser: bool,
    /// The token that requests have to show; `None` for those of this machine.
    pub token: Option<String>,
}

impl std::fmt::Debug for Doors {
    /// Without the token.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses = (&self.metrics, &self.page);
        formatter.debug_tuple("Doors").field(&addresses).finish()
    }
}

/// Open doors, which close when this is dropped.
pub struct Opened {
    _servers: Vec<Server>,
}

impl Doors {
    /// The name under which the run of a script is shown.
    pub fn name(script: &Script) -> String {
        pipeline(script.name())
    }

    /// Opens the doors of a run, which is shown on `board`; `signals` passes requests on to the query.
    pub fn open(&self, board: &Arc<Board>, signals: &Arc<Signals>) -> Result<Opened, String> {
        let mut servers = Vec::new();
        if let Some(text) = self.metrics.as_ref().filter(|_| self.metrics != self.page) {
            let address = resolve("--metrics", text, ADDRESS)?;
            let server = self.start(("--metrics", text), address, routes(board, signals))?;
            if address.port() == 0 {
                eprintln!("metrics at http://{}/metrics", server.address());
            }
            servers.push(server);
        }
        if let Some(text) = &self.page {
            let address = resolve("--page", text, ADDRESS)?;
            let routes = page::routes(routes(board, signals), board, signals);
            let server = self.start(("--page", text), address, routes)?;
            let url = format!("http://{}/", server.address());
            eprintln!("page at {url}");
            if self.opens_browser {
                browser::open(&url);
            }
            servers.push(server);
        }
        Ok(Opened { _servers: servers })
    }

    fn start(
        &self,
        (option, text): (&str, &str),
        address: SocketAddr,
        routes: Routes,
    ) -> Result<Server, String> {
        let access = Access::new(self.token.clone());
        Server::start(address, access, routes, Limits::default()).map_err(|error| {
            let hint = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "set SLACKWATER_TOKEN or --token, or use 127.0.0.1"
                }
                std::io::ErrorKind::AddrInUse => "use another port; 0 takes any that is free",
                _ => "use an address of this machine, such as 127.0.0.1:9464",
            };
            format!("{option} {text}: {error}\n  = {hint}")
        })
    }
}

/// What a scraper asks for that wants the watermarks of partitions.
const PARTITIONS: &str = "partitions=true";

/// The metrics, whether the query is alive and ready, and its tables that are pushed to.
fn routes(board: &Arc<Board>, signals: &Arc<Signals>) -> Routes {
    let (scraped, signals) = (Arc::clone(board), Arc::clone(signals));
    let (asked, hosts) = (Arc::clone(board), Arc::clone(&signals));
    let ready = Arc::clone(board);
    let routes = Routes::default()
        .get("/metrics", move |asked, reply| {
            let partitions = asked.query.as_deref() == Some(PARTITIONS);
            let look = Look::new(&scraped, move |board| {
                let page = board.page_with(partitions);
                let answer = Answer::new(StatusCode::OK, CONTENT_TYPE, page);
                // A scraper comes once in a while: an open connection would need a timer until then.
                reply.send(answer.closing());
            });
            let look = match partitions {
                true => look.with_partitions(),
                false => look,
            };
            // Otherwise it is dropped, which answers it with what is known.
            if scraped.is_running() {
                signals.look(look);
            }
        })
        .get("/v1/hosts", move |_, reply| {
            let look = Look::new(&asked, move |board| {
                let answer = Answer::new(StatusCode::OK, "application/json", board.hosts_json());
                reply.send(answer.closing());
            });
            if asked.is_running() {
                hosts.look(look);
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
    super::pushes::mount(routes)
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
