//! Sockets and pipes, read and written plainly: what a program does without a link.
//!
//! When polling, descriptors don't block and are tried again at once; by interrupt, they block. A stream
//! gathers small messages into one write and reads up to 64 KiB at a time, as any buffered reader and
//! writer do; a socket that keeps messages apart sends and receives each one separately.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use slackwater::measure::control::Control;
use slackwater::measure::order::{Order, Waiting};
use slackwater::measure::side::{Aligned, Side, read_lines};
use slackwater_link::Waiter;

/// Bytes per read, or one message if that is larger.
const READ_BYTES: usize = 64 << 10;

/// The requested capacity of a pipe: the most that an unprivileged process may request.
const PIPE_BYTES: usize = 1 << 20;

/// The largest message that fits the default buffer of a Unix socket (208 KiB) with its overhead.
const PACKET_BYTES_MAX: usize = 64 << 10;

/// One side of two streams of bytes, or of packets.
pub struct PlainSide {
    out: OwnedFd,
    input: OwnedFd,
    keeps_apart: bool,
    size_bytes: usize,
    /// A batch of messages, of which the first `filled` bytes are to be written.
    batch: Aligned,
    filled: usize,
    /// Bytes that were read; those from `start` to `end` were not processed yet.
    read: Aligned,
    start: usize,
    end: usize,
}

impl PlainSide {
    fn new(out: OwnedFd, input: OwnedFd, keeps_apart: bool) -> PlainSide {
        PlainSide {
            out,
            input,
            keeps_apart,
            size_bytes: 0,
            batch: Aligned::new(0),
            filled: 0,
            read: Aligned::new(0),
            start: 0,
            end: 0,
        }
    }

    /// The leader's side of a pair of Unix sockets.
    pub fn unix_leader(control: &Control, keeps_apart: bool) -> Result<PlainSide, String> {
        let kind = match keeps_apart {
            true => SocketType::SEQPACKET,
            false => SocketType::STREAM,
        };
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.map_err(|error| format!("can't create sockets: {error}"))?;
        control.send(&"socket", &[theirs.as_fd()])?;
        PlainSide::socket(ours, keeps_apart)
    }

    /// The leader's side of a pair of pipes.
    pub fn pipe_leader(control: &Control) -> Result<PlainSide, String> {
        let pipe = || -> Result<(OwnedFd, OwnedFd), String> {
            let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
            let (reading, writing) =
                pipe.map_err(|error| format!("can't create a pipe: {error}"))?;
            // A host may allow less; then the pipe keeps its capacity.
            let _ = rustix::pipe::fcntl_setpipe_size(&writing, PIPE_BYTES);
            Ok((reading, writing))
        };
        let ((input, theirs_out), (theirs_input, out)) = (pipe()?, pipe()?);
        control.send(&"pipes", &[theirs_out.as_fd(), theirs_input.as_fd()])?;
        Ok(PlainSide::new(out, input, false))
    }

    /// The leader's side of a TCP connection.
    pub fn tcp_leader(control: &Control) -> Result<PlainSide, String> {
        let (address, _) = control.expect::<SocketAddr>()?;
        let stream = TcpStream::connect(address).map_err(|error| format!("{address}: {error}"))?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        PlainSide::socket(stream.into(), false)
    }

    /// The follower's side of sockets or pipes.
    pub fn follower(control: &Control, keeps_apart: bool) -> Result<PlainSide, String> {
        let (_, descriptors) = control.expect::<String>()?;
        let mut descriptors = descriptors.into_iter();
        match (descriptors.next(), descriptors.next()) {
            (Some(out), Some(input)) => Ok(PlainSide::new(out, input, keeps_apart)),
            (Some(socket), None) => PlainSide::socket(socket, keeps_apart),
            (None, _) => Err("the other side sent no socket".to_string()),
        }
    }

    /// The follower's side of a TCP connection.
    pub fn tcp_follower(control: &Control) -> Result<PlainSide, String> {
        let failed = |error: io::Error| error.to_string();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        control.send(&listener.local_addr().map_err(failed)?, &[])?;
        let (stream, _) = listener.accept().map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        PlainSide::socket(stream.into(), false)
    }

    fn socket(socket: OwnedFd, keeps_apart: bool) -> Result<PlainSide, String> {
        let input = socket.try_clone().map_err(|error| error.to_string())?;
        Ok(PlainSide::new(socket, input, keeps_apart))
    }

    /// Reads once; returns whether there was anything to read.
    fn fill(&mut self) -> Result<bool, String> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.read.len() - self.start < self.size_bytes {
            // The rest of the message doesn't fit after its beginning.
            self.read.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let end = self.end;
        match rustix::io::read(&self.input, &mut self.read[end..]) {
            Ok(0) => Err("the other side has disconnected".to_string()),
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(format!("a read failed: {error}")),
        }
    }
}

impl Side for PlainSide {
    fn supports(&self, order: &Order) -> Result<(), String> {
        if self.keeps_apart && order.size_bytes > PACKET_BYTES_MAX {
            let most = PACKET_BYTES_MAX >> 10;
            return Err(format!(
                "a packet of more than {most} KiB may not fit its socket"
            ));
        }
        Ok(())
    }

    fn prepare(&mut self, order: &Order) -> Result<(), String> {
        self.size_bytes = order.size_bytes;
        let batch = match self.keeps_apart {
            true => 1,
            false => order.batch(),
        };
        self.batch = Aligned::new(batch * order.size_bytes);
        self.filled = 0;
        let read_bytes = match self.keeps_apart {
            true => order.size_bytes,
            false => order.size_bytes.max(READ_BYTES),
        };
        self.read = Aligned::new(read_bytes);
        (self.start, self.end) = (0, 0);
        for descriptor in [&self.out, &self.input] {
            let failed = |error: Errno| format!("can't set a descriptor's flags: {error}");
            let mut flags = fcntl_getfl(descriptor).map_err(failed)?;
            flags.set(OFlags::NONBLOCK, order.waiting == Waiting::Poll);
            fcntl_setfl(descriptor, flags).map_err(failed)?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, number: u64) -> Result<bool, String> {
        if self.filled == self.batch.len() {
            self.push()?;
        }
        self.batch[self.filled..][..8].copy_from_slice(&number.to_le_bytes());
        self.filled += self.size_bytes;
        Ok(true)
    }

    /// Writes everything that was gathered; the other side reads at the same time, so this ends.
    fn push(&mut self) -> Result<(), String> {
        let mut written = 0;
        while written < self.filled {
            match rustix::io::write(&self.out, &self.batch[written..self.filled]) {
                Ok(count) => written += count,
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                Err(error) => return Err(format!("a write failed: {error}")),
            }
        }
        self.filled = 0;
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<u64>, String> {
        if self.end - self.start < self.size_bytes && !self.fill()? {
            return Ok(None);
        }
        if self.end - self.start < self.size_bytes {
            return Ok(None);
        }
        let number = read_lines(&self.read[self.start..self.start + self.size_bytes])?;
        self.start += self.size_bytes;
        Ok(Some(number))
    }

    fn waiter(&self) -> Option<&Waiter> {
        None
    }
}
