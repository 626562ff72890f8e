//! A connection in shared memory, as one call sees it: its lanes, how to wake the other side, and whether
//! counts agree with the kernel's.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::connection::User;
use crate::lane::{FUTEX, Lane, SOCKET, Way, announce, sleepers};
use crate::real;
use crate::rendezvous;
use crate::segment::{ATTACHED, CLOSED, Header, REFUSED, RESET, Segment, Side};
use crate::statistics::{BELLS, FUTEXES, MOVED};

/// Where the kernel's `struct tcp_info` has the state, and the bytes that were acknowledged and received.
const STATE: usize = 0;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const INFO_BYTES: usize = 256;
/// The state in which bytes come and go, and no FIN was counted as a byte.
const ESTABLISHED: u8 = 1;
/// Attempts to read two counters of the kernel between which nothing happens.
const READINGS: u32 = 3;
/// Bells that one look takes from the socket.
const BELLS_MAX: usize = 64;

/// A connection whose segment is there.
pub(crate) struct Stream<'a> {
    pub(crate) fd: c_int,
    pub(crate) connection: &'a User,
    pub(crate) segment: Segment,
    role: usize,
}

/// What a look at the socket has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing, and the other side is there.
    Nothing,
    /// Bells, which are gone now.
    Bells,
    /// The other side has closed the connection.
    End,
    Error(c_int),
}

impl<'a> Stream<'a> {
    /// The shared memory of a connection, if it has some; an acceptor looks for it here.
    pub(crate) fn of(fd: c_int, connection: &'a User) -> Option<Self> {
        if connection.segment().is_none() {
            rendezvous::look(fd, connection);
        }
        Self::known(fd, connection)
    }

    /// The same without looking for it.
    pub(crate) fn known(fd: c_int, connection: &'a User) -> Option<Self> {
        let segment = connection.segment()?;
        Some(Self {
            fd,
            connection,
            segment,
            role: connection.role(),
        })
    }

    fn header(&self) -> &Header {
        self.segment.header()
    }

    pub(crate) fn sends(&self) -> &Lane {
        &self.header().lanes[self.role]
    }

    pub(crate) fn receives(&self) -> &Lane {
        &self.header().lanes[1 - self.role]
    }

    pub(crate) fn send_ring(&self) -> *mut u8 {
        self.segment.ring(self.role)
    }

    pub(crate) fn receive_ring(&self) -> *mut u8 {
        self.segment.ring(1 - self.role)
    }

    pub(crate) fn lane_bytes(&self) -> u64 {
        self.segment.lane_bytes()
    }

    pub(crate) fn side(&self) -> &Side {
        &self.header().sides[self.role]
    }

    pub(crate) fn peer(&self) -> &Side {
        &self.header().sides[1 - self.role]
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.side().nonblocking.load(Ordering::Relaxed) != 0
    }

    /// Whether one of the lanes may have moved, so that the kernel alone doesn't know what is ready.
    pub(crate) fn is_shared(&self) -> bool {
        self.receives().is_ready() || self.sends().way() == Way::Ring
    }

    /// Whether the socket carries nothing but bells in the direction of this side.
    pub(crate) fn hears_bells_only(&self) -> bool {
        self.receives().way() == Way::Ring && self.receives().tcp_left() == 0
    }

    /// Makes this side read the ring, as soon as the other side writes there.
    pub(crate) fn get_ready(&self) -> bool {
        let lane = self.receives();
        if lane.is_ready() {
            return true;
        }
        let state = self.header().state.load(Ordering::Acquire);
        if state != ATTACHED || self.connection.stays_tcp.load(Ordering::Relaxed) {
            if state == REFUSED && !self.connection.stays_tcp.swap(true, Ordering::Relaxed) {
                rendezvous::verbose(
                    self.fd,
                    "stays TCP: the other side could not reserve memory",
                );
            }
            return false;
        }
        if !self.received_agrees() || !lane.make_ready() {
            return false;
        }
        if self.role == 0 {
            MOVED.add(1);
            rendezvous::verbose(self.fd, "moves to shared memory");
        }
        // Another thread may wait in the kernel, which has announced nothing.
        announce(&lane.reader_sleeps.0, SOCKET);
        true
    }

