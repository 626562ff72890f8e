//! Dilation: a preloaded library that makes each instruction of an unmodified program cost more.
//!
//! ```text
//! LD_PRELOAD=libslackwater_dilate.so SLACKWATER_DILATE=2.2 redis-server …
//!
//!   work ──► read() ─────────────────────────────► work ──► …
//!            │ spin (s − 1) × work since last call
//!            │ the call itself
//!            └ spin (s − 1) × the call's CPU time
//! ```
//!
//! A CPU quota is no slow core: a server at 14 % of a core under a quota of 45 % runs at full speed, and is
//! then stopped for milliseconds. Here the program is slow in the grain of its system calls, which is
//! microseconds for a server.
//!
//! The library replaces the calls of the C library with which a server reads, writes and waits. Only the time
//! counts in which the thread had a core. The clock of that costs a system call, most of what a short call
//! costs; so it is read only after longer intervals, and short ones are measured by the processor's counter.
//! What is spun too much or too little is settled at the next call. The slow-down that results is measured by
//! whoever loads this library: it differs from the wanted one where a program computes without system calls,
//! or enters the kernel otherwise.
//!
//! Without `SLACKWATER_DILATE`, or with 1 or less, calls are only passed on. `SLACKWATER_DILATE_THREADS`
//! names the threads that are slow, as if only these were on a slow core; without it all are.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use libc::{epoll_event, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

/// The environment variable with the slow-down.
const VARIABLE: &CStr = c"SLACKWATER_DILATE";

/// The environment variable with the names of the slow threads, and commas between them.
const THREADS: &CStr = c"SLACKWATER_DILATE_THREADS";

/// The bytes of a thread's name, with the zero behind it.
const NAME_BYTES: usize = 16;

/// The largest slow-down: beyond it, time-outs of the program would be measured.
const FACTOR_MAX: f64 = 100.0;

/// What a thread may owe at most, in nanoseconds: a long computation is not followed by a longer standstill.
const OWED_NS_MAX: f64 = 50e6;

/// Up to this many nanoseconds between two calls, the thread is taken to have had its core all the time: the
/// scheduler gives a core to another thread for longer.
const SHORT_NS: u64 = 50_000;

/// For how long the processor's counter is compared with a clock, once: a tick is known to a thousandth.
const CALIBRATION_NS: u64 = 2_000_000;

/// What is known about the process.
struct Dilation {
    /// The slow-down less 1: seconds of spinning for a second of work.
    extra: f64,
    /// The length of a tick of the processor's counter.
    ns_per_tick: f64,
}

static DILATION: OnceLock<Option<Dilation>> = OnceLock::new();

thread_local! {
    /// When the last call or spin ended.
    static LAST_NS: Cell<u64> = const { Cell::new(0) };
    /// The thread's CPU time when it was last read,
    static CPU_NS: Cell<u64> = const { Cell::new(0) };
    /// and what of it is known since then.
    static KNOWN_NS: Cell<u64> = const { Cell::new(0) };
    /// Spinning that is due, in nanoseconds; below zero if too much was spun.
    static OWED_NS: Cell<f64> = const { Cell::new(0.0) };
    /// Whether the thread is one of the slow ones, once that is known.
    static IS_SLOW: Cell<Option<bool>> = const { Cell::new(None) };
}

impl Dilation {
    fn of_environment() -> Option<Dilation> {
        // Without allocating: the program's allocator may be what makes the first call.
        // SAFETY: the name ends with a zero. The program reads its environment at this time, if at all.
        let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: a value of the environment ends with a zero.
        let value = unsafe { CStr::from_ptr(value) };
        let factor = value.to_str().ok()?.parse::<f64>().ok()?;
        if factor <= 1.0 || factor > FACTOR_MAX || factor.is_nan() {
            return None;
        }
        let begin = (read_ns(libc::CLOCK_MONOTONIC), ticks());
        while read_ns(libc::CLOCK_MONOTONIC) < begin.0 + CALIBRATION_NS {}
        let passed_ns = read_ns(libc::CLOCK_MONOTONIC) - begin.0;
        let passed = ticks() - begin.1;
        Some(Dilation {
            extra: factor - 1.0,
            ns_per_tick: passed_ns as f64 / passed.max(1) as f64,
        })
    }

    /// The time of the processor's counter, which is the cheapest to read.
    fn now_ns(&self) -> u64 {
        (ticks() as f64 * self.ns_per_tick) as u64
    }

    /// Spins for the work since the last call, or of the call.
    fn settle(&self) {
        let mut now_ns = self.now_ns();
        let passed_ns = now_ns.saturating_sub(LAST_NS.get());
        let work_ns = match passed_ns <= SHORT_NS {
            true => {
                KNOWN_NS.set(KNOWN_NS.get() + passed_ns);
                passed_ns
            }
            false => {
                let work_ns = unknown_ns();
                now_ns = self.now_ns();
                work_ns
            }
        };
        let owed_ns = (OWED_NS.get() + self.extra * work_ns as f64).min(OWED_NS_MAX);
        let mut last_ns = now_ns;
        while ((last_ns - now_ns) as f64) < owed_ns {
            last_ns = self.now_ns();
        }
        let mut spun_ns = last_ns - now_ns;
        if spun_ns as f64 > owed_ns + SHORT_NS as f64 {
            // The thread was interrupted: the rest is spun at the next call.
            spun_ns = unknown_ns();
            last_ns = self.now_ns();
        } else {
            KNOWN_NS.set(KNOWN_NS.get() + spun_ns);
        }
        OWED_NS.set(owed_ns - spun_ns as f64);
        LAST_NS.set(last_ns);
    }
}

