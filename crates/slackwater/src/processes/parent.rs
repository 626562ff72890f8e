//! The parent's side: worker processes are started, told what to do, and waited for.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use slackwater_engine::Error;
use slackwater_engine::barrier::Barrier;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{Deployment, InputPlan, InstancePlan};
use slackwater_engine::instance::SinkResult;
use slackwater_engine::recorder::Recorder;
use slackwater_engine::runtime::Costs;
use slackwater_engine::worker::Event;

use crate::catalog::ProgramCatalog;
use crate::checkpoints::{self, Incarnation, Suspected};
use crate::costs::Learned;
use crate::machine::Machine;
use crate::notices::Notices;
use crate::processes::channel::Channel;
use crate::processes::protocol::{Farewell, Order, SinkCounts, Start, Word};

/// How long worker processes may take to say what they counted and to exit, once they have nothing
/// to do any more. Below the two seconds in which a query whose process died has to be over.
const FINISH_PATIENCE: Duration = Duration::from_secs(1);

/// What a worker process is started with, apart from its number.
pub struct Work<'a> {
    /// The text's name.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
    /// Settings of the command line.
    pub settings: &'a [(String, String)],
    /// The machine that it is planned on.
    pub machine: &'a Machine,
    /// What earlier runs have learned of its costs.
    pub learned: &'a Learned,
    /// The plan.
    pub deployment: &'a Deployment,
    /// How many processes.
    pub processes: usize,
    /// What the plan looks like.
    pub fingerprint: u64,
    /// The program to start; `None` for this one.
    pub program: Option<&'a Path>,
    /// What waiting costs on this host.
    pub costs: Costs,
    /// Links are TCP connections.
    pub tcp: bool,
    /// Where checkpoints are kept, if the query takes any.
    pub incarnation: Option<&'a Incarnation>,
    /// Who tells the user what processes notice of what they read.
    pub notices: &'a Arc<Notices>,
}

/// Bytes that sources have read, with their nodes, for each process.
type BytesRead = Vec<Vec<(usize, u64)>>;

/// The worker processes of a query.
pub struct Children {
    children: Vec<Worker>,
    orders: Orders,
    counters: Vec<Arc<InstanceCounters>>,
    bytes_read: Arc<Mutex<BytesRead>>,
    /// CPU time of each process, as of the last [`Children::count`].
    cpu_s: Arc<Mutex<Vec<f64>>>,
    left: mpsc::Receiver<(usize, Option<Box<Farewell>>)>,
}

struct Worker {
    pid: OwnedFd,
    listener: Option<JoinHandle<()>>,
}

/// Where orders go, by process. One at a time: a long one takes several packets.
type Orders = Arc<Vec<Mutex<Channel>>>;

/// Who hears what processes say about checkpoints.
pub type Words = Arc<dyn Fn(checkpoints::Word) + Send + Sync>;

/// What every listener thread shares.
#[derive(Clone)]
struct Shared {
    orders: Orders,
    /// The process of each instance of a subquery, by its head's node and its number.
    process_of: Arc<HashMap<(usize, usize), usize>>,
    /// The source of each instance.
    sources: Arc<Vec<Option<usize>>>,
    events: mpsc::Sender<Event>,
    words: Words,
    counters: Vec<Arc<InstanceCounters>>,
    bytes_read: Arc<Mutex<BytesRead>>,
    cpu_s: Arc<Mutex<Vec<f64>>>,
    notices: Arc<Notices>,
    left: mpsc::Sender<(usize, Option<Box<Farewell>>)>,
    addresses: mpsc::Sender<(usize, Option<std::net::SocketAddr>)>,
}

