//! The tcp sink: sends lines to the peer to which it connects, or to one connecting peer after the other.
//!
//! Writes never block: bytes that the socket does not accept stay in a bounded backlog, and the sink is not
//! ready until the peer has read enough. Without a peer (nobody has connected yet, or the last one has left)
//! it is not ready either. The next peer gets the backlog, from the beginning of a row on. At the end it
//! waits for the peer to take the rest.

mod listening;
mod peer;

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use rustix::event::Timespec;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::{Interest, Registrar, Waiter, Waker};
use slackwater_engine::sink::{
    Accepts, Delivery, Recovered, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector,
    SinkDescription, SinkRequest,
};

use super::backlog::{Backlog, Handed};
use crate::encode::Encoder;
use crate::format::Format;
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;
use crate::tcp::{BackOff, Dialer, Endpoint, Mode, OnClose, peer_of};
use listening::Listening;
use peer::Peer;

/// Bytes that wait for the peer before the sink is no longer ready; one chunk may exceed it.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Bytes after which a write is tried without waiting for the flush: as much as one burst of segments
/// carries.
const WRITE_BYTES: usize = 64 * 1024;

/// How long the peer may read nothing, or be disconnected, before the rest is dropped at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a checkpoint waits for a peer that reads nothing.
const PATIENCE: Duration = Duration::from_secs(300);

/// A table that is written to a socket.
#[derive(Debug)]
pub(crate) struct TcpConnector {
    schema: SchemaRef,
    format: Format,
    endpoint: Endpoint,
    on_close: OnClose,
    /// The progress of this process's sink, for its checkpoints.
    handed: Mutex<Option<Arc<Handed>>>,
}

impl TcpConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<TcpConnector, OptionError> {
        let closes = [("reconnect", OnClose::Reconnect), ("fail", OnClose::End)];
        Ok(TcpConnector {
            schema: Arc::clone(&table.schema),
            format,
            endpoint: Endpoint::read(&table.name, options)?,
            on_close: options.choice("on_close", &closes, OnClose::Reconnect)?,
            handed: Mutex::default(),
        })
    }
}

impl SinkConnector for TcpConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("tcp", self.endpoint.address.to_string())
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: 1,
            max_instances_saved: 1,
            uses_waiter: true,
            accepts: Accepts::Rows,
            delivery: Delivery::AtLeastOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let handed = Arc::new(Handed::new(&self.endpoint.address));
        let mut known = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::clone(&handed));
        Ok(Box::new(TcpSink {
            encoder: Encoder::new(&self.format, &self.schema),
            backlog: Backlog::new(&self.format, &self.schema),
            handed,
            endpoint: self.endpoint.clone(),
            on_close: self.on_close,
            is_saved: request.epoch.is_some(),
            listening: None,
            caller: None,
            peer: None,
            connections_lost: 0,
            was_said: false,
            prepared: 0,
            noted: 0,
        }))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        Some(self)
    }
}

impl SinkCheckpoints for TcpConnector {
    fn secure(&self, prepared: &str) -> Result<()> {
        let unreadable = || {
            let reason = format!("what the checkpoint waits for can't be read: {prepared}");
            Error::new(&self.endpoint.address, reason)
        };
        let bytes = prepared.parse::<u64>().map_err(|_| unreadable())?;
        let known = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        let handed = known.clone().ok_or_else(unreadable)?;
        drop(known);
        handed.wait(bytes, PATIENCE)
    }

