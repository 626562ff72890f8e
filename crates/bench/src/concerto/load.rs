//! Clients of a server: many connections in one thread, each with one operation at a time.
//!
//! - **Closed loop**: each connection begins its next operation when the one before is done. The server is as
//!   busy as it can be.
//! - **Open loop**: operations are due at regular times and wait for a free connection. Latency counts from
//!   the due time, so what a late server delays is visible.
//!
//! A run ends after a time or a number of operations, whichever comes first.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use hdrhistogram::Histogram;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;
use slackwater_engine::time::now_ns;

use super::resp::{self, Reply};
use super::workload::{Step, Then, Workload};
use crate::common::histogram;

/// Bytes of a read from a connection.
const READ_BYTES: usize = 64 << 10;

/// Bytes of replies that may wait in a connection: a scan returns 100 records of 1.2 KB.
const REPLY_BYTES_MAX: usize = 8 << 20;

/// How long a server may be silent while operations are under way.
const SILENCE_NS: u64 = 20_000_000_000;

/// Operations that may be due and wait for a connection: beyond it, the server is too slow for the rate.
const DUE_MAX: usize = 1_000_000;

/// Events of one look.
const EVENTS_MAX: usize = 64;

/// How operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as the one before is done.
    Closed,
    /// So many per second.
    Open(f64),
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The server.
    pub address: SocketAddr,
    /// Connections.
    pub connections: usize,
    /// How operations follow each other.
    pub pace: Pace,
    /// For how long operations are begun, at most.
    pub seconds: f64,
    /// How many operations are begun, at most.
    pub count: u64,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Done {
    /// Operations that were begun and done.
    pub operations: u64,
    /// From the first to the last.
    pub seconds: f64,
    /// From the due time, or the begin in a closed loop, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Done {
    /// Operations per second.
    pub fn per_s(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// A connection.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// What is not sent yet, of the present step.
    replies: Vec<Reply>,
    expected: usize,
    then: Then,
    due_ns: u64,
}

/// The state of a run.
struct Run<'a> {
    workload: &'a mut Workload,
    connections: Vec<Connection>,
    free: Vec<usize>,
    /// Where replies are read.
    bytes: Vec<u8>,
    done: Done,
}

impl Load {
    /// Stores the records of a workload.
    ///
    /// # Errors
    ///
    /// As of [`Load::run`].
    pub fn fill(&self, workload: &mut Workload) -> Result<(), String> {
        let mut client = super::client::Client::connect(self.address)?;
        // So many steps are sent before their replies are read.
        const AT_ONCE: u64 = 100;
        let records = workload.records();
        for begin in (0..records).step_by(AT_ONCE as usize) {
            let steps = (begin..records.min(begin + AT_ONCE)).map(|number| workload.fill(number));
            let (mut bytes, mut replies) = (Vec::new(), 0);
            for step in steps {
                bytes.extend(step.bytes);
                replies += step.replies;
            }
            client.send(&bytes)?;
            for _ in 0..replies {
                client.receive()?;
            }
        }
        Ok(())
    }

    /// Runs the operations.
    ///
    /// # Errors
    ///
    /// If the server reports an error, ends a connection, or is silent.
    pub fn run(&self, workload: &mut Workload) -> Result<Done, String> {
        self.run_all(workload)
            .map_err(|error| format!("{}: {error}", self.address))
    }

