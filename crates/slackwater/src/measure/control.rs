//! The control socket between a leader and its follower: small JSON messages and descriptors. It is a Unix
//! socket that preserves message boundaries, also between two threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_link::shm::handover;

/// The most bytes of a message; an order or an address with its names takes a few hundred.
const MESSAGE_BYTES_MAX: usize = 4096;

/// One end of a control socket.
pub struct Control {
    socket: OwnedFd,
}

impl Control {
    /// Creates two connected ends.
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

    /// The inherited end of a control socket.
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

    /// Receives the next message with its descriptors; `None` if the other side is gone.
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

    /// Like [`Control::receive`], but it is an error if the other side is gone.
    pub fn expect<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), String> {
        let received = self.receive()?;
        received.ok_or_else(|| "the other side of the measurement has ended".to_string())
    }
}

/// For waiting for a message together with other events.
impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
