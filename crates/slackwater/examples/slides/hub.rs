//! Where viewers and the query meet: three listeners that the query connects to, two that it reads requests
//! from and one that it writes updates to.
//!
//! A request waits here until its update is complete. When the query connects again, after a restart, it gets
//! the requests that are still waiting again: its sources can't read them a second time.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The longest line of an update: a tile of 4096 × 4096 pixels in base64, and its other columns.
const LINE_BYTES_MAX: u64 = 72 << 20;

/// How long the query may take no request before its connection counts as broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most blocks of an update, as `clip` has them.
const BLOCKS_MAX: usize = 1 << 16;

/// The most requests that wait at a time.
const WAITING_MAX: usize = 1 << 16;

/// A request, as the query's tables have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub viewer: String,
    pub request: i64,
    pub level: i64,
    pub x: i64,
    pub y: i64,
    pub width: i64,
    pub height: i64,
    pub blocks: Option<i64>,
}

/// The columns of an update's row that matter on the way.
#[derive(Debug, Deserialize)]
struct Row {
    viewer: String,
    request: i64,
    block: usize,
    blocks: usize,
}

/// The tables of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Complete,
    Partial,
}

/// A row of an update, and whether it is the last one of its request.
#[derive(Debug)]
pub struct Update {
    /// The row in JSON.
    pub line: String,
    /// When it came.
    pub at: Instant,
    pub is_last: bool,
}

struct Waiting {
    kind: Kind,
    line: String,
    /// The blocks that have come.
    there: Vec<bool>,
    /// How many blocks have not come; `None` before the first.
    left: Option<usize>,
    to: Sender<Update>,
}

/// Requests by viewer and number.
type Requests = HashMap<(String, i64), Waiting>;

/// Where viewers and the query meet.
pub struct Hub {
    waiting: Mutex<Requests>,
    /// The query's connections, by kind. Sending may wait for the query, and the query for updates to be
    /// read: so no lock of `waiting` is held meanwhile.
    queries: [Mutex<Option<TcpStream>>; 2],
    addresses: [SocketAddr; 3],
}

fn key(viewer: &str, request: i64) -> (String, i64) {
    (viewer.to_string(), request)
}

impl Hub {
    /// Listens at three ports from `first` on, or at free ones if it is 0.
    ///
    /// # Errors
    ///
    /// When a port is not free.
    pub fn listen(first: u16) -> Result<Arc<Hub>, String> {
        if first > u16::MAX - 2 {
            return Err(format!(
                "--ports {first}: three ports are needed, so at most {}",
                u16::MAX - 2
            ));
        }
        let listen = |number: u16| {
            let port = if first == 0 { 0 } else { first + number };
            let failed =
                |error: io::Error| format!("port {port}: {error} (choose others with --ports)");
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok::<_, String>((listener, address))
        };
        let [complete, partial, updates] = [listen(0)?, listen(1)?, listen(2)?];
        let hub = Arc::new(Hub {
            waiting: Mutex::default(),
            queries: Default::default(),
            addresses: [complete.1, partial.1, updates.1],
        });
        for (kind, (listener, _)) in [(Kind::Complete, complete), (Kind::Partial, partial)] {
            let hub = Arc::clone(&hub);
            thread::spawn(move || {
                listener
                    .incoming()
                    .flatten()
                    .for_each(|query| hub.begin(kind, query))
            });
        }
        let of_updates = Arc::clone(&hub);
        thread::spawn(move || {
            for query in updates.0.incoming().flatten() {
                let hub = Arc::clone(&of_updates);
                thread::spawn(move || hub.read(query));
            }
        });
        Ok(hub)
    }

    /// The addresses of complete and partial requests, and of updates.
    pub fn addresses(&self) -> [SocketAddr; 3] {
        self.addresses
    }

    fn waiting(&self) -> MutexGuard<'_, Requests> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn query(&self, kind: Kind) -> MutexGuard<'_, Option<TcpStream>> {
        self.queries[kind as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to the query; the rows of its update come from the receiver.
    ///
    /// # Errors
    ///
    /// When another request of the viewer has the same number, or too many wait.
    pub fn ask(&self, kind: Kind, request: &Request) -> Result<Receiver<Update>, String> {
        let line = serde_json::to_string(request).map_err(|error| error.to_string())? + "\n";
        let (to, rows) = channel();
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING_MAX {
            return Err(format!(
                "{WAITING_MAX} requests wait already: try again later"
            ));
        }
        let key = key(&request.viewer, request.request);
        if waiting.contains_key(&key) {
            let (viewer, number) = key;
            return Err(format!(
                "request {number} of viewer {viewer} waits already: number them"
            ));
        }
        let there = Vec::new();
        waiting.insert(
            key,
            Waiting {
                kind,
                line: line.clone(),
                there,
                left: None,
                to,
            },
        );
        drop(waiting);
        // A query that connects meanwhile gets the request twice, which does no harm.
        send(&mut self.query(kind), &line);
        Ok(rows)
    }

    /// Forgets a request that nobody waits for any more.
    pub fn forget(&self, request: &Request) {
        self.waiting()
            .remove(&key(&request.viewer, request.request));
    }

    /// The query has connected: it gets what waits.
    fn begin(&self, kind: Kind, query: TcpStream) {
        // A small request must not wait for the acknowledgement of the one before.
        drop(query.set_nodelay(true));
        drop(query.set_write_timeout(Some(PATIENCE)));
        let mut own = self.query(kind);
        *own = Some(query);
        let waiting = self.waiting();
        let of_kind = waiting.values().filter(|waiting| waiting.kind == kind);
        let lines = of_kind
            .map(|waiting| waiting.line.clone())
            .collect::<Vec<String>>();
        drop(waiting);
        lines.iter().for_each(|line| send(&mut own, line));
    }

    /// Reads updates until the query closes the connection.
    fn read(&self, query: TcpStream) {
        let mut lines = BufReader::with_capacity(1 << 20, query);
        let mut line = String::new();
        loop {
            line.clear();
            match (&mut lines).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.update(line.trim_end()),
            }
        }
    }

    fn update(&self, line: &str) {
        let row = match serde_json::from_str::<Row>(line) {
            Ok(row) => row,
            Err(error) => {
                eprintln!(
                    "updates: {error}: {}",
                    line.chars().take(200).collect::<String>()
                );
                return;
            }
        };
        let mut waiting = self.waiting();
        let key = (row.viewer, row.request);
        // Without one, the viewer has left, or the row comes again after a restart.
        let Some(own) = waiting.get_mut(&key) else {
            return;
        };
        if row.block >= row.blocks || row.blocks > BLOCKS_MAX {
            eprintln!("updates: block {} of {}", row.block, row.blocks);
            return;
        }
        own.there.resize(row.blocks, false);
        if std::mem::replace(&mut own.there[row.block], true) {
            return;
        }
        own.left = own.left.unwrap_or(row.blocks).checked_sub(1);
        let is_last = own.left == Some(0);
        let line = line.to_string();
        let has_left = own
            .to
            .send(Update {
                line,
                at: Instant::now(),
                is_last,
            })
            .is_err();
        if is_last || has_left {
            waiting.remove(&key);
        }
    }
}

/// Sends a line to the query. If it is not there, it gets the line when it connects.
fn send(query: &mut Option<TcpStream>, line: &str) {
    if query
        .as_mut()
        .is_some_and(|query| query.write_all(line.as_bytes()).is_err())
    {
        *query = None;
    }
}
