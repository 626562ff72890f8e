//! Connects a worker process's part to the others: which process writes into which lane.
//!
//! A lane of an inbox belongs to one link. Both sides derive the order of the lanes from the
//! deployment (links into a worker from other processes, by number), so no names are exchanged.
//! Links that carry the same messages to several processes have no lanes: they are the readers of one feed.

mod feeds;
mod frames;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use slackwater_engine::deploy::{Deployment, LinkPlan, RemoteEnds};
use slackwater_engine::runtime::Runtime;
use slackwater_link::shm::{Inbox, LANE_BYTES_MIN, Outbox, Peer, Watch, handover, watch};
use slackwater_link::tcp::{Acceptor, Carrier, Guard, Identity, Settings, Writer};
use slackwater_link::{FrameReceiver, FrameSender, WaiterHandle, Waker};
use slackwater_sql::settings::LinkKind;

use feeds::Feeds;

/// Memory of one worker's inbox. 128 MiB are 16 lanes of the largest size; with more, the lanes
/// shrink.
const INBOX_BYTES: usize = 128 << 20;

/// The largest lane. A quarter of it travels in one piece: a chunk of 8,192 rows of 250 bytes.
const LANE_BYTES_MAX: usize = 8 << 20;

/// The smallest lane that is given, though the inbox may then exceed its size: 64 KiB.
const LANE_BYTES_GIVEN_MIN: usize = 64 << 10;
const _: () = assert!(LANE_BYTES_GIVEN_MIN >= LANE_BYTES_MIN);

/// The longest name that is sent with descriptors, in bytes.
const TEXT_BYTES: usize = 32;

/// What this process knows about the deployment.
pub struct Part<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// The number of this process.
    pub process: usize,
    /// The worker threads of this process.
    pub runtime: &'a Runtime,
    /// The incarnation's number.
    pub epoch: u64,
    /// The names of all processes, for messages.
    pub names: &'a [String],
    /// The NUMA node of each worker, if the machine has several nodes.
    pub nodes: &'a [Option<usize>],
    /// The kind of link between processes of one host.
    pub kind: LinkKind,
    /// What protects links over TCP.
    pub guard: Option<Arc<dyn Guard>>,
}

/// Whether a link between processes is TCP: always between hosts.
fn is_tcp(deployment: &Deployment, link: &LinkPlan, kind: LinkKind) -> bool {
    kind == LinkKind::Tcp || !deployment.is_on_one_host(link)
}

/// Whether a deployment has links over TCP, so that processes have to know each other's addresses.
pub fn uses_tcp(deployment: &Deployment, kind: LinkKind) -> bool {
    let mut links = deployment.remote_links();
    links.any(|(_, link)| is_tcp(deployment, link, kind))
}

impl Part<'_> {
    /// The links between processes that are TCP, or those that are not.
    fn links(&self, tcp: bool) -> impl Iterator<Item = (usize, &LinkPlan)> {
        let links = self.deployment.remote_links();
        links.filter(move |(_, link)| is_tcp(self.deployment, link, self.kind) == tcp)
    }

    /// The feeds: none if all links are TCP.
    fn feeds(&self) -> Vec<Vec<usize>> {
        match self.kind {
            LinkKind::Tcp => Vec::new(),
            LinkKind::Auto | LinkKind::SharedMemory | LinkKind::Xdp => self.deployment.feeds(),
        }
    }

    fn workers_of(&self, process: usize) -> impl Iterator<Item = usize> {
        let workers = self.deployment.process_of.iter().enumerate();
        workers.filter_map(move |(worker, &owner)| (owner == process).then_some(worker))
    }

    /// The waiter of one of this process's workers.
    fn own_waiter(&self, worker: usize) -> WaiterHandle {
        let place = self.workers_of(self.process).position(|own| own == worker);
        self.runtime.waiter(place.expect("an own worker"))
    }

    fn worker_of(&self, instance: usize) -> usize {
        self.deployment.instances[instance].worker
    }

    /// The links that `worker` reads from other processes of its host, lane by lane, without those of feeds.
    fn lanes_of(&self, worker: usize, feeds: &[Vec<usize>]) -> Vec<usize> {
        let links = self.links(false);
        let fed = |link: &usize| feeds.iter().any(|feed| feed.contains(link));
        let read = links.filter(|(number, link)| self.worker_of(link.to) == worker && !fed(number));
        read.map(|(number, _)| number).collect()
    }

    /// The name of a process, for messages.
    pub fn name(&self, process: usize) -> String {
        let name = self.names.get(process).cloned();
        name.unwrap_or_else(|| format!("process {process}"))
    }
}

