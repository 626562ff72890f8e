//! Real servers: unmodified Redis and Valkey, on a free port, without persistence, in a folder for temporary
//! files.
//!
//! A server is stopped by its process when it is dropped, and the kernel kills it if this process ends.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::Client;
use super::dilation::Dilation;

/// How long a server may take until it answers, or until it has ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a server that starts or ends is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How often a server is started if another program takes its port in the meantime.
const STARTS_MAX: u32 = 3;

/// The end of a server's log in error messages.
const SAID_BYTES_MAX: usize = 1_500;

/// A kind of server that is installed here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// `redis` or `valkey`.
    pub name: String,
    /// The version that the program reports.
    pub version: String,
    #[serde(skip)]
    program: PathBuf,
}

impl Kind {
    /// Finds a server: in `PATH`, or where `make peers-valkey` puts it.
    ///
    /// # Errors
    ///
    /// If the name is unknown, or the program is not installed.
    pub fn find(name: &str) -> Result<Kind, String> {
        let (places, fix): (&[&str], _) = match name {
            "redis" => (&["redis-server"], "apt-get install redis-server"),
            "valkey" => (
                &["target/valkey/valkey-server", "valkey-server"],
                "make peers-valkey",
            ),
            _ => return Err(format!("--servers: {name}: expected redis or valkey")),
        };
        let version = |place: &&str| {
            let output = Command::new(place).arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text
                .split_whitespace()
                .find_map(|word| word.strip_prefix("v="))?;
            Some((PathBuf::from(place), version.to_string()))
        };
        let found = places.iter().find_map(version);
        let (program, version) =
            found.ok_or_else(|| format!("{name}: its server is not installed\n  = {fix}"))?;
        Ok(Kind {
            name: name.to_string(),
            version,
            program,
        })
    }
}

/// How a server is started.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The kind of server.
    pub kind: &'a Kind,
    /// The folder of its log.
    pub folder: &'a Path,
    /// The address on which it listens.
    pub address: Ipv4Addr,
    /// The network namespace in which it runs, if not this process's.
    pub namespace: Option<&'a File>,
    /// Its master.
    pub master: Option<SocketAddr>,
    /// What makes it slow.
    pub dilation: Option<&'a Dilation>,
    /// The core on which it runs.
    pub core: Option<usize>,
}

/// A running server.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// If it can't be started, or does not answer in time; with the end of its log.
    pub fn start(setup: &Setup<'_>, options: &[&str]) -> Result<Server, String> {
        let mut failed = String::new();
        for _ in 0..STARTS_MAX {
            match Server::start_once(setup, options) {
                Ok(server) => return Ok(server),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn start_once(setup: &Setup<'_>, options: &[&str]) -> Result<Server, String> {
        let kind = setup.kind;
        let named = |error: io::Error| format!("{}: {error}", kind.name);
        let port = free_port().map_err(named)?;
        let log = setup.folder.join(format!("{}-{port}.log", kind.name));
        let mut command = Command::new(&kind.program);
        command
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                &setup.address.to_string(),
            ])
            .args(["--save", "", "--appendonly", "no", "--protected-mode", "no"])
            .args(["--daemonize", "no", "--repl-diskless-sync-delay", "0"])
            .arg("--dir")
            .arg(setup.folder)
            .arg("--logfile")
            .arg(&log)
            // A server reads what it finds, and can't if that is of another kind of server.
            .arg("--dbfilename")
            .arg(format!("{}-{port}.rdb", kind.name))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(master) = setup.master {
            command.args(["--replicaof", &format!("{} {}", master.ip(), master.port())]);
        }
        if let Some(dilation) = setup.dilation {
            dilation.apply(&mut command);
        }
        let namespace = setup.namespace.map(AsRawFd::as_raw_fd);
        let core = setup.core;
        // SAFETY: between fork and exec only system calls are made, on plain numbers.
        unsafe { command.pre_exec(move || prepare(namespace, core)) };
        let child = command.spawn().map_err(named)?;
        let address = SocketAddr::V4(SocketAddrV4::new(setup.address, port));
        let mut server = Server { child, address };
        let started = Instant::now();
        loop {
            let answer = Client::connect(address).and_then(|mut client| client.call(&["PING"]));
            let is_over = !matches!(server.child.try_wait(), Ok(None));
            match answer {
                Ok(_) if !is_over => return Ok(server),
                Err(_) if !is_over && started.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                Ok(_) | Err(_) => {
                    let said = std::fs::read(&log).unwrap_or_default();
                    let said = &said[said.len().saturating_sub(SAID_BYTES_MAX)..];
                    let said = String::from_utf8_lossy(said);
                    return Err(format!(
                        "{}: it does not answer at {address}\n{said}",
                        kind.name
                    ));
                }
            }
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to it.
    ///
    /// # Errors
    ///
    /// If it no longer accepts any.
    pub fn client(&self) -> Result<Client, String> {
        Client::connect(self.address)
    }

    /// Waits until it is a replica whose link is up.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn wait_for_link(&self) -> Result<(), String> {
        let mut client = self.client()?;
        let started = Instant::now();
        while client.info("replication", "master_link_status")?.as_deref() != Some("up") {
            if started.elapsed() > PATIENCE {
                return Err(format!(
                    "{}: its link to the master is not up",
                    self.address
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing is stored, so nothing is lost. It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the new process does before it becomes the server.
fn prepare(namespace: Option<i32>, core: Option<usize>) -> io::Result<()> {
    // SAFETY: a number and a signal; the server ends with the thread that started it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if let Some(namespace) = namespace {
        // SAFETY: the descriptor is open in the parent, which waits for this process to become the server.
        if unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if let Some(core) = core {
        let mut cores = rustix::thread::CpuSet::new();
        cores.set(core);
        rustix::thread::sched_setaffinity(None, &cores)?;
    }
    Ok(())
}

/// A port that no program of this host listens on at this time.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_installed_is_an_error_with_a_fix() {
        let error = Kind::find("memcached").unwrap_err();
        assert!(error.contains("expected redis or valkey"), "{error}");
    }

    #[test]
    fn a_server_answers_and_ends() {
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
        let address = server.address;
        let mut client = server.client().unwrap();
        let version = client.info("server", "redis_version").unwrap();
        assert_eq!(version, Some(kind.version.clone()));
        drop(server);
        assert!(Client::connect(address).is_err());
    }
}
