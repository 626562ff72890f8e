//! Connecting two neighbors: some lanes one way, some the other way.
//!
//! ```text
//! offer (inboxes or addresses go out) ─── socket ───► meet (the neighbor's offer comes in)
//! ```
//!
//! The stages stand in a ring (the viewer asks the source), so a stage makes all of its offers
//! before it waits for any.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use slackwater_link::shm::{Inbox, LANE_BYTES_MIN, Outbox, Peer, Watch, watch};
use slackwater_link::tcp::{Acceptor, Identity, Settings, Writer};
use slackwater_link::{FrameReceiver, FrameSender, Waiter, Waker};

use super::frame::Piece;
use super::order::Transport;
use slackwater::measure::control::Control;

/// Any one will do, as long as both sides have it.
const EPOCH: u64 = 1;

/// Bytes of a lane for requests and acknowledgements: a thousand of them.
pub const NOTES_BYTES: usize = 64 << 10;

/// Lanes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// How many.
    pub count: usize,
    /// Bytes that each has room for, at least.
    pub bytes: usize,
}

/// What a stage keeps for as long as it is connected.
pub struct Kept {
    /// Shared memory: marks the neighbor's end, and the socket by which that one sees ours.
    _watch: Option<(Watch, Control)>,
    /// TCP: the listening socket.
    _acceptor: Option<Acceptor>,
}

/// The ends of the lanes to and from one neighbor.
pub struct Ends {
    /// Out.
    pub senders: Vec<FrameSender<Piece>>,
    /// In.
    pub receivers: Vec<FrameReceiver>,
    /// Keeps them alive.
    pub kept: Kept,
}

/// An offer that was made.
pub enum Offer {
    /// Through shared memory.
    Shm {
        /// The lanes that this stage reads.
        inbox: Option<Inbox>,
        /// How many lanes.
        lanes: usize,
        /// By which the neighbor sees this stage's end.
        leash: Control,
    },
    /// Through TCP.
    Tcp {
        /// Where the neighbor connects.
        acceptor: Acceptor,
        /// The lanes that this stage reads.
        receivers: Vec<FrameReceiver>,
    },
}

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

fn identity() -> Identity {
    Identity {
        epoch: EPOCH,
        token: [0; 16],
    }
}

/// A waiter that links of this kind can ring.
pub fn waiter(transport: Transport) -> Result<Waiter, String> {
    match transport {
        Transport::Shm => Waiter::shared(),
        Transport::Tcp => Waiter::new(),
    }
    .map_err(failed)
}

impl Offer {
    /// Offers the neighbor at the other end of `control` to send to these lanes.
    pub fn make(
        transport: Transport,
        control: &Control,
        waiter: &Waiter,
        name: &str,
        lanes: Lanes,
    ) -> Result<Offer, String> {
        match transport {
            Transport::Shm => {
                let bytes = lanes.bytes.max(LANE_BYTES_MIN).next_power_of_two();
                let inbox = (lanes.count > 0).then(|| Inbox::create(EPOCH, lanes.count, bytes));
                let inbox = inbox.transpose().map_err(failed)?;
                let own = waiter.waker();
                let (flag, bell) = own.export().expect("the waiter is shared");
                let (leash, theirs) = Control::pair()?;
                let mut ends = vec![flag, bell, theirs.as_fd()];
                ends.extend(inbox.iter().map(Inbox::descriptor));
                control.send(&"inbox", &ends)?;
                Ok(Offer::Shm {
                    inbox,
                    lanes: lanes.count,
                    leash,
                })
            }
            Transport::Tcp => {
                let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let acceptor = Acceptor::bind(any_port, identity(), Settings::default());
                let acceptor = acceptor.map_err(failed)?;
                let readers = (0..lanes.count as u64)
                    .map(|link| FrameReceiver::Tcp(Box::new(acceptor.reader(link, name, waiter))));
                let receivers = readers.collect();
                control.send(&acceptor.local_address(), &[])?;
                Ok(Offer::Tcp {
                    acceptor,
                    receivers,
                })
            }
        }
    }

    /// Takes up the neighbor's offer, which has `sending` lanes for this stage.
    pub fn meet(
        self,
        control: &Control,
        waiter: &Waiter,
        name: &str,
        sending: usize,
    ) -> Result<Ends, String> {
        match self {
            Offer::Shm {
                inbox,
                lanes,
                leash,
            } => {
                let (_, descriptors) = control.expect::<String>()?;
                let mut descriptors = descriptors.into_iter();
                let mut next = || {
                    let nothing = || format!("{name} handed over too few descriptors");
                    descriptors.next().ok_or_else(nothing)
                };
                let other = Waker::import(next()?, next()?).map_err(failed)?;
                let watched = next()?;
                let peer = Peer::new(name);
                let mut senders = Vec::new();
                if sending > 0 {
                    let outbox = Outbox::open(next()?.as_fd(), EPOCH, peer.clone());
                    let outbox = outbox.map_err(|error| error.to_string())?;
                    if outbox.lanes() != sending {
                        return Err(format!("{name} has {} lanes", outbox.lanes()));
                    }
                    senders.extend(
                        (0..sending)
                            .map(|lane| FrameSender::Shm(outbox.writer(lane, other.clone()))),
                    );
                }
                let lanes = inbox
                    .iter()
                    .flat_map(|inbox| (0..lanes).map(move |n| (inbox, n)));
                let receivers = lanes.map(|(inbox, lane)| {
                    let reader = inbox.reader(lane, other.clone(), waiter.waker(), peer.clone());
                    FrameReceiver::Shm(reader)
                });
                let receivers = receivers.collect();
                let watch = watch(vec![(watched, peer)], vec![waiter.waker()]);
                Ok(Ends {
                    senders,
                    receivers,
                    kept: Kept {
                        _watch: Some((watch.map_err(failed)?, leash)),
                        _acceptor: None,
                    },
                })
            }
            Offer::Tcp {
                acceptor,
                receivers,
            } => {
                let (address, _) = control.expect::<SocketAddr>()?;
                let writer = |link: u64| {
                    let settings = Settings::default();
                    let writer = Writer::connect(address, identity(), link, name, waiter, settings);
                    FrameSender::Tcp(Box::new(writer))
                };
                Ok(Ends {
                    senders: (0..sending as u64).map(writer).collect(),
                    receivers,
                    kept: Kept {
                        _watch: None,
                        _acceptor: Some(acceptor),
                    },
                })
            }
        }
    }
}
