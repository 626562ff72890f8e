//! Non-blocking sockets, with the kernel's answers reduced to the three cases that matter here.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
};

/// The result of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This many bytes, at least one.
    Bytes(usize),
    /// None now: the kernel signals an edge when the socket is ready.
    WouldBlock,
    /// The peer sends nothing more (reads only).
    End,
}

/// Begins to connect. The first write shows whether that succeeded.
pub(super) fn connect(address: SocketAddr, peer_timeout: Duration) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    prepare(&socket, peer_timeout)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Sets the options of a link's socket, which must already be non-blocking.
pub(super) fn prepare(socket: impl AsFd, peer_timeout: Duration) -> io::Result<()> {
    // What is pushed is sent: batching is the writer's business, not the kernel's.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // The kernel gives up a connection if nobody acknowledges its bytes for this long.
    let timeout_ms = u32::try_from(peer_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, timeout_ms.max(1))?;
    Ok(())
}

pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Moved> {
    read(|| rustix::net::recv(socket.as_fd(), &mut *buffer, RecvFlags::empty()).map(|(_, n)| n))
}

/// Fills the buffers one after the other.
pub(super) fn receive_into(socket: impl AsFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
    read(|| rustix::io::readv(socket.as_fd(), buffers))
}

pub(super) fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<Moved> {
    written(|| rustix::net::send(socket.as_fd(), bytes, SendFlags::NOSIGNAL))
}

/// Gathers the slices into one write.
pub(super) fn send_gathered(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
    written(|| {
        rustix::net::sendmsg(
            socket.as_fd(),
            slices,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )
    })
}

/// Bytes that have arrived and were not read.
pub(super) fn unread_bytes(socket: impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(socket).unwrap_or(0)
}

/// Tells the peer that the stream ends; what was written still arrives, which closing does not guarantee.
pub(super) fn finish(socket: impl AsFd) {
    // A connection that is already broken has nothing to send.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
}

fn read(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<Moved> {
    loop {
        return match call() {
            Ok(0) => Ok(Moved::End),
            Ok(count) => Ok(Moved::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Moved::WouldBlock),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

fn written(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<Moved> {
    loop {
        return match call() {
            Ok(count) => Ok(Moved::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Moved::WouldBlock),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}
