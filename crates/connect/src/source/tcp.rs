//! The tcp source: lines from a peer that is connected to, or from all who connect.
//!
//! Each connection is a partition. Connecting, the source ends when the peer closes; listening, it
//! goes on until the query is stopped. Sockets never block and are edge-triggered: they are read
//! until they would block before the source says that it has nothing. A silent socket costs
//! nothing, not even a timer.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::{Waiter, Watched};
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
};
use slackwater_engine::time::now_ns;

use super::arrivals::Arrivals;
use super::count_bytes;
use super::readiness::Readiness;
use super::stream::{Linger, StreamPartition, StreamSpec};
use crate::format::Format;
use crate::options::{OptionError, Options};

/// Options beside those of every source and of the format.
pub(crate) const OPTIONS: &[&str] = &["format", "address", "mode"];

/// Connections at a time; more wait in the kernel's queue until one closes. Each has a block of
/// 128 KiB: 32 MiB in all.
const CONNECTIONS_MAX: usize = 256;

/// Bytes read in one go over all connections, before rows are handed on: eight full blocks.
const BYTES_PER_POLL_MAX: usize = 8 * crate::block::STREAM_BLOCK_BYTES;

/// Fewer bytes at once are far from filling any socket.
const FILL_BYTES_MIN: usize = 16 * 1024;

/// How long the peer may take to accept the connection when the query starts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of the listening socket in the set; connections have their partition's number.
const LISTENER: u64 = u64::MAX;

/// Whether we call or are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Connect,
    Listen,
}

/// Where a tcp table's peer is.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    pub(crate) mode: Mode,
}

impl Endpoint {
    pub(crate) fn read(options: &Options<'_>) -> std::result::Result<Endpoint, OptionError> {
        let address = options.required("address", "127.0.0.1:9000")?;
        let port = address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(_))) if !host.is_empty() => {}
            _ => {
                let reason = format!("'{address}' is no host and port");
                return Err(OptionError::new(
                    "address",
                    reason,
                    "write '127.0.0.1:9000'",
                ));
            }
        }
        let modes = [("connect", Mode::Connect), ("listen", Mode::Listen)];
        let mode = options.choice("mode", &modes, Mode::Connect)?;
        Ok(Endpoint {
            address: address.to_string(),
            mode,
        })
    }

    fn error(&self, what: &str, error: &std::io::Error) -> Error {
        Error::new(self.address.clone(), format!("can't {what}: {error}"))
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let addresses = self.address.to_socket_addrs().map_err(|error| {
            self.error("look up the address", &error)
                .mend("check 'address'")
        })?;
        Ok(addresses.collect())
    }

    pub(crate) fn connect(&self) -> Result<TcpStream> {
        let mut failure = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for address in self.resolve()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    return stream
                        .set_nonblocking(true)
                        .and_then(|()| stream.set_nodelay(true))
                        .map(|()| stream)
                        .map_err(|error| self.error("set up the connection", &error));
                }
                Err(error) => failure = error,
            }
        }
        Err(self
            .error("connect", &failure)
            .mend("start the peer first, or let it call with 'mode' = 'listen'"))
    }

    pub(crate) fn listen(&self) -> Result<TcpListener> {
        let addresses = self.resolve()?;
        TcpListener::bind(&addresses[..])
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| {
                self.error("listen", &error)
                    .mend("is the port already in use?")
            })
    }
}

/// A table that is read from sockets.
#[derive(Debug)]
pub(crate) struct TcpConnector {
    pub(crate) schema: SchemaRef,
    pub(crate) format: Format,
    pub(crate) endpoint: Endpoint,
}

impl SourceConnector for TcpConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "tcp".into(),
            max_instances: 1,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(self.tcp_source(request)))
    }
}

impl TcpConnector {
    fn tcp_source(&self, request: SourceRequest) -> TcpSource {
        TcpSource {
            endpoint: self.endpoint.clone(),
            idle: request.instance > 0,
            spec: StreamSpec::new(&self.schema, &self.format, request),
            listener: None,
            connections: vec![],
            partitions: vec![],
            partitions_begun: 0,
            linger: Linger::default(),
            events: VecDeque::new(),
            watched: Watched::default(),
        }
    }
}

/// The socket of a partition; the two lists of [`TcpSource`] go in step.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    peer: String,
    /// There may be something to read.
    readable: bool,
    arrivals: Arrivals,
    /// Bytes read since the socket was empty.
    drained: usize,
}

#[derive(Debug)]
struct Listening {
    listener: TcpListener,
    readiness: Readiness,
    /// Somebody may be waiting to be accepted.
    ready: bool,
}

struct TcpSource {
    endpoint: Endpoint,
    /// All connections are another instance's.
    idle: bool,
    spec: StreamSpec,
    listener: Option<Listening>,
    connections: Vec<Connection>,
    partitions: Vec<StreamPartition>,
    partitions_begun: u32,
    linger: Linger,
    events: VecDeque<SourcePoll>,
    /// Until when the worker would have been told of bytes.
    watched: Watched,
}

impl TcpSource {
    fn begin(&mut self, stream: TcpStream, peer: String) -> u32 {
        let number = self.partitions_begun;
        self.partitions_begun += 1;
        self.connections.push(Connection {
            stream,
            peer,
            readable: true,
            arrivals: Arrivals::new(now_ns()),
            drained: 0,
        });
        self.partitions.push(self.spec.partition(number));
        number
    }

