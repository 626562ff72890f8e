//! How a blocking call waits: as the engine does, in stages.
//!
//! 1. It looks again and again (`--spin-us`).
//! 2. With `--wait sleep` it sleeps for a fixed time and looks, so that what comes meanwhile wakes nobody.
//! 3. It announces a sleep in a futex, looks once more, and sleeps for at most 5 ms. A wake costs the other
//!    side a short system call.
//! 4. It announces a sleep on the socket, looks once more, and waits in the kernel, without an end. A wake
//!    costs a byte over TCP; but the kernel knows when the peer dies, signals and time-outs are its
//!    business, and an idle connection costs nothing.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::timeval;

use crate::lane::{FUTEX, SOCKET, announce};
use crate::options::{Wait, options};
use crate::real;
use crate::statistics::SLEEPS;
use crate::stream::{Stream, futex_wait};

/// The longest sleep in a futex: after this time the death of the peer is seen.
const FUTEX_NS: u64 = 5_000_000;
/// Sleeps of `--wait sleep` before the wait announces itself: together as long, at least.
const SLEEPS_NS: u64 = 10_000_000;
/// A writer looks at the socket so often while it waits for room.
const ROOM_NS: u64 = 20_000_000;
/// Looks between two questions for the time.
const LOOKS: u32 = 64;
/// A wait that spins lets others run so often.
pub(crate) const YIELD_NS: u64 = 20_000;
/// The number of signals.
const SIGNALS: c_int = 64;

/// Why a wait has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There may be something.
    Look,
    /// The socket may know something: that the peer has gone.
    LookAtSocket,
}

