//! A stand-in master: it accepts a real replica with an empty data set, streams writes to it at a fixed rate,
//! and reads how much of them the replica has applied.
//!
//! ```text
//! replica   PING · REPLCONF … · PSYNC ? -1 ─►       REPLCONF ACK offset, once a second and when asked
//! stand-in  ◄─ +FULLRESYNC id 0 · empty RDB · SET, SET, … (one write to the socket each) · PUBLISH
//! ```
//!
//! A replica has a core to itself this way, on a machine with two. Writes are due at regular times; those
//! that are due when the stand-in wakes up are sent at once. PUBLISH, which replicas apply like writes, holds
//! the time at which it was due: a subscriber at the replica sees the lag (`probe`).

use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use slackwater_engine::time::now_ns;

use super::probe::{self, Probes};
use super::resp::{self, Reply};
use crate::common::sleep_until;

/// How long a replica may take to connect, to answer, and to apply what it was sent.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often an answer is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// Commands of a handshake: PING, AUTH and up to five REPLCONF, with room for those of later versions.
const HANDSHAKE_MAX: usize = 32;

/// Different keys: the data set stays below 11 MB with values of 1 KB.
const KEYS: u64 = 10_000;

/// An empty data set: version 10, which Redis 7 and Valkey 8 and 9 read; zeros stand for no checksum.
const EMPTY: &[u8] = b"REDIS0010\xff\0\0\0\0\0\0\0\0";

/// A master that waits for a replica.
pub struct Master {
    listener: TcpListener,
    /// Where replicas connect.
    pub address: SocketAddr,
}

/// The connection to a replica.
pub struct Link {
    stream: TcpStream,
    sent_bytes: u64,
    applied_bytes: Arc<Mutex<u64>>,
    writes: u64,
}

/// What is streamed.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Writes per second.
    pub rate_per_s: f64,
    /// For how long.
    pub seconds: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Whether the kernel may wait for more bytes: what `repl-disable-tcp-nodelay yes` does at a master.
    pub nagle: bool,
}

impl Master {
    /// Listens on a free port.
    ///
    /// # Errors
    ///
    /// If the address is not this host's.
    pub fn listen(address: Ipv4Addr) -> Result<Master, String> {
        let listen = || -> io::Result<Master> {
            let listener = TcpListener::bind((address, 0))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Master { listener, address })
        };
        listen().map_err(|error| format!("{address}: {error}"))
    }

    /// Waits for the replica, and gives it an empty data set.
    ///
    /// # Errors
    ///
    /// If none comes, or it is no replica.
    pub fn accept(&self) -> Result<Link, String> {
        let accept = || -> io::Result<Link> {
            let started = Instant::now();
            let stream = loop {
                match self.listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                if started.elapsed() > PATIENCE {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(LOOK);
            };
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            greet(stream)
        };
        accept().map_err(|error| format!("the replica of {}: {error}", self.address))
    }
}

