//! `poll`, `select`, `epoll`.

use std::ffi::c_int;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::{count_of, guarded};
use crate::poll::Sets;
use crate::{epoll, poll as polls, real};

/// A time-out in milliseconds; negative is none.
fn from_ms(timeout_ms: c_int) -> Option<u64> {
    u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000_000)
}

fn from_timespec(timeout: *const timespec) -> Option<u64> {
    if timeout.is_null() {
        return None;
    }
    // SAFETY: the program gives a time.
    let time = unsafe { *timeout };
    Some(
        (time.tv_sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(time.tv_nsec as u64),
    )
}

fn polled(
    fds: *mut pollfd,
    count: nfds_t,
    ns: Option<u64>,
    mask: *const sigset_t,
) -> Option<c_int> {
    if fds.is_null() || count == 0 || count > crate::connection::DESCRIPTORS_MAX as nfds_t {
        return None;
    }
    // SAFETY: the program says that there are so many.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    guarded(|| polls::poll(fds, ns, mask))
        .unwrap_or_else(|error| Some(Err(error)))
        .map(count_of)
}

#[unsafe(no_mangle)]
extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let polled = polled(fds, count, from_ms(timeout_ms), std::ptr::null());
    polled.unwrap_or_else(|| real::poll(fds, count, timeout_ms))
}

#[unsafe(no_mangle)]
extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    _bytes: size_t,
) -> c_int {
    poll(fds, count, timeout_ms)
}

#[unsafe(no_mangle)]
extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let polled = polled(fds, count, from_timespec(timeout), mask);
    polled.unwrap_or_else(|| real::ppoll(fds, count, timeout, mask))
}

#[unsafe(no_mangle)]
extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _bytes: size_t,
) -> c_int {
    ppoll(fds, count, timeout, mask)
}

fn selected(sets: Sets, ns: Option<u64>, mask: *const sigset_t) -> Option<c_int> {
    guarded(|| polls::select(sets, ns, mask))
        .unwrap_or_else(|error| Some(Err(error)))
        .map(count_of)
}

#[unsafe(no_mangle)]
extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let ns = (!timeout.is_null()).then(|| {
        // SAFETY: the program gives a time.
        let time = unsafe { *timeout };
        (time.tv_sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(time.tv_usec as u64 * 1000)
    });
    let start = real::now_ns();
    let Some(ready) = selected(
        Sets {
            count,
            read,
            write,
            except,
        },
        ns,
        std::ptr::null(),
    ) else {
        return real::select(count, read, write, except, timeout);
    };
    if let Some(ns) = ns {
        // Linux leaves the time that is left.
        let left = ns.saturating_sub(real::now_ns() - start);
        let left = timeval {
            tv_sec: (left / 1_000_000_000) as libc::time_t,
            tv_usec: (left % 1_000_000_000 / 1000) as libc::suseconds_t,
        };
        // SAFETY: as above.
        unsafe { *timeout = left };
    }
    ready
}

#[unsafe(no_mangle)]
extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let selected = selected(
        Sets {
            count,
            read,
            write,
            except,
        },
        from_timespec(timeout),
        mask,
    );
    selected.unwrap_or_else(|| real::pselect(count, read, write, except, timeout, mask))
}

#[unsafe(no_mangle)]
extern "C" fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    guarded(|| epoll::control(set, what, fd, event)).unwrap_or_else(|error| count_of(Err(error)))
}

fn waited(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    ns: Option<u64>,
    mask: *const sigset_t,
) -> Option<c_int> {
    guarded(|| epoll::epoll_wait(set, events, count, ns, mask))
        .unwrap_or_else(|error| Some(Err(error)))
        .map(count_of)
}

#[unsafe(no_mangle)]
extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
) -> c_int {
    let waited = waited(set, events, count, from_ms(timeout_ms), std::ptr::null());
    waited.unwrap_or_else(|| real::epoll_wait(set, events, count, timeout_ms))
}

#[unsafe(no_mangle)]
extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let waited = waited(set, events, count, from_ms(timeout_ms), mask);
    waited.unwrap_or_else(|| real::epoll_pwait(set, events, count, timeout_ms, mask))
}

#[unsafe(no_mangle)]
extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let waited = waited(set, events, count, from_timespec(timeout), mask);
    waited.unwrap_or_else(|| real::epoll_pwait2(set, events, count, timeout, mask))
}
