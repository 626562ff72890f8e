//! The connection's bytes, with or without TLS: messages of a bounded length come in, and what waits to be
//! sent is bounded too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The longest message before a client was let in: as in PostgreSQL.
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// The longest message that is skipped with an error; after a longer one the connection ends.
const SKIPPED_BYTES_MAX: usize = 64 << 20;
/// How much is read at once.
const READ_BYTES: usize = 8 * 1024;
/// From how many bytes on what was written is sent in the middle of an answer.
const OUT_BYTES: usize = 64 * 1024;
/// The memory of a buffer that is kept after a large message.
const KEPT_BYTES: usize = 64 * 1024;

/// A socket, with or without TLS.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Stream::Tls($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(context))
    }
}

/// A connection's bytes in both directions.
pub struct Wire {
    pub stream: Stream,
    input: BytesMut,
    pub out: BytesMut,
    /// The longest message that is read.
    pub message_bytes_max: usize,
    /// How long the client may take for a piece of what it asked for.
    pub send_time_max: Duration,
    /// The client has closed the connection, or it broke.
    pub closed: bool,
}

/// What a client sent.
#[derive(Debug)]
pub enum Incoming {
    /// A message: its type, and its bytes after the length.
    Message(u8, BytesMut),
    /// A message that is too long: its bytes were skipped.
    TooLong(u8, usize),
}

impl Wire {
    pub fn new(stream: Stream, send_time_max: Duration) -> Wire {
        Wire {
            stream,
            input: BytesMut::new(),
            out: BytesMut::new(),
            message_bytes_max: STARTUP_BYTES_MAX,
            send_time_max,
            closed: false,
        }
    }

    /// Whether nothing was read that is not yet taken.
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether more may be read while a statement runs.
    pub fn has_room(&self) -> bool {
        !self.closed && self.input.len() < READ_BYTES
    }

    /// Reads what has arrived. Can be given up at any time without losing bytes.
    pub async fn fill(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => {
                self.closed = true;
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(_) => Ok(()),
            Err(error) => {
                self.closed = true;
                Err(error)
            }
        }
    }

    async fn fill_to(&mut self, count: usize) -> io::Result<()> {
        while self.input.len() < count {
            self.fill().await?;
        }
        Ok(())
    }

    /// A packet without a type, of the beginning: its code, and what follows.
    pub async fn packet(&mut self) -> io::Result<(u32, BytesMut)> {
        self.fill_to(8).await?;
        let length = self.input.get_u32() as usize;
        let code = self.input.get_u32();
        if !(8..=STARTUP_BYTES_MAX).contains(&length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.fill_to(length - 8).await?;
        Ok((code, self.input.split_to(length - 8)))
    }

    /// The next message.
    pub async fn next(&mut self) -> io::Result<Incoming> {
        self.fill_to(5).await?;
        let kind = self.input[0];
        let length =
            u32::from_be_bytes([self.input[1], self.input[2], self.input[3], self.input[4]]);
        let length = (length as usize)
            .checked_sub(4)
            .ok_or(io::ErrorKind::InvalidData)?;
        if length > self.message_bytes_max {
            if length > SKIPPED_BYTES_MAX || self.message_bytes_max == STARTUP_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.input.advance(5);
            self.skip(length).await?;
            return Ok(Incoming::TooLong(kind, length));
        }
        self.fill_to(5 + length).await?;
        self.input.advance(5);
        let body = self.input.split_to(length);
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
        Ok(Incoming::Message(kind, body))
    }

    async fn skip(&mut self, mut count: usize) -> io::Result<()> {
        loop {
            let here = count.min(self.input.len());
            self.input.advance(here);
            count -= here;
            if count == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    /// Sends what was written.
    pub async fn send(&mut self) -> io::Result<()> {
        let write = async {
            self.stream.write_all(&self.out).await?;
            self.stream.flush().await
        };
        let sent = match tokio::time::timeout(self.send_time_max, write).await {
            Ok(sent) => sent,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        self.closed |= sent.is_err();
        if self.out.capacity() > KEPT_BYTES {
            self.out = BytesMut::new();
        }
        self.out.clear();
        sent
    }

    /// Sends what was written if it is a lot.
    pub async fn send_if_full(&mut self) -> io::Result<()> {
        match self.out.len() < OUT_BYTES {
            true => Ok(()),
            false => self.send().await,
        }
    }
}