    /// Whether the kernel has received what was counted and what is still there. If not, somebody reads
    /// around this library, and the lane stays TCP.
    fn received_agrees(&self) -> bool {
        for _ in 0..READINGS {
            let Some(before) = Info::of(self.fd) else {
                return false;
            };
            if !before.is_open() {
                return false;
            }
            let waiting = real::ioctl_number(self.fd, libc::FIONREAD).unwrap_or(0) as u64;
            let counted = self.receives().tcp_received();
            let Some(after) = Info::of(self.fd) else {
                return false;
            };
            if before.received != after.received {
                continue;
            }
            let agrees = before.received == counted + waiting;
            if !agrees {
                self.connection.stays_tcp.store(true, Ordering::Relaxed);
                rendezvous::verbose(self.fd, "stays TCP: bytes were read by other means");
            }
            return agrees;
        }
        false
    }

    /// Moves the lane that this side writes to the ring, if the other side reads there.
    pub(crate) fn moves(&self) -> bool {
        let lane = self.sends();
        if !self.get_ready() || !lane.is_ready() {
            return false;
        }
        let moved = lane.move_to_ring(|counted| {
            for _ in 0..READINGS {
                let queued = || real::ioctl_number(self.fd, libc::TIOCOUTQ).unwrap_or(-1);
                let (before, info, after) = (queued(), Info::of(self.fd), queued());
                if before != after || before < 0 {
                    continue;
                }
                let sent = info.map_or(u64::MAX, |info| info.acked.saturating_add(before as u64));
                // The kernel counts the connector's SYN as a byte.
                let agrees = sent == counted || sent == counted + 1;
                if !agrees {
                    rendezvous::verbose(self.fd, "stays TCP: bytes were written by other means");
                }
                return agrees;
            }
            // Acknowledgements are on their way: whoever wrote them wrote them through this library.
            true
        });
        if moved {
            self.hurry_bells();
        }
        moved
    }

    /// A bell must not wait for the acknowledgement of the bell before it.
    fn hurry_bells(&self) {
        for (name, kept, value) in [
            (libc::TCP_CORK, &self.side().cork, 0),
            (libc::TCP_NODELAY, &self.side().nodelay, 1),
        ] {
            let set = real::option(self.fd, libc::IPPROTO_TCP, name).unwrap_or(0);
            kept.store(set as u32, Ordering::Relaxed);
            if set != value {
                let (value, bytes): (*const c_int, _) = (&value, size_of::<c_int>() as u32);
                real::setsockopt(self.fd, libc::IPPROTO_TCP, name, value.cast(), bytes);
            }
        }
    }

