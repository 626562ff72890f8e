//! The tcp sink: lines to a peer that is connected to, or to the first who connects.
//!
//! Writes never block: what the socket does not take stays in a bounded buffer, and the sink says
//! that it is not ready until the peer has read enough. Listening, it is not ready before somebody
//! has connected. At the end it waits for the peer to take the rest.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Sink, SinkConnector, SinkRequest};

use crate::encode::Encoder;
use crate::format::Format;
use crate::source::readiness::Readiness;
use crate::source::tcp::{Endpoint, Mode};

/// Options beside those of the format.
pub(crate) const OPTIONS: &[&str] = &["connector", "latency_target", "format", "address", "mode"];

/// Bytes that wait for the peer before the sink is no longer ready; one chunk may go beyond.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Bytes after which a write is tried without waiting for the flush: what a segment train carries.
const WRITE_BYTES: usize = 64 * 1024;

/// How long the peer may stand still while it takes the rest at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// A table that is written to a socket.
#[derive(Debug)]
pub(crate) struct TcpConnector {
    pub(crate) schema: SchemaRef,
    pub(crate) format: Format,
    pub(crate) endpoint: Endpoint,
}

impl SinkConnector for TcpConnector {
    fn max_instances(&self) -> usize {
        1
    }

    fn describe(&self) -> String {
        format!("tcp {}", self.endpoint.address)
    }

    fn sink(&self, _request: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.tcp_sink()))
    }
}

impl TcpConnector {
    fn tcp_sink(&self) -> TcpSink {
        TcpSink {
            encoder: Encoder::new(&self.format, &self.schema),
            endpoint: self.endpoint.clone(),
            listener: None,
            stream: None,
            waiting: Vec::new(),
            sent: 0,
        }
    }
}

struct TcpSink {
    encoder: Encoder,
    endpoint: Endpoint,
    listener: Option<(TcpListener, Readiness)>,
    stream: Option<TcpStream>,
    /// Bytes for the peer, of which `sent` are gone.
    waiting: Vec<u8>,
    sent: usize,
}

impl TcpSink {
    fn error(&self, what: &str, error: &std::io::Error) -> Error {
        Error::new(
            self.endpoint.address.clone(),
            format!("can't {what}: {error}"),
        )
    }

    /// Accepts the peer, if it is there.
    fn accept(&mut self) -> Result<()> {
        let Some((listener, readiness)) = self.listener.as_ref().filter(|_| self.stream.is_none())
        else {
            return Ok(());
        };
        let accepted = loop {
            match listener.accept() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                accepted => break accepted,
            }
        };
        let stream = accepted
            .and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                readiness.add(stream.as_fd(), 1)?;
                Ok(stream)
            })
            .map_err(|error| self.error("accept the connection", &error))?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> Result<()> {
        self.accept()?;
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.sent < self.waiting.len() {
            match stream.write(&self.waiting[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    return Err(self.error("send", &error).mend("did the peer close?"));
                }
            }
        }
        if self.sent == self.waiting.len() {
            self.waiting.clear();
            self.sent = 0;
        } else if self.sent > WAITING_BYTES_MAX {
            self.waiting.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    fn wait_until_taken(&mut self) -> Result<()> {
        let mut moved = Instant::now();
        while !self.waiting.is_empty() {
            let before = self.waiting.len() - self.sent;
            self.send()?;
            if self.waiting.len() - self.sent < before {
                moved = Instant::now();
                continue;
            }
            if moved.elapsed() > FINISH_TIMEOUT {
                let reason = format!("the peer takes nothing, {before} bytes are left");
                return Err(Error::new(self.endpoint.address.clone(), reason));
            }
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let waited = match (&self.stream, &self.listener) {
                (Some(stream), _) => {
                    poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&second))
                }
                (None, Some((listener, _))) => {
                    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&second))
                }
                (None, None) => return Ok(()),
            };
            match waited {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.error("wait for the peer", &error.into())),
            }
        }
        Ok(())
    }
}

impl Sink for TcpSink {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        match self.endpoint.mode {
            Mode::Connect => {
                let stream = self.endpoint.connect()?;
                waiter
                    .register(stream.as_fd())
                    .map_err(|error| self.error("wait for the connection", &error))?;
                self.stream = Some(stream);
            }
            Mode::Listen => {
                let listener = self.endpoint.listen()?;
                let wait = |error| self.error("wait for a connection", &error);
                let readiness = Readiness::new().map_err(wait)?;
                readiness.add(listener.as_fd(), 0).map_err(wait)?;
                waiter.register(readiness.descriptor()).map_err(wait)?;
                self.listener = Some((listener, readiness));
            }
        }
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        if self.stream.is_some() && self.waiting.len() - self.sent < WAITING_BYTES_MAX {
            return Ok(true);
        }
        if let Some((_, readiness)) = &self.listener {
            // Taking the events lets the next one ring again.
            readiness
                .look(|_| ())
                .map_err(|error| self.error("wait for the peer", &error))?;
        }
        self.send()?;
        Ok(self.stream.is_some() && self.waiting.len() - self.sent < WAITING_BYTES_MAX)
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let place = self.endpoint.address.clone();
        self.encoder
            .encode(chunk, &mut self.waiting)
            .map_err(|error| error.at(&place))?;
        if self.waiting.len() - self.sent >= WRITE_BYTES {
            self.send()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.send()
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        if complete {
            self.encoder.finish(&mut self.waiting);
            self.wait_until_taken()?;
        }
        // Closing is the end of the stream for the peer.
        self.stream = None;
        self.listener = None;
        Ok(())
    }
}
