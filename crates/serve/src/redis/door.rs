//! Opens the door, and its two threads.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use slackwater_link::affinity::pin_to_core;
use slackwater_link::spsc;
use slackwater_link::waiter::{Waiter, Waker};

use super::connections::{Connections, Main};
use super::handler::Handler;
use super::reply::Reply;
use super::table::{Feed, TableSchema, Tables, feed};

/// The orders on their way to the handler: some thousand replies of some hundred bytes, and back-pressure
/// beyond.
const ORDERS_MAX: usize = 4096;

/// The words on their way back.
const WORDS_MAX: usize = 1024;

/// What a server is among those that replicate.
pub trait Role: Send + Sync {
    /// `master` or `slave`, as Redis calls them.
    fn name(&self) -> &'static str;

    /// The role, when so many bytes of changes were applied.
    fn role(&self, offset: u64) -> RoleAnswer;
}

/// What `ROLE` and `INFO replication` say.
pub enum RoleAnswer {
    /// It runs the query.
    Master {
        /// Bytes of changes.
        offset: u64,
    },
}

impl RoleAnswer {
    pub(super) fn reply(&self) -> Reply {
        match self {
            RoleAnswer::Master { offset } => Reply::Array(vec![
                Reply::text("master"),
                Reply::Integer(*offset as i64),
                Reply::Array(Vec::new()),
            ]),
        }
    }

    pub(super) fn info(&self) -> Vec<String> {
        match self {
            RoleAnswer::Master { offset } => vec![
                "role:master".to_owned(),
                "connected_slaves:0".to_owned(),
                format!("master_repl_offset:{offset}"),
            ],
        }
    }
}

/// The role of the process that runs the query.
pub struct Active;

impl Role for Active {
    fn name(&self) -> &'static str {
        "master"
    }

    fn role(&self, offset: u64) -> RoleAnswer {
        RoleAnswer::Master { offset }
    }
}

/// Cores of the two threads; `None` leaves a thread where the kernel puts it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitCores {
    /// The main thread's, which may be slow.
    pub main: Option<usize>,
    /// The ReadHandler's.
    pub handler: Option<usize>,
}

/// How to serve.
pub struct Options {
    /// Where clients connect.
    pub address: SocketAddr,
    /// What they have to say first.
    pub password: Option<String>,
    /// What this server is.
    pub role: Box<dyn Role>,
    /// Where the threads run.
    pub cores: SplitCores,
}

/// An open door. Dropping it closes it.
pub struct Door {
    address: SocketAddr,
    waker: Waker,
    alive: Option<Arc<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Door {
    /// Listens, and serves the rows that come through the feed: views by their index.
    ///
    /// # Errors
    ///
    /// When the address can't be used, or the process has no descriptors or threads left.
    pub fn open(options: Options, schemas: Vec<TableSchema>) -> io::Result<(Door, Feed)> {
        let listener = TcpListener::bind(options.address)?;
        let address = listener.local_addr()?;
        let (main_waiter, handler_waiter) = (Waiter::new()?, Waiter::new()?);
        let waker = main_waiter.waker();
        let (orders, taken) =
            spsc::channel(ORDERS_MAX, handler_waiter.waker(), main_waiter.waker());
        let (words, heard) = spsc::channel(WORDS_MAX, main_waiter.waker(), handler_waiter.waker());
        let (feed, changes) = feed(main_waiter.waker());
        let handler = Handler::new(handler_waiter, taken, words)?;
        let cores = options.cores;
        let connections = Connections::new(Main {
            waiter: main_waiter,
            listener,
            tables: Tables::new(schemas, changes),
            orders,
            words: heard,
            options: Options { address, ..options },
            begun: Instant::now(),
        })?;
        // The main thread ends when this is the only one that is left.
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let is_closed = move || watched.strong_count() == 0;
        let main = move || {
            pin(cores.main);
            connections.run(&is_closed);
        };
        let handle = move || {
            pin(cores.handler);
            handler.run();
        };
        let threads = vec![
            std::thread::Builder::new()
                .name("redis-handler".to_owned())
                .spawn(handle)?,
            std::thread::Builder::new()
                .name("redis-main".to_owned())
                .spawn(main)?,
        ];
        let door = Door {
            address,
            waker,
            alive: Some(alive),
            threads,
        };
        Ok((door, feed))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.alive = None;
        self.waker.wake();
        for thread in self.threads.drain(..) {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// A core that can't be used leaves the thread where it is.
fn pin(core: Option<usize>) {
    if let Some(core) = core
        && let Err(error) = pin_to_core(core)
    {
        eprintln!("warning: 'serve': a thread can't run on core {core}: {error}");
    }
}
