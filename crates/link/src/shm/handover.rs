//! Handing descriptors to another process over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::doorbell::{Doorbell, Waker};
use crate::memory::SharedWord;
use crate::sync::Arc;

/// The most descriptors in one message; the kernel allows 253.
pub const DESCRIPTORS_MAX: usize = 64;

/// Sends `note` and the descriptors that go with it, as one message of a socket that keeps message
/// boundaries (`SOCK_SEQPACKET`).
///
/// # Errors
///
/// The kernel's error; `BrokenPipe` when the other process is gone.
///
/// # Panics
///
/// For an empty note (it would look like the end), or too many descriptors.
pub fn send(socket: impl AsFd, note: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(!note.is_empty() && descriptors.len() <= DESCRIPTORS_MAX);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    loop {
        match sendmsg(
            socket.as_fd(),
            &[IoSlice::new(note)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Ok(sent) if sent == note.len() => return Ok(()),
            Ok(_) => return Err(io::Error::other("a note was sent in part")),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a note of at most `note.len()` bytes and the descriptors that came with it. Returns the
/// note's length; zero is the end.
///
/// # Errors
///
/// The kernel's error; `InvalidData` for a note that is too long.
pub fn receive(socket: impl AsFd, note: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(note)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(received) => break received,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let cut = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
    if received.flags.intersects(cut) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "another process handed over more than was expected",
        ));
    }
    Ok((received.bytes, descriptors))
}

impl Waker {
    /// The waker of a [shared](crate::Waiter::shared) waiter of another process, from what its
    /// [`export`](Waker::export) handed over.
    ///
    /// # Errors
    ///
    /// When the first descriptor is not a page of shared memory.
    pub fn import(flag: OwnedFd, bell: OwnedFd) -> io::Result<Waker> {
        let word = SharedWord::open(flag)?;
        let doorbell = Doorbell::shared(word, crate::bell::Bell::of(bell));
        Ok(Waker::new(Arc::new(doorbell)))
    }
}