/// Answers the handshake and sends the data set.
fn greet(mut stream: TcpStream) -> io::Result<Link> {
    let mut commands = BufReader::new(stream.try_clone()?);
    for _ in 0..HANDSHAKE_MAX {
        resp::skip_line_feeds(&mut commands)?;
        let words = words(resp::read(&mut commands)?);
        match words.first().map(String::as_str) {
            Some("PSYNC") => {
                let id = "a".repeat(40);
                write!(stream, "+FULLRESYNC {id} 0\r\n${}\r\n", EMPTY.len())?;
                stream.write_all(EMPTY)?;
                stream.set_read_timeout(None)?;
                let applied_bytes = Arc::new(Mutex::new(0));
                let told = Arc::clone(&applied_bytes);
                // It ends with the connection, which the link shuts down.
                std::thread::spawn(move || acknowledgements(commands, &told));
                return Ok(Link {
                    stream,
                    sent_bytes: 0,
                    applied_bytes,
                    writes: 0,
                });
            }
            Some("PING") => stream.write_all(b"+PONG\r\n")?,
            _ => stream.write_all(b"+OK\r\n")?,
        }
    }
    let text = "it did not ask for the data set";
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// The words of a command, the first in capitals.
fn words(command: Reply) -> Vec<String> {
    let Reply::Array(words) = command else {
        return Vec::new();
    };
    let mut words = words
        .iter()
        .filter_map(Reply::text)
        .collect::<Vec<String>>();
    if let Some(first) = words.first_mut() {
        first.make_ascii_uppercase();
    }
    words
}

fn acknowledgements(mut commands: BufReader<TcpStream>, applied_bytes: &Mutex<u64>) {
    // A replica that loads shows that it is alive.
    while let Ok(command) =
        resp::skip_line_feeds(&mut commands).and_then(|()| resp::read(&mut commands))
    {
        let words = words(command);
        let offset = words.get(2).and_then(|offset| offset.parse::<u64>().ok());
        if let (Some("REPLCONF"), Some(offset)) = (words.first().map(String::as_str), offset) {
            *applied_bytes.lock().unwrap_or_else(PoisonError::into_inner) = offset;
        }
    }
}

impl Link {
    /// Streams writes, and returns their number.
    ///
    /// # Errors
    ///
    /// If the connection fails, or the replica stops reading.
    pub fn stream(&mut self, stream: &Stream, probes: &mut Probes) -> Result<u64, String> {
        let failed = |error: io::Error| format!("the replica's connection: {error}");
        self.stream.set_nodelay(!stream.nagle).map_err(failed)?;
        let begin_ns = now_ns();
        let count = (stream.rate_per_s * stream.seconds) as u64;
        let value = vec![b'x'; stream.value_bytes];
        let mut bytes = Vec::new();
        for number in 0..count {
            let due_ns = begin_ns + (number as f64 / stream.rate_per_s * 1e9) as u64;
            sleep_until(due_ns);
            bytes.clear();
            let key = format!("key:{:06}", self.writes % KEYS);
            resp::command(&mut bytes, &[b"SET", key.as_bytes(), &value]);
            if probes.is_due(due_ns) {
                probe::command(&mut bytes, due_ns);
            }
            self.stream.write_all(&bytes).map_err(failed)?;
            self.sent_bytes += bytes.len() as u64;
            self.writes += 1;
        }
        Ok(count)
    }

    /// Waits until the replica has applied everything, and returns how long that took.
    ///
    /// # Errors
    ///
    /// If it takes too long.
    pub fn settle(&mut self) -> Result<Duration, String> {
        let failed = |error: io::Error| format!("the replica's connection: {error}");
        let (started, sent_bytes) = (Instant::now(), self.sent_bytes);
        let mut bytes = Vec::new();
        resp::command(&mut bytes, &[b"REPLCONF", b"GETACK", b"*"]);
        self.stream.set_nodelay(true).map_err(failed)?;
        self.stream.write_all(&bytes).map_err(failed)?;
        self.sent_bytes += bytes.len() as u64;
        let applied = || {
            *self
                .applied_bytes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        while applied() < sent_bytes {
            if started.elapsed() > PATIENCE {
                let text = "the replica has not applied what it was sent";
                return Err(format!("{text}: {} of {sent_bytes} bytes", applied()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(started.elapsed())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Its reader ends. The replica may have ended before.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::super::beat::Beat;
    use super::super::probe::Listener;
    use super::super::replicas::Replica;
    use super::super::server::{Kind, Server, Setup};
    use super::*;

    fn setup<'a>(kind: &'a Kind, folder: &'a std::path::Path) -> Setup<'a> {
        Setup {
            kind,
            folder,
            address: Ipv4Addr::LOCALHOST,
            namespace: None,
            master: None,
            dilation: None,
            core: None,
        }
    }

    fn installed() -> impl Iterator<Item = Kind> {
        let kinds = ["redis", "valkey"].into_iter();
        kinds.filter_map(|name| Kind::find(name).ok())
    }

    #[test]
    fn a_real_replica_applies_what_is_streamed_with_and_without_a_beat() {
        for kind in installed() {
            let folder = tempfile::tempdir().unwrap();
            let master = Master::listen(Ipv4Addr::LOCALHOST).unwrap();
            let mut setup = setup(&kind, folder.path());
            setup.master = Some(master.address);
            let replica = Server::start(&setup, &[]).unwrap();
            let mut link = master.accept().unwrap();
            replica.wait_for_link().unwrap();
            for interval in [None, Some(Duration::from_millis(10))] {
                let start = |every| Beat::start(replica.pid(), master.address, every).ok();
                let beat = interval.and_then(start);
                let listener = Listener::start(replica.address).unwrap();
                let stream = Stream {
                    rate_per_s: 1_000.0,
                    seconds: 0.2,
                    value_bytes: 100,
                    nagle: false,
                };
                let writes = link.stream(&stream, &mut Probes::new(1)).unwrap();
                link.settle().unwrap();
                drop(beat);
                assert_eq!(writes, 200, "{}", kind.name);
                assert!(!listener.end().unwrap().is_empty(), "{}", kind.name);
            }
            let mut client = replica.client().unwrap();
            assert_eq!(client.call(&["DBSIZE"]).unwrap(), Reply::Number(400));
        }
    }

    #[test]
    fn a_real_master_counts_what_a_stand_in_replica_has_read() {
        for kind in installed() {
            let folder = tempfile::tempdir().unwrap();
            let server = Server::start(&setup(&kind, folder.path()), &[]).unwrap();
            let mut client = server.client().unwrap();
            client.call(&["SET", "before", "1"]).unwrap();
            let _replica = Replica::start(server.address).unwrap();
            // It tells its position when it has read something.
            let started = Instant::now();
            loop {
                client.call(&["SET", "k", "v"]).unwrap();
                let line = client
                    .info("replication", "slave0")
                    .unwrap()
                    .unwrap_or_default();
                let is_following = line.contains("state=online") && !line.contains("offset=0,");
                if is_following {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "{}: {line}", kind.name);
                std::thread::sleep(LOOK);
            }
        }
    }

    #[test]
    fn only_replicas_are_accepted() {
        let master = Master::listen(Ipv4Addr::LOCALHOST).unwrap();
        for hostile in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"", b"*1\r\n$-5\r\n"] {
            let mut stream = TcpStream::connect(master.address).unwrap();
            stream.write_all(hostile).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(master.accept().is_err());
        }
    }
}
