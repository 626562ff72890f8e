//! The socket pair between head and hand. Nothing blocks.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::encoding::{Message, SIZE};

/// How long the other side may take to read when the socket pair is full.
const ROOM_MAX: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// One end of the socket pair.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// What was received.
#[derive(Debug)]
pub enum Received<M> {
    /// A message, and the descriptor that came along.
    Message(M, Option<OwnedFd>),
    /// Nothing is there now.
    Nothing,
    /// The other side is gone, or talks nonsense.
    End,
}

impl Channel {
    /// A pair of ends.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// An end that another process has made.
    pub fn of(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message, with a descriptor if there is one. An error is the end of the channel: nobody reads,
    /// or somebody has stopped reading.
    pub fn send(&self, message: &impl Message, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut buffer = SendAncillaryBuffer::new(&mut space);
        let descriptors = along.as_slice();
        if along.is_some() && !buffer.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("a descriptor does not fit"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut buffer, flags)?;
        match sent == SIZE {
            true => Ok(()),
            false => Err(io::Error::other("a message was cut")),
        }
    }

    /// Sends a message and a descriptor, and waits until there is room for it: the other side reads.
    pub fn send_soon(&self, message: &impl Message, along: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            match self.send(message, Some(along)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
            if poll(&mut fds, Some(&ROOM_MAX))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Takes a message, if there is one.
    pub fn receive<M: Message>(&self) -> Received<M> {
        let mut bytes = [0; SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut buffer = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match recvmsg(&self.socket, parts, &mut buffer, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Received::Nothing,
                Err(_) => return Received::End,
                Ok(received) => break received,
            }
        };
        let mut along = None;
        for message in buffer.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                along = descriptors.next();
            }
        }
        match M::decode(&bytes) {
            Some(message) if received.bytes == SIZE => Received::Message(message, along),
            _ => Received::End,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Report, Request};
    use std::fs::File;
    use std::io::{Read, Write};

    #[test]
    fn a_full_channel_is_waited_for() {
        const MESSAGES: u64 = 4_000;
        let (one, other) = Channel::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for instance in 0..MESSAGES {
                    let report = Report::Closed { instance };
                    one.send_soon(&report, file.as_fd()).unwrap();
                }
            });
            for expected in 0..MESSAGES {
                let received = loop {
                    match other.receive::<Report>() {
                        Received::Nothing => std::thread::yield_now(),
                        received => break received,
                    }
                };
                assert!(matches!(
                    received,
                    Received::Message(Report::Closed { instance }, Some(_)) if instance == expected
                ));
            }
        });
    }

    #[test]
    fn descriptors_come_along_and_the_end_is_seen() {
        let (one, other) = Channel::pair().unwrap();
        assert!(matches!(other.receive::<Report>(), Received::Nothing));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"there").unwrap();
        one.send(&Report::Closed { instance: 1 }, Some(file.as_fd()))
            .unwrap();
        one.send(&Report::Gone { instance: 2 }, None).unwrap();
        let Received::Message(Report::Closed { instance: 1 }, Some(along)) = other.receive() else {
            panic!("no message");
        };
        let (mut text, mut file) = (String::new(), File::from(along));
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "there");
        let gone = other.receive::<Report>();
        assert!(matches!(
            gone,
            Received::Message(Report::Gone { instance: 2 }, None)
        ));
        drop(one);
        assert!(matches!(other.receive::<Report>(), Received::End));
        assert!(other.send(&Request::Look, None).is_err());
    }
}
