//! The families of `read` and `write`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::{bytes_of, guarded};
use crate::buffers::{Buffers, vector};
use crate::connection;
use crate::receive;
use crate::send::{self, Source};
use crate::stream::Stream;
use crate::{real, rendezvous};

/// Receives from a connection in the table; nothing if the kernel is to do it.
fn received(fd: c_int, vectors: *const iovec, count: usize, flags: c_int) -> Option<ssize_t> {
    if !connection::is_known(fd) {
        return None;
    }
    let receive = || {
        let user = connection::get(fd)?;
        receive::receive(fd, &user, Buffers::new(vectors, count), flags)
    };
    guarded(receive)
        .unwrap_or_else(|error| Some(Err(error)))
        .map(bytes_of)
}

fn sent(fd: c_int, vectors: *const iovec, count: usize, flags: c_int) -> Option<ssize_t> {
    if !connection::is_known(fd) {
        return None;
    }
    let send = || {
        let user = connection::get(fd)?;
        let buffers = Buffers::new(vectors, count);
        let bytes = buffers.left();
        send::send(fd, &user, &mut Source::Buffers(buffers), bytes, flags)
    };
    guarded(send)
        .unwrap_or_else(|error| Some(Err(error)))
        .map(bytes_of)
}

#[unsafe(no_mangle)]
extern "C" fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
    received(fd, &vector(to, bytes), 1, 0).unwrap_or_else(|| real::read(fd, to, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn __read_chk(fd: c_int, to: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
    check(bytes, room);
    read(fd, to, bytes)
}

/// What `_FORTIFY_SOURCE` asks for: the program is wrong, and ends.
fn check(bytes: size_t, room: size_t) {
    if bytes > room {
        // SAFETY: it has no arguments.
        unsafe { libc::abort() };
    }
}

#[unsafe(no_mangle)]
extern "C" fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    let vectors = usize::try_from(count).ok();
    let received = vectors.and_then(|count| received(fd, to, count, 0));
    received.unwrap_or_else(|| real::readv(fd, to, count))
}

#[unsafe(no_mangle)]
extern "C" fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    received(fd, &vector(to, bytes), 1, flags).unwrap_or_else(|| real::recv(fd, to, bytes, flags))
}

#[unsafe(no_mangle)]
extern "C" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(bytes, room);
    recv(fd, to, bytes, flags)
}

#[unsafe(no_mangle)]
extern "C" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_bytes: *mut socklen_t,
) -> ssize_t {
    let received = received(fd, &vector(to, bytes), 1, flags);
    if received.is_some_and(|received| received >= 0)
        && !address.is_null()
        && !address_bytes.is_null()
    {
        // As TCP does: a stream names nobody.
        // SAFETY: the program gives a place for the length.
        unsafe { *address_bytes = 0 };
    }
    received.unwrap_or_else(|| real::recvfrom(fd, to, bytes, flags, address, address_bytes))
}

#[unsafe(no_mangle)]
extern "C" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_bytes: *mut socklen_t,
) -> ssize_t {
    check(bytes, room);
    recvfrom(fd, to, bytes, flags, address, address_bytes)
}

#[unsafe(no_mangle)]
extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if connection::is_known(fd) && !message.is_null() {
        // SAFETY: the program gives a message.
        let (vectors, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
        if let Some(received) = received(fd, vectors, count, flags) {
            if received >= 0 {
                // SAFETY: as above.
                unsafe {
                    (*message).msg_namelen = 0;
                    (*message).msg_controllen = 0;
                    (*message).msg_flags = 0;
                }
            }
            return received;
        }
    }
    let received = real::recvmsg(fd, message, flags);
    if received >= 0 {
        let _ = guarded(|| adopt_passed(message));
    }
    received
}

/// Descriptors that came over a Unix socket may be connections in shared memory.
fn adopt_passed(message: *const msghdr) {
    for_each_passed(message, rendezvous::adopt);
}

/// Another process may soon have the connections that a message passes.
fn share_passed(message: *const msghdr) {
    for_each_passed(message, |fd| {
        let user = connection::get(fd);
        if let Some(stream) = user.as_ref().and_then(|user| Stream::known(fd, user)) {
            stream.side().forked.store(1, Ordering::Release);
        }
    });
}

