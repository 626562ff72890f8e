//! The main thread: fetches commands, looks rows up, and applies changes.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slackwater_link::SendError;
use slackwater_link::spsc::{Receiver, Sender};
use slackwater_link::waiter::{Interest, Listen, Sources, Waiter};

use super::command::{self, Client, Server};
use super::handler::{Order, Word};
use super::options::Options;
use super::reply::{Reply, Version};
use super::request::{REQUEST_BYTES_MAX, Requests};
use super::table::Tables;

/// The most clients at once: 10,000 × (16 KiB of a command that has begun + as much of a reply) are 320 MB.
pub(super) const CLIENTS_MAX: usize = 10_000;

/// What is read from a client before another one's turn.
const READ_BYTES: usize = 16 << 10;

/// How many batches of changes are applied before clients' turn.
const BATCHES_AT_ONCE: usize = 4;

/// How many sockets the kernel names at once.
const EVENTS_AT_ONCE: usize = 64;

/// The number of the listening socket.
const LISTENER: u64 = 0;

struct Connection {
    socket: Arc<TcpStream>,
    client: Client,
    requests: Requests,
    /// Bytes that are no whole command yet.
    held: Vec<u8>,
    /// Whether nothing more is read from it.
    ends: bool,
}

/// The thread's state.
pub(super) struct Main {
    pub waiter: Waiter,
    pub listener: TcpListener,
    pub tables: Tables,
    pub orders: Sender<Order>,
    pub words: Receiver<Word>,
    pub options: Options,
    pub begun: Instant,
}

pub(super) struct Connections {
    main: Main,
    sockets: OwnedFd,
    connections: HashMap<u64, Connection>,
    next: u64,
    /// Orders for which there was no room: until there is, nothing is read. As many as the commands of one
    /// read at most.
    held_back: VecDeque<Order>,
    room: Box<[u8]>,
}

impl Connections {
    pub fn new(mut main: Main) -> io::Result<Connections> {
        let sockets = epoll::create(CreateFlags::CLOEXEC)?;
        main.listener.set_nonblocking(true)?;
        epoll::add(
            &sockets,
            &main.listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        main.waiter.register(sockets.as_fd(), Interest::Read)?;
        Ok(Connections {
            main,
            sockets,
            connections: HashMap::new(),
            next: LISTENER + 1,
            held_back: VecDeque::new(),
            room: vec![0; READ_BYTES].into(),
        })
    }

    /// Works until the door is closed.
    pub fn run(mut self, is_closed: &dyn Fn() -> bool) {
        loop {
            if self.step() {
                continue;
            }
            self.main.waiter.announce(Listen::Everything);
            if is_closed() {
                return;
            }
            if self.step() {
                self.main.waiter.retract();
            } else if self.main.waiter.wait(None, Sources::All).is_err() {
                return;
            }
        }
    }

    fn step(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..BATCHES_AT_ONCE {
            worked |= self.main.tables.take();
        }
        while let Some(word) = self.main.words.receive() {
            self.hear(word);
            worked = true;
        }
        while let Some(order) = self.held_back.pop_front() {
            if let Some(order) = self.post(order) {
                self.held_back.push_front(order);
                return worked;
            }
            worked = true;
        }
        worked | self.look()
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Closed(number) => {
                if let Some(connection) = self.connections.remove(&number)
                    && !connection.ends
                {
                    let _ = epoll::delete(&self.sockets, &*connection.socket);
                }
            }
            Word::Full(number) | Word::Room(number) => {
                if let Some(connection) = self.connections.get(&number) {
                    let flags = match matches!(word, Word::Full(_)) {
                        true => EventFlags::empty(),
                        false => EventFlags::IN,
                    };
                    let data = EventData::new_u64(number);
                    let _ = epoll::modify(&self.sockets, &*connection.socket, data, flags);
                }
            }
        }
    }

    /// Puts an order into the ring, or after those for which there was no room.
    fn tell(&mut self, order: Order) {
        let order = match self.held_back.is_empty() {
            true => self.post(order),
            false => Some(order),
        };
        self.held_back.extend(order);
    }

