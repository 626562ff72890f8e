//! Sending: over the socket until the lane moves, then into the ring.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{msghdr, off_t};

use crate::buffers::Buffers;
use crate::connection::User;
use crate::lane::Way;
use crate::real;
use crate::statistics::{SENDS, SENT, TCP_SENDS};
use crate::stream::Stream;
use crate::wait::{timeout_ns, wait_to_write};

/// After so many sends that nobody has read, the socket is asked whether the reader still lives.
const UNREAD_SENDS_MAX: u32 = 16;
/// A file is read into the ring in pieces of this size, so that its reader begins early.
const FILE_PIECE: usize = 64 * 1024;

/// Where the bytes come from.
pub(crate) enum Source {
    Buffers(Buffers),
    /// A file from an offset on, or from its own position.
    File {
        fd: c_int,
        offset: Option<off_t>,
    },
}

impl Source {
    /// Copies up to so many bytes to an address; 0 at the end of a file.
    fn copy(&mut self, to: *mut u8, bytes: usize) -> Result<usize, c_int> {
        match self {
            Source::Buffers(buffers) => Ok(buffers.copy_out(to, bytes)),
            Source::File { fd, offset } => {
                let bytes = bytes.min(FILE_PIECE);
                let read = match offset {
                    // SAFETY: the ring has so many bytes at the address.
                    Some(offset) => unsafe { libc::pread(*fd, to.cast(), bytes, *offset) },
                    None => real::read(*fd, to.cast(), bytes),
                };
                let read = real::checked(read)?;
                if let Some(offset) = offset {
                    *offset += read as off_t;
                }
                Ok(read)
            }
        }
    }