/// The thread's CPU time since this was last asked, less what is known of it.
fn unknown_ns() -> u64 {
    let now_ns = read_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let used_ns = now_ns - CPU_NS.replace(now_ns);
    used_ns.saturating_sub(KNOWN_NS.replace(0))
}

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: each processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The clock in the place of a counter.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a `timespec` of this function. The call fails only for an unknown clock.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether this thread is one of the slow ones. It has its name before it makes its first call.
fn is_slow() -> bool {
    if let Some(known) = IS_SLOW.get() {
        return known;
    }
    let mut name = [0u8; NAME_BYTES];
    // SAFETY: the kernel writes at most that many bytes, with a zero at the end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    // SAFETY: the name ends with a zero, and the program reads its environment at this time, if at all.
    let names = unsafe { libc::getenv(THREADS.as_ptr()) };
    let is_slow = match names.is_null() {
        true => true,
        // SAFETY: a value of the environment ends with a zero.
        false => is_named(&name, unsafe { CStr::from_ptr(names) }.to_bytes()),
    };
    IS_SLOW.set(Some(is_slow));
    is_slow
}

/// Whether a name, with zeros behind it, is one of those with commas between them.
fn is_named(name: &[u8; NAME_BYTES], names: &[u8]) -> bool {
    let end = name.iter().position(|byte| *byte == 0);
    let name = &name[..end.unwrap_or(NAME_BYTES)];
    names.split(|byte| *byte == b',').any(|one| one == name)
}

/// Makes a call between two spins. `errno` is the call's.
fn dilated(call: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(dilation) = DILATION.get_or_init(Dilation::of_environment) else {
        return call();
    };
    if !is_slow() {
        return call();
    }
    dilation.settle();
    let result = call();
    // SAFETY: the C library returns a valid pointer to this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    dilation.settle();
    // SAFETY: as above. Reading a clock may have changed it.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// Defines functions that replace those of the C library by the system call of the same number.
macro_rules! replace {
    ($($name:ident($($argument:ident: $kind:ty),*) = $number:ident;)*) => {$(
        /// The system call, dilated.
        ///
        /// # Safety
        ///
        /// As of the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> ssize_t {
            // SAFETY: the arguments are the caller's, as the system call expects them.
            dilated(|| unsafe { libc::syscall(libc::$number, $($argument),*) as ssize_t })
        }
    )*};
}

replace! {
    read(file: c_int, bytes: *mut c_void, length: size_t) = SYS_read;
    write(file: c_int, bytes: *const c_void, length: size_t) = SYS_write;
    readv(file: c_int, parts: *const iovec, count: c_int) = SYS_readv;
    writev(file: c_int, parts: *const iovec, count: c_int) = SYS_writev;
    sendto(
        socket: c_int, bytes: *const c_void, length: size_t, flags: c_int,
        address: *const sockaddr, address_length: socklen_t
    ) = SYS_sendto;
    recvfrom(
        socket: c_int, bytes: *mut c_void, length: size_t, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t
    ) = SYS_recvfrom;
    sendmsg(socket: c_int, message: *const msghdr, flags: c_int) = SYS_sendmsg;
    recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) = SYS_recvmsg;
}

/// `sendto` without an address.
///
/// # Safety
///
/// As of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    socket: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as of `send`; without an address its length is not read.
    unsafe { sendto(socket, bytes, length, flags, std::ptr::null(), 0) }
}

/// `recvfrom` without an address.
///
/// # Safety
///
/// As of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    socket: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    let none = std::ptr::null_mut();
    // SAFETY: as of `recv`; without an address its length is not written.
    unsafe { recvfrom(socket, bytes, length, flags, none, std::ptr::null_mut()) }
}

/// `epoll_pwait` without a signal mask, dilated: only the CPU time of the call counts, and not its waiting.
///
/// # Safety
///
/// As of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
) -> c_int {
    let (mask, mask_bytes) = (std::ptr::null::<libc::sigset_t>(), 8usize);
    let call = || {
        // SAFETY: the arguments are the caller's; without a mask none is set.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                epoll,
                events,
                count,
                timeout_ms,
                mask,
                mask_bytes,
            )
        };
        result as ssize_t
    };
    dilated(call) as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_slow_if_its_whole_name_is_there() {
        let mut name = [0; NAME_BYTES];
        name[..10].copy_from_slice(b"redis-main");
        assert!(is_named(&name, b"other,redis-main"));
        assert!(!is_named(&name, b"redis-main-2,redis"));
        assert!(!is_named(&name, b""));
    }
}