/// Spins until there is something, or the time is over.
pub(crate) fn spin(ns: u64, mut found: impl FnMut() -> bool) -> bool {
    if ns == 0 {
        return false;
    }
    let start = real::now_ns();
    let (end, mut yields) = (start.saturating_add(ns), start + YIELD_NS);
    loop {
        for _ in 0..LOOKS {
            if found() {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = real::now_ns();
        if now >= end {
            return false;
        }
        // Whoever this side waits for may need this very core.
        if now >= yields {
            std::thread::yield_now();
            yields = real::now_ns() + YIELD_NS;
        }
    }
}

/// A time-out of the socket (SO_RCVTIMEO, SO_SNDTIMEO), in nanoseconds.
pub(crate) fn timeout_ns(fd: c_int, option: c_int) -> Option<u64> {
    let none = timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let time = real::option_of(fd, libc::SOL_SOCKET, option, none)?;
    let ns = (time.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_usec as u64 * 1000);
    (ns > 0).then_some(ns)
}

/// Whether a call that a signal has ended is to be continued: each handler that is installed asks for that.
fn restarts() -> bool {
    (1..=SIGNALS).all(|signal| {
        // SAFETY: all zero bytes are a valid action, which the kernel then writes.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the address is valid; a null pointer installs nothing.
        let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
        let none = result != 0
            || action.sa_sigaction == libc::SIG_DFL
            || action.sa_sigaction == libc::SIG_IGN;
        none || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// After a sleep that a signal may have ended.
fn after_signal(has_timeout: bool) -> Result<(), c_int> {
    if !has_timeout && restarts() {
        Ok(())
    } else {
        Err(libc::EINTR)
    }
}

fn sleep(ns: u64) -> c_int {
    SLEEPS.add(1);
    let time = real::timespec_of(ns);
    // SAFETY: the address is valid.
    match unsafe { libc::nanosleep(&time, std::ptr::null_mut()) } {
        0 => 0,
        _ => real::errno(),
    }
}

/// Waits until there may be something to read.
pub(crate) fn wait_to_read(stream: &Stream) -> Result<Woken, c_int> {
    let lane = stream.receives();
    if !stream.hears_bells_only() {
        return wait_for_tcp(stream);
    }
    let departed = Cell::new(false);
    let found = || {
        departed.set(stream.peer_departed());
        departed.get() || lane.head() != lane.tail() || lane.has_ended()
    };
    let woken = || {
        Ok(if departed.get() {
            Woken::LookAtSocket
        } else {
            Woken::Look
        })
    };
    if spin(options().spin_ns, found) {
        return woken();
    }
    let timeout = timeout_ns(stream.fd, libc::SO_RCVTIMEO);
    let start = real::now_ns();
    let left = || timeout.map_or(u64::MAX, |ns| ns.saturating_sub(real::now_ns() - start));
    if options().wait == Wait::Sleep {
        while real::now_ns() - start < SLEEPS_NS.max(options().sleep_ns) && left() > 0 {
            if sleep(options().sleep_ns.min(left())) == libc::EINTR {
                after_signal(timeout.is_some())?;
            }
            if found() {
                return woken();
            }
        }
    }
    let word = &lane.reader_sleeps.0;
    announce(word, FUTEX);
    let value = word.load(Ordering::Relaxed);
    if found() || value & FUTEX == 0 {
        return woken();
    }
    SLEEPS.add(1);
    match futex_wait(word, value, FUTEX_NS.min(left())) {
        libc::EINTR => after_signal(timeout.is_some())?,
        libc::ETIMEDOUT => {}
        _ => {
            found();
            return woken();
        }
    }
    announce(word, SOCKET);
    if found() {
        return woken();
    }
    SLEEPS.add(1);
    match timeout {
        None => listen(stream),
        Some(_) => listen_until(stream, left()),
    }
}

/// Waits in the kernel, which knows signals and the end of the peer.
fn listen(stream: &Stream) -> Result<Woken, c_int> {
    let mut bells = [0_u8; 64];
    match real::recv(stream.fd, bells.as_mut_ptr().cast(), bells.len(), 0) {
        0 => Ok(Woken::LookAtSocket),
        -1 => failed(stream),
        _ => Ok(Woken::Look),
    }
}

fn listen_until(stream: &Stream, ns: u64) -> Result<Woken, c_int> {
    let mut fd = libc::pollfd {
        fd: stream.fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let time = real::timespec_of(ns);
    match real::ppoll(&mut fd, 1, &time, std::ptr::null()) {
        0 => Err(libc::EAGAIN),
        -1 => Err(real::errno()),
        _ => Ok(Woken::LookAtSocket),
    }
}

/// Waits while bytes still come over the socket, or the other side has not moved.
fn wait_for_tcp(stream: &Stream) -> Result<Woken, c_int> {
    announce(&stream.receives().reader_sleeps.0, SOCKET);
    if stream.hears_bells_only() {
        return Ok(Woken::Look);
    }
    let mut byte = 0_u8;
    let to: *mut u8 = &mut byte;
    match real::recv(stream.fd, to.cast(), 1, libc::MSG_PEEK) {
        -1 => failed(stream),
        _ => Ok(Woken::LookAtSocket),
    }
}

/// A look at the socket has failed. A reset is seen again, or decided by what was read: `was_reset`.
fn failed(stream: &Stream) -> Result<Woken, c_int> {
    match real::errno() {
        error @ (libc::EINTR | libc::EAGAIN | libc::EBADF) => Err(error),
        libc::ECONNRESET | libc::EPIPE if stream.hears_bells_only() => Ok(Woken::LookAtSocket),
        error => {
            stream.keep_error(error);
            Ok(Woken::LookAtSocket)
        }
    }
}

/// Waits until there is room in the ring, for at most `left` nanoseconds.
pub(crate) fn wait_to_write(stream: &Stream, left: Option<u64>) -> Result<Woken, c_int> {
    let lane = stream.sends();
    let found = || stream.peer_departed() || lane.has_room(stream.lane_bytes());
    if spin(options().spin_ns.min(left.unwrap_or(u64::MAX)), found) {
        return Ok(Woken::LookAtSocket);
    }
    let word = &lane.writer_sleeps.0;
    announce(word, FUTEX);
    let value = word.load(Ordering::Relaxed);
    if found() || value & FUTEX == 0 {
        return Ok(Woken::LookAtSocket);
    }
    SLEEPS.add(1);
    match futex_wait(word, value, ROOM_NS.min(left.unwrap_or(u64::MAX))) {
        libc::EINTR => after_signal(left.is_some())?,
        libc::ETIMEDOUT => return Ok(Woken::LookAtSocket),
        _ => {}
    }
    Ok(Woken::Look)
}
