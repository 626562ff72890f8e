//! Receiving: from the socket until the lane has moved, then from the ring.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::msghdr;

use crate::buffers::Buffers;
use crate::connection::User;
use crate::lane::Way;
use crate::real;
use crate::statistics::{RECEIVED, RECEIVES, TCP_RECEIVES};
use crate::stream::{Look, Stream};
use crate::wait::{Woken, wait_to_read};

/// What one attempt has given.
enum Step {
    /// So many bytes.
    Bytes(usize),
    /// The result of the kernel, which is that of the call.
    Kernel(usize),
    End,
    Nothing,
}

/// What a call asks for.
#[derive(Clone, Copy)]
struct Wish {
    peeks: bool,
    /// MSG_TRUNC: bytes are thrown away.
    discards: bool,
    /// Flags for the kernel.
    flags: c_int,
}

/// `recv` of a connection in the table. Nothing if the kernel is to do it alone.
pub(crate) fn receive(
    fd: c_int,
    user: &User,
    buffers: Buffers,
    flags: c_int,
) -> Option<Result<usize, c_int>> {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return None;
    }
    let stream = Stream::of(fd, user);
    if stream.is_none() && user.enter_early() {
        let received = kernel(fd, buffers, flags, usize::MAX);
        if let Ok(bytes) = received
            && flags & libc::MSG_PEEK == 0
        {
            user.early_received
                .fetch_add(bytes as u64, Ordering::AcqRel);
        }
        user.leave_early();
        TCP_RECEIVES.add(1);
        return Some(received);
    }
    let stream = stream.or_else(|| Stream::known(fd, user))?;
    let received = stream.receive(buffers, flags);
    if let Ok(bytes) = received {
        RECEIVES.add(1);
        RECEIVED.add(bytes);
    }
    Some(received)
}

/// The kernel's `recvmsg`, of at most so many bytes.
fn kernel(fd: c_int, mut buffers: Buffers, flags: c_int, limit: usize) -> Result<usize, c_int> {
    let piece = buffers.piece();
    let (to, bytes) = piece.unwrap_or((std::ptr::null_mut(), 0));
    let left = buffers.left();
    // One buffer is the usual case; the first of several is enough where bytes are limited.
    if left == bytes || limit < left {
        return real::checked(real::recv(fd, to.cast(), bytes.min(limit), flags));
    }
    let vectors = buffers.vectors();
    // SAFETY: all zero bytes are an empty message.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len();
    real::checked(real::recvmsg(fd, &mut message, flags))
}

