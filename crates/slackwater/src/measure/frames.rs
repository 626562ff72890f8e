//! Shared memory and the TCP link: links of frames, used as the engine uses them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use slackwater_link::shm::{Inbox, Outbox, Peer, Watch, watch};
use slackwater_link::tcp::{Acceptor, Identity, Settings, Writer};
use slackwater_link::{FrameReceiver, FrameSender, SendError, Waiter, Waker};

use super::control::Control;
use super::order::Order;
use super::patterns::END;
use super::side::{Aligned, LINE, Side, read_lines};
use super::{PATIENCE, RING_BYTES};

/// The epoch of these links: any number that both sides agree on.
const EPOCH: u64 = 1;

/// Between two orders no thread drives a link although both sides are alive, so time-outs are disabled.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// An empty socket takes a message of fewer bytes at once.
const IN_PARTS_BYTES_MIN: usize = 16 << 10;

/// A piece of a frame: its first cache line with the number, or the rest, which all frames share as batches
/// share buffers.
pub enum Piece {
    /// The first cache line.
    Head([u8; LINE]),
    /// The rest of the frame.
    Body(Arc<Aligned>),
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::Head(line) => line,
            Piece::Body(rest) => rest,
        }
    }
}

/// One side of two links of frames, one in each direction.
pub struct FrameSide {
    sender: FrameSender<Piece>,
    receiver: FrameReceiver,
    waiter: Waiter,
    body: Option<Arc<Aligned>>,
    /// The frame that was handed back last; its allocation is reused.
    refused: Option<Vec<Piece>>,
    size_bytes: usize,
    /// Whether a message may need several pushes, so this side pushes while it waits for the answer.
    sends_in_parts: bool,
    /// Whether the link is connected; until then, sent messages wait for a push.
    connected: bool,
    /// Shared memory: notices the end of the other process.
    _watch: Option<(Watch, Control)>,
    /// TCP: keeps the listening socket.
    _acceptor: Option<Acceptor>,
}

impl FrameSide {
    fn new(sender: FrameSender<Piece>, receiver: FrameReceiver, waiter: Waiter) -> FrameSide {
        FrameSide {
            sender,
            receiver,
            waiter,
            body: None,
            refused: None,
            size_bytes: 0,
            sends_in_parts: false,
            connected: false,
            _watch: None,
            _acceptor: None,
        }
    }

    /// Connects through shared memory; both sides call it.
    pub fn shared_memory(control: &Control, copied: bool) -> Result<FrameSide, String> {
        let failed = |error: std::io::Error| error.to_string();
        let waiter = Waiter::shared().map_err(failed)?;
        let inbox = Inbox::create(EPOCH, 1, RING_BYTES).map_err(failed)?;
        let own = waiter.waker();
        let (flag, bell) = own.export().expect("the waiter is shared");
        let (leash, their_leash) = Control::pair()?;
        let ends = [flag, bell, inbox.descriptor(), their_leash.as_fd()];
        control.send(&"ends", &ends)?;
        drop(their_leash);
        let (_, descriptors) = control.expect::<String>()?;
        let Ok([flag, bell, theirs, watched]) = <[_; 4]>::try_from(descriptors) else {
            return Err("the other side sent no descriptors".to_string());
        };
        let other = Waker::import(flag, bell).map_err(failed)?;
        let peer = Peer::new("the other side");
        let outbox =
            Outbox::open(theirs.as_fd(), EPOCH, peer.clone()).map_err(|e| e.to_string())?;
        let mut reader = inbox.reader(0, other.clone(), waiter.waker(), peer.clone());
        reader.lend(!copied);
        let sender = FrameSender::Shm(outbox.writer(0, other));
        // Separate sockets, because a watcher reads and discards what arrives.
        let watch = watch(vec![(watched, peer)], vec![waiter.waker()]).map_err(failed)?;
        let mut side = FrameSide::new(sender, FrameReceiver::Shm(reader), waiter);
        side._watch = Some((watch, leash));
        Ok(side)
    }