    /// Where the program's value of an option is kept whose value on the socket is this library's.
    pub(crate) fn kept_option(&self, level: c_int, name: c_int) -> Option<&AtomicU32> {
        match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(&self.side().nodelay),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => Some(&self.side().cork),
            _ => None,
        }
        .filter(|_| self.sends().way() == Way::Ring)
    }

    /// Wakes the reader of what this side has written, if it sleeps.
    pub(crate) fn wake_reader(&self) {
        let word = &self.sends().reader_sleeps.0;
        self.wake(word, sleepers(word));
    }

    /// Wakes the writer that waits for room, if there is so much.
    pub(crate) fn wake_writer(&self) {
        let lane = self.receives();
        let word = &lane.writer_sleeps.0;
        std::sync::atomic::fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) != 0 && lane.has_room(self.lane_bytes()) {
            self.wake(word, sleepers(word));
        }
    }

    fn wake(&self, word: &AtomicU32, how: u32) {
        if how & FUTEX != 0 {
            FUTEXES.add(1);
            futex_wake(word);
        }
        if how & SOCKET != 0 {
            self.ring_bell();
        }
    }

    /// Sends a byte over the socket, if nothing else is sent there: a side that never sends moves its lane
    /// for that. A full socket has bells enough.
    pub(crate) fn ring_bell(&self) {
        if self.sends().way() == Way::Ring || self.moves() {
            BELLS.add(1);
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            real::send(self.fd, b"!".as_ptr().cast(), 1, flags);
        }
    }

    /// Tells the other side to look at the socket: this side has closed a descriptor.
    pub(crate) fn depart(&self) {
        self.side().departures.fetch_add(1, Ordering::AcqRel);
        for word in [
            &self.sends().reader_sleeps.0,
            &self.receives().writer_sleeps.0,
        ] {
            if sleepers(word) & FUTEX != 0 {
                futex_wake(word);
            }
        }
    }

    /// Whether a process of the other side has closed its end since the last time; the caller looks at the
    /// socket.
    pub(crate) fn peer_departed(&self) -> bool {
        let departures = self.peer().departures.load(Ordering::Acquire);
        departures != self.connection.departures_seen.load(Ordering::Relaxed)
            && self
                .connection
                .departures_seen
                .swap(departures, Ordering::Relaxed)
                != departures
    }

    /// Takes the bells from the socket, and says whether the other side is there. Only while bells are all
    /// that comes: see `hears_bells_only`.
    pub(crate) fn look(&self) -> Look {
        let mut bells = [0_u8; BELLS_MAX];
        match real::recv(
            self.fd,
            bells.as_mut_ptr().cast(),
            BELLS_MAX,
            libc::MSG_DONTWAIT,
        ) {
            0 => Look::End,
            -1 => match real::errno() {
                libc::EAGAIN | libc::EINTR => Look::Nothing,
                error => Look::Error(error),
            },
            _ => Look::Bells,
        }
    }

    /// Whether the peer, which has gone, has left bytes unread: TCP answers that with a reset. The kernel's
    /// word does not count, since it takes bells for bytes.
    pub(crate) fn was_reset(&self) -> bool {
        match self.peer().closed.load(Ordering::Acquire) {
            CLOSED => false,
            RESET => true,
            // Its process was killed.
            _ => self.sends().way() == Way::Ring && self.sends().head() != self.sends().tail(),
        }
    }

    /// The result of a receive after the peer has gone: an error once, then the end.
    pub(crate) fn after_the_end(&self) -> Result<(), c_int> {
        if self.was_reset() && self.side().told.swap(1, Ordering::AcqRel) == 0 {
            return Err(libc::ECONNRESET);
        }
        Ok(())
    }

    /// The last descriptor of this end is being closed.
    pub(crate) fn close(&self) {
        if self.hears_bells_only() {
            let unread = self.receives().head() != self.receives().tail();
            let aborts = self.side().aborts.load(Ordering::Relaxed) != 0;
            let how = if unread || aborts { RESET } else { CLOSED };
            self.side().closed.store(how, Ordering::Release);
            self.take_bells();
        }
    }

    /// Takes all bells from the socket, whose kernel would otherwise reset the connection at its end.
    pub(crate) fn take_bells(&self) {
        while self.hears_bells_only() && self.look() == Look::Bells {}
    }

    /// Keeps an error that the kernel tells only once, for the program.
    pub(crate) fn keep_error(&self, error: c_int) {
        self.side().error.store(error, Ordering::Release);
    }

    pub(crate) fn kept_error(&self) -> Option<c_int> {
        let kept = &self.side().error;
        if kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(kept.swap(0, Ordering::AcqRel)).filter(|error| *error != 0)
    }

    /// Whether this connection should do its I/O over TCP for good; false if it has moved already.
    pub(crate) fn stay_tcp(&self) -> bool {
        self.connection.stays_tcp.store(true, Ordering::Relaxed);
        self.sends().stay_tcp() && !self.receives().is_ready()
    }
}

/// What the kernel says of a connection.
struct Info {
    state: u8,
    acked: u64,
    received: u64,
}

impl Info {
    fn of(fd: c_int) -> Option<Self> {
        let info: [u8; INFO_BYTES] =
            real::option_of(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0; INFO_BYTES])?;
        let number = |at: usize| {
            let bytes = info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Some(Self {
            state: info[STATE],
            acked: number(BYTES_ACKED),
            received: number(BYTES_RECEIVED),
        })
    }

    fn is_open(&self) -> bool {
        self.state == ESTABLISHED
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the address is that of a word in the segment.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

/// Sleeps until the word is no longer `value`, a wake, a signal or the end of the time. The error of the
/// kernel.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, ns: u64) -> c_int {
    let time = real::timespec_of(ns);
    let time: *const libc::timespec = &time;
    // SAFETY: the addresses are valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            time,
        )
    };
    if result == 0 { 0 } else { real::errno() }
}