    /// Takes so many bytes, which go nowhere.
    fn lose(&mut self, bytes: usize) -> Result<usize, c_int> {
        if let Source::Buffers(_) = self {
            return Ok(bytes);
        }
        let (mut lost, mut nowhere) = (0, [0_u8; 4096]);
        while lost < bytes {
            match self.copy(nowhere.as_mut_ptr(), nowhere.len().min(bytes - lost)) {
                Ok(0) => break,
                Ok(read) => lost += read,
                Err(_) if lost > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(lost)
    }

    fn kernel(&mut self, fd: c_int, bytes: usize, flags: c_int) -> Result<usize, c_int> {
        match self {
            Source::Buffers(buffers) => {
                let vectors = buffers.vectors();
                // SAFETY: all zero bytes are an empty message.
                let mut message: msghdr = unsafe { std::mem::zeroed() };
                message.msg_iov = vectors.as_ptr().cast_mut();
                message.msg_iovlen = vectors.len();
                real::checked(real::sendmsg(fd, &message, flags))
            }
            Source::File { fd: from, offset } => {
                let place = offset
                    .as_mut()
                    .map_or(std::ptr::null_mut(), |offset| offset as *mut off_t);
                real::checked(real::sendfile(fd, *from, place, bytes))
            }
        }
    }
}

/// `send` of a connection in the table. Nothing if the kernel is to do it alone.
pub(crate) fn send(
    fd: c_int,
    user: &User,
    source: &mut Source,
    bytes: usize,
    flags: c_int,
) -> Option<Result<usize, c_int>> {
    let stream = Stream::of(fd, user);
    if stream.is_none() && user.enter_early() {
        let sent = source.kernel(fd, bytes, flags);
        if let Ok(bytes) = sent {
            user.early_sent.fetch_add(bytes as u64, Ordering::AcqRel);
        }
        user.leave_early();
        TCP_SENDS.add(1);
        return Some(sent);
    }
    let stream = stream.or_else(|| Stream::known(fd, user))?;
    let sent = match flags & libc::MSG_OOB {
        0 => stream.send(source, bytes, flags),
        _ => stream.send_urgent(source, bytes, flags),
    };
    if sent == Err(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: the signal that the kernel sends for this error.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    Some(sent)
}

impl Stream<'_> {
    fn send(&self, source: &mut Source, bytes: usize, flags: c_int) -> Result<usize, c_int> {
        let lane = self.sends();
        while lane.way() != Way::Ring && !self.moves() {
            if lane.enter_tcp() {
                let sent = source.kernel(self.fd, bytes, flags | libc::MSG_NOSIGNAL);
                lane.leave_tcp(sent.unwrap_or(0));
                TCP_SENDS.add(1);
                return sent;
            }
            // Another thread is just moving the lane.
            std::thread::yield_now();
        }
        let waits = flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        self.send_to_ring(source, bytes, waits)
    }

    fn send_to_ring(&self, source: &mut Source, bytes: usize, waits: bool) -> Result<usize, c_int> {
        let lane = self.sends();
        let (mut done, mut start) = (0, None);
        loop {
            if lane.has_ended() {
                return if done > 0 { Ok(done) } else { Err(libc::EPIPE) };
            }
            if self.should_look()
                && let Some(error) = self.peer_gone()
            {
                return match done {
                    0 if self.is_first_after_close() => source.lose(bytes),
                    0 => Err(error),
                    _ => Ok(done),
                };
            }
            let held = lane.writing.0.lock()?;
            let mut at_end = false;
            let copy = |to: *mut u8, bytes: usize| {
                let copied = source.copy(to, bytes);
                at_end = copied == Ok(0);
                copied
            };
            let filled = lane.fill(self.send_ring(), self.lane_bytes(), bytes - done, copy);
            drop(held);
            let filled = match filled {
                Ok(filled) => filled,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            if filled > 0 {
                SENDS.add(1);
                SENT.add(filled);
                done += filled;
                self.wake_reader();
            }
            if done >= bytes || at_end {
                return Ok(done);
            }
            if filled > 0 {
                continue;
            }
            if !waits {
                self.connection.refusals.fetch_add(1, Ordering::AcqRel);
                return match done {
                    0 => self.peer_gone().map_or(Err(libc::EAGAIN), Err),
                    _ => Ok(done),
                };
            }
            let begin = *start.get_or_insert_with(real::now_ns);
            let left = timeout_ns(self.fd, libc::SO_SNDTIMEO)
                .map(|ns| ns.saturating_sub(real::now_ns() - begin));
            if left == Some(0) {
                return if done > 0 {
                    Ok(done)
                } else {
                    Err(libc::EAGAIN)
                };
            }
            if let Err(error) = wait_to_write(self, left) {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            if let Some(error) = self.peer_gone() {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
        }
    }

    /// Whether it is time to ask the kernel for the peer.
    fn should_look(&self) -> bool {
        let (head, connection) = (self.sends().head(), self.connection);
        if connection.head_seen.swap(head, Ordering::Relaxed) != head {
            connection.unread_sends.store(0, Ordering::Relaxed);
        }
        let unread = connection.unread_sends.fetch_add(1, Ordering::Relaxed) + 1;
        let has_lost = self.side().lost.load(Ordering::Relaxed) != 0;
        self.peer_departed() || has_lost || unread.is_multiple_of(UNREAD_SENDS_MAX)
    }

    /// Whether this is the first send to a peer that has closed the connection: TCP takes it, since only its
    /// answer says that nobody is there.
    fn is_first_after_close(&self) -> bool {
        !self.was_reset() && self.side().lost.swap(1, Ordering::AcqRel) == 0
    }

    /// The error of a send to a peer that has closed the connection or died.
    fn peer_gone(&self) -> Option<c_int> {
        if let Some(error) = self.kept_error() {
            return Some(error);
        }
        let events = libc::POLLRDHUP;
        let mut fd = libc::pollfd {
            fd: self.fd,
            events,
            revents: 0,
        };
        real::poll(&mut fd, 1, 0);
        if fd.revents & libc::POLLRDHUP != 0 && fd.revents & (libc::POLLHUP | libc::POLLERR) == 0 {
            // It sends no more. If it does not receive either, its kernel says so to the next byte.
            self.ring_bell();
            fd.revents = 0;
            real::poll(&mut fd, 1, 0);
        }
        if fd.revents & (libc::POLLHUP | libc::POLLERR) == 0 {
            return None;
        }
        let error =
            real::option(self.fd, libc::SOL_SOCKET, libc::SO_ERROR).filter(|error| *error != 0);
        match error {
            None | Some(libc::ECONNRESET | libc::EPIPE) if self.hears_bells_only() => {
                Some(self.after_the_end().err().unwrap_or(libc::EPIPE))
            }
            None => Some(libc::EPIPE),
            error => error,
        }
    }

    /// Sends with MSG_OOB: the last byte is urgent, and goes over the socket, whose kernel tells the peer.
    fn send_urgent(&self, source: &mut Source, bytes: usize, flags: c_int) -> Result<usize, c_int> {
        let lane = self.sends();
        let Source::Buffers(buffers) = source else {
            return Err(libc::EINVAL);
        };
        if lane.way() != Way::Ring {
            // Urgent bytes are in no count, so this lane can't move any more.
            lane.stay_tcp();
        }
        if lane.way() != Way::Ring || bytes == 0 {
            return source.kernel(self.fd, bytes, flags | libc::MSG_NOSIGNAL);
        }
        let inline = self.peer().urgent_inline.load(Ordering::Relaxed) != 0;
        let waits = flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let mut urgent = *buffers;
        if bytes > 1 {
            let sent = self.send_to_ring(source, bytes - 1, waits)?;
            if sent < bytes - 1 {
                return Ok(sent);
            }
            let mut skip = bytes - 1;
            while skip > 0
                && let Some((_, there)) = urgent.piece()
            {
                urgent.advance(there.min(skip));
                skip -= there.min(skip);
            }
        }
        let Some((byte, _)) = urgent.piece() else {
            return Ok(bytes - 1);
        };
        lane.mark();
        real::checked(real::send(
            self.fd,
            byte.cast_const().cast(),
            1,
            flags | libc::MSG_NOSIGNAL,
        ))?;
        if inline {
            let mut rest = Source::Buffers(urgent);
            self.send_to_ring(&mut rest, 1, waits)?;
        }
        Ok(bytes)
    }
}
