//! The peer of a tcp sink: writes what its socket accepts.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_engine::link::Watch;

use super::WAITING_BYTES_MAX;
use crate::sink::backlog::Backlog;

/// The socket of the peer that reads the rows.
pub(super) struct Peer {
    stream: TcpStream,
    pub(super) address: String,
    /// What the worker's waiter has reported of the socket, if the socket is registered there.
    watch: Option<Watch>,
    /// The last write did not take all bytes, and the kernel has not reported room since.
    is_full: bool,
    /// The peer may have closed its end.
    has_ended: bool,
}

impl Peer {
    /// A peer that has just connected.
    pub(super) fn new(stream: TcpStream, address: String, watch: Option<Watch>) -> Peer {
        Peer {
            stream,
            address,
            watch,
            is_full: false,
            has_ended: false,
        }
    }

    /// Asks the watch what the kernel has reported.
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
        self.is_full = false;
        self.has_ended |= ended;
    }

    /// Waits until the socket accepts more bytes.
    pub(super) fn wait_for_room(&mut self, time: &Timespec) -> rustix::io::Result<usize> {
        let ready = poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(time));
        self.is_full = false;
        ready
    }

    /// Writes as much as the socket accepts.
    pub(super) fn send(&mut self, backlog: &mut Backlog) -> std::io::Result<()> {
        if backlog.left() == 0 || self.is_full {
            return Ok(());
        }
        // A peer that has closed its end may still read, or be gone; the kernel finds out with the first
        // byte. If that byte were a whole row, the row would be lost.
        let mut is_half_closed = self.has_ended && self.stream.peek(&mut [0]).is_ok();
        while backlog.left() > 0 {
            let unsent = backlog.unsent();
            let length = match std::mem::take(&mut is_half_closed) {
                true => 1,
                false => unsent.len(),
            };
            match self.stream.write(&unsent[..length]) {
                Ok(bytes) => {
                    backlog.sent(bytes);
                    // The kernel reports room once there is some.
                    if bytes < length {
                        self.is_full = true;
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_full = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        backlog.forget_sent(WAITING_BYTES_MAX);
        Ok(())
    }
}