impl Children {
    /// Starts the worker processes of a deployment. What they report comes through `events`, as
    /// from threads, and what they say about checkpoints through `words`; a process that dies is the
    /// failure of its instances.
    ///
    /// # Errors
    ///
    /// When a process can't be started.
    pub fn start(
        work: &Work<'_>,
        events: mpsc::Sender<Event>,
        words: Words,
    ) -> io::Result<Children> {
        let counters = work
            .deployment
            .instances
            .iter()
            .map(|instance| Arc::new(instance.counters()));
        let counters = counters.collect::<Vec<_>>();
        let bytes_read = Arc::new(Mutex::new(vec![Vec::new(); work.processes]));
        let cpu_s = Arc::new(Mutex::new(vec![0.0; work.processes]));
        let (left_sender, left) = mpsc::channel();
        let (addresses, listening) = mpsc::channel();
        let mut started = Vec::new();
        let mut orders = Vec::new();
        for number in 0..work.processes {
            let (child, channel) = spawn(work.program, number)?;
            orders.push(Mutex::new(channel.try_clone()?));
            started.push((child, channel));
        }
        let orders = Arc::new(orders);
        let sources = work.deployment.instances.iter().map(InstancePlan::source);
        let shared = Shared {
            orders: Arc::clone(&orders),
            process_of: Arc::new(heads(work.deployment)),
            sources: Arc::new(sources.collect()),
            events,
            words,
            counters: counters.clone(),
            bytes_read: bytes_read.clone(),
            cpu_s: cpu_s.clone(),
            notices: Arc::clone(work.notices),
            left: left_sender,
            addresses,
        };
        let pids = started.iter().map(|(child, _)| child.id());
        let pids = pids.collect::<Vec<u32>>();
        let mut children = Children {
            children: Vec::new(),
            orders,
            counters,
            bytes_read,
            cpu_s,
            left,
        };
        let token = token()?;
        let mut sockets = mesh(work.processes)?;
        for (number, (child, channel)) in started.into_iter().enumerate() {
            let pid = Pid::from_raw(child.id() as i32).expect("a process id");
            let instances = (0..work.deployment.instances.len())
                .filter(|&instance| work.deployment.process(instance) == number);
            let recorder = work.incarnation.map(|_| memory()).transpose()?;
            let notes = recorder.as_ref().map(OwnedFd::try_clone).transpose()?;
            let listener = Listener {
                number,
                recorder: notes.map(|notes| Recorder::new(notes.into())),
                child,
                channel,
                running: instances.collect(),
                shared: shared.clone(),
            };
            let listener = std::thread::Builder::new()
                .name(format!("process {number}"))
                .spawn(move || listener.run())?;
            children.children.push(Worker {
                pid: pidfd_open(pid, PidfdFlags::empty())?,
                listener: Some(listener),
            });
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
                // Processes of an earlier incarnation may still be there.
                epoch: work.incarnation.map_or(1, |incarnation| incarnation.epoch),
                token,
                fingerprint: work.fingerprint,
                incarnation: work.incarnation.cloned(),
            };
            let mut peers = std::mem::take(&mut sockets[number]);
            peers.extend(recorder);
            children.tell(number, &Order::Start(Box::new(start)), &peers);
        }
        if work.tcp {
            children.introduce(&listening);
        }
        Ok(children)
    }

    /// Tells each process where the others listen, once all do. One that dies meanwhile is
    /// reported by its listener.
    fn introduce(&self, listening: &mpsc::Receiver<(usize, Option<std::net::SocketAddr>)>) {
        let mut addresses = vec![None; self.children.len()];
        for _ in 0..self.children.len() {
            // Every listener says something: an address, or with its end that there is none.
            let Ok((number, address)) = listening.recv() else {
                return;
            };
            addresses[number] = address;
        }
        self.tell_all(&Order::Connect(addresses));
    }

    /// Counters of all instances, as of the last [`Children::count`].
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        &self.counters
    }

    /// CPU time of all processes, as of the last [`Children::count`].
    pub fn cpu_s(&self) -> f64 {
        let cpu_s = self.cpu_s.lock().expect("no thread panics under it");
        cpu_s.iter().sum()
    }

    /// Ends the sources.
    pub fn stop(&self) {
        self.tell_all(&Order::Stop);
    }

    /// Drops the query.
    pub fn remove(&self) {
        self.tell_all(&Order::Remove);
    }

    /// Asks for what was counted so far; it arrives a little later.
    pub fn count(&self) {
        self.tell_all(&Order::Count);
    }

    /// The sources send a barrier.
    pub fn barrier(&self, barrier: &Barrier) {
        self.tell_all(&Order::Barrier(barrier.into()));
    }

    /// Rows are aggregated before they are sent to `node`.
    pub fn combine(&self, node: usize) {
        self.tell_all(&Order::Combine(node));
    }

    /// Sinks commit what they have prepared up to a barrier.
    pub fn commit(&self, barrier: u64) {
        self.tell_all(&Order::Commit(barrier));
    }

    /// How many processes there are.
    pub fn count_of_processes(&self) -> usize {
        self.children.len()
    }

    /// Kills all processes; afterwards none is left.
    pub fn kill(&mut self) {
        self.end();
    }

    /// Asks for what steps and buckets have counted so far; it arrives a little later.
    pub fn look(&self) {
        self.tell_all(&Order::Look);
    }

    /// The next that does something says so.
    pub fn tell_when_active(&self) {
        self.tell_all(&Order::TellWhenActive);
    }

    /// Hands the catalog what sources of other processes have read.
    pub fn store_bytes_read(&self, catalog: &ProgramCatalog<'_>) {
        let read = self.bytes_read.lock().expect("no thread panics under it");
        let mut nodes = std::collections::BTreeMap::new();
        for &(node, bytes) in read.iter().flatten() {
            *nodes.entry(node).or_insert(0) += bytes;
        }
        for (node, bytes) in nodes {
            catalog.store_bytes_read(node, bytes);
        }
    }

    /// Ends all processes: those that still run say what they counted and exit, those that don't
    /// are killed. Afterwards no process is left.
    pub fn finish(&mut self) -> Vec<Farewell> {
        self.tell_all(&Order::Finish);
        let until = Instant::now() + FINISH_PATIENCE;
        let mut farewells = Vec::new();
        let mut left = 0;
        while left < self.children.len() {
            let patience = until.saturating_duration_since(Instant::now());
            match self.left.recv_timeout(patience) {
                Ok((_, farewell)) => {
                    left += 1;
                    farewells.extend(farewell.map(|farewell| *farewell));
                }
                Err(_) => break,
            }
        }
        self.end();
        farewells
    }

    fn end(&mut self) {
        for child in &mut self.children {
            // Nothing happens to one that has exited.
            let _ = pidfd_send_signal(&child.pid, Signal::KILL);
            if let Some(listener) = child.listener.take() {
                let _ = listener.join();
            }
        }
    }

    fn tell_all(&self, order: &Order) {
        for number in 0..self.orders.len() {
            self.tell(number, order, &[]);
        }
    }

    fn tell(&self, number: usize, order: &Order, descriptors: &[OwnedFd]) {
        tell(&self.orders, number, order, descriptors);
    }
}

