//! The ReadHandler: encodes what was found and writes it, on a thread of its own.
//!
//! A socket that takes no more is tried again when the kernel says that it does; meanwhile the main thread is
//! told not to read from that client.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slackwater_link::spsc::{Receiver, Sender};
use slackwater_link::waiter::{Interest, Listen, Sources, Waiter};

use super::reply::{Reply, Version};

/// Replies that may wait for a client, which hold rows and are not written yet. A client with more is not
/// read from; as many come on top as are on their way, which are those of one read and of the ring.
const WAITING_MAX: usize = 1024;

/// What is encoded before it is written: more would only wait in memory.
const WRITE_BYTES: usize = 64 << 10;

/// How many orders are taken before sockets that wait are looked at again.
const ORDERS_AT_ONCE: usize = 1024;

/// How many sockets the kernel names at once.
const EVENTS_AT_ONCE: usize = 64;

/// What the main thread wants.
pub(super) enum Order {
    /// A client has connected.
    Open(u64, Arc<TcpStream>),
    /// A reply to it.
    Reply(u64, Version, Reply),
    /// Nothing follows: it is closed after what it has to get.
    Close(u64),
}

/// What the main thread has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// A client is gone, or was closed.
    Closed(u64),
    /// A client does not read.
    Full(u64),
    /// It reads again.
    Room(u64),
}

struct Client {
    socket: Arc<TcpStream>,
    waiting: VecDeque<(Version, Reply)>,
    unsent: Vec<u8>,
    /// How much of it was written.
    written: usize,
    /// Whether it is in the list of those that have something to write.
    is_due: bool,
    /// Whether the kernel was asked to say when it takes more.
    is_watched: bool,
    /// Whether the main thread was told that it does not read.
    is_full: bool,
    ends: bool,
}

impl Client {
    /// Encodes and writes until nothing waits, or the socket takes no more.
    fn write(&mut self) -> io::Result<()> {
        loop {
            while self.unsent.len() < WRITE_BYTES
                && let Some((version, reply)) = self.waiting.pop_front()
            {
                reply.encode(version, &mut self.unsent);
            }
            while self.written < self.unsent.len() {
                match (&*self.socket).write(&self.unsent[self.written..]) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(count) => self.written += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.unsent.clear();
            self.unsent.shrink_to(WRITE_BYTES);
            self.written = 0;
            if self.waiting.is_empty() {
                return Ok(());
            }
        }
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.unsent.is_empty()
    }
}

/// The thread's state.
pub(super) struct Handler {
    waiter: Waiter,
    /// Sockets that take no more, and how many of them there are.
    blocked: OwnedFd,
    watched: usize,
    orders: Receiver<Order>,
    words: Sender<Word>,
    /// Words for which there was no room yet: three for each client at most.
    untold: Vec<Word>,
    clients: HashMap<u64, Client>,
    due: Vec<u64>,
}

impl Handler {
    pub fn new(
        waiter: Waiter,
        orders: Receiver<Order>,
        words: Sender<Word>,
    ) -> io::Result<Handler> {
        let blocked = epoll::create(CreateFlags::CLOEXEC)?;
        let mut waiter = waiter;
        waiter.register(blocked.as_fd(), Interest::Read)?;
        Ok(Handler {
            waiter,
            blocked,
            watched: 0,
            orders,
            words,
            untold: Vec::new(),
            clients: HashMap::new(),
            due: Vec::new(),
        })
    }

    /// Works until the main thread has ended.
    pub fn run(mut self) {
        loop {
            let mut worked = self.step();
            if !worked {
                self.waiter.announce(Listen::Everything);
                worked = self.step();
                if worked {
                    self.waiter.retract();
                } else if self.orders.is_closed() || self.waiter.wait(None, Sources::All).is_err() {
                    return;
                }
            }
        }
    }

    fn step(&mut self) -> bool {
        let mut worked = self.take();
        worked |= self.look();
        for number in std::mem::take(&mut self.due) {
            self.write(number);
        }
        while let Some(word) = self.untold.pop() {
            if self.words.send(word).is_err() {
                // The main thread wakes this one when there is room; if it has ended, nobody has to know.
                self.untold.push(word);
                break;
            }
            worked = true;
        }
        worked
    }

    fn take(&mut self) -> bool {
        for taken in 0..ORDERS_AT_ONCE {
            let Some(order) = self.orders.receive() else {
                return taken > 0;
            };
            match order {
                Order::Open(number, socket) => {
                    let client = Client {
                        socket,
                        waiting: VecDeque::new(),
                        unsent: Vec::new(),
                        written: 0,
                        is_due: false,
                        is_watched: false,
                        is_full: false,
                        ends: false,
                    };
                    self.clients.insert(number, client);
                }
                Order::Reply(number, version, reply) => {
                    // One that is gone gets nothing.
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.waiting.push_back((version, reply));
                        if !std::mem::replace(&mut client.is_due, true) {
                            self.due.push(number);
                        }
                    }
                }
                Order::Close(number) => {
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.ends = true;
                        if !std::mem::replace(&mut client.is_due, true) {
                            self.due.push(number);
                        }
                    }
                }
            }
        }
        self.orders.settle();
        true
    }

    /// Looks which sockets take more.
    fn look(&mut self) -> bool {
        if self.watched == 0 {
            return false;
        }
        let mut events = [const {
            epoll::Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            }
        }; EVENTS_AT_ONCE];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = epoll::wait(&self.blocked, &mut events[..], Some(&now)).unwrap_or(0);
        for event in &events[..count] {
            let number = event.data.u64();
            if let Some(client) = self.clients.get_mut(&number) {
                client.is_due = true;
                self.due.push(number);
            }
        }
        count > 0
    }

    /// Drops a client; the main thread is told.
    fn forget(&mut self, number: u64) {
        if let Some(client) = self.clients.remove(&number) {
            self.watched -= usize::from(client.is_watched);
        }
        self.untold.push(Word::Closed(number));
    }

    fn write(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        client.is_due = false;
        let is_over = client.write().is_err();
        if is_over || (client.ends && client.is_done()) {
            // Dropped by the main thread, too, which is told.
            let _ = client.socket.shutdown(std::net::Shutdown::Both);
            self.forget(number);
            return;
        }
        let is_full = match client.is_full {
            true => !client.is_done(),
            false => client.waiting.len() > WAITING_MAX,
        };
        if std::mem::replace(&mut client.is_full, is_full) != is_full {
            self.untold.push(match is_full {
                true => Word::Full(number),
                false => Word::Room(number),
            });
        }
        if client.is_done() == client.is_watched {
            client.is_watched = !client.is_watched;
            let (blocked, socket) = (&self.blocked, &*client.socket);
            let done = match client.is_watched {
                true => {
                    self.watched += 1;
                    epoll::add(blocked, socket, EventData::new_u64(number), EventFlags::OUT)
                }
                false => {
                    self.watched -= 1;
                    epoll::delete(blocked, socket)
                }
            };
            // Out of memory for watches: it is closed as one that does not read.
            if done.is_err() {
                self.forget(number);
            }
        }
    }
}
