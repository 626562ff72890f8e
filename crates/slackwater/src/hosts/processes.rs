//! A query in worker processes: starts them, sends them commands, and waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use slackwater_engine::Error;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{Deployment, InstancePlan};
use slackwater_engine::protocol::Command as WorkerCommand;
use slackwater_engine::recorder::Recorder;
use slackwater_sql::settings::LinkKind;

use super::channel::Channel;
use super::counts::FinalCounts;
use super::executor::heads;
use super::outbox::Outbox;
use super::phases::{Pending, Phase, process_of_sink};
use super::protocol::{HostCommand, ProcessCommand, Start};
use super::reader::{Collected, Left, Reader, Shared};
use super::work::{Report, Work};
use crate::catalog::ProgramCatalog;
use crate::plan::fingerprint;

/// How long worker processes may take to report their counts and to exit once they have nothing left to do.
/// This is less than the two seconds in which a query whose process died has to end.
const FINISH_PATIENCE: Duration = Duration::from_secs(1);

/// The worker processes of a query. Dropping them kills those that still run.
pub struct Processes {
    outboxes: Arc<Vec<Outbox>>,
    readers: Vec<JoinHandle<()>>,
    counters: Vec<Arc<InstanceCounters>>,
    collected: Arc<Mutex<Vec<Collected>>>,
    left: mpsc::Receiver<Left>,
    phases: mpsc::Receiver<(usize, Phase)>,
    listening: Option<mpsc::Receiver<(usize, Option<SocketAddr>)>>,
    /// The process of each worker, and of each instance.
    process_of: Vec<usize>,
    process_of_instance: Vec<usize>,
}

