//! The control socket between the parent and a worker process: JSON messages, each with optional bytes and
//! descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_link::shm::handover;

/// Bytes of a packet: far below a socket's buffer (208 KiB), so that one always fits.
const PACKET_BYTES: usize = 32 << 10;

/// The longest message: 64 MiB, many times more than any SQL text or set of histograms needs.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A packet's first byte.
const MORE_FOLLOWS: u8 = 0;
const LAST: u8 = 1;

/// Bytes of the length that precedes a message's JSON.
const LENGTH_BYTES: usize = 4;

/// A received message, with its bytes and descriptors.
#[derive(Debug)]
pub struct Received<T> {
    /// The message.
    pub message: T,
    /// The bytes that came with the message.
    pub bytes: Vec<u8>,
    /// The descriptors that came with the message.
    pub descriptors: Vec<OwnedFd>,
}

/// One end of a control socket. Several threads may send if they take turns; one receives.
pub struct Channel {
    socket: OwnedFd,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    /// Creates two connected ends.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel { socket: ours }, theirs))
    }

    /// The inherited end of a control socket.
    pub fn of(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    /// Another handle of the same end.
    pub fn try_clone(&self) -> io::Result<Channel> {
        Ok(Channel {
            socket: self.socket.try_clone()?,
        })
    }

    /// Sends a message with descriptors. Blocks while the other side doesn't read.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, &[], descriptors)
    }

    /// Like [`Channel::send`], with the bytes `beside` the message.
    pub fn send_with(
        &self,
        message: &impl Serialize,
        beside: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut bytes = vec![0; LENGTH_BYTES];
        serde_json::to_writer(&mut bytes, message).map_err(io::Error::other)?;
        let length = (bytes.len() - LENGTH_BYTES) as u32;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(beside);
        let mut packets = bytes.chunks(PACKET_BYTES).peekable();
        while let Some(packet) = packets.next() {
            let last = packets.peek().is_none();
            let mut sent = Vec::with_capacity(packet.len() + 1);
            sent.push(if last { LAST } else { MORE_FOLLOWS });
            sent.extend_from_slice(packet);
            let carried = if last { descriptors } else { &[] };
            handover::send(self.socket.as_fd(), &sent, carried)?;
        }
        Ok(())
    }

    /// The next message and its descriptors; `None` when the other side has gone.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let received = self.receive_with()?;
        Ok(received.map(|received| (received.message, received.descriptors)))
    }

    /// Like [`Channel::receive`], with the bytes that came with the message.
    pub fn receive_with<T: DeserializeOwned>(&self) -> io::Result<Option<Received<T>>> {
        let mut bytes = Vec::new();
        let mut packet = vec![0; PACKET_BYTES + 1];
        loop {
            let (length, descriptors) = match handover::receive(self.socket.as_fd(), &mut packet) {
                Ok(received) => received,
                // The other side went away with unread messages. This error comes once, before its last
                // messages.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
                Err(error) => return Err(error),
            };
            if length == 0 {
                return Ok(None);
            }
            bytes.extend_from_slice(&packet[1..length]);
            if bytes.len() > MESSAGE_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a control message of more than {MESSAGE_BYTES_MAX} bytes"),
                ));
            }
            if packet[0] == LAST {
                let (message, beside) = parts(&bytes).ok_or_else(cut_short)?;
                return Ok(Some(Received {
                    message: serde_json::from_slice(message).map_err(io::Error::other)?,
                    bytes: beside.to_vec(),
                    descriptors,
                }));
            }
        }
    }
}

/// A message's JSON, and the bytes after it.
fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

fn cut_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a control message that is cut short",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_process_arrive_though_it_has_not_read_all_it_was_told() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs);
        ours.send(&"an order", &[]).unwrap();
        let long = "because ".repeat(PACKET_BYTES / 4);
        theirs.send(&long, &[]).unwrap();
        theirs.send(&"refused", &[]).unwrap();
        drop(theirs);
        let heard = || ours.receive::<String>().unwrap().map(|(text, _)| text);
        assert_eq!(heard(), Some(long));
        assert_eq!(heard().as_deref(), Some("refused"));
        assert_eq!(heard(), None);
        assert_eq!(heard(), None);
    }

    #[test]
    fn bytes_come_beside_a_message() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs);
        let bytes = (0..=255).collect::<Vec<u8>>();
        ours.send_with(&"counts", &bytes, &[]).unwrap();
        ours.send(&"nothing", &[]).unwrap();
        let received = || theirs.receive_with::<String>().unwrap().unwrap();
        assert_eq!(received().bytes, bytes);
        assert!(received().bytes.is_empty());
    }

    #[test]
    fn messages_of_any_length_arrive_with_their_descriptors() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs);
        let strings =
            [0, 1, PACKET_BYTES - 3, PACKET_BYTES, 5 * PACKET_BYTES].map(|n| "x".repeat(n));
        let sent = strings.clone();
        let sending = std::thread::spawn(move || {
            for text in &sent {
                let descriptor = ours.socket.try_clone().unwrap();
                ours.send(text, &[descriptor.as_fd()]).unwrap();
            }
        });
        for text in &strings {
            let (received, descriptors) = theirs.receive::<String>().unwrap().unwrap();
            assert_eq!((&received, descriptors.len()), (text, 1));
        }
        sending.join().unwrap();
        assert!(theirs.receive::<String>().unwrap().is_none(), "the end");
    }
}
