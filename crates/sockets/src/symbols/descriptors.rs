//! Descriptors: how they come, what is set on them, how they go.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::Ordering;

use libc::{FILE, sockaddr, sockaddr_storage, socklen_t};

use super::guarded;
use crate::connection::{self, User};
use crate::lane::Way;
use crate::stream::Stream;
use crate::{epoll, real, rendezvous};

#[unsafe(no_mangle)]
extern "C" fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    let result = real::connect(fd, address, bytes);
    let error = real::errno();
    if result == 0 || error == libc::EINPROGRESS {
        let offer = || {
            if !connection::is_guest() {
                rendezvous::offer(fd, endpoint(address, bytes));
            }
        };
        let _ = guarded(offer);
        real::set_errno(error);
    }
    result
}

/// The address that the program has given.
fn endpoint(address: *const sockaddr, bytes: socklen_t) -> Option<(std::net::IpAddr, u16)> {
    // SAFETY: all zero bytes are a valid address of no family.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let bytes = bytes as usize;
    if address.is_null() || bytes > size_of::<sockaddr_storage>() {
        return None;
    }
    let to: *mut sockaddr_storage = &mut storage;
    // SAFETY: the kernel has read as many bytes from there, and the storage is as large.
    unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), to.cast::<u8>(), bytes) };
    rendezvous::endpoint_of(&storage)
}

fn accepted(fd: c_int) -> c_int {
    if fd >= 0 {
        let error = real::errno();
        let accept = || {
            if !connection::is_guest() {
                rendezvous::accepted(fd);
            }
        };
        let _ = guarded(accept);
        real::set_errno(error);
    }
    fd
}

#[unsafe(no_mangle)]
extern "C" fn accept(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
    accepted(real::accept(fd, address, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
    flags: c_int,
) -> c_int {
    accepted(real::accept4(fd, address, bytes, flags))
}

/// Takes a descriptor out of the table around its end.
fn ended(fd: c_int, end: impl FnOnce() -> c_int) -> c_int {
    if connection::is_guest() {
        return end();
    }
    connection::note_closed(fd);
    epoll::closed(fd);
    let Some((user, last)) = connection::remove(fd) else {
        return end();
    };
    let stream = Stream::known(fd, &user);
    if let Some(stream) = &stream
        && last
        && stream.side().forked.load(Ordering::Acquire) == 0
    {
        stream.close();
    }
    let result = end();
    let error = real::errno();
    if last {
        let mut shared = false;
        if let Some(stream) = stream {
            stream.depart();
            shared = stream.side().forked.load(Ordering::Acquire) != 0;
        }
        if !shared && let Some(path) = user.path() {
            rendezvous::unlink(&path);
        }
    }
    real::set_errno(error);
    result
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    let mut closed = None;
    let end = || ended(fd, || *closed.insert(real::close(fd)));
    guarded(end).unwrap_or_else(|_| closed.unwrap_or_else(|| real::close(fd)))
}

/// Forgets the descriptors of a range, which are closed at once.
fn forget(first: c_int, last: c_int) {
    for fd in first.max(0)
        ..last
            .min(connection::end().saturating_sub(1))
            .saturating_add(1)
    {
        if connection::is_known(fd) {
            ended(fd, || 0);
        }
    }
    for fd in first.max(0)
        ..last
            .min(connection::DESCRIPTORS_MAX as c_int - 1)
            .saturating_add(1)
    {
        connection::note_closed(fd);
        epoll::closed(fd);
    }
}

#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // CLOSE_RANGE_CLOEXEC (4) closes nothing now.
    if flags & 4 == 0 && first <= last && !connection::is_guest() {
        let last = c_int::try_from(last).unwrap_or(c_int::MAX);
        let _ = guarded(|| forget(c_int::try_from(first).unwrap_or(c_int::MAX), last));
    }
    real::close_range(first, last, flags)
}

#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    if !connection::is_guest() {
        let _ = guarded(|| forget(first, c_int::MAX));
    }
    real::closefrom(first);
}

/// A new descriptor `to` of what `from` is.
fn duplicated(from: c_int, to: c_int) -> c_int {
    if to >= 0 && to != from && !connection::is_guest() {
        let copy = || {
            connection::remove(to);
            if let Some(user) = connection::get(from) {
                connection::insert(to, &user);
            }
            epoll::duplicated(from, to);
        };
        let _ = guarded(copy);
    }
    to
}