impl Stream<'_> {
    fn receive(&self, start: Buffers, flags: c_int) -> Result<usize, c_int> {
        let wish = Wish {
            peeks: flags & libc::MSG_PEEK != 0,
            discards: flags & libc::MSG_TRUNC != 0,
            flags,
        };
        let wanted = start.left();
        if wanted == 0 {
            return Ok(0);
        }
        let waits = flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let all = flags & libc::MSG_WAITALL != 0;
        let mut buffers = start;
        let (mut done, mut looks) = (0, !waits);
        loop {
            let step = match self.step(&mut buffers, wish, looks) {
                Ok(step) => step,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            looks = !waits;
            match step {
                Step::Kernel(bytes) => return Ok(done + bytes),
                Step::End => return Ok(done),
                Step::Bytes(bytes) => {
                    done += bytes;
                    if !all || done >= wanted || !waits {
                        return Ok(done);
                    }
                    // What was only looked at is there again, with what comes after it.
                    if wish.peeks {
                        let before = self.receives().tail();
                        (buffers, done) = (start, 0);
                        if self.receives().tail() == before && self.waits_for_more(bytes)? {
                            return Ok(bytes);
                        }
                    }
                }
                Step::Nothing if done > 0 && !all => return Ok(done),
                Step::Nothing if !waits => {
                    return if done > 0 {
                        Ok(done)
                    } else {
                        Err(libc::EAGAIN)
                    };
                }
                Step::Nothing => match wait_to_read(self) {
                    Ok(Woken::Look) => {}
                    Ok(Woken::LookAtSocket) => looks = true,
                    Err(_) if done > 0 => return Ok(done),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// For MSG_PEEK with MSG_WAITALL: waits until there is more than was seen; true if there will be no more.
    fn waits_for_more(&self, seen: usize) -> Result<bool, c_int> {
        let lane = self.receives();
        loop {
            if lane.filled(self.lane_bytes())? as usize > seen {
                return Ok(false);
            }
            if lane.has_ended() || self.hears_bells_only() && self.look_for_end() {
                return Ok(lane.filled(self.lane_bytes())? as usize <= seen);
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    fn look_for_end(&self) -> bool {
        matches!(self.look(), Look::End | Look::Error(_))
    }

    fn step(&self, buffers: &mut Buffers, wish: Wish, looks: bool) -> Result<Step, c_int> {
        let lane = self.receives();
        if !lane.is_ready() && !self.get_ready() && lane.enter_plain() {
            let received = kernel(self.fd, *buffers, wish.flags, usize::MAX);
            if let Ok(bytes) = received
                && !wish.peeks
            {
                lane.add_tcp_received(bytes);
            }
            lane.leave_plain();
            TCP_RECEIVES.add(1);
            return received.map(Step::Kernel);
        }
        match self.hears_bells_only() {
            true => self.take_from_ring(buffers, wish, looks),
            false => self.take_from_socket(buffers, wish),
        }
    }

    /// What came over the socket before the lane moves. It may move at any time: what comes after the last
    /// byte of data are bells.
    fn take_from_socket(&self, buffers: &mut Buffers, wish: Wish) -> Result<Step, c_int> {
        let lane = self.receives();
        let held = lane.reading.0.lock()?;
        let limit = match lane.way() {
            Way::Ring => lane.tcp_left() as usize,
            Way::Tcp | Way::TcpForever => usize::MAX,
        };
        if limit == 0 {
            drop(held);
            return self.take_from_ring(buffers, wish, false);
        }
        if let Some(error) = self.kept_error() {
            return Err(error);
        }
        let flags = wish.flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        let bytes = match kernel(self.fd, *buffers, flags, limit) {
            Ok(0) if self.hears_bells_only() => return Ok(Step::Nothing),
            Ok(0) => return Ok(Step::End),
            Ok(bytes) => bytes,
            Err(libc::EAGAIN) => return Ok(Step::Nothing),
            Err(error) => return Err(error),
        };
        TCP_RECEIVES.add(1);
        let received = match wish.peeks {
            true => lane.tcp_received() + bytes as u64,
            false => lane.add_tcp_received(bytes),
        };
        let bells = lane.bells_of(received).min(bytes as u64);
        if !wish.peeks {
            lane.were_bells(bells);
        }
        let data = bytes - bells as usize;
        if !wish.peeks {
            let mut left = data;
            while left > 0
                && let Some((_, room)) = buffers.piece()
            {
                buffers.advance(room.min(left));
                left -= room.min(left);
            }
        }
        drop(held);
        if data == 0 {
            self.take_from_ring(buffers, wish, false)
        } else {
            Ok(Step::Bytes(data))
        }
    }

    fn take_from_ring(
        &self,
        buffers: &mut Buffers,
        wish: Wish,
        looks: bool,
    ) -> Result<Step, c_int> {
        let lane = self.receives();
        let mut looked = !looks;
        loop {
            let held = lane.reading.0.lock()?;
            let mut wanted = buffers.left();
            // One call does not read over the urgent mark.
            if let Some(before @ 1..) = lane.before_mark() {
                wanted = wanted.min(before as usize);
            }
            let copy = |from: *const u8, bytes: usize| {
                if !wish.discards {
                    buffers.copy_in(from, bytes);
                }
            };
            let bytes = lane.drain(
                self.receive_ring(),
                self.lane_bytes(),
                wanted,
                wish.peeks,
                copy,
            )?;
            drop(held);
            if bytes > 0 {
                self.wake_writer();
                return Ok(Step::Bytes(bytes));
            }
            if lane.has_ended() || self.side().ends_reading.load(Ordering::Relaxed) != 0 {
                match lane.head() == lane.tail() {
                    true => return Ok(Step::End),
                    false => continue,
                }
            }
            if let Some(error) = self.kept_error() {
                return Err(error);
            }
            if looked {
                return Ok(Step::Nothing);
            }
            // The bells are taken before the second look at the ring, so nothing that they announce is
            // missed.
            match self.look() {
                Look::Bells => continue,
                Look::Nothing => looked = true,
                Look::End | Look::Error(libc::ECONNRESET | libc::EPIPE) => {
                    if lane.head() == lane.tail() {
                        return self.after_the_end().map(|()| Step::End);
                    }
                }
                Look::Error(error) => {
                    if lane.head() == lane.tail() {
                        return Err(error);
                    }
                    self.keep_error(error);
                }
            }
        }
    }
}