    /// Returns the order if there is no room; the handler wakes this thread when there is.
    fn post(&mut self, order: Order) -> Option<Order> {
        match self.main.orders.post(order) {
            // The handler has ended, and with it the door.
            Ok(()) | Err(SendError::Closed(_)) => None,
            Err(SendError::Full(order)) => {
                self.main.orders.ring();
                Some(order)
            }
        }
    }

    fn look(&mut self) -> bool {
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
        let count = epoll::wait(&self.sockets, &mut events[..], Some(&now)).unwrap_or(0);
        for event in &events[..count] {
            if !self.held_back.is_empty() {
                break;
            }
            match event.data.u64() {
                LISTENER => self.admit(),
                number => self.fetch(number),
            }
        }
        self.main.orders.ring();
        count > 0
    }

    fn admit(&mut self) {
        let Ok((socket, _)) = self.main.listener.accept() else {
            return;
        };
        if self.connections.len() >= CLIENTS_MAX {
            let _ = io::Write::write(&mut &socket, b"-ERR max number of clients reached\r\n");
            return;
        }
        let (number, socket) = (self.next, Arc::new(socket));
        let ready = socket
            .set_nonblocking(true)
            .and_then(|()| socket.set_nodelay(true));
        let data = EventData::new_u64(number);
        if ready.is_err() || epoll::add(&self.sockets, &*socket, data, EventFlags::IN).is_err() {
            return;
        }
        self.next += 1;
        let client = Client {
            number,
            ..Client::default()
        };
        let connection = Connection {
            socket: Arc::clone(&socket),
            client,
            requests: Requests::default(),
            held: Vec::new(),
            ends: false,
        };
        self.connections.insert(number, connection);
        self.tell(Order::Open(number, socket));
    }

    /// Reads from a client once, and answers its whole commands.
    fn fetch(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        // What was held back before is answered first: it is level-triggered, so the rest comes again.
        let wanted = READ_BYTES.min(REQUEST_BYTES_MAX + READ_BYTES - connection.held.len());
        let has_ended = match (&*connection.socket).read(&mut self.room[..wanted]) {
            Ok(0) => true,
            Ok(count) => {
                connection.held.extend_from_slice(&self.room[..count]);
                false
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            Err(_) => true,
        };
        let has_ended = self.answer(number) || has_ended;
        if has_ended && let Some(connection) = self.connections.get_mut(&number) {
            connection.ends = true;
            let _ = epoll::delete(&self.sockets, &*connection.socket);
            self.tell(Order::Close(number));
        }
    }

    /// Answers the whole commands of a client. Returns whether its connection ends.
    fn answer(&mut self, number: u64) -> bool {
        let clients = self.connections.len();
        let Some(connection) = self.connections.get_mut(&number) else {
            return false;
        };
        let server = Server {
            tables: &self.main.tables,
            password: self.main.options.password.as_deref(),
            role: &|| (self.main.options.role)(self.main.tables.offset),
            port: self.main.options.address.port(),
            clients,
            uptime_s: self.main.begun.elapsed().as_secs(),
        };
        let (mut used, mut ends, mut orders) = (0, false, Vec::new());
        while !ends {
            let reply = match connection.requests.next(&connection.held[used..]) {
                Ok(None) => break,
                Ok(Some((words, count))) => {
                    used += count;
                    if words.is_empty() {
                        continue;
                    }
                    let version = connection.client.version;
                    let (reply, last) = command::answer(&words, &mut connection.client, &server);
                    ends = last;
                    // HELLO is answered in the version that it asks for.
                    let now = connection.client.version;
                    (
                        if matches!(reply, Reply::Error(_)) {
                            version
                        } else {
                            now
                        },
                        reply,
                    )
                }
                Err(wrong) => {
                    ends = true;
                    let text = format!("ERR Protocol error: {}", wrong.0);
                    (Version::Two, Reply::Error(text))
                }
            };
            orders.push(Order::Reply(number, reply.0, reply.1));
        }
        connection.held.drain(..used);
        connection.held.shrink_to(READ_BYTES);
        for order in orders {
            self.tell(order);
        }
        ends
    }
}
