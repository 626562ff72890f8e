//! A small HTTP/1.1 server, on one thread that sleeps until a client comes.
//!
//! ```text
//! listener ─► connection (at most CONNECTIONS_MAX) ─► access.rs ─► Routes ─► handler ─► Reply
//! ```
//!
//! - It listens beyond this machine only with a token, which every request then has to show.
//! - A handler must not block, unless its route says so: it may keep its [`Reply`] and send it later, from
//!   any thread.
//! - What a client can hold is bounded: its headers, its body, the time for each, and the time in which it
//!   takes an answer. If all places are taken, a client that has not asked yet gives way to the next one.
//! - No timer runs but for an open connection, so without clients nothing wakes up.
//! - Dropping the [`Server`] closes the port and all connections.

mod access;
mod connection;
mod events;
mod message;
mod routes;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

pub use access::Access;
use connection::Connections;
pub use events::Piece;
pub use hyper::{Method, StatusCode};
pub use message::{Answer, Asked, Reply};
pub use routes::Routes;
pub use stream::Outlet;

/// The most open connections: a scraper, a browser and a few tools. 64 of them hold at most 64 × (16 KiB of
/// headers + the largest body of a route).
const CONNECTIONS_MAX: usize = 64;

/// The most connections that listen to events: open pages. The others are for scrapes and requests.
const STREAMS_MAX: usize = 32;

/// How long to wait after a connection could not be accepted, because files or memory ran out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Limits of a connection; the defaults are for clients of a person or a monitoring system.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most open connections.
    pub connections: usize,
    /// The most of them that listen to events.
    pub streams: usize,
    /// The most handlers that block at a time. With fewer than connections, the others wait.
    pub threads: usize,
    /// The bytes of a request's headers.
    pub header_bytes: usize,
    /// How long a client may take to send the headers, and an open connection may be unused.
    pub header_time: Duration,
    /// How long a client may take to send the body.
    pub body_time: Duration,
    /// How long a client may take to receive a part of the answer.
    pub write_time: Duration,
    /// How long a handler may take.
    pub answer_time: Duration,
    /// How long an answer may be sent while it is produced, unless it lasts as long as its client listens.
    pub stream_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: CONNECTIONS_MAX,
            streams: STREAMS_MAX,
            threads: CONNECTIONS_MAX,
            header_bytes: 16 * 1024,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            answer_time: Duration::from_secs(30),
            stream_time: Duration::from_secs(600),
        }
    }
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address`, and answers requests from then on.
    ///
    /// # Errors
    ///
    /// If the address is beyond this machine and there is no token, or can't be listened at.
    pub fn start(
        address: SocketAddr,
        access: Access,
        routes: Routes,
        limits: Limits,
    ) -> io::Result<Server> {
        access.check_address(address)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(limits.threads.max(1))
            .thread_name("http work")
            .build()?;
        // Bound here, so that the caller hears of an address that is in use.
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("http".to_string())
            .spawn(move || {
                let connections = Connections::new(access, routes, limits);
                let local = LocalSet::new();
                local.block_on(&runtime, async move {
                    stopped_or(stopped, accept(listener, Rc::new(connections))).await;
                });
                // Requests that are still worked at are cancelled, and nobody waits for them.
                drop(local);
                runtime.shutdown_background();
            })?;
        Ok(Server {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The address at which it listens, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs `work` until it ends or the server is dropped.
async fn stopped_or(mut stopped: oneshot::Receiver<()>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let is_over = Pin::new(&mut stopped).poll(context).is_ready();
        match is_over || work.as_mut().poll(context).is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

async fn accept(listener: std::net::TcpListener, connections: Rc<Connections>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => Connections::serve(&connections, stream),
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests;
