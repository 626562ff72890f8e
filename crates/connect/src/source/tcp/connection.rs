//! A connection of the tcp source: the bytes that are read from it, and when they arrived.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use slackwater_engine::link::Watch;
use slackwater_engine::source::SourceRequest;
use slackwater_engine::time::now_ns;

use crate::source::arrivals::Arrivals;
use crate::source::count_bytes;
use crate::source::stream::StreamPartition;

/// Reading fewer bytes at once means that the socket is far from full.
const FILL_BYTES_MIN: usize = 16 * 1024;

/// The socket of a partition.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) peer: String,
    /// What the worker's waiter has reported of the socket, if the socket is registered there.
    watch: Option<Watch>,
    /// Whether there may be bytes to read.
    pub(super) readable: bool,
    /// Whether a read that does not fill its buffer may leave something: the end, or an error.
    ended: bool,
    arrivals: Arrivals,
    /// Bytes read since the socket was empty.
    drained: usize,
    /// The reason why the connection is over, if the peer has not closed it.
    pub(super) broken: Option<String>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: String, watch: Option<Watch>) -> Connection {
        Connection {
            stream,
            peer,
            watch,
            readable: true,
            ended: false,
            arrivals: Arrivals::new(now_ns()),
            drained: 0,
            broken: None,
        }
    }

    /// Asks the watch whether there may be bytes.
    pub(super) fn look(&mut self) {
        if let Some(watch) = &mut self.watch
            && watch.is_named()
        {
            let ended = watch.has_ended();
            self.named(ended);
        }
    }

    /// Notes that the kernel has named the socket; `ended` as [`Watch::has_ended`] has it.
    pub(super) fn named(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Reads into the partition until the socket is empty, the block full or the budget spent; returns how
    /// many bytes. Until `watched_ns` the worker would have been woken for bytes.
    pub(super) fn read(
        &mut self,
        partition: &mut StreamPartition,
        budget: usize,
        begin_ns: &mut impl FnMut() -> u64,
        watched_ns: u64,
        request: &SourceRequest,
    ) -> usize {
        let mut spent = 0;
        while self.readable && spent < budget && !partition.room().is_empty() {
            let time_ns = begin_ns();
            let room = partition.room();
            let length = room.len().min(budget - spent);
            match self.stream.read(&mut room[..length]) {
                Ok(0) => {
                    self.readable = false;
                    partition.end(time_ns);
                }
                Ok(bytes) => {
                    spent += bytes;
                    self.drained += bytes;
                    count_bytes(request, bytes);
                    partition.filled(bytes, self.arrivals.read(bytes, watched_ns));
                    if bytes < length && !self.ended {
                        self.emptied(time_ns, request);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.emptied(time_ns, request);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The rows before the break count; what happens next is decided once they were passed on.
                Err(error) => {
                    self.readable = false;
                    let reason =
                        format!("the connection broke in the middle of this record: {error}");
                    partition.break_off(reason, time_ns);
                    self.broken = Some(error.to_string());
                }
            }
        }
        spent
    }

    /// Notes that a read that began at this time has left nothing.
    fn emptied(&mut self, begin_ns: u64, request: &SourceRequest) {
        self.readable = false;
        self.arrivals.emptied(begin_ns);
        let drained = std::mem::take(&mut self.drained);
        if drained > FILL_BYTES_MIN {
            note_fill(request, &self.stream, drained);
        }
    }

    /// Bytes are left: further ones arrived later.
    pub(super) fn leaves_bytes(&mut self) {
        if self.arrivals.wants_mark() {
            // A socket that can't report this is treated as empty; the next poll finds out.
            let left = rustix::io::ioctl_fionread(&self.stream).unwrap_or(0);
            self.arrivals.left(left, now_ns());
        }
    }
}

/// Says how full the kernel's buffer was. Half of it is for bytes, the rest for the kernel itself.
fn note_fill(request: &SourceRequest, stream: &TcpStream, drained: usize) {
    if let Ok(bytes) = rustix::net::sockopt::socket_recv_buffer_size(stream) {
        request.tuning.note_fill(drained, bytes / 2);
    }
}