    /// Rows that were sent need no commit.
    fn commit(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    fn recover(&self, _epoch: u64, _prepared: Option<&[String]>) -> Result<Recovered> {
        Ok(Recovered::Committed)
    }
}

/// The caller that reconnects to the peer.
struct Caller {
    registrar: Registrar,
    waker: Waker,
    /// How long to wait before it is called again; on its way with the dialer meanwhile.
    back_off: Option<BackOff>,
    /// The dialer, while the peer is not connected.
    away: Option<Dialer>,
}

struct TcpSink {
    encoder: Encoder,
    backlog: Backlog,
    handed: Arc<Handed>,
    endpoint: Endpoint,
    on_close: OnClose,
    /// Whether the query takes checkpoints.
    is_saved: bool,
    listening: Option<Listening>,
    caller: Option<Caller>,
    peer: Option<Peer>,
    connections_lost: u64,
    /// Whether the loss of the last peer was reported.
    was_said: bool,
    /// The bytes before the last checkpoint.
    prepared: u64,
    /// The bytes that were sent, as checkpoints know them.
    noted: u64,
}

impl TcpSink {
    /// Takes in what the kernel has reported of the sockets.
    fn look(&mut self) -> Result<()> {
        if let Some(peer) = &mut self.peer {
            peer.look();
        }
        let Some(listening) = &mut self.listening else {
            return Ok(());
        };
        let looked = listening.look(self.peer.as_mut());
        looked.map_err(|error| self.endpoint.error("wait for the peer", &error))
    }

    /// Checks for a peer, if there was none.
    fn find_peer(&mut self) -> Result<()> {
        if self.peer.is_some() {
            return Ok(());
        }
        if let Some(listening) = &mut self.listening {
            let accepted = listening.accept();
            self.peer =
                accepted.map_err(|error| self.endpoint.error("accept the connection", &error))?;
        }
        self.hear_answer()?;
        if let Some(peer) = &self.peer {
            self.backlog.begin_again();
            if std::mem::take(&mut self.was_said) {
                self.endpoint.note(&format!("{} is there", peer.address));
            }
        }
        Ok(())
    }

    /// The peer may have answered the dialer.
    fn hear_answer(&mut self) -> Result<()> {
        let Some(caller) = &mut self.caller else {
            return Ok(());
        };
        let answer = caller.away.as_ref().and_then(Dialer::answer);
        match answer {
            Some((stream, back_off)) => self.take_answer(stream, back_off),
            None => Ok(()),
        }
    }

    fn take_answer(&mut self, stream: TcpStream, back_off: BackOff) -> Result<()> {
        let Some(caller) = &mut self.caller else {
            return Ok(());
        };
        (caller.away, caller.back_off) = (None, Some(back_off));
        let registered = caller.registrar.register(stream.as_fd(), Interest::Write);
        let watch =
            registered.map_err(|error| self.endpoint.error("wait for the connection", &error))?;
        let address = peer_of(&stream, &self.endpoint);
        self.peer = Some(Peer::new(stream, address, Some(watch)));
        Ok(())
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self) -> Result<()> {
        loop {
            self.look()?;
            self.find_peer()?;
            let Some(peer) = &mut self.peer else {
                break;
            };
            match peer.send(&mut self.backlog) {
                Ok(()) => break,
                // The next peer may be waiting already.
                Err(error) => self.lose(&error)?,
            }
        }
        let handed = self.backlog.handed();
        if self.is_saved && std::mem::replace(&mut self.noted, handed) != handed {
            self.handed.note(handed);
        }
        Ok(())
    }

    /// The peer accepts no more bytes.
    fn lose(&mut self, error: &std::io::Error) -> Result<()> {
        let Some(Peer { address: peer, .. }) = self.peer.take() else {
            return Ok(());
        };
        if self.on_close == OnClose::End {
            let failed = self.endpoint.error("send", error);
            return Err(failed.hint("did the peer close?"));
        }
        self.connections_lost += 1;
        self.backlog.rewind();
        let what = format!(
            "{peer} takes no more rows: {error}; waiting for the next reader \
             (rows on their way to this one may be lost)"
        );
        match &self.caller {
            Some(_) => self.call(&what),
            None => {
                // Listening: readers may come and go.
                if self.connections_lost == 1 {
                    self.endpoint.warn(&what);
                    self.was_said = true;
                }
                Ok(())
            }
        }
    }