#[unsafe(no_mangle)]
extern "C" fn dup(fd: c_int) -> c_int {
    duplicated(fd, real::dup(fd))
}

/// Closes `to`, which becomes a descriptor of what `from` is.
fn replaced(from: c_int, to: c_int, replace: impl Fn() -> c_int) -> c_int {
    if from == to {
        return replace();
    }
    let mut replaced = None;
    let end = || ended(to, || *replaced.insert(replace()));
    let result = guarded(end).unwrap_or_else(|_| replaced.unwrap_or_else(replace));
    duplicated(from, result)
}

#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    replaced(from, to, || real::dup2(from, to))
}

#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    replaced(from, to, || real::dup3(from, to, flags))
}

/// Runs an action on the connection of a descriptor, if it has shared memory.
fn with_stream<R>(fd: c_int, action: impl FnOnce(&Stream) -> R) -> Option<R> {
    if !connection::is_known(fd) {
        return None;
    }
    let run = || {
        let user = connection::get(fd)?;
        Stream::known(fd, &user).map(|stream| action(&stream))
    };
    guarded(run).ok().flatten()
}

fn set_nonblocking(fd: c_int, nonblocking: bool) {
    with_stream(fd, |stream| {
        stream
            .side()
            .nonblocking
            .store(u32::from(nonblocking), Ordering::Relaxed)
    });
}

/// `fcntl`, whose third argument may be a number or an address: both are as wide as a register.
#[unsafe(no_mangle)]
extern "C" fn fcntl(fd: c_int, what: c_int, argument: *mut c_void) -> c_int {
    let result = real::fcntl(fd, what, argument);
    match what {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => return duplicated(fd, result),
        libc::F_SETFL if result == 0 => {
            set_nonblocking(fd, argument as usize & libc::O_NONBLOCK as usize != 0);
            if argument as usize & libc::O_ASYNC as usize != 0 {
                // Nobody would send the signal for what comes through shared memory.
                stays_tcp(fd);
            }
        }
        _ => {}
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn fcntl64(fd: c_int, what: c_int, argument: *mut c_void) -> c_int {
    fcntl(fd, what, argument)
}

/// `ioctl`, with its third argument as above.
#[unsafe(no_mangle)]
extern "C" fn ioctl(fd: c_int, what: c_ulong, argument: *mut c_void) -> c_int {
    let counted = match what {
        libc::FIONREAD => with_stream(fd, |stream| {
            let filled = stream.receives().filled(stream.lane_bytes()).unwrap_or(0);
            stream.hears_bells_only().then_some(filled)
        }),
        libc::TIOCOUTQ => with_stream(fd, |stream| {
            let filled = stream.sends().filled(stream.lane_bytes()).unwrap_or(0);
            (stream.sends().way() == Way::Ring).then_some(filled)
        }),
        SIOCATMARK => with_stream(fd, at_mark).map(|at| at.map(u64::from)),
        _ => None,
    };
    if let Some(Some(count)) = counted
        && !argument.is_null()
    {
        // SAFETY: the program gives a place for an int.
        unsafe { *argument.cast::<c_int>() = count as c_int };
        return 0;
    }
    let result = real::ioctl(fd, what, argument);
    if what == libc::FIONBIO && result == 0 && !argument.is_null() {
        // SAFETY: as above.
        set_nonblocking(fd, unsafe { *argument.cast::<c_int>() } != 0);
    }
    result
}

const SIOCATMARK: c_ulong = 0x8905;

/// Whether the reader of a ring is at the urgent mark.
fn at_mark(stream: &Stream) -> Option<bool> {
    let at = stream.receives().before_mark() == Some(0);
    stream.hears_bells_only().then_some(at)
}

#[unsafe(no_mangle)]
extern "C" fn sockatmark(fd: c_int) -> c_int {
    match with_stream(fd, at_mark) {
        Some(Some(at)) => c_int::from(at),
        _ => real::sockatmark(fd),
    }
}

#[unsafe(no_mangle)]
extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let ended = with_stream(fd, |stream| {
        if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
            stream.side().ends_reading.store(1, Ordering::Release);
        }
        // A lane that has moved, or can do so now, says its end itself: the socket stays open for bells.
        if how != libc::SHUT_RD && (stream.sends().way() == Way::Ring || stream.moves()) {
            stream.sends().end();
            stream.wake_reader();
            return how == libc::SHUT_WR || !stream.hears_bells_only();
        }
        false
    });
    match ended {
        Some(true) if how == libc::SHUT_WR => 0,
        _ => real::shutdown(fd, how),
    }
}

