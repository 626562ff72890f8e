//! The tcp source: lines from the peer to which it connects, or from all peers that connect.
//!
//! Each connection is a partition. `'on_close'` says what happens when one is over: the source waits for the
//! next one, or ends. A connection that breaks never ends the source regularly: it is counted, and the source
//! waits for the next one or fails. A partition whose peer is being reconnected is replaced when the peer
//! answers, and holds the watermark until then.
//!
//! Sockets never block and are edge-triggered: a socket is read when the kernel has named it, until a read
//! does not fill its buffer. A silent socket costs nothing, not even a timer, and neither does a peer that is
//! not available: another thread connects to it (`tcp/dialer.rs`).

mod connection;
mod peers;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::{Interest, Waiter, Watch, Watched};
use slackwater_engine::source::{
    Helped, Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
};
use slackwater_engine::time::now_ns;

use super::helpers::Helpers;
use super::readiness::Readiness;
use super::stream::{Linger, Shared as _, StreamPartition, StreamSpec};
use crate::format::Format;
use crate::options::{OptionError, Options};
use crate::parsers::Block;
use crate::table::TableDefinition;
use crate::tcp::{BackOff, Dialer, Endpoint, Mode, NotAccepted, OnClose, peer_of, set_up};
use connection::Connection;
use peers::{Caller, Listening, descriptors_max};

/// Connections at a time, unless `'connections_max'` says another number; more wait in the kernel's queue
/// until one closes. Each has a block of 128 KiB: 32 MiB in all. While a record is collected that is longer,
/// its connection holds up to 16 MiB: 4 GiB, if all of them send such records at once.
const CONNECTIONS_MAX_DEFAULT: usize = 256;

/// The maximum of `'connections_max'`: 8 GiB of blocks.
const CONNECTIONS_MAX_MAX: u64 = 65_536;

/// Bytes read at once over all connections, before rows are passed on: eight full blocks.
const BYTES_PER_POLL_MAX: usize = 8 * crate::block::STREAM_BLOCK_BYTES;

/// Number of the listening socket in the set; connections have their partition's number.
const LISTENER: u64 = u64::MAX;

/// A table that is read from sockets.
#[derive(Debug)]
pub(crate) struct TcpConnector {
    schema: SchemaRef,
    format: Format,
    endpoint: Endpoint,
    /// `None`: the default for the mode and the query.
    on_close: Option<OnClose>,
    connections_max: usize,
}

impl TcpConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<TcpConnector, OptionError> {
        let endpoint = Endpoint::read(&table.name, options)?;
        let closes = [("reconnect", OnClose::Reconnect), ("end", OnClose::End)];
        let on_close = options.choice("on_close", &closes, OnClose::Reconnect)?;
        let on_close = options.text("on_close").map(|_| on_close);
        let most = options.number("connections_max", None, 1..=CONNECTIONS_MAX_MAX)?;
        if most.is_some() && endpoint.mode == Mode::Connect {
            let reason = "a table that connects has one connection";
            let hint = "leave it out, or write 'mode' = 'listen'";
            return Err(OptionError::new("connections_max", reason, hint));
        }
        Ok(TcpConnector {
            schema: Arc::clone(&table.schema),
            format,
            endpoint,
            on_close,
            connections_max: most.map_or(CONNECTIONS_MAX_DEFAULT, |most| most as usize),
        })
    }

    fn tcp_source(&self, request: SourceRequest) -> TcpSource {
        let usual = match self.endpoint.mode {
            Mode::Listen => OnClose::Reconnect,
            // A query with checkpoints should outlive its peer; one without may be an experiment with a file
            // that is sent once.
            Mode::Connect if request.saved => OnClose::Reconnect,
            Mode::Connect => OnClose::End,
        };
        TcpSource {
            endpoint: self.endpoint.clone(),
            on_close: self.on_close.unwrap_or(usual),
            connections_max: self.connections_max,
            idle: request.instance > 0,
            helpers: Helpers::new(&request),
            spec: StreamSpec::new(&self.schema, &self.format, request),
            listener: None,
            caller: None,
            connections: vec![],
            partitions: vec![],
            partitions_begun: 0,
            first_read: 0,
            linger: Linger::default(),
            events: VecDeque::new(),
            watched: Watched::default(),
            has_said_broken: false,
        }
    }
}