    /// Connects through the TCP link over the loopback interface; both sides call it.
    pub fn tcp(control: &Control) -> Result<FrameSide, String> {
        let settings = Settings {
            connect_timeout: PATIENCE,
            peer_timeout: FOR_EVER,
            heartbeat_after: FOR_EVER,
            ..Settings::default()
        };
        let identity = Identity {
            epoch: EPOCH,
            token: [0; 16],
        };
        let failed = |error: std::io::Error| error.to_string();
        let waiter = Waiter::new().map_err(failed)?;
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let acceptor = Acceptor::bind(any_port, identity, settings).map_err(failed)?;
        let reader = acceptor.reader(0, "the other side", &waiter);
        control.send(&acceptor.local_address(), &[])?;
        let (address, _) = control.expect::<SocketAddr>()?;
        let writer = Writer::connect(address, identity, 0, "the other side", &waiter, settings);
        let mut side = FrameSide::new(
            FrameSender::Tcp(Box::new(writer)),
            FrameReceiver::Tcp(Box::new(reader)),
            waiter,
        );
        side._acceptor = Some(acceptor);
        Ok(side)
    }

    fn closed(&self) -> String {
        let error = self.sender.error();
        error.map_or("the other side has left".to_string(), |e| e.to_string())
    }
}

impl Side for FrameSide {
    fn supports(&self, _: &Order) -> Result<(), String> {
        Ok(())
    }

    fn prepare(&mut self, order: &Order) -> Result<(), String> {
        let rest = order.size_bytes - LINE;
        self.body = (rest > 0).then(|| Arc::new(Aligned::new(rest)));
        self.size_bytes = order.size_bytes;
        self.sends_in_parts = match &self.sender {
            // The sender knows whether something is left.
            FrameSender::Shm(_) => true,
            // Messages are left until they are acknowledged, and checking that costs a call.
            FrameSender::Tcp(_) => order.size_bytes >= IN_PARTS_BYTES_MIN,
        };
        self.refused = None;
        Ok(())
    }

    #[inline]
    fn send(&mut self, number: u64) -> Result<bool, String> {
        let frame = match self.refused.take() {
            Some(frame) => frame,
            None => {
                let mut head = [0; LINE];
                head[..8].copy_from_slice(&number.to_le_bytes());
                let mut frame = Vec::with_capacity(2);
                frame.push(Piece::Head(head));
                // The last message leaves with one push, because its sender then waits for orders and would
                // not push the rest of a large frame.
                if number != END {
                    frame.extend(self.body.clone().map(Piece::Body));
                }
                frame
            }
        };
        match self.sender.post(frame) {
            Ok(()) => Ok(true),
            Err(SendError::Full(frame)) => {
                // The next attempt is for the same number.
                self.refused = Some(frame);
                Ok(false)
            }
            Err(SendError::Closed(_)) => Err(self.closed()),
        }
    }

    #[inline]
    fn push(&mut self) -> Result<(), String> {
        self.sender.push(false);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<u64>, String> {
        if !self.connected {
            // Checked before the push, so that one more push follows the greeting.
            self.connected = self.sender.is_connected();
            self.sender.push(false);
        } else if self.sends_in_parts && !self.sender.is_drained() {
            self.sender.push(false);
        }
        match self.receiver.receive() {
            Ok(Some(frame)) if frame.len() == self.size_bytes => read_lines(&frame).map(Some),
            Ok(Some(frame)) if frame.len() == LINE => match read_lines(&frame)? {
                END => Ok(Some(END)),
                number => Err(format!("message {number} arrived without its body")),
            },
            Ok(Some(frame)) => Err(format!("a frame of {} bytes arrived", frame.len())),
            Ok(None) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn has_left(&self) -> bool {
        self.receiver.is_closed() || self.sender.is_closed()
    }

    fn waiter(&self) -> Option<&Waiter> {
        Some(&self.waiter)
    }
}
