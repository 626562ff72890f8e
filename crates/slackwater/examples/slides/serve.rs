//! The page, and what it asks for, over HTTP:
//!
//! - `GET /`: the page.
//! - `GET /slide.json`: the slide's size and levels.
//! - `GET /view?viewer=V&request=N&kind=K&level=L&x=X&y=Y&width=W&height=H[&blocks=B]`: the rows of an
//!   update, a JSON object per line, as they come.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::hub::{Hub, Kind, Request};
use super::slide::Slide;

const PAGE: &str = include_str!("page.html");

/// The most connections at a time; each has a thread.
const CONNECTIONS_MAX: usize = 64;

/// The most bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// How long a client may take to send its request, or to read a piece of the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client waits for an update: the query may be started again meanwhile.
const UPDATE_PATIENCE: Duration = Duration::from_secs(120);

/// The most letters of a viewer's name.
const VIEWER_MAX: usize = 64;

/// What connections share.
pub struct Server {
    pub hub: Arc<Hub>,
    pub slide: Arc<Slide>,
    connections: Mutex<usize>,
}

impl Server {
    pub fn new(hub: Arc<Hub>, slide: Arc<Slide>) -> Server {
        Server {
            hub,
            slide,
            connections: Mutex::new(0),
        }
    }

    /// Answers requests for ever.
    pub fn answer(self: &Arc<Server>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            let open = self.count(|open| open + 1);
            if open > CONNECTIONS_MAX {
                self.count(|open| open - 1);
                drop(failure(
                    &client,
                    "503 Service Unavailable",
                    "too many connections: try again later",
                ));
                continue;
            }
            let server = Arc::clone(self);
            thread::spawn(move || {
                // A client that has gone is no failure of the server's.
                drop(server.connection(&client));
                server.count(|open| open - 1);
            });
        }
    }

    /// Changes the number of open connections, and returns it.
    fn count(&self, change: impl Fn(usize) -> usize) -> usize {
        let mut open = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *open = change(*open);
        *open
    }

    fn connection(&self, client: &TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        client.set_nodelay(true)?;
        let mut lines = BufReader::new(client.take(HEAD_BYTES_MAX));
        let mut first = String::new();
        lines.read_line(&mut first)?;
        let mut header = String::new();
        while lines.read_line(&mut header)? > 2 {
            header.clear();
        }
        let mut words = first.split_whitespace();
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if method != "GET" {
            return failure(client, "405 Method Not Allowed", "only GET is answered");
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match path {
            "/" => whole(client, "text/html; charset=utf-8", PAGE),
            "/slide.json" => whole(client, "application/json", &self.shape().to_string()),
            "/view" => match request(query) {
                Ok((kind, request)) => self.view(client, kind, &request),
                Err(reason) => failure(client, "400 Bad Request", &reason),
            },
            _ => failure(
                client,
                "404 Not Found",
                "there are /, /slide.json and /view",
            ),
        }
    }

    /// The slide's size and levels.
    fn shape(&self) -> serde_json::Value {
        let (width, height) = self.slide.size(0);
        let levels = self.slide.levels().iter().map(|level| {
            json!({
                "halvings": level.halvings, "width": level.width, "height": level.height,
                "tile_width": level.tile_width, "tile_height": level.tile_height,
            })
        });
        let levels = levels.collect::<Vec<_>>();
        json!({"width": width, "height": height, "level_max": self.slide.halvings_max(), "levels": levels})
    }

    /// Sends the rows of an update as they come.
    fn view(&self, mut client: &TcpStream, kind: Kind, request: &Request) -> io::Result<()> {
        let rows = match self.hub.ask(kind, request) {
            Ok(rows) => rows,
            Err(reason) => return failure(client, "409 Conflict", &reason),
        };
        let sent = (|| {
            client.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncache-control: no-store\r\n\
                connection: close\r\n\r\n",
            )?;
            let until = Instant::now() + UPDATE_PATIENCE;
            loop {
                let Ok(row) = rows.recv_timeout(until.saturating_duration_since(Instant::now()))
                else {
                    let seconds = UPDATE_PATIENCE.as_secs();
                    let error = format!("the query did not complete the update within {seconds} s");
                    return writeln!(client, "{}", json!({ "error": error }));
                };
                writeln!(client, "{}", row.line)?;
                if row.is_last {
                    return Ok(());
                }
            }
        })();
        self.hub.forget(request);
        sent
    }
}

/// The request of a query string.
fn request(query: &str) -> Result<(Kind, Request), String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.collect::<HashMap<&str, &str>>();
    let number = |name: &str| {
        let text = pairs
            .get(name)
            .ok_or_else(|| format!("the parameter '{name}' is missing"))?;
        let is_request = name == "request";
        // The other columns are INT: the query would reject the whole row.
        let number = text.parse::<i64>().ok();
        let number = number.filter(|&number| is_request || i32::try_from(number).is_ok());
        number.ok_or_else(|| {
            format!("{name}: '{text}' is not a whole number in the range of its type")
        })
    };
    let viewer = pairs.get("viewer").copied().unwrap_or("");
    let is_name = viewer
        .bytes()
        .all(|letter| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter));
    if viewer.is_empty() || viewer.len() > VIEWER_MAX || !is_name {
        return Err(format!(
            "viewer: must have 1 to {VIEWER_MAX} letters, digits and -_."
        ));
    }
    let kind = match pairs.get("kind").copied() {
        Some("complete") => Kind::Complete,
        Some("partial") => Kind::Partial,
        _ => return Err("kind: must be complete or partial".to_string()),
    };
    let request = Request {
        viewer: viewer.to_string(),
        request: number("request")?,
        level: number("level")?,
        x: number("x")?,
        y: number("y")?,
        width: number("width")?,
        height: number("height")?,
        blocks: pairs.get("blocks").map(|_| number("blocks")).transpose()?,
    };
    Ok((kind, request))
}

fn respond(mut client: &TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}

fn whole(client: &TcpStream, kind: &str, body: &str) -> io::Result<()> {
    respond(client, "200 OK", kind, body)
}

fn failure(client: &TcpStream, status: &str, reason: &str) -> io::Result<()> {
    respond(
        client,
        status,
        "application/json",
        &json!({ "error": reason }).to_string(),
    )
}