    /// Accepts who is waiting, as far as there is room.
    fn accept(&mut self) -> Result<()> {
        loop {
            let full = self.connections.len() >= CONNECTIONS_MAX;
            let Some(listening) = self.listener.as_mut().filter(|l| l.ready && !full) else {
                return Ok(());
            };
            let number = u64::from(self.partitions_begun);
            let accepted = listening.listener.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                listening.readiness.add(stream.as_fd(), number)?;
                Ok((stream, peer.to_string()))
            });
            match accepted {
                Ok((stream, peer)) => {
                    let partition = self.begin(stream, peer.clone());
                    self.events.push_back(SourcePoll::PartitionStarted {
                        partition,
                        name: peer,
                    });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => listening.ready = false,
                // The peer went away before it was accepted.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return Err(self.endpoint.error("accept a connection", &error)),
            }
        }
    }

    fn look(&mut self) -> Result<()> {
        let Some(listening) = &mut self.listener else {
            // The one connection is registered with the waiter itself; only reading tells.
            for connection in &mut self.connections {
                connection.readable = true;
            }
            return Ok(());
        };
        let (connections, partitions) = (&mut self.connections, &self.partitions);
        let mut somebody = false;
        let looked = listening.readiness.look(|number| {
            if number == LISTENER {
                somebody = true;
                return;
            }
            // Partitions are begun in the order of their numbers and keep it.
            let found = partitions.binary_search_by_key(&number, |part| u64::from(part.number));
            if let Ok(index) = found {
                connections[index].readable = true;
            }
        });
        listening.ready |= somebody;
        looked.map_err(|error| self.endpoint.error("look at the connections", &error))
    }

    /// Reads what there is; whether that was all.
    fn read(&mut self) -> Result<bool> {
        let mut budget = BYTES_PER_POLL_MAX;
        let mut begin_ns = None;
        let watched_ns = self.watched.until_ns();
        for (connection, partition) in self.connections.iter_mut().zip(&mut self.partitions) {
            while connection.readable && budget > 0 && !partition.room().is_empty() {
                let time_ns = *begin_ns.get_or_insert_with(now_ns);
                let room = partition.room();
                let length = room.len().min(budget);
                let read = connection.stream.read(&mut room[..length]);
                match read {
                    Ok(0) => {
                        connection.readable = false;
                        partition.end(time_ns);
                    }
                    Ok(bytes) => {
                        budget -= bytes;
                        connection.drained += bytes;
                        count_bytes(&self.spec.request, bytes);
                        partition.filled(bytes, connection.arrivals.read(bytes, watched_ns));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        connection.readable = false;
                        connection.arrivals.emptied(time_ns);
                        let drained = std::mem::take(&mut connection.drained);
                        if drained > FILL_BYTES_MIN {
                            note_fill(&self.spec.request, &connection.stream, drained);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // A peer that resets a connection has ended it; what came before counts.
                    Err(error) if self.listener.is_some() || is_close(&error) => {
                        connection.readable = false;
                        partition.end(time_ns);
                    }
                    Err(error) => {
                        let reason = format!("can't read: {error}");
                        return Err(Error::new(connection.peer.clone(), reason));
                    }
                }
            }
        }
        let mut is_all = true;
        for connection in self.connections.iter_mut().filter(|c| c.readable) {
            is_all = false;
            if connection.arrivals.wants_mark() {
                // A socket that can't say is read as if nothing were left; the next look tells.
                let left = rustix::io::ioctl_fionread(&connection.stream).unwrap_or(0);
                connection.arrivals.left(left, now_ns());
            }
        }
        Ok(is_all)
    }

    /// Takes the first finished partition out.
    fn ended_partition(&mut self) -> Option<u32> {
        let index = self
            .partitions
            .iter()
            .position(StreamPartition::is_finished)?;
        self.connections.remove(index);
        Some(self.partitions.remove(index).number)
    }
}

/// Says how full the kernel's buffer was. Half of it holds bytes, the rest is the kernel's own.
fn note_fill(request: &SourceRequest, stream: &TcpStream, drained: usize) {
    if let Ok(bytes) = rustix::net::sockopt::socket_recv_buffer_size(stream) {
        request.tuning.note_fill(drained, bytes / 2);
    }
}

fn is_close(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

impl Source for TcpSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.idle {
            return Ok(vec![]);
        }
        self.watched = waiter.watched();
        match self.endpoint.mode {
            Mode::Connect => {
                let stream = self.endpoint.connect()?;
                waiter
                    .register(stream.as_fd())
                    .map_err(|error| self.endpoint.error("wait for the connection", &error))?;
                let peer = stream
                    .peer_addr()
                    .map_or_else(|_| self.endpoint.address.clone(), |peer| peer.to_string());
                let number = self.begin(stream, peer.clone());
                Ok(vec![(number, peer)])
            }
            Mode::Listen => {
                let listener = self.endpoint.listen()?;
                let wait = |error| self.endpoint.error("wait for connections", &error);
                let readiness = Readiness::new().map_err(wait)?;
                readiness.add(listener.as_fd(), LISTENER).map_err(wait)?;
                waiter.register(readiness.descriptor()).map_err(wait)?;
                self.listener = Some(Listening {
                    listener,
                    readiness,
                    ready: true,
                });
                Ok(vec![])
            }
        }
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        loop {
            let mut is_all = false;
            if !self.linger.is_handing_out() {
                self.look()?;
                self.accept()?;
                is_all = self.read()?;
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if let Some(poll) = self.linger.poll(&mut self.partitions, &self.spec.request) {
                return Ok(poll);
            }
            if let Some(partition) = self.ended_partition() {
                return Ok(SourcePoll::PartitionEnded { partition });
            }
            if self.listener.is_none() && self.connections.is_empty() {
                return Ok(SourcePoll::End);
            }
            if is_all {
                return Ok(SourcePoll::Pending);
            }
        }
    }

    fn close(&mut self) {
        self.connections.clear();
        self.partitions.clear();
        self.listener = None;
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