    fn run_all(&self, workload: &mut Workload) -> io::Result<Done> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for number in 0..self.connections {
            let connection = Connection::open(self.address)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(
                &poll,
                connection.stream.as_fd(),
                data,
                epoll::EventFlags::IN,
            )?;
            connections.push(connection);
        }
        let mut run = Run {
            workload,
            free: (0..connections.len()).rev().collect(),
            connections,
            bytes: vec![0; READ_BYTES],
            done: Done {
                operations: 0,
                seconds: 0.0,
                latency: histogram(),
            },
        };
        let begin_ns = now_ns();
        let end_ns = begin_ns + (self.seconds * 1e9) as u64;
        let (mut begun, mut due, mut heard_ns) = (0u64, VecDeque::new(), begin_ns);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now_ns = now_ns();
            let may_begin = |begun: u64| begun < self.count && now_ns < end_ns;
            let next_ns = |begun: u64, rate: f64| begin_ns + (begun as f64 / rate * 1e9) as u64;
            match self.pace {
                Pace::Closed => {
                    while due.len() < run.free.len() && may_begin(begun) {
                        due.push_back(now_ns);
                        begun += 1;
                    }
                }
                Pace::Open(rate) => {
                    while may_begin(begun) && next_ns(begun, rate) <= now_ns {
                        due.push_back(next_ns(begun, rate));
                        begun += 1;
                    }
                }
            }
            if due.len() > DUE_MAX {
                return Err(io::Error::other("it is too slow for this rate"));
            }
            while !due.is_empty() && !run.free.is_empty() {
                let (due_ns, number) = (due.pop_front(), run.free.pop());
                if let (Some(due_ns), Some(number)) = (due_ns, number) {
                    run.begin(number, due_ns)?;
                }
            }
            let is_idle = run.free.len() == run.connections.len();
            if is_idle && due.is_empty() && !may_begin(begun) {
                run.done.seconds = (now_ns - begin_ns) as f64 / 1e9;
                return Ok(run.done);
            }
            let wait_ns = match self.pace {
                Pace::Open(rate) if may_begin(begun) => {
                    next_ns(begun, rate).saturating_sub(now_ns).min(SILENCE_NS)
                }
                Pace::Closed | Pace::Open(_) => SILENCE_NS,
            };
            let timeout = Timespec {
                tv_sec: (wait_ns / 1_000_000_000) as i64,
                tv_nsec: (wait_ns % 1_000_000_000) as i64,
            };
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&poll, spare, Some(&timeout)) {
                // A signal of another experiment in this process ends a wait early.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !events.is_empty() || is_idle {
                heard_ns = now_ns;
            } else if now_ns.saturating_sub(heard_ns) > SILENCE_NS {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for event in &events {
                run.receive(event.data.u64() as usize)?;
            }
        }
    }
}

impl Run<'_> {
    fn begin(&mut self, number: usize, due_ns: u64) -> io::Result<()> {
        let step = self.workload.next();
        let connection = &mut self.connections[number];
        connection.due_ns = due_ns;
        connection.send(step)
    }

    /// Reads what has arrived, and goes through the operation's steps.
    fn receive(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        connection.read(&mut self.bytes)?;
        while let Some((reply, length)) = resp::first(&connection.received)? {
            connection.received.drain(..length);
            if let Reply::Error(error) = reply {
                return Err(io::Error::other(error));
            }
            connection.replies.push(reply);
        }
        if connection.expected == 0 || connection.replies.len() < connection.expected {
            return Ok(());
        }
        match self.workload.follow(connection.then, &connection.replies) {
            Some(step) => connection.send(step),
            None => {
                let latency_ns = now_ns().saturating_sub(connection.due_ns);
                connection.expected = 0;
                self.done.operations += 1;
                self.done.latency.saturating_record(latency_ns);
                self.free.push(number);
                Ok(())
            }
        }
    }
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            received: Vec::new(),
            replies: Vec::new(),
            expected: 0,
            then: Then::Done,
            due_ns: 0,
        })
    }

    /// Sends a step. Its commands fit into an empty send buffer: the largest have some KB.
    fn send(&mut self, step: Step) -> io::Result<()> {
        self.replies.clear();
        self.expected = step.replies;
        self.then = step.then;
        self.stream.write_all(&step.bytes)
    }

    /// Reads once: what is left is reported again.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match self.stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        match self.received.len() > REPLY_BYTES_MAX {
            true => Err(io::Error::other("a reply is too long")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::server::{Kind, Server, Setup};
    use super::super::workload::Mix;
    use super::*;

    #[test]
    fn all_workloads_run_against_a_real_server() {
        let Ok(kind) = Kind::find("redis") else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup {
            kind: &kind,
            folder: folder.path(),
            address: Ipv4Addr::LOCALHOST,
            namespace: None,
            master: None,
            dilation: None,
            core: None,
        };
        let server = Server::start(&setup, &[]).unwrap();
        let ycsb = ['A', 'B', 'C', 'D', 'E', 'F'].map(Mix::Ycsb);
        for mix in [Mix::Set, Mix::Memtier].into_iter().chain(ycsb) {
            server.client().unwrap().call(&["FLUSHALL"]).unwrap();
            let mut workload = Workload::new(mix, 300, 64, 1);
            let mut load = Load {
                address: server.address,
                connections: 4,
                pace: Pace::Closed,
                seconds: 60.0,
                count: 200,
            };
            load.fill(&mut workload).unwrap();
            let size = server.client().unwrap().call(&["DBSIZE"]).unwrap();
            let index = u64::from(matches!(mix, Mix::Ycsb(_))) as i64;
            assert_eq!(size, Reply::Number(300 + index), "{mix:?}");
            assert_eq!(load.run(&mut workload).unwrap().operations, 200, "{mix:?}");
            load.pace = Pace::Open(2_000.0);
            let done = load.run(&mut workload).unwrap();
            assert_eq!((done.operations, done.latency.len()), (200, 200), "{mix:?}");
        }
    }
}
