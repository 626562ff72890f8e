//! The control socket between a leader and its follower: small JSON messages and descriptors. It is
//! a Unix socket that keeps messages apart, also between two threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_link::shm::handover;

/// Bytes of a message at most: an order or an address with its names takes some hundred.
const MESSAGE_BYTES_MAX: usize = 4096;

/// One end.
pub struct Control {
    socket: OwnedFd,
}

impl Control {
    /// Two ends that are connected.
    pub fn pair() -> Result<(Control, OwnedFd), String> {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let (ours, theirs) =
            pair.map_err(|error| format!("can't create a pair of sockets: {error}"))?;
        Ok((Control { socket: ours }, theirs))
    }

    /// The end that was inherited.
    pub fn of(socket: OwnedFd) -> Control {
        Control { socket }
    }

    /// Sends a message with descriptors.
    pub fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        let note = serde_json::to_vec(message).map_err(|error| error.to_string())?;
        handover::send(self.socket.as_fd(), &note, descriptors)
            .map_err(|error| format!("the other side of the measurement is gone: {error}"))
    }

    /// The next message with its descriptors; `None` when the other side is gone.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<Option<(T, Vec<OwnedFd>)>, String> {
        let mut note = [0; MESSAGE_BYTES_MAX];
        let (length, descriptors) = handover::receive(self.socket.as_fd(), &mut note)
            .map_err(|error| format!("the other side of the measurement is gone: {error}"))?;
        if length == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&note[..length]).map_err(|error| {
            format!("the other side of the measurement sent an invalid message: {error}")
        })?;
        Ok(Some((message, descriptors)))
    }

    /// As [`Control::receive`], where the other side still has something to say.
    pub fn expect<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), String> {
        let received = self.receive()?;
        received.ok_or_else(|| "the other side of the measurement has ended".to_string())
    }
}

/// To wait for a message beside other things.
impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