/// Creates the ends of links through shared memory, and the thread that notices a process's death. `sockets`
/// lead to the other processes of this host, by number.
pub fn shared_memory(
    part: &Part<'_>,
    sockets: Vec<Option<OwnedFd>>,
) -> io::Result<(RemoteEnds, Watch)> {
    let processes = sockets.len();
    let peers = (0..processes).map(|process| Peer::new(part.name(process)));
    let peers = peers.collect::<Vec<Peer>>();
    let feeds = part.feeds();
    let mut inboxes = HashMap::new();
    for worker in part.workers_of(part.process) {
        let lanes = part.lanes_of(worker, &feeds).len();
        if lanes > 0 {
            let inbox = Inbox::create(part.epoch, lanes, lane_bytes(lanes))?;
            if let Some(node) = part.nodes[worker] {
                // If that fails, rows are read from another node; the parent has warned about it.
                let _ = inbox.put_on_node(node);
            }
            inboxes.insert(worker, inbox);
        }
    }
    let own_feeds = Feeds::create(part, &feeds)?;
    // First everything that this process hands over, then what it receives, so no circle of waits forms.
    for (process, socket) in sockets.iter().enumerate() {
        let Some(socket) = socket else { continue };
        for worker in part.workers_of(part.process) {
            let waker = part.own_waiter(worker).waker();
            let (flag, bell) = waker.export().expect("workers' waiters are shared");
            let mut descriptors = vec![flag, bell];
            descriptors.extend(inboxes.get(&worker).map(Inbox::descriptor));
            handover::send(socket, worker.to_string().as_bytes(), &descriptors)?;
        }
        own_feeds.hand_over(part, process, socket)?;
    }
    let mut wakers: HashMap<usize, Waker> = HashMap::new();
    let mut outboxes: HashMap<usize, Outbox> = HashMap::new();
    let mut subscriptions = Vec::new();
    for (process, socket) in sockets.iter().enumerate() {
        let Some(socket) = socket else { continue };
        for worker in part.workers_of(process) {
            let mut text = [0; TEXT_BYTES];
            let (length, descriptors) = handover::receive(socket, &mut text)?;
            if text[..length] != *worker.to_string().as_bytes() {
                return Err(out_of_step(&part.name(process)));
            }
            let mut descriptors = descriptors.into_iter();
            let (Some(flag), Some(bell)) = (descriptors.next(), descriptors.next()) else {
                return Err(out_of_step(&part.name(process)));
            };
            wakers.insert(worker, Waker::import(flag, bell)?);
            if let Some(inbox) = descriptors.next() {
                let outbox = Outbox::open(inbox.as_fd(), part.epoch, peers[process].clone());
                outboxes.insert(worker, outbox.map_err(io::Error::other)?);
            }
        }
        let taken_over = feeds::take_over(part, &feeds, process, socket, &peers[process])?;
        subscriptions.extend(taken_over);
    }
    let mut ends = RemoteEnds::default();
    own_feeds.writers(part, &wakers, &peers, &mut ends);
    feeds::readers(part, &subscriptions, &wakers, &mut ends);
    for (number, link) in part.links(false) {
        let (from, to) = (part.worker_of(link.from), part.worker_of(link.to));
        let (sending, receiving) = (
            part.deployment.process(link.from),
            part.deployment.process(link.to),
        );
        let lanes = part.lanes_of(to, &feeds);
        // The link's ends are those of a feed.
        let Some(lane) = lanes.iter().position(|&lane| lane == number) else {
            continue;
        };
        if receiving == part.process {
            let reader = inboxes[&to].reader(
                lane,
                wakers[&from].clone(),
                part.own_waiter(to).waker(),
                peers[sending].clone(),
            );
            ends.receivers.insert(number, FrameReceiver::Shm(reader));
        } else if sending == part.process {
            let outbox = outboxes.get(&to).filter(|outbox| lane < outbox.lanes());
            let outbox = outbox.ok_or_else(|| out_of_step(&part.name(receiving)))?;
            let writer = outbox.writer(lane, wakers[&to].clone());
            ends.senders.insert(number, FrameSender::Shm(writer));
        }
    }
    let own = part.workers_of(part.process);
    let own = own.map(|worker| part.own_waiter(worker).waker()).collect();
    let watched = sockets.into_iter().zip(peers);
    let watched = watched.filter_map(|(socket, peer)| Some((socket?, peer)));
    Ok((ends, watch(watched.collect(), own)?))
}