fn for_each_passed(message: *const msghdr, mut action: impl FnMut(c_int)) {
    // SAFETY: the program or the kernel has filled the message; the macros stay within its control data.
    unsafe {
        if message.is_null() || (*message).msg_control.is_null() {
            return;
        }
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header)
                    .cmsg_len
                    .saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                for index in 0..bytes / size_of::<c_int>() {
                    action(data.add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !connection::is_known(fd) {
        return real::recvmmsg(fd, messages, count, flags, timeout);
    }
    let mut flags = flags;
    let waits_for_one = flags & libc::MSG_WAITFORONE != 0;
    flags &= !libc::MSG_WAITFORONE;
    for index in 0..count {
        let message = messages.wrapping_add(index as usize);
        // SAFETY: the program says that there are `count`.
        let received = unsafe { recvmsg(fd, &raw mut (*message).msg_hdr, flags) };
        if received < 0 {
            return if index > 0 { index as c_int } else { -1 };
        }
        // SAFETY: as above.
        unsafe { (*message).msg_len = received as c_uint };
        if waits_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
    }
    count as c_int
}

#[unsafe(no_mangle)]
extern "C" fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    sent(fd, &vector(from, bytes), 1, 0).unwrap_or_else(|| real::write(fd, from, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
    let vectors = usize::try_from(count).ok();
    let sent = vectors.and_then(|count| sent(fd, from, count, 0));
    sent.unwrap_or_else(|| real::writev(fd, from, count))
}

#[unsafe(no_mangle)]
extern "C" fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    sent(fd, &vector(from, bytes), 1, flags).unwrap_or_else(|| real::send(fd, from, bytes, flags))
}

#[unsafe(no_mangle)]
extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_bytes: socklen_t,
) -> ssize_t {
    // A connected stream ignores the address, as TCP does.
    let sent = sent(fd, &vector(from, bytes), 1, flags);
    sent.unwrap_or_else(|| real::sendto(fd, from, bytes, flags, address, address_bytes))
}

#[unsafe(no_mangle)]
extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if connection::is_known(fd) && !message.is_null() {
        // SAFETY: the program gives a message.
        let (vectors, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
        if let Some(sent) = sent(fd, vectors, count, flags) {
            return sent;
        }
    }
    let _ = guarded(|| share_passed(message));
    real::sendmsg(fd, message, flags)
}

#[unsafe(no_mangle)]
extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if !connection::is_known(fd) {
        return real::sendmmsg(fd, messages, count, flags);
    }
    for index in 0..count {
        let message = messages.wrapping_add(index as usize);
        // SAFETY: the program says that there are `count`.
        let sent = unsafe { sendmsg(fd, &raw const (*message).msg_hdr, flags) };
        if sent < 0 {
            return if index > 0 { index as c_int } else { -1 };
        }
        // SAFETY: as above.
        unsafe { (*message).msg_len = sent as c_uint };
    }
    count as c_int
}

#[unsafe(no_mangle)]
extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
    if !connection::is_known(to) {
        return real::sendfile(to, from, offset, bytes);
    }
    // SAFETY: the program gives a place for the offset, or none.
    let start = (!offset.is_null()).then(|| unsafe { *offset });
    let mut source = Source::File {
        fd: from,
        offset: start,
    };
    let send = || {
        let user = connection::get(to)?;
        send::send(to, &user, &mut source, bytes, 0)
    };
    let Some(sent) = guarded(send).unwrap_or_else(|error| Some(Err(error))) else {
        return real::sendfile(to, from, offset, bytes);
    };
    if let Source::File {
        offset: Some(end), ..
    } = source
    {
        // SAFETY: the offset was given, see above.
        unsafe { *offset = end };
    }
    bytes_of(sent)
}

#[unsafe(no_mangle)]
extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
    sendfile(to, from, offset, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    // The kernel can't splice a ring: programs then read and write, as for files that can't either.
    for fd in [from, to] {
        if !super::descriptors::stays_tcp(fd) {
            real::set_errno(libc::EINVAL);
            return -1;
        }
    }
    real::splice(from, from_offset, to, to_offset, bytes, flags)
}