impl SourceConnector for TcpConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "tcp".into(),
            max_instances: 1,
            parsers: true,
            ends_with_peer: self.on_close == Some(OnClose::End),
            transient_partitions: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(self.tcp_source(request)))
    }
}

struct TcpSource {
    endpoint: Endpoint,
    on_close: OnClose,
    connections_max: usize,
    /// All connections belong to another instance.
    idle: bool,
    spec: StreamSpec,
    helpers: Helpers<Block>,
    listener: Option<Listening>,
    caller: Option<Caller>,
    /// The sockets of the partitions; the two lists have the same order.
    connections: Vec<Connection>,
    partitions: Vec<StreamPartition>,
    partitions_begun: u32,
    /// The connection that is read first this time: the first ones may use up the whole budget.
    first_read: usize,
    linger: Linger,
    events: VecDeque<SourcePoll>,
    /// Until when the worker would have been woken for bytes.
    watched: Watched,
    has_said_broken: bool,
}

impl TcpSource {
    fn begin(&mut self, stream: TcpStream, peer: String, watch: Option<Watch>) -> u32 {
        let number = self.partitions_begun;
        self.partitions_begun += 1;
        self.connections.push(Connection::new(stream, peer, watch));
        self.partitions.push(self.spec.partition(number));
        number
    }

    fn started(&mut self, stream: TcpStream, peer: String, watch: Option<Watch>) {
        let partition = self.begin(stream, peer.clone(), watch);
        self.events.push_back(SourcePoll::PartitionStarted {
            partition,
            name: peer,
        });
    }

    /// Accepts waiting peers, as far as there is room.
    fn accept(&mut self) -> Result<()> {
        loop {
            let full = self.connections.len() >= self.connections_max;
            let Some(listening) = self.listener.as_mut().filter(|l| l.ready && !full) else {
                return Ok(());
            };
            let number = u64::from(self.partitions_begun);
            let accepted = listening.listener.accept().and_then(|(stream, peer)| {
                set_up(&stream)?;
                listening
                    .readiness
                    .add(stream.as_fd(), Interest::Read, number)?;
                Ok((stream, peer.to_string()))
            });
            match accepted {
                Ok((stream, peer)) => {
                    listening.was_called = true;
                    self.started(stream, peer, None);
                }
                Err(error) => match NotAccepted::of(&error) {
                    NotAccepted::Nobody => listening.ready = false,
                    NotAccepted::Gone => {}
                    // Until one of ours closes, or the next peer connects.
                    NotAccepted::NoRoom => {
                        listening.ready = false;
                        self.say_full(&format!("can't take another connection: {error}"));
                    }
                    NotAccepted::Failed => {
                        return Err(self.endpoint.error("accept a connection", &error));
                    }
                },
            }
        }
    }

    fn say_full(&mut self, why: &str) {
        let Some(listening) = &mut self.listener else {
            return;
        };
        if !std::mem::replace(&mut listening.has_said_full, true) {
            let address = &self.endpoint.address;
            self.endpoint.warn(&format!(
                "{address}: {why}; those who call wait until one of the others closes"
            ));
        }
    }

