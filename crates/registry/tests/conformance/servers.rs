//! Real servers of ZooKeeper, on free ports of the loopback address, with their data in a temporary folder.

use std::fmt::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use slackwater_registry::open;
use tempfile::TempDir;

use super::TOO_LONG;

/// The folder with ZooKeeper's jars, if the tests may use it.
pub fn jars() -> Option<PathBuf> {
    let folder = std::env::var_os("SLACKWATER_ZOOKEEPER").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("note: SLACKWATER_ZOOKEEPER is not set (make test-zookeeper): skipped");
    }
    folder
}

/// One server, or several that vote; killed when dropped.
pub struct Servers {
    jars: PathBuf,
    folder: TempDir,
    pub ports: Vec<u16>,
    running: Vec<Option<Child>>,
}

impl Servers {
    /// Starts `count` servers, and waits until they answer.
    pub fn start(jars: &Path, count: usize, tick_ms: u32) -> Servers {
        let folder = tempfile::tempdir().expect("a folder");
        let free = free_ports(3 * count);
        let ports = free[..count].to_vec();
        for (at, port) in ports.iter().enumerate() {
            let data = folder.path().join(format!("data{at}"));
            std::fs::create_dir(&data).expect("a folder");
            std::fs::write(data.join("myid"), at.to_string()).expect("a file");
            let mut config = format!(
                "tickTime={tick_ms}\ninitLimit=20\nsyncLimit=4\ndataDir={}\nclientPort={port}\n\
                 clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n",
                data.display()
            );
            for peer in (0..count).filter(|_| count > 1) {
                let (quorum, election) = (free[count + peer], free[2 * count + peer]);
                writeln!(config, "server.{peer}=127.0.0.1:{quorum}:{election}").expect("a string");
            }
            std::fs::write(folder.path().join(format!("zoo{at}.cfg")), config).expect("a file");
        }
        let mut servers = Servers {
            jars: jars.to_owned(),
            folder,
            ports,
            running: (0..count).map(|_| None).collect(),
        };
        for at in 0..count {
            servers.restart(at);
        }
        servers.wait();
        servers
    }

    /// The URL of a registry at a path.
    pub fn url(&self, path: &str) -> String {
        let servers: Vec<String> = self
            .ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        format!("zk://{}/slackwater/{path}", servers.join(","))
    }

    /// Starts a server that isn't running.
    pub fn restart(&mut self, at: usize) {
        let class_path = ["zookeeper.jar", "slf4j-nop.jar"].map(|jar| self.jars.join(jar));
        let class_path = class_path.map(|jar| jar.display().to_string()).join(":");
        let child = Command::new("java")
            .args([
                "-Xmx192m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                &class_path,
            ])
            .arg("-Dzookeeper.jmx.log4j.disable=true")
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.folder.path().join(format!("zoo{at}.cfg")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java");
        self.running[at] = Some(child);
    }

    /// `kill -9`.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.running[at].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        let child = self.running[at].as_ref().expect("a server");
        let id = i32::try_from(child.id()).expect("an id");
        kill_process(Pid::from_raw(id).expect("an id"), signal).expect("a server");
    }

    /// Waits until the servers answer.
    pub fn wait(&self) {
        let end = Instant::now() + TOO_LONG;
        loop {
            match open(&self.url("started")) {
                Ok(_) => return,
                Err(error) if Instant::now() > end => panic!("{error}"),
                Err(_) => {}
            }
        }
    }
}

/// Ports that nobody else has for now.
fn free_ports(count: usize) -> Vec<u16> {
    // Held until all are known, so that no two are the same.
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("a port").port();
    held.iter().map(port).collect()
}

impl Drop for Servers {
    fn drop(&mut self) {
        for at in 0..self.running.len() {
            self.kill(at);
        }
    }
}
