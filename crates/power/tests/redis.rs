//! With real servers, where redis-server is installed: on loopback, on free ports, in a temporary folder.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use slackwater_power::resp::{self, Reply};

use crate::manager::{Place, eventually};
use crate::tree;

const PROGRAM: &str = "redis-server";

/// A server, ended with the test.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(place: &Place, port: u16, master: Option<SocketAddr>) -> Option<Self> {
        let mut command = Command::new(PROGRAM);
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        // Replicas are synchronized at once.
        command.args(["--repl-diskless-sync-delay", "0", "--protected-mode", "no"]);
        command.arg("--dir").arg(place.path());
        if let Some(master) = master {
            command.args(["--replicaof", &format!("{} {}", master.ip(), master.port())]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Self {
            child: child.ok()?,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        eventually("the server answers", || {
            TcpStream::connect(server.address).is_ok()
        });
        Some(server)
    }

    /// Asks it.
    pub fn ask(&self, words: &[&str]) -> Reply {
        let mut connection = Connection::to(self.address);
        connection.ask(words)
    }

    /// Bytes that it has sent or applied.
    pub fn offset(&self) -> i64 {
        let reply = self.ask(&["ROLE"]);
        let fields = reply.array().unwrap();
        let at = if fields[0].text() == Some("master") {
            1
        } else {
            4
        };
        fields[at].number().unwrap()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection to a server.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub fn to(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).unwrap(),
            input: Vec::new(),
        }
    }

    /// Asks.
    pub fn ask(&mut self, words: &[&str]) -> Reply {
        self.stream.write_all(&resp::command(words)).unwrap();
        self.reply().expect("the server is gone")
    }

    /// False if the server is gone.
    fn try_ask(&mut self, words: &[&str]) -> bool {
        let sent = self.stream.write_all(&resp::command(words));
        sent.is_ok() && self.reply().is_some()
    }

    /// The next reply; none if the server is gone.
    pub fn reply(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, length)) = resp::parse(&self.input).unwrap() {
                self.input.drain(..length);
                return Some(reply);
            }
            let mut part = [0; 4_096];
            let read = self.stream.read(&mut part).unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.input.extend_from_slice(&part[..read]);
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A master and a replica that follows; none where there is no program.
pub fn pair(place: &Place) -> Option<(Server, Server)> {
    let (master, mut replicas) = group(place, 1)?;
    Some((master, replicas.pop()?))
}

/// A master and replicas that follow it; none where there is no program.
pub fn group(place: &Place, replicas: usize) -> Option<(Server, Vec<Server>)> {
    let Some(master) = Server::start(place, free_port(), None) else {
        println!("skipped: {PROGRAM} is not installed");
        return None;
    };
    let started = (0..replicas).map(|_| Server::start(place, free_port(), Some(master.address)));
    let replicas = started.collect::<Option<Vec<Server>>>()?;
    for replica in &replicas {
        eventually("the replica follows", || {
            replica.ask(&["ROLE"]).array().unwrap()[3].text() == Some("connected")
        });
    }
    Some((master, replicas))
}

/// A sentinel that watches over a master, with more lines of configuration.
pub fn sentinel(place: &Place, master: &Server, more: &str) -> Server {
    let port = free_port();
    let file = place.path().join(format!("sentinel-{port}.conf"));
    let config = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds mymaster 1000\n{more}",
        master.address.port()
    );
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg(&file).arg("--sentinel");
    command.arg("--dir").arg(place.path());
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let sentinel = Server {
        child: child.unwrap(),
        address: SocketAddr::from(([127, 0, 0, 1], port)),
    };
    eventually("the sentinel answers", || {
        TcpStream::connect(sentinel.address).is_ok()
    });
    sentinel
}

/// Writes until it is told to stop.
pub fn write(address: SocketAddr, goes_on: &AtomicBool) {
    let mut connection = Connection::to(address);
    let value = "x".repeat(1_024);
    let mut number = 0;
    while goes_on.load(Ordering::Relaxed) {
        number += 1;
        if !connection.try_ask(&["SET", &format!("key:{}", number % 100), &value]) {
            return;
        }
        thread::sleep(Duration::from_millis(3));
    }
}

pub fn server(place: &Place, of: &Server) -> Option<slackwater_power::status::ServerStatus> {
    let status = place.status()?;
    status
        .servers
        .into_iter()
        .find(|server| server.address == of.address.to_string())
}

