//! Connects two neighboring stages: some lanes in one direction, some in the other.
//!
//! ```text
//! offer (inboxes or addresses go out) ─── socket ───► meet (the neighbor's offer comes in)
//! ```
//!
//! The stages form a ring (the viewer sends requests to the source), so a stage makes all of its offers
//! before it waits for any.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use slackwater_link::shm::{Inbox, LANE_BYTES_MIN, Outbox, Peer, Watch, watch};
use slackwater_link::tcp::{Acceptor, Identity, Settings, Writer};
use slackwater_link::{FrameReceiver, FrameSender, Waiter, Waker};

use super::frame::Piece;
use super::order::Transport;
use slackwater::measure::control::Control;

/// Any value will do, as long as both sides use the same.
const EPOCH: u64 = 1;

/// Bytes of a lane for requests and acknowledgements: enough for a thousand of them.
pub const NOTES_BYTES: usize = 64 << 10;

/// Lanes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Number of lanes.
    pub count: usize,
    /// Bytes that each lane has room for, at least.
    pub bytes: usize,
}

/// What a stage keeps for as long as it is connected.
pub struct Kept {
    /// Shared memory: detects that the neighbor has ended, and the socket by which the neighbor detects
    /// our end.
    _watch: Option<(Watch, Control)>,
    /// TCP: the listening socket.
    _acceptor: Option<Acceptor>,
}

/// The ends of the lanes to and from one neighbor.
pub struct Ends {
    /// Lanes to the neighbor.
    pub senders: Vec<FrameSender<Piece>>,
    /// Lanes from the neighbor.
    pub receivers: Vec<FrameReceiver>,
    /// Keeps the lanes alive.
    pub kept: Kept,
}

/// An offer to the neighbor.
pub enum Offer {
    /// Through shared memory.
    Shm {
        /// The lanes that this stage reads.
        inbox: Option<Inbox>,
        /// Number of lanes.
        lanes: usize,
        /// The socket by which the neighbor detects that this stage has ended.
        leash: Control,
    },
    /// Through TCP.
    Tcp {
        /// The listening socket that the neighbor connects to.
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

/// A waiter that links of this kind can wake.
pub fn waiter(transport: Transport) -> Result<Waiter, String> {
    match transport {
        Transport::Shm => Waiter::shared(),
        Transport::Tcp => Waiter::new(),
    }
    .map_err(failed)
}

impl Offer {
    /// Offers these lanes to the neighbor at the other end of `control`.
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

    /// Accepts the neighbor's offer, which has `sending` lanes for this stage.
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
                    let nothing = || format!("{name} sent too few descriptors");
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
                        return Err(format!(
                            "{name} has {} lanes, {sending} were expected",
                            outbox.lanes()
                        ));
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