/// Binds to one of `ports` that is free.
fn bind<T>(
    address: IpAddr,
    ports: Option<(u16, u16)>,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let Some((first, last)) = ports else {
        return bind(SocketAddr::from((address, 0)));
    };
    for port in first..=last {
        match bind(SocketAddr::from((address, port))) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!(
            "no port of {address} is free between {first} and {last}: give the agent more --ports"
        ),
    ))
}

/// Whether another attempt would fail as well: a port, an interface or a permission is missing.
pub fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::Unsupported
    )
}

fn lane_bytes(lanes: usize) -> usize {
    let share = INBOX_BYTES / lanes;
    // Rounded down to a power of two.
    let share = 1 << share.ilog2();
    share.clamp(LANE_BYTES_GIVEN_MIN, LANE_BYTES_MAX)
}

fn out_of_step(peer: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{peer} has a different plan for this query than this process"),
    )
}

/// A worker process whose deployment has TCP links; it listens for those that it reads.
pub struct Listening {
    identity: Identity,
    acceptor: Option<Acceptor>,
    receivers: HashMap<usize, FrameReceiver>,
    /// What the connections have beneath their records.
    carrier: Carrier,
}

impl Listening {
    /// Listens on a free port of this address, among `ports` if there are any, if other processes send to
    /// this one. Its readers exist before
    /// other processes know the address.
    pub fn at(
        address: IpAddr,
        ports: Option<(u16, u16)>,
        part: &Part<'_>,
        token: [u8; 16],
    ) -> io::Result<Listening> {
        let identity = Identity {
            epoch: part.epoch,
            token,
        };
        let links = part.links(true);
        let read = links.filter(|(_, link)| part.deployment.process(link.to) == part.process);
        let read = read.collect::<Vec<_>>();
        let mut receivers = HashMap::new();
        let carrier = Carrier {
            guard: part.guard.clone(),
            transport: frames::transport(part, address)?,
        };
        if read.is_empty() {
            return Ok(Listening {
                identity,
                acceptor: None,
                receivers,
                carrier,
            });
        }
        let acceptor = bind(address, ports, |address| {
            Acceptor::bind_guarded(address, identity, Settings::default(), carrier.clone())
        })?;
        for (number, link) in read {
            let waiter = part.own_waiter(part.worker_of(link.to));
            let writer = part.name(part.deployment.process(link.from));
            let reader = acceptor.reader(number as u64, &writer, waiter);
            receivers.insert(number, FrameReceiver::Tcp(Box::new(reader)));
        }
        Ok(Listening {
            identity,
            acceptor: Some(acceptor),
            receivers,
            carrier,
        })
    }

    /// The address on which this process listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.acceptor.as_ref().map(Acceptor::local_address)
    }

    /// Adds the ends of this process's links to `ends` once the addresses of the others are known. The
    /// acceptor is kept as long as writers may have to reconnect.
    pub fn connect(
        self,
        part: &Part<'_>,
        addresses: &[Option<SocketAddr>],
        ends: &mut RemoteEnds,
    ) -> io::Result<Option<Acceptor>> {
        ends.receivers.extend(self.receivers);
        for (number, link) in part.links(true) {
            if part.deployment.process(link.from) != part.process {
                continue;
            }
            let receiving = part.deployment.process(link.to);
            let name = part.name(receiving);
            let address = addresses.get(receiving).copied().flatten();
            let address = address.ok_or_else(|| {
                io::Error::other(format!("{name} is not listening: it may have died"))
            })?;
            let waiter = part.own_waiter(part.worker_of(link.from));
            let writer = Writer::connect_guarded(
                address,
                self.identity,
                number as u64,
                &name,
                waiter,
                Settings::default(),
                self.carrier.clone(),
            );
            ends.senders
                .insert(number, FrameSender::Tcp(Box::new(writer)));
        }
        Ok(self.acceptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_an_inbox() {
        assert_eq!(lane_bytes(1), LANE_BYTES_MAX);
        assert_eq!(lane_bytes(16), 8 << 20);
        assert_eq!(lane_bytes(17), 4 << 20);
        assert_eq!(lane_bytes(4096), LANE_BYTES_GIVEN_MIN);
    }
}
