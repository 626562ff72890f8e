//! How a source finds its peers: it waits for those that connect, or connects itself.

use std::net::TcpListener;

use slackwater_engine::link::{Registrar, Waker, Watch};

use crate::source::readiness::Readiness;
use crate::tcp::{BackOff, Dialer};

#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    pub(super) readiness: Readiness,
    /// What the worker's waiter has reported of the set.
    pub(super) watch: Watch,
    /// Whether a peer may be waiting to be accepted.
    pub(super) ready: bool,
    /// Whether a peer has ever connected.
    pub(super) was_called: bool,
    /// Whether the lack of room for more peers was reported.
    pub(super) has_said_full: bool,
}

/// The caller that reconnects to the peer.
pub(super) struct Caller {
    pub(super) registrar: Registrar,
    pub(super) waker: Waker,
    /// How long to wait before it is called again; on its way with the dialer meanwhile.
    pub(super) back_off: Option<BackOff>,
    /// While the peer is not connected: the dialer, and the partition that waits for it.
    pub(super) away: Option<(Dialer, u32)>,
}

/// Connections that may be open: half of what the process may have. The rest is for files, links and
/// checkpoints, which must not fail because of many connections.
pub(super) fn descriptors_max() -> usize {
    use rustix::process::{Resource, getrlimit};
    let most = getrlimit(Resource::Nofile).current;
    most.map_or(usize::MAX, |most| (most as usize / 2).max(1))
}