fn tell(orders: &Orders, number: usize, order: &Order, descriptors: &[OwnedFd]) {
    let descriptors = descriptors.iter().map(|descriptor| descriptor.as_fd());
    let descriptors = descriptors.collect::<Vec<BorrowedFd<'_>>>();
    let channel = orders[number].lock().expect("no thread panics under it");
    // One that has gone is noticed by its listener.
    let _ = channel.send(order, &descriptors);
}

/// The process of each instance that has links, by its head's node and its number among the
/// subquery's.
fn heads(deployment: &Deployment) -> HashMap<(usize, usize), usize> {
    let instances = deployment.instances.iter().enumerate();
    let heads = instances.filter_map(|(number, instance)| {
        let head = instance.steps.first()?.node;
        let is_linked = matches!(instance.input, InputPlan::Ports(_));
        is_linked.then(|| ((head, instance.index), deployment.process(number)))
    });
    heads.collect()
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts this program as a worker process with one end of a control socket.
fn spawn(program: Option<&Path>, number: usize) -> io::Result<(Child, Channel)> {
    let (channel, theirs) = Channel::pair()?;
    // Without the flag that closes it on exec; nobody else starts processes meanwhile.
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

/// A socket between each two processes: for process `p` those to all others, in order.
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

/// Memory that a process leaves behind when it dies.
fn memory() -> io::Result<OwnedFd> {
    Ok(memfd_create("slackwater-notes", MemfdFlags::CLOEXEC)?)
}

/// The thread that hears one worker process.
struct Listener {
    number: usize,
    /// Where the process notes what it works on.
    recorder: Option<Recorder>,
    child: Child,
    channel: Channel,
    /// Its instances that have not ended.
    running: BTreeSet<usize>,
    shared: Shared,
}

impl Listener {
    fn run(mut self) {
        let mut farewell = None;
        let mut refused = None;
        while let Ok(Some((word, descriptors))) = self.channel.receive::<Word>() {
            match word {
                Word::Listens(address) => {
                    let _ = self.shared.addresses.send((self.number, address));
                }
                Word::Refused(reason) => refused = Some(reason),
                Word::Ended { instance, sinks } => self.ended(instance, sinks, None),
                Word::Failed {
                    instance,
                    sinks,
                    error,
                } => self.ended(instance, sinks, Some(error.into())),
                Word::Counted(counts) => self.store(&counts),
                Word::Looked(counts) => {
                    let all = &self.shared.counters;
                    counts.iter().for_each(|counts| counts.store(all));
                }
                Word::Checkpoint(word) => (self.shared.words)(word),
                Word::OverBudget { held, limit } => {
                    let _ = self.shared.events.send(Event::OverBudget {
                        deployment: 0,
                        held,
                        limit,
                    });
                }
                Word::Active => {
                    let _ = self.shared.events.send(Event::Active);
                }
                Word::Handover(note) => {
                    // One for an instance that isn't there is of a process that is broken.
                    if let Some(&process) = self.shared.process_of.get(&note.receiver()) {
                        let order = Order::TakeOver(note);
                        tell(&self.shared.orders, process, &order, &descriptors);
                    }
                }
                Word::Moved { instance, barrier } => {
                    let _ = self.shared.events.send(Event::Moved {
                        deployment: 0,
                        instance,
                        barrier,
                    });
                }
                Word::Said(said) => self.shared.notices.say(said),
                Word::Finished(last) => {
                    self.store(&last.counts);
                    let all = &self.shared.counters;
                    last.steps.iter().for_each(|counts| counts.store(all));
                    farewell = Some(last);
                }
            }
        }
        let status = self.child.wait();
        // So that nobody waits for an address of it.
        let _ = self.shared.addresses.send((self.number, None));
        if farewell.is_none() {
            let name = format!("process {} (pid {})", self.number, self.child.id());
            let error = match refused {
                Some(reason) => Error::new(name, reason),
                None => Error::new(name, how_it_died(&status)),
            };
            if status.as_ref().is_ok_and(is_its_own_fault) {
                let suspects = self.suspects();
                (self.shared.words)(checkpoints::Word::Suspects(suspects));
            }
            // All of its instances may have ended; but what they have prepared is to be committed.
            let reason = error.to_string();
            (self.shared.words)(checkpoints::Word::NotCommitted { reason });
            for instance in std::mem::take(&mut self.running) {
                self.send(instance, Vec::new(), Some(error.clone()));
            }
        }
        let _ = self.shared.left.send((self.number, farewell));
    }

    /// What it was working on.
    fn suspects(&self) -> Vec<Suspected> {
        let noted = self.recorder.iter().flat_map(Recorder::read);
        let suspects = noted.filter_map(|(instance, suspect)| {
            let node = self.shared.sources.get(instance).copied().flatten()?;
            Some(Suspected {
                node,
                partition: suspect.partition,
                first: suspect.first,
                last: suspect.last,
            })
        });
        suspects.collect()
    }

    fn ended(&mut self, instance: usize, sinks: Vec<SinkCounts>, error: Option<Error>) {
        // Each ends once, whatever a process says.
        if self.running.remove(&instance) {
            let sinks = sinks.into_iter().map(SinkResult::from).collect();
            self.send(instance, sinks, error);
        }
    }

    fn send(&self, instance: usize, sinks: Vec<SinkResult>, error: Option<Error>) {
        let deployment = 0;
        let event = match error {
            // What it had at its end, its process's agent says.
            None => Event::Ended {
                deployment,
                instance,
                sinks,
                last: None,
            },
            Some(error) => Event::Failed {
                deployment,
                instance,
                sinks,
                error,
            },
        };
        // Nobody listens only when the query is over.
        let _ = self.shared.events.send(event);
    }

    fn store(&self, counts: &super::protocol::Counts) {
        for (instance, counts) in &counts.instances {
            if let Some(slots) = self.shared.counters.get(*instance) {
                counts.store(slots);
            }
        }
        let read = self.shared.bytes_read.lock();
        read.expect("no thread panics under it")[self.number] = counts.bytes_read.clone();
        let cpu_s = self.shared.cpu_s.lock();
        cpu_s.expect("no thread panics under it")[self.number] = counts.cpu_s;
        std::sync::atomic::fence(Ordering::Release);
    }
}

/// Whether it died of what it did, as far as one can know: nobody else sends these signals.
fn is_its_own_fault(status: &ExitStatus) -> bool {
    let faults = [
        Signal::SEGV,
        Signal::ABORT,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
    ];
    let signal = status.signal();
    signal.is_some_and(|signal| faults.iter().any(|fault| fault.as_raw() == signal))
}

fn how_it_died(status: &io::Result<ExitStatus>) -> String {
    let Ok(status) = status else {
        return "died, and nobody knows how".to_string();
    };
    match (status.signal(), status.code()) {
        (Some(9), _) => "was killed (signal 9): by somebody, or for want of memory".to_string(),
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("exited by itself (code {code}) before its part was done"),
        (None, None) => "died".to_string(),
    }
}