#[test]
fn a_real_replica_is_found_slowed_batched_and_raised() {
    let place = Place::new();
    let Some((mut master, replica)) = pair(&place) else {
        return;
    };
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        let writes = scope.spawn(|| write(master.address, &goes_on));
        let mut manager = place.manage(master.address, &["--lag", "500ms"]);
        eventually("both are found", || {
            server(&place, &replica).is_some_and(|server| server.pid == Some(replica.child.id()))
                && server(&place, &master).is_some_and(|server| server.role == "master")
        });
        let can_batch =
            String::from_utf8_lossy(&place.run(&["check"]).stdout).contains("batch: possible");
        if can_batch {
            eventually("it is batched", || {
                server(&place, &replica).is_some_and(|server| server.beats > 5)
            });
            // Bounded: whatever was written is applied soon after.
            for _ in 0..20 {
                let written = master.offset();
                eventually("it is applied", || replica.offset() >= written);
            }
        }
        goes_on.store(false, Ordering::Relaxed);
        writes.join().unwrap();
        // One write, and then silence.
        master.ask(&["SET", "last", "1"]);
        eventually("the last write is applied", || {
            replica.ask(&["GET", "last"]).text() == Some("1")
        });
        let _ = manager.head();
        goes_on.store(true, Ordering::Relaxed);
        let writes = scope.spawn(|| write(master.address, &goes_on));
        eventually("a core is slowed", || {
            tree::any_slow(&place.sys(), crate::manager::CPUS)
        });
        goes_on.store(false, Ordering::Relaxed);
        writes.join().unwrap();
        assert_eq!(manager.stop(), Some(0));
        assert!(place.is_as_found());
    });
    // With the master gone all is raised, and nothing more.
    let manager = place.manage(master.address, &["--lag", "500ms"]);
    eventually("both are found", || {
        server(&place, &replica).is_some_and(|server| server.pid.is_some())
    });
    master.kill();
    eventually("it is said", || {
        manager.log().contains("its connection has ended")
    });
    eventually("all is as it was found", || place.is_as_found());
}

#[test]
fn a_real_server_that_is_killed_and_started_again_is_found_again() {
    let place = Place::new();
    let Some((master, mut replica)) = pair(&place) else {
        return;
    };
    let mut manager = place.manage(master.address, &["--lag", "20ms"]);
    eventually("it is found", || {
        server(&place, &replica).is_some_and(|server| server.pid == Some(replica.child.id()))
    });
    let port = replica.address.port();
    replica.kill();
    eventually("it is gone", || {
        server(&place, &replica).is_some_and(|server| server.pid.is_none())
    });
    let again = Server::start(&place, port, Some(master.address)).unwrap();
    eventually("the new one is found", || {
        server(&place, &again)
            .is_some_and(|server| server.pid == Some(again.child.id()) && server.role == "replica")
    });
    assert_eq!(manager.stop(), Some(0));
}

#[test]
fn a_sentinel_s_master_is_found_and_its_successor_is_followed() {
    let place = Place::new();
    let Some((mut master, replica)) = pair(&place) else {
        return;
    };
    let sentinel = sentinel(&place, &master, "requirepass watched\n");
    let secret = place.path().join("secret");
    std::fs::write(&secret, "watched\n").unwrap();
    // The first one is not there.
    let config = format!(
        "[[redis]]\nsentinel = [\"127.0.0.1:1\", \"{}\"]\nname = \"mymaster\"\n\
         sentinel_password_file = \"{}\"\n",
        sentinel.address,
        secret.display()
    );
    std::fs::write(place.path().join("power.toml"), config).unwrap();
    let mut manager = place.manage_configured(&[]);
    eventually("both are found", || {
        let role = |of| server(&place, of).map(|server| (server.role, server.pid.is_some()));
        role(&master) == Some(("master".to_string(), true))
            && role(&replica) == Some(("replica".to_string(), true))
    });
    master.kill();
    eventually("the end of the master is said", || {
        manager.log().contains("its connection has ended")
    });
    eventually("the replica is promoted and known as a master", || {
        server(&place, &replica).is_some_and(|server| server.role == "master")
    });
    assert!(place.is_as_found());
    assert_eq!(manager.stop(), Some(0));
}

#[test]
fn a_password_comes_from_the_environment_or_the_server_is_left_alone() {
    let place = Place::new();
    let Some((master, _replica)) = pair(&place) else {
        return;
    };
    master.ask(&["CONFIG", "SET", "requirepass", "hidden"]);
    let manager = place.manage(master.address, &[]);
    eventually("it says so", || {
        server(&place, &master).is_some_and(|server| {
            server
                .trouble
                .is_some_and(|trouble| trouble.contains("NOAUTH"))
                && server.pid.is_none()
        })
    });
    drop(manager);
    let mut command = place.command(&["plan", &format!("redis://{}", master.address)]);
    let output = command
        .env("SLACKWATER_POWER_PASSWORD", "hidden")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("master, process"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}