    fn look(&mut self) -> Result<()> {
        let Some(listening) = &mut self.listener else {
            self.connections.iter_mut().for_each(Connection::look);
            return self.hear_answer();
        };
        if !listening.watch.is_named() {
            return Ok(());
        }
        let (connections, partitions) = (&mut self.connections, &self.partitions);
        let mut somebody = false;
        let looked = listening.readiness.look(|number, ended| {
            if number == LISTENER {
                somebody = true;
                return;
            }
            // Partitions start in the order of their numbers and keep it.
            let found = partitions.binary_search_by_key(&number, |part| u64::from(part.number));
            if let Ok(index) = found {
                connections[index].named(ended);
            }
        });
        listening.ready |= somebody;
        looked.map_err(|error| self.endpoint.error("look at the connections", &error))?;
        if somebody && self.connections.len() >= self.connections_max {
            let most = self.connections_max;
            self.say_full(&format!(
                "{most} peers are connected, as many as 'connections_max' and 'ulimit -n' allow"
            ));
        }
        Ok(())
    }

    /// The peer may have answered.
    fn hear_answer(&mut self) -> Result<()> {
        let Some(caller) = &mut self.caller else {
            return Ok(());
        };
        let answer = caller.away.as_ref().and_then(|(dialer, _)| dialer.answer());
        let (Some((stream, back_off)), Some((_, before))) = (answer, &caller.away) else {
            return Ok(());
        };
        let before = *before;
        let was_said = back_off.was_said();
        (caller.away, caller.back_off) = (None, Some(back_off));
        let registered = caller.registrar.register(stream.as_fd(), Interest::Read);
        let watch =
            registered.map_err(|error| self.endpoint.error("wait for the connection", &error))?;
        let peer = peer_of(&stream, &self.endpoint);
        if was_said {
            self.endpoint.note(&format!("{peer} is there"));
        }
        // In this order: otherwise the watermark would be released in between.
        self.started(stream, peer, Some(watch));
        let ended = SourcePoll::PartitionEnded { partition: before };
        self.events.push_back(ended);
        Ok(())
    }

    /// Connects until the peer answers, for this partition.
    fn call(&mut self, partition: u32, what: &str) -> Result<()> {
        let Some(caller) = &mut self.caller else {
            return Ok(());
        };
        let mut back_off = caller.back_off.take().unwrap_or_else(BackOff::new);
        if back_off.lost() {
            self.endpoint.warn(&format!("{what}; waiting for it"));
        }
        let dialer = Dialer::start(&self.endpoint, back_off, caller.waker.clone())?;
        caller.away = Some((dialer, partition));
        Ok(())
    }

    /// Reads the available bytes; returns whether that was all.
    fn read(&mut self) -> bool {
        let mut budget = BYTES_PER_POLL_MAX;
        let mut begin_ns = None;
        let count = self.connections.len();
        self.first_read = (self.first_read + 1) % count.max(1);
        for nth in 0..count {
            let index = (self.first_read + nth) % count;
            let partition = &mut self.partitions[index];
            let (request, watched_ns) = (&self.spec.request, self.watched.until_ns());
            let mut begin_ns = || *begin_ns.get_or_insert_with(now_ns);
            let connection = &mut self.connections[index];
            loop {
                budget -= connection.read(partition, budget, &mut begin_ns, watched_ns, request);
                let has_more = connection.readable && budget > 0;
                if !has_more || !self.helpers.hand_over(partition, count, request) {
                    break;
                }
            }
        }
        let mut is_all = true;
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if connection.readable {
                connection.leaves_bytes();
                // While others parse, there will be room when one of them is done.
                let partition = &mut self.partitions[index];
                is_all &= partition.is_ahead() && partition.room().is_empty();
            }
        }
        is_all
    }

    /// Removes the first connection that is over and whose rows were passed on, and returns what happens
    /// next.
    fn take_ended(&mut self) -> Result<Option<SourcePoll>> {
        let Some(index) = (self.partitions.iter()).position(StreamPartition::is_finished) else {
            return Ok(None);
        };
        let Connection { peer, broken, .. } = self.connections.remove(index);
        let partition = self.partitions.remove(index).number;
        if let Some(listening) = &mut self.listener {
            // There is room for another one.
            listening.ready = true;
        }
        let ended = SourcePoll::PartitionEnded { partition };
        if self.on_close == OnClose::End {
            return match broken {
                None => Ok(Some(ended)),
                Some(reason) => Err(Error::new(
                    peer,
                    format!("the connection broke before its end: {reason}"),
                )
                .hint("'on_close' = 'reconnect' waits for the peer instead")),
            };
        }
        if self.listener.is_none() {
            self.call(
                partition,
                &match broken {
                    None => format!("{peer} has closed the connection"),
                    Some(reason) => format!("the connection to {peer} broke: {reason}"),
                },
            )?;
            return Ok(Some(SourcePoll::ConnectionLost));
        }
        let Some(reason) = broken else {
            return Ok(Some(ended));
        };
        if !std::mem::replace(&mut self.has_said_broken, true) {
            self.endpoint.warn(&format!(
                "the connection of {peer} broke: {reason}; others that break are counted only"
            ));
        }
        self.events.push_back(ended);
        Ok(Some(SourcePoll::ConnectionLost))
    }

    /// Whether no peer is connected, and the source waits for none.
    fn is_over(&self) -> bool {
        let is_waiting = match (&self.listener, &self.caller) {
            (Some(listening), _) => self.on_close == OnClose::Reconnect || !listening.was_called,
            (None, Some(caller)) => caller.away.is_some(),
            (None, None) => false,
        };
        self.connections.is_empty() && !is_waiting
    }
}

