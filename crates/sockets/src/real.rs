//! The functions of the C library that this library stands in front of.
//!
//! They are looked up once, with `dlsym(RTLD_NEXT)`, so that other preloaded libraries and the C library's
//! cancellation of threads keep working. Pointers are handed through as the program gave them.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, timeval,
};

/// A symbol, and its address once it has been asked for.
struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The address, or null if the C library has no such function.
    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Declares functions with the signatures of the C library. A missing one fails with ENOSYS.
macro_rules! real {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $symbol:literal, $failed:expr;)*) => {$(
        pub(crate) fn $name($($argument: $kind),*) -> $result {
            static SYMBOL: Symbol = Symbol::new($symbol);
            let address = SYMBOL.address();
            if address.is_null() {
                set_errno(libc::ENOSYS);
                return $failed;
            }
            // SAFETY: the C library's function of this name has this signature; what its pointers lead to
            // is the program's business, as without this library.
            unsafe {
                let function: unsafe extern "C" fn($($kind),*) -> $result = std::mem::transmute(address);
                function($($argument),*)
            }
        }
    )*};
}

real! {
    fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int = c"connect", -1;
    fn accept(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int = c"accept", -1;
    fn accept4(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int
        = c"accept4", -1;
    fn close(fd: c_int) -> c_int = c"close", -1;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = c"close_range", -1;
    fn closefrom(first: c_int) -> () = c"closefrom", Default::default();
    fn dup(fd: c_int) -> c_int = c"dup", -1;
    fn dup2(fd: c_int, to: c_int) -> c_int = c"dup2", -1;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = c"dup3", -1;
    fn fcntl(fd: c_int, what: c_int, argument: *mut c_void) -> c_int = c"fcntl64", -1;
    fn ioctl(fd: c_int, what: c_ulong, argument: *mut c_void) -> c_int = c"ioctl", -1;
    fn shutdown(fd: c_int, how: c_int) -> c_int = c"shutdown", -1;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: socklen_t) -> c_int
        = c"setsockopt", -1;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int
        = c"getsockopt", -1;
    fn sockatmark(fd: c_int) -> c_int = c"sockatmark", -1;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = c"fdopen", std::ptr::null_mut();
    fn fclose(file: *mut FILE) -> c_int = c"fclose", -1;

    fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t = c"read", -1;
    fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t = c"readv", -1;
    fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t = c"recv", -1;
    fn recvfrom(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int, address: *mut sockaddr,
        address_bytes: *mut socklen_t) -> ssize_t = c"recvfrom", -1;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = c"recvmsg", -1;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec)
        -> c_int = c"recvmmsg", -1;
    fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t = c"write", -1;
    fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t = c"writev", -1;
    fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = c"send", -1;
    fn sendto(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, address: *const sockaddr,
        address_bytes: socklen_t) -> ssize_t = c"sendto", -1;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = c"sendmsg", -1;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = c"sendmmsg", -1;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t = c"sendfile64", -1;
    fn splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t,
        flags: c_uint) -> ssize_t = c"splice", -1;

    fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = c"poll", -1;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = c"ppoll", -1;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int = c"select", -1;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t) -> c_int = c"pselect", -1;
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int = c"epoll_ctl", -1;
    fn epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, timeout_ms: c_int) -> c_int
        = c"epoll_wait", -1;
    fn epoll_pwait(set: c_int, events: *mut epoll_event, count: c_int, timeout_ms: c_int,
        mask: *const sigset_t) -> c_int = c"epoll_pwait", -1;
}

/// Waits with a time-out in nanoseconds, by the system call: C libraries before 2.35 have no function.
pub(crate) fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // The kernel's set of signals has 8 bytes.
    // SAFETY: as for the functions above.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set,
            events,
            count,
            timeout,
            mask,
            8_usize,
        )
    };
    c_int::try_from(ready).unwrap_or(-1)
}

/// The error of the last call.
pub(crate) fn errno() -> c_int {
    // SAFETY: the address is valid in each thread.
    unsafe { *libc::__errno_location() }
}

/// Makes this the error of the last call.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the address is valid in each thread.
    unsafe { *libc::__errno_location() = error }
}

/// A C result as a number of bytes or an error.
pub(crate) fn checked(result: ssize_t) -> Result<usize, c_int> {
    usize::try_from(result).map_err(|_| errno())
}

/// The value of a socket option that is an int.
pub(crate) fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    option_of(fd, level, name, 0)
}

/// The value of a socket option whose type is plain data; the bytes that the kernel doesn't write stay.
pub(crate) fn option_of<T: Copy>(fd: c_int, level: c_int, name: c_int, before: T) -> Option<T> {
    let mut value = before;
    let mut bytes = size_of::<T>() as socklen_t;
    let to: *mut T = &mut value;
    let result = getsockopt(fd, level, name, to.cast(), &mut bytes);
    (result == 0).then_some(value)
}

/// The number that an ioctl writes.
pub(crate) fn ioctl_number(fd: c_int, what: c_ulong) -> Option<c_int> {
    let mut number: c_int = 0;
    let to: *mut c_int = &mut number;
    (ioctl(fd, what, to.cast()) == 0).then_some(number)
}

/// Monotonic time.
pub(crate) fn now_ns() -> u64 {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the address is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A time as the kernel takes it.
pub(crate) fn timespec_of(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as c_long,
    }
}