/// Lets the connection of a descriptor stay TCP for good; false if it has moved already.
pub(super) fn stays_tcp(fd: c_int) -> bool {
    if !connection::is_known(fd) {
        return true;
    }
    let stay = || {
        let Some(user) = connection::get(fd) else {
            return true;
        };
        let stays = match Stream::known(fd, &user) {
            Some(stream) => stream.stay_tcp(),
            None => true,
        };
        if stays {
            forget_all(fd, &user);
        }
        stays
    };
    guarded(stay).unwrap_or(false)
}

/// A connection that stays TCP is the kernel's alone, unless its lanes are known to the other side.
fn forget_all(fd: c_int, user: &User) {
    if Stream::known(fd, user).is_none() {
        rendezvous::leave(fd, user);
    }
}

#[unsafe(no_mangle)]
extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    /// `TCP_ULP`: TLS in the kernel.
    const ULP: c_int = 31;
    /// `SO_ZEROCOPY`: the kernel says when it no longer needs the program's pages.
    const ZEROCOPY: c_int = 60;
    if connection::is_known(fd) {
        let of_kernel = matches!(
            (level, name),
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT | ZEROCOPY) | (libc::IPPROTO_TCP, ULP)
        );
        if of_kernel && !stays_tcp(fd) {
            real::set_errno(libc::ENOPROTOOPT);
            return -1;
        }
        if (level, name) == (libc::SOL_SOCKET, libc::SO_OOBINLINE)
            && bytes as usize >= size_of::<c_int>()
            && !value.is_null()
        {
            // SAFETY: the program gives so many bytes.
            let inline = unsafe { *value.cast::<c_int>() } != 0;
            with_stream(fd, |stream| {
                stream
                    .side()
                    .urgent_inline
                    .store(u32::from(inline), Ordering::Relaxed)
            });
        }
    }
    if connection::is_known(fd) && bytes as usize >= size_of::<c_int>() && !value.is_null() {
        // SAFETY: the program gives so many bytes.
        let number = unsafe { *value.cast::<c_int>() } as u32;
        let keep = |stream: &Stream| {
            let kept = stream.kept_option(level, name)?;
            kept.store(u32::from(number != 0), Ordering::Relaxed);
            Some(())
        };
        if with_stream(fd, keep).flatten().is_some() {
            return 0;
        }
    }
    let result = real::setsockopt(fd, level, name, value, bytes);
    if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && result == 0 {
        // SAFETY: the kernel has accepted the value, so it has as many bytes.
        let linger = unsafe { *value.cast::<libc::linger>() };
        let aborts = linger.l_onoff != 0 && linger.l_linger == 0;
        with_stream(fd, |stream| {
            stream
                .side()
                .aborts
                .store(u32::from(aborts), Ordering::Relaxed)
        });
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    let result = real::getsockopt(fd, level, name, value, bytes);
    if result == 0 && connection::is_known(fd) {
        let kept = |stream: &Stream| {
            stream
                .kept_option(level, name)
                .map(|kept| kept.load(Ordering::Relaxed))
        };
        // SAFETY: the kernel has written how many bytes the value has.
        let whole = unsafe { *bytes } as usize >= size_of::<c_int>();
        if let Some(kept) = with_stream(fd, kept).flatten().filter(|_| whole) {
            // SAFETY: the kernel has written the value there.
            unsafe { *value.cast::<c_int>() = kept as c_int };
        }
    }
    result
}

/// A stream of the C library reads with system calls of its own: its connection stays TCP.
#[unsafe(no_mangle)]
extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !stays_tcp(fd) {
        crate::report(&format!(
            "descriptor {fd}: fdopen of a connection that has moved to shared memory is not supported\n  \
             = start this program without slackwater sockets"
        ));
        real::set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    }
    real::fdopen(fd, mode)
}

#[unsafe(no_mangle)]
extern "C" fn fclose(file: *mut FILE) -> c_int {
    if file.is_null() {
        return real::fclose(file);
    }
    // SAFETY: the program gives a stream.
    let fd = unsafe { libc::fileno(file) };
    let mut closed = None;
    let end = || ended(fd, || *closed.insert(real::fclose(file)));
    guarded(end).unwrap_or_else(|_| closed.unwrap_or(libc::EOF))
}
