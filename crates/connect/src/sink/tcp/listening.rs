//! The listening socket of a tcp sink: accepts one peer after the other.

use std::net::TcpListener;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_engine::link::{Interest, Waiter, Watch};

use super::peer::Peer;
use crate::source::readiness::Readiness;
use crate::tcp::{NotAccepted, set_up};

/// The numbers of the sockets in the set.
const LISTENER: u64 = 0;
const PEER: u64 = 1;

/// Where peers connect.
pub(super) struct Listening {
    listener: TcpListener,
    /// The listening socket and those of peers.
    readiness: Readiness,
    /// What the worker's waiter has reported of the set.
    watch: Watch,
    /// Whether a peer may be waiting to be accepted.
    ready: bool,
}

impl Listening {
    pub(super) fn new(listener: TcpListener, waiter: &mut Waiter) -> std::io::Result<Listening> {
        let readiness = Readiness::new()?;
        readiness.add(listener.as_fd(), Interest::Read, LISTENER)?;
        Ok(Listening {
            watch: waiter.register(readiness.descriptor(), Interest::Read)?,
            listener,
            readiness,
            ready: true,
        })
    }

    /// Takes in what the kernel has reported of the sockets.
    pub(super) fn look(&mut self, mut peer: Option<&mut Peer>) -> std::io::Result<()> {
        if !self.watch.is_named() {
            return Ok(());
        }
        let ready = &mut self.ready;
        self.readiness
            .look(|number, ended| match (number, &mut peer) {
                (LISTENER, _) => *ready = true,
                // Perhaps of an earlier peer: then the next write shows that there is no room.
                (_, Some(peer)) => peer.named(ended),
                (_, None) => {}
            })
    }

    /// Accepts a peer, if one is waiting.
    pub(super) fn accept(&mut self) -> std::io::Result<Option<Peer>> {
        while self.ready {
            let accepted = self.listener.accept().and_then(|(stream, address)| {
                set_up(&stream)?;
                stream.set_nodelay(true)?;
                self.readiness.add(stream.as_fd(), Interest::Write, PEER)?;
                Ok(Peer::new(stream, address.to_string(), None))
            });
            match accepted {
                Ok(peer) => return Ok(Some(peer)),
                Err(error) => match NotAccepted::of(&error) {
                    NotAccepted::Gone => {}
                    NotAccepted::Nobody => self.ready = false,
                    NotAccepted::NoRoom | NotAccepted::Failed => return Err(error),
                },
            }
        }
        Ok(None)
    }

    /// Waits until a peer connects.
    pub(super) fn wait_for_peer(&mut self, time: &Timespec) -> rustix::io::Result<usize> {
        self.ready = true;
        poll(
            &mut [PollFd::new(&self.listener, PollFlags::IN)],
            Some(time),
        )
    }
}