impl Processes {
    /// Starts the worker processes of a deployment, which don't read their inputs yet. `report` is called for
    /// their events, as for those of threads; if a process dies, its instances fail.
    ///
    /// # Errors
    ///
    /// If a process can't be started.
    pub fn start(work: &Work<'_>, report: Report) -> io::Result<Processes> {
        let (deployment, count) = (work.deployment, work.plan.processes);
        let instances = deployment.instances.iter();
        let counters = instances.map(|instance| Arc::new(instance.counters()));
        let counters = counters.collect::<Vec<_>>();
        let collected = (0..count).map(|_| Collected::default()).collect();
        let collected = Arc::new(Mutex::new(collected));
        // Each process ends once, and sends at most one message of each other kind that is not read.
        let (left_sender, left) = mpsc::sync_channel(count);
        let (phases_sender, phases) = mpsc::sync_channel(2 * count);
        let (addresses, listening) = mpsc::sync_channel(2 * count);
        let (mut started, mut outboxes) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (child, channel) = spawn(work.worker_program, number)?;
            let pid = Pid::from_raw(child.id() as i32).expect("a process id");
            let pid = pidfd_open(pid, PidfdFlags::empty())?;
            outboxes.push(Outbox::new(number, pid, channel.try_clone()?)?);
            started.push((child, channel));
        }
        let outboxes = Arc::new(outboxes);
        let instances = 0..deployment.instances.len();
        let process_of_instance = instances.map(|instance| deployment.process(instance));
        let mut processes = Processes {
            outboxes: Arc::clone(&outboxes),
            readers: Vec::new(),
            counters: counters.clone(),
            collected: Arc::clone(&collected),
            left,
            phases,
            listening: (work.program.settings.link == LinkKind::Tcp).then_some(listening),
            process_of: deployment.process_of.clone(),
            process_of_instance: process_of_instance.collect(),
        };
        let sources = deployment.instances.iter().map(InstancePlan::source);
        let shared = Arc::new(Shared {
            outboxes,
            heads: heads(deployment),
            process_of_instance: processes.process_of_instance.clone(),
            sources: sources.collect(),
            report,
            counters,
            collected,
            notices: Arc::clone(work.notices),
            left: left_sender,
            phases: phases_sender,
            addresses,
        });
        let pids = started.iter().map(|(child, _)| child.id());
        let pids = pids.collect::<Vec<u32>>();
        let token = token()?;
        let fingerprint = fingerprint(work.program, deployment);
        let mut sockets = mesh(count)?;
        for (number, (child, channel)) in started.into_iter().enumerate() {
            let recorder = work.incarnation.map(|_| memory()).transpose()?;
            let left_behind = recorder.as_ref().map(OwnedFd::try_clone).transpose()?;
            let recorded = left_behind.map(|memory| Recorder::new(memory.into()));
            let reader = Reader::new(number, child, channel, recorded, Arc::clone(&shared));
            let reader = std::thread::Builder::new()
                .name(format!("process {number}"))
                .spawn(move || reader.run())?;
            processes.readers.push(reader);
            let start = Start {
                file: work.file.to_string(),
                text: work.text.to_string(),
                settings: work.settings.to_vec(),
                topology: (&work.machine.topology).into(),
                quota_cores: work.machine.quota_cores,
                binds_memory: work.machine.binds_memory,
                learned: work.learned.clone(),
                costs: work.costs.into(),
                process: number,
                pids: pids.clone(),
                // Processes of an earlier incarnation may still exist.
                epoch: work.incarnation.map_or(1, |incarnation| incarnation.epoch),
                token,
                fingerprint,
                incarnation: work.incarnation.cloned(),
            };
            let mut beside = std::mem::take(&mut sockets[number]);
            beside.extend(recorder);
            let start = ProcessCommand::Start(Box::new(start));
            processes.outboxes[number].put(start, beside);
        }
        Ok(processes)
    }

    /// Makes each process read the state of its instances.
    pub fn restore(&self) -> Phase {
        let all = 0..self.len();
        self.ask(all.map(|process| (process, ProcessCommand::Restore)))
    }

    /// Makes sinks commit what is pending, each in the process that runs its first instance.
    pub fn recommit(&self, deployment: &Deployment, sinks: &[Pending]) -> Phase {
        let mut pending_of = BTreeMap::<usize, Vec<Pending>>::new();
        for pending in sinks {
            let process = process_of_sink(deployment, pending.node);
            pending_of.entry(process).or_default().push(pending.clone());
        }
        let commands = pending_of.into_iter();
        self.ask(commands.map(|(process, pending)| (process, ProcessCommand::Recommit(pending))))
    }

    /// Sends processes commands and waits until all have succeeded or one has failed.
    fn ask(&self, commands: impl Iterator<Item = (usize, ProcessCommand)>) -> Phase {
        let mut asked = BTreeSet::new();
        for (process, command) in commands {
            self.outboxes[process].put(command, Vec::new());
            asked.insert(process);
        }
        while !asked.is_empty() {
            match self.phases.recv() {
                Ok((process, Phase::Done)) => asked.remove(&process),
                Ok((_, phase)) => return phase,
                Err(mpsc::RecvError) => {
                    let error = Error::new("worker processes", "have all ended");
                    return Phase::Died(error);
                }
            };
        }
        Phase::Done
    }

    /// Makes all processes connect to each other and run their parts.
    pub fn run(&mut self) {
        self.ask_all(|| ProcessCommand::Run);
        if let Some(listening) = self.listening.take() {
            self.introduce(&listening);
        }
    }

    /// Tells each process the addresses of the others, once all listen. The reader reports a process that
    /// dies in the meantime.
    fn introduce(&self, listening: &mpsc::Receiver<(usize, Option<SocketAddr>)>) {
        let mut addresses = vec![None; self.len()];
        for _ in 0..self.len() {
            // Every reader sends an address, or at its end that there is none.
            let Ok((number, address)) = listening.recv() else {
                return;
            };
            addresses[number] = address;
        }
        for outbox in self.outboxes.iter() {
            outbox.put(ProcessCommand::Connect(addresses.clone()), Vec::new());
        }
    }

    /// The number of processes.
    pub fn len(&self) -> usize {
        self.outboxes.len()
    }

    /// Counters of all instances, as of the last [`Processes::count`] and [`Processes::count_steps`].
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        &self.counters
    }

    /// CPU time of all processes, as of the last [`Processes::count`].
    pub fn cpu_s(&self) -> f64 {
        let collected = self.collected.lock().expect("no thread panics under it");
        collected.iter().map(|process| process.cpu_s).sum()
    }

    /// Requests the counters, which arrive a little later.
    pub fn count(&self) {
        self.ask_all(|| ProcessCommand::Count);
    }

    /// Requests the counters of steps and buckets, which arrive a little later.
    pub fn count_steps(&self) {
        self.ask_all(|| ProcessCommand::CountSteps);
    }

    /// Requests what the processes use, which arrives a little later.
    pub fn measure(&self) {
        self.ask_all(|| ProcessCommand::Measure);
    }

    /// Sends a command to the process that it concerns, or to all.
    pub fn tell(&self, command: &HostCommand) {
        let process = match command {
            HostCommand::Workers(command) => match command {
                WorkerCommand::Wait { worker, .. } => self.process_of.get(*worker),
                WorkerCommand::Detach { instance }
                | WorkerCommand::Adopt { instance, .. }
                | WorkerCommand::TakeOver { instance, .. } => {
                    self.process_of_instance.get(*instance)
                }
                WorkerCommand::Deploy
                | WorkerCommand::Stop
                | WorkerCommand::Remove
                | WorkerCommand::Barrier(_)
                | WorkerCommand::Examine
                | WorkerCommand::ReportActivity => None,
            },
            HostCommand::Relocate { instance, .. } => self.process_of_instance.get(*instance),
            HostCommand::Observe { process } => Some(process),
            HostCommand::Tune { .. }
            | HostCommand::Retarget { .. }
            | HostCommand::Resize { .. }
            | HostCommand::Combine { .. }
            | HostCommand::Commit { .. } => None,
        };
        for (number, outbox) in self.outboxes.iter().enumerate() {
            if process.is_none_or(|&process| process == number) {
                outbox.put(ProcessCommand::Host(command.clone()), Vec::new());
            }
        }
    }

    /// Tells the catalog how many bytes the sources of other processes have read.
    pub fn store_bytes_read(&self, catalog: &ProgramCatalog<'_>) {
        let collected = self.collected.lock().expect("no thread panics under it");
        let mut nodes = std::collections::BTreeMap::new();
        for &(node, bytes) in collected.iter().flat_map(|process| &process.bytes_read) {
            *nodes.entry(node).or_insert(0) += bytes;
        }
        for (node, bytes) in nodes {
            catalog.store_bytes_read(node, bytes);
        }
    }

    /// Ends all processes: they report their counts and exit, or are killed. Afterwards no process is left.
    pub fn finish(&mut self) -> Vec<FinalCounts> {
        self.ask_all(|| ProcessCommand::Finish);
        let until = Instant::now() + FINISH_PATIENCE;
        let mut finished = Vec::new();
        let mut left = 0;
        while left < self.len() {
            let patience = until.saturating_duration_since(Instant::now());
            match self.left.recv_timeout(patience) {
                Ok((_, counts)) => {
                    left += 1;
                    finished.extend(counts.map(|counts| *counts));
                }
                Err(_) => break,
            }
        }
        self.kill();
        finished
    }

    /// Kills all processes; afterwards none is left.
    pub fn kill(&mut self) {
        for outbox in self.outboxes.iter() {
            outbox.kill();
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }

    fn ask_all(&self, command: impl Fn() -> ProcessCommand) {
        for outbox in self.outboxes.iter() {
            outbox.put(command(), Vec::new());
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts this program as a worker process, with one end of a control socket.
fn spawn(program: Option<&Path>, number: usize) -> io::Result<(Child, Channel)> {
    let (channel, theirs) = Channel::pair()?;
    // Without the close-on-exec flag; no other thread starts processes at this time.
    let inherited = rustix::io::dup(&theirs)?;
    let child = Command::new(program.unwrap_or(Path::new("/proc/self/exe")))
        .arg0("slackwater")
        .args(["worker", "--process", &number.to_string(), "--control"])
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

fn token() -> io::Result<[u8; 16]> {
    let mut token = [0; 16];
    let filled = rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
    assert_eq!(
        filled,
        token.len(),
        "the kernel gives up to 256 bytes at once"
    );
    Ok(token)
}

/// Memory that outlives a process that dies.
fn memory() -> io::Result<OwnedFd> {
    Ok(memfd_create("slackwater-notes", MemfdFlags::CLOEXEC)?)
}
