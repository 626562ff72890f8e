//! The host that this process runs on: it starts worker processes as children, with a control socket to each
//! and a socket between each two.

mod reader;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use slackwater_engine::Error;
use slackwater_engine::recorder::Recorder;
use slackwater_secure::Secret;

use super::channel::Channel;
use super::facts::Facts;
use super::host::{Ended, Group, Hear, Host, HostProcesses};
use super::look::{Ask, Found};
use super::outbox::Outbox;
use super::protocol::{Neighbors, ProcessCommand};
use reader::Reader;

/// This host.
#[derive(Debug)]
pub struct LocalHost {
    facts: Facts,
    /// The executable that worker processes run; `None` for this one.
    program: Option<PathBuf>,
    /// The secret of links to other hosts, if there are any.
    secret: Option<Secret>,
    is_agent: bool,
}

impl LocalHost {
    /// This host.
    pub fn new(facts: Facts, program: Option<&Path>) -> LocalHost {
        LocalHost {
            facts,
            program: program.map(Path::to_path_buf),
            secret: None,
            is_agent: false,
        }
    }

    /// Protects links to other hosts with a secret.
    pub fn with_secret(self, secret: Option<Secret>) -> LocalHost {
        LocalHost { secret, ..self }
    }

    /// Makes its processes die with this one, whatever ends it.
    pub fn of_agent(self) -> LocalHost {
        LocalHost {
            is_agent: true,
            ..self
        }
    }
}

impl Host for LocalHost {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn is_there(&self) -> bool {
        true
    }

    fn clock_error_ns(&self) -> u64 {
        // The deployment's clock is its own.
        0
    }

    fn look(&self, ask: &Ask) -> Result<Found, Error> {
        Ok(ask.look())
    }

    fn start(&self, group: &Group, hear: Hear) -> Result<Arc<dyn HostProcesses>, Error> {
        let failed = |error: io::Error| Error::new("worker processes", error.to_string());
        let started = LocalProcesses::start(self, group, &hear);
        Ok(Arc::new(started.map_err(failed)?))
    }
}

/// Worker processes of this host. Dropping them kills those that still run.
struct LocalProcesses {
    first: usize,
    pids: Vec<u32>,
    outboxes: Arc<Vec<Outbox>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

impl LocalProcesses {
    fn start(host: &LocalHost, group: &Group, hear: &Hear) -> io::Result<LocalProcesses> {
        let (mut started, mut outboxes) = (Vec::new(), Vec::new());
        for number in group.first..group.first + group.count {
            let (child, channel) = spawn(host.program.as_deref(), number)?;
            let pid = Pid::from_raw(child.id() as i32).expect("a process id");
            let pid = pidfd_open(pid, PidfdFlags::empty())?;
            outboxes.push(Outbox::new(number, pid, channel.try_clone()?)?);
            started.push((number, child, channel));
        }
        let outboxes = Arc::new(outboxes);
        let processes = LocalProcesses {
            first: group.first,
            pids: started.iter().map(|(_, child, _)| child.id()).collect(),
            outboxes: Arc::clone(&outboxes),
            readers: Mutex::default(),
        };
        let sockets = mesh(group.count)?;
        for ((number, child, channel), mut beside) in started.into_iter().zip(sockets) {
            let memory = group.records.then(memory).transpose()?;
            let left_behind = memory.as_ref().map(OwnedFd::try_clone).transpose()?;
            let recorded = left_behind.map(|memory| Recorder::new(memory.into()));
            beside.extend(memory);
            let neighbors = ProcessCommand::Neighbors(Neighbors {
                first: group.first,
                count: group.count,
                records: group.records,
                end_with_parent: host.is_agent,
                secret: host.secret.as_ref().map(Secret::text),
            });
            outboxes[number - group.first].put(neighbors, beside);
            let outboxes = Arc::clone(&outboxes);
            let hear = Arc::clone(hear);
            let first = group.first;
            let reader = Reader::new(number, first, child, channel, recorded, outboxes, hear);
            let reader = std::thread::Builder::new()
                .name(format!("process {number}"))
                .spawn(move || reader.run())?;
            processes.readers().push(reader);
        }
        Ok(processes)
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.readers.lock().expect("no thread panics under it")
    }

    fn outbox(&self, process: usize) -> Option<&Outbox> {
        self.outboxes.get(process.checked_sub(self.first)?)
    }
}

impl HostProcesses for LocalProcesses {
    fn pids(&self) -> &[u32] {
        &self.pids
    }

    fn tell(&self, process: usize, command: ProcessCommand, state: Option<OwnedFd>) {
        if let Some(outbox) = self.outbox(process) {
            outbox.put(command, state.into_iter().collect());
        }
    }

    fn kill(&self, process: usize) {
        self.outbox(process).into_iter().for_each(Outbox::kill);
    }

    fn end(&self) -> Ended {
        self.outboxes.iter().for_each(Outbox::kill);
        let readers = std::mem::take(&mut *self.readers());
        for reader in readers {
            let _ = reader.join();
        }
        Ended::All
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts this program as a worker process, with one end of a control socket.
fn spawn(program: Option<&Path>, number: usize) -> io::Result<(Child, Channel)> {
    let (channel, theirs) = Channel::pair()?;
    // Without the close-on-exec flag; no other thread starts processes at this time.
    let inherited = rustix::io::dup(&theirs)?;
    let child = Command::new(program.unwrap_or(Path::new("/proc/self/exe")))
        .arg0("slackwater")
        .args(["part", "--process", &number.to_string(), "--control"])
        .arg(inherited.as_raw_fd().to_string())
        .spawn()
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("can't start process {number}: {error}"),
            )
        })?;
    Ok((child, channel))
}

/// A socket between each two processes: for process `p`, those to all others, in order.
pub fn mesh(processes: usize) -> io::Result<Vec<Vec<OwnedFd>>> {
    let mut sockets: Vec<Vec<OwnedFd>> = (0..processes).map(|_| Vec::new()).collect();
    for one in 0..processes {
        for other in one + 1..processes {
            let (ours, theirs) = socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            sockets[one].push(ours);
            sockets[other].push(theirs);
        }
    }
    Ok(sockets)
}

/// Memory that outlives a process that dies.
fn memory() -> io::Result<OwnedFd> {
    Ok(memfd_create("slackwater-notes", MemfdFlags::CLOEXEC)?)
}