    /// Connects until the peer answers.
    fn call(&mut self, what: &str) -> Result<()> {
        let Some(caller) = &mut self.caller else {
            return Ok(());
        };
        let mut back_off = caller.back_off.take().unwrap_or_else(BackOff::new);
        if back_off.lost() {
            self.endpoint.warn(what);
            self.was_said = true;
        }
        caller.away = Some(Dialer::start(
            &self.endpoint,
            back_off,
            caller.waker.clone(),
        )?);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.peer.is_some() && self.backlog.left() < WAITING_BYTES_MAX
    }

    fn wait_until_taken(&mut self) -> Result<()> {
        let mut moved = Instant::now();
        let mut before = self.backlog.left();
        // The worker's waiter names nothing meanwhile.
        if let Some(peer) = &mut self.peer {
            peer.named(true);
        }
        loop {
            self.send()?;
            let left = self.backlog.left();
            if left == 0 {
                return Ok(());
            }
            if left < before {
                moved = Instant::now();
            }
            before = left;
            if moved.elapsed() > FINISH_TIMEOUT {
                let reason = format!("nobody reads the rest: {left} bytes are left");
                return Err(Error::new(self.endpoint.address.clone(), reason));
            }
            self.wait_for_peer()?;
        }
    }

    /// Waits for at most a second until there is a peer, or until it accepts more.
    fn wait_for_peer(&mut self) -> Result<()> {
        const SECOND: Duration = Duration::from_secs(1);
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let waited = match (&mut self.peer, &mut self.listening, &self.caller) {
            (Some(peer), ..) => peer.wait_for_room(&second),
            (None, Some(listening), _) => listening.wait_for_peer(&second),
            (None, None, Some(Caller { away, .. })) => {
                let answer = away.as_ref().and_then(|away| away.answer_within(SECOND));
                return match answer {
                    Some((stream, back_off)) => {
                        self.take_answer(stream, back_off)?;
                        self.backlog.begin_again();
                        Ok(())
                    }
                    None => Ok(()),
                };
            }
            (None, None, None) => return Ok(()),
        };
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(self.endpoint.error("wait for the peer", &error.into())),
        }
    }
}

impl Sink for TcpSink {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        match self.endpoint.mode {
            Mode::Connect => {
                let mut back_off = BackOff::new();
                let called = self.endpoint.connect();
                back_off.connected();
                self.caller = Some(Caller {
                    registrar: waiter.registrar(),
                    waker: waiter.waker(),
                    back_off: None,
                    away: None,
                });
                match called {
                    Ok(stream) => self.take_answer(stream, back_off)?,
                    // A query with checkpoints may start without a user present: it continues when the peer
                    // is there.
                    Err(error) if self.is_saved => {
                        self.call(&format!("{error}; waiting for it"))?
                    }
                    Err(error) => return Err(error),
                }
            }
            Mode::Listen => {
                let listener = self.endpoint.listen()?;
                let listening = Listening::new(listener, waiter);
                let wait = |error| self.endpoint.error("wait for a connection", &error);
                self.listening = Some(listening.map_err(wait)?);
            }
        }
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        if self.is_ready() {
            return Ok(true);
        }
        self.send()?;
        Ok(self.is_ready())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        self.backlog
            .append(|bytes| self.encoder.encode(chunk, bytes))
            .map_err(|error| error.at(&self.endpoint.address))?;
        if self.backlog.left() >= WRITE_BYTES {
            self.send()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self.backlog.left() {
            0 => Ok(()),
            _ => self.send(),
        }
    }

    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        // Rows that are in no checkpoint are sent again; rows that only wait here would be lost.
        let written = self.backlog.written();
        if self.backlog.left() == 0 || written == self.prepared {
            return Ok(None);
        }
        self.prepared = written;
        Ok(Some(written.to_string()))
    }

    fn connections_lost(&self) -> u64 {
        self.connections_lost
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        let taken = match complete {
            true => {
                let encoder = &mut self.encoder;
                let appended = self.backlog.append(|bytes| {
                    encoder.finish(bytes);
                    Ok(())
                });
                appended.and_then(|()| self.wait_until_taken())
            }
            false => Ok(()),
        };
        self.handed.close();
        // Closing is the end of the stream for the peer.
        self.peer = None;
        self.listening = None;
        self.caller = None;
        taken
    }
}
