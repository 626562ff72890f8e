//! Stand-in replicas: they copy a real master, read all that it streams and throw it away, and tell it once a
//! second how much that is. The master does all the work of replication, and replicas need no cores.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::resp;

/// How long a master may take for the copy of its data.
const PATIENCE: Duration = Duration::from_secs(60);

/// Replicas send their position once a second.
const EVERY: Duration = Duration::from_secs(1);

/// Bytes of a read.
const READ_BYTES: usize = 256 << 10;

/// A stand-in replica, which leaves its master when it is dropped.
pub struct Replica {
    stream: TcpStream,
    thread: Option<JoinHandle<u64>>,
}

impl Replica {
    /// Copies a master, and follows it.
    ///
    /// # Errors
    ///
    /// If the master refuses, or its copy does not come.
    pub fn start(master: SocketAddr) -> Result<Replica, String> {
        let start = || -> io::Result<Replica> {
            let mut stream = TcpStream::connect(master)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut from = BufReader::with_capacity(READ_BYTES, stream.try_clone()?);
            let commands: [&[&[u8]]; 3] = [
                &[b"PING"],
                &[b"REPLCONF", b"listening-port", b"1"],
                &[b"REPLCONF", b"capa", b"psync2"],
            ];
            for command in commands {
                send(&mut stream, command)?;
                answer(&mut from)?;
            }
            send(&mut stream, &[b"PSYNC", b"?", b"-1"])?;
            let resync = answer(&mut from)?;
            let offset = resync
                .rsplit(' ')
                .next()
                .and_then(|offset| offset.parse::<u64>().ok());
            let offset = offset.ok_or_else(|| unexpected(&resync))?;
            let length = answer(&mut from)?;
            let bytes = length
                .strip_prefix('$')
                .and_then(|bytes| bytes.parse::<u64>().ok());
            let bytes = bytes.ok_or_else(|| unexpected(&length))?;
            io::copy(&mut from.by_ref().take(bytes), &mut io::sink())?;
            let own = stream.try_clone()?;
            let thread = std::thread::spawn(move || follow(from, stream, offset));
            Ok(Replica {
                stream: own,
                thread: Some(thread),
            })
        };
        start().map_err(|error| format!("a replica of {master}: {error}"))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The master may have ended before.
        let _ = self.stream.shutdown(Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Reads until the connection ends, and returns the position.
fn follow(mut from: BufReader<TcpStream>, mut to: TcpStream, mut offset: u64) -> u64 {
    let mut bytes = vec![0; READ_BYTES];
    let mut told: Option<Instant> = None;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        offset += count as u64;
        if told.is_none_or(|told| told.elapsed() >= EVERY) {
            let position = offset.to_string();
            if send(&mut to, &[b"REPLCONF", b"ACK", position.as_bytes()]).is_err() {
                break;
            }
            told = Some(Instant::now());
        }
    }
    offset
}

fn send(to: &mut TcpStream, command: &[&[u8]]) -> io::Result<()> {
    let mut bytes = Vec::new();
    resp::command(&mut bytes, command);
    to.write_all(&bytes)
}

/// The next line that says something.
fn answer(from: &mut BufReader<TcpStream>) -> io::Result<String> {
    resp::skip_line_feeds(from)?;
    let line = resp::line(from)?;
    let line = String::from_utf8_lossy(&line).into_owned();
    match line.starts_with('-') {
        true => Err(io::Error::other(line)),
        false => Ok(line),
    }
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the master sent {what}"),
    )
}
