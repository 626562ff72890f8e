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
use super::options::Options;
use super::table::{Feed, TableSchema, Tables, feed};

/// The orders on their way to the handler: some thousand replies of some hundred bytes, and back-pressure
/// beyond.
const ORDERS_MAX: usize = 4096;

/// The words on their way back.
const WORDS_MAX: usize = 1024;

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