impl Source for TcpSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.idle {
            return Ok(vec![]);
        }
        self.watched = waiter.watched();
        self.helpers.wakes(waiter.waker());
        match self.endpoint.mode {
            Mode::Connect => {
                self.caller = Some(Caller {
                    registrar: waiter.registrar(),
                    waker: waiter.waker(),
                    back_off: None,
                    away: None,
                });
                let stream = match self.endpoint.connect() {
                    Ok(stream) => stream,
                    // A query with checkpoints may start without a user present: it continues when the peer
                    // is there.
                    Err(error) if self.spec.request.saved => {
                        let address = self.endpoint.address.clone();
                        let partition = self.partitions_begun;
                        self.partitions_begun += 1;
                        self.call(partition, &format!("{error}"))?;
                        return Ok(vec![(partition, address)]);
                    }
                    Err(error) => return Err(error),
                };
                let watch = waiter
                    .register(stream.as_fd(), Interest::Read)
                    .map_err(|error| self.endpoint.error("wait for the connection", &error))?;
                if let Some(caller) = &mut self.caller {
                    let mut back_off = BackOff::new();
                    back_off.connected();
                    caller.back_off = Some(back_off);
                }
                let peer = peer_of(&stream, &self.endpoint);
                let number = self.begin(stream, peer.clone(), Some(watch));
                Ok(vec![(number, peer)])
            }
            Mode::Listen => {
                self.connections_max = self.connections_max.min(descriptors_max());
                let listener = self.endpoint.listen()?;
                let wait = |error| self.endpoint.error("wait for connections", &error);
                let readiness = Readiness::new().map_err(wait)?;
                readiness
                    .add(listener.as_fd(), Interest::Read, LISTENER)
                    .map_err(wait)?;
                let watch = waiter.register(readiness.descriptor(), Interest::Read);
                let watch = watch.map_err(wait)?;
                self.listener = Some(Listening {
                    listener,
                    readiness,
                    watch,
                    ready: true,
                    was_called: false,
                    has_said_full: false,
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
                is_all = self.read();
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let (linger, request) = (&mut self.linger, &self.spec.request);
            if let Some(poll) = self.helpers.poll(&mut self.partitions, linger, request) {
                return Ok(poll);
            }
            if let Some(ended) = self.take_ended()? {
                return Ok(ended);
            }
            if self.is_over() {
                return Ok(SourcePoll::End);
            }
            if is_all && let Some(pending) = self.helpers.pending(&self.partitions) {
                return Ok(pending);
            }
        }
    }

    fn take_helped(&mut self) -> Helped {
        self.helpers.take_helped()
    }

    fn close(&mut self) {
        self.connections.clear();
        self.partitions.clear();
        self.helpers.close();
        self.listener = None;
        self.caller = None;
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
