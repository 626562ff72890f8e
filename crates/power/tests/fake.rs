//! Servers that say what Redis says, one a process: this test binary again. A master streams, its replicas
//! read; what a byte costs the master is much more than what it costs a replica.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use slackwater_power::resp::{self, Reply};
use slackwater_power::system;

const PORT: &str = "FAKE_PORT";
const MASTER: &str = "FAKE_MASTER";
/// Bytes of a write, and the time between two.
const WRITE: usize = 1_024;
const PAUSE: Duration = Duration::from_millis(2);
/// What a write costs the master.
const COST: Duration = Duration::from_micros(60);

/// A server in a process of its own, ended with the test.
pub struct Fake {
    child: Child,
    /// Held, so that what it prints at its end has a reader.
    _lines: Lines<BufReader<ChildStdout>>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Fake {
    /// A master.
    pub fn master() -> Self {
        Self::start(0, None)
    }

    /// A replica of a master.
    pub fn replica(master: SocketAddr) -> Self {
        Self::start(0, Some(master))
    }

    /// A server on a given port.
    pub fn start(port: u16, master: Option<SocketAddr>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "fake::serve", "--nocapture"]);
        command.env(PORT, port.to_string());
        if let Some(master) = master {
            command.env(MASTER, master.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("port ")
                .and_then(|(_, port)| port.trim().parse::<u16>().ok())
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let _lines = lines;
        Self {
            child,
            address,
            _lines,
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it.
    pub fn ask(&self, words: &[&str]) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(&resp::command(words)).unwrap();
        let mut bytes = Vec::new();
        loop {
            let mut part = [0; 4_096];
            let read = stream.read(&mut part).unwrap();
            bytes.extend_from_slice(&part[..read]);
            if let Some((reply, _)) = resp::parse(&bytes).unwrap() {
                return reply;
            }
            assert!(read > 0, "no reply");
        }
    }

    /// The low-water mark of a replica's connection to its master; 0 without one.
    pub fn mark(&self) -> i64 {
        self.ask(&["MARK"]).number().unwrap()
    }

    /// Bytes that it has sent or applied.
    pub fn offset(&self) -> i64 {
        self.ask(&["OFFSET"]).number().unwrap()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Default)]
struct State {
    offset: AtomicU64,
    is_silent: AtomicBool,
    master: Mutex<Option<SocketAddr>>,
    link: Mutex<Option<TcpStream>>,
    replicas: Mutex<Vec<u16>>,
}

/// The server's program; nothing without its variables.
#[test]
#[ignore = "a server that other tests start"]
fn serve() {
    let Ok(port) = std::env::var(PORT) else {
        return;
    };
    let port = port.parse::<u16>().unwrap();
    // A port that was just in use may not be free at once.
    let listener = loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => break listener,
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    };
    let port = listener.local_addr().unwrap().port();
    println!("\nport {port}");
    let state = Arc::new(State::default());
    let master = std::env::var(MASTER)
        .ok()
        .map(|master| master.parse().unwrap());
    *state.master.lock().unwrap() = master;
    // The test that has started it is gone.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let writes = state.clone();
    thread::spawn(move || write(&writes));
    let follows = state.clone();
    thread::spawn(move || {
        loop {
            follow(&follows, port);
            thread::sleep(Duration::from_millis(50));
        }
    });
    for stream in listener.incoming().flatten() {
        let state = state.clone();
        thread::spawn(move || answer(&state, stream));
    }
}

fn follow(state: &State, port: u16) {
    let Some(master) = *state.master.lock().unwrap() else {
        return;
    };
    let Ok(mut stream) = TcpStream::connect(master) else {
        return;
    };
    let _ = stream.write_all(&resp::command(&["REPLICATE", &port.to_string()]));
    // Where the stream begins: that is the snapshot.
    let mut offset = [0; 8];
    if stream.read_exact(&mut offset).is_err() {
        return;
    }
    state
        .offset
        .store(u64::from_le_bytes(offset), Ordering::Relaxed);
    *state.link.lock().unwrap() = stream.try_clone().ok();
    // Servers wait for a socket and then read what is there; one that waits in the read would not be woken.
    stream.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 1 << 20];
    loop {
        let mut fds = [PollFd::new(&stream, PollFlags::IN)];
        let _ = poll(&mut fds, None);
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => {
                state.offset.fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    *state.link.lock().unwrap() = None;
}

/// A master's clients: whoever follows is sent what they write.
fn write(state: &State) {
    loop {
        let leads = state.master.lock().unwrap().is_none();
        if leads && !state.is_silent.load(Ordering::Relaxed) {
            let until = Instant::now() + COST;
            while Instant::now() < until {}
            state.offset.fetch_add(WRITE as u64, Ordering::Relaxed);
        }
        thread::sleep(PAUSE);
    }
}

fn answer(state: &State, mut stream: TcpStream) {
    let mut input = Vec::new();
    let mut part = [0; 4_096];
    while let Ok(read) = stream.read(&mut part) {
        if read == 0 {
            return;
        }
        input.extend_from_slice(&part[..read]);
        while let Ok(Some((command, length))) = resp::parse(&input) {
            input.drain(..length);
            let words = command.array().unwrap_or_default().iter();
            let words = words.filter_map(Reply::text).collect::<Vec<&str>>();
            if words.first() == Some(&"REPLICATE") {
                state
                    .replicas
                    .lock()
                    .unwrap()
                    .push(words[1].parse().unwrap());
                stream_to(state, &mut stream);
                return;
            }
            let text = reply(state, &words);
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn stream_to(state: &State, stream: &mut TcpStream) {
    let mut sent = state.offset.load(Ordering::Relaxed);
    if stream.write_all(&sent.to_le_bytes()).is_err() {
        return;
    }
    loop {
        let offset = state.offset.load(Ordering::Relaxed);
        let bytes = vec![b'x'; (offset - sent) as usize];
        if stream.write_all(&bytes).is_err() {
            return;
        }
        sent = offset;
        thread::sleep(PAUSE);
    }
}

fn reply(state: &State, words: &[&str]) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let offset = state.offset.load(Ordering::Relaxed);
    let master = *state.master.lock().unwrap();
    let link = state.link.lock().unwrap();
    let mark = link
        .as_ref()
        .map(|link| system::low_water_mark(link.as_fd()).unwrap());
    match words {
        ["ROLE"] => match master {
            Some(master) => {
                let state = if link.is_some() {
                    "connected"
                } else {
                    "connect"
                };
                let (ip, port) = (bulk(&master.ip().to_string()), master.port());
                format!(
                    "*5\r\n{}{ip}:{port}\r\n{}:{offset}\r\n",
                    bulk("slave"),
                    bulk(state)
                )
            }
            None => {
                let replicas = state.replicas.lock().unwrap();
                let replica = |port: &u16| {
                    format!(
                        "*3\r\n{}{}{}",
                        bulk("127.0.0.1"),
                        bulk(&port.to_string()),
                        bulk("0")
                    )
                };
                let all = replicas.iter().map(replica).collect::<String>();
                format!(
                    "*3\r\n{}:{offset}\r\n*{}\r\n{all}",
                    bulk("master"),
                    replicas.len()
                )
            }
        },
        ["INFO", "server"] => {
            let pid = std::process::id();
            let ticks = slackwater_power::process::started(pid).unwrap();
            let uptime = system::since_boot_ns() / 1_000_000_000 - ticks / system::ticks_per_s();
            bulk(&format!(
                "redis_version:0.0\r\nprocess_id:{pid}\r\nuptime_in_seconds:{uptime}\r\n"
            ))
        }
        ["INFO", _] => bulk("# nothing\r\n"),
        ["MARK"] => format!(":{}\r\n", mark.unwrap_or(0)),
        ["OFFSET"] => format!(":{offset}\r\n"),
        ["SILENCE"] => {
            state.is_silent.store(true, Ordering::Relaxed);
            "+OK\r\n".to_string()
        }
        ["SPEAK"] => {
            state.is_silent.store(false, Ordering::Relaxed);
            "+OK\r\n".to_string()
        }
        ["REPLICAOF", "NO", "ONE"] => {
            *state.master.lock().unwrap() = None;
            if let Some(link) = link.as_ref() {
                let _ = link.shutdown(std::net::Shutdown::Both);
            }
            "+OK\r\n".to_string()
        }
        _ => "-ERR unknown command\r\n".to_string(),
    }
}
