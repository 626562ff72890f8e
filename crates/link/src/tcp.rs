//! The link between hosts: one TCP connection per link, driven by the workers at its two ends.
//!
//! ```text
//! Writer ── post, push ──► Outgoing ── sendmsg ──► socket ── readv ──► Incoming ── receive ──► Reader
//!    ▲                    (frames kept until        │                 (one frame being            ▲
//!    │                     acknowledged)            │                  assembled)                 │
//!    └───────────── CREDIT: received, and may send ─┘                                             │
//! Acceptor (one thread per process): accepts, checks the greeting, hands the connection over ─────┘
//! ```
//!
//! The contract is that of [`frame`](crate::frame). Invariants:
//!
//! - **Nothing blocks.** Both ends read and write until the socket is empty or full, and then return.
//!   Sockets are registered, edge-triggered, with the owner's waiter, and asked again when the waiter has
//!   named them (`ready`). An owner whose sleep ignores descriptors loses nothing, because its waiter names
//!   them at the sleep's end.
//! - **Bounded by credits.** A writer sends at most a window beyond what the reader's owner took, however
//!   much the kernel would buffer, and keeps at most a window and one frame. A reader holds one read
//!   buffer and the one frame that it assembles; the rest waits in the kernel.
//! - **Nothing lost, nothing duplicated within an epoch.** Frames are numbered. A writer keeps each frame
//!   until it is acknowledged; when a connection breaks it makes a new one and resumes at the number that
//!   the reader names.
//! - **Fenced.** A connection with another deployment, token or epoch is refused, by name; one without the
//!   token gets no answer.
//! - **Sealed, with a [`Guard`].** Everything on the connection is encrypted and authenticated below the
//!   records ([`Seal`]); nothing above `wire` knows of it, but for what was written and is still owed.
//! - **Over frames, with a [`Transport`].** After the greeting a connection's bytes go through a device of
//!   the process's own ([`Port`]); the TCP connection remains for its end.
//! - **Idle costs nothing.** Timers run only while something is unacknowledged, a frame is half received,
//!   or the other end is missing: [`Writer::due_ns`] and [`Reader::due_ns`] say when.
//!
//! Shutdown: [`Writer::close`] says that no frames follow; the writer is drained when the reader has
//! acknowledged the end. A dropped reader tells its writer. The acceptor's thread ends with the
//! [`Acceptor`]; readers continue with the connections that they have.
//!
//! `docs/internals/tcp.md` has the layout of the records and the arithmetic of the credits. The split
//! into an owner's end and a driver that returns what it did is Aeron's (`Sender`, `Receiver`); one
//! thread that only accepts is Seastar's listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

mod hello;
mod record;

mod socket;

mod seal;
mod user;
mod wire;

mod ready;

mod greeting;
mod line;
mod outgoing;
mod refusal;
mod writer;

mod acceptor;
mod mailbox;

mod incoming;
mod reader;

#[cfg(any(test, fuzzing))]
mod fuzz;

pub use acceptor::Acceptor;
#[cfg(any(test, fuzzing))]
pub(crate) use fuzz::{fuzz_connection, fuzz_greeting};
pub use mailbox::Refusals;
pub use reader::Reader;
pub use seal::{Guard, Seal};
pub use socket::Moved;
#[cfg(feature = "xdp")]
pub use user::xdp;
pub use user::{KEPT_FRAMES, Place, Port, Transport, WINDOW_FRAMES};
pub use writer::Writer;

/// The least window: four records of 1 KiB, so that a quarter still carries payload.
pub const WINDOW_BYTES_MIN: usize = 4 << 10;

/// The largest window. Credits travel as 32-bit numbers, and 1 GiB is the product of 100 Gbit/s and 80
/// ms, more than any link between the hosts of one deployment needs.
pub const WINDOW_BYTES_MAX: usize = 1 << 30;

/// The most sealed greetings in progress at once at an acceptor. A stranger can make it do a key exchange,
/// of less than a millisecond, and keep the state of one: 64 × some 13 KB are 0.8 MB.
pub const SEALED_HANDSHAKES_MAX: usize = 64;

/// What each record costs of the window besides its payload: the place of its frame in memory (64 bytes),
/// the rounding of its payload up to a cache line (up to 63), and so at least its header (16). It limits
/// the number of frames: a window of 4 MiB holds at most 32,768.
pub(crate) const RECORD_COST: usize = 128;

/// The incarnation of a deployment that a process belongs to. Peers of another one are refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The number of the deployment's incarnation: a later one refuses an earlier one's writers.
    pub epoch: u64,
    /// The incarnation's token. It keeps other programs and deployments out. Without a [`Guard`] it crosses
    /// the network unencrypted, and is then no defense against an attacker who can listen there.
    pub token: [u8; 16],
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token stays out of logs.
        write!(formatter, "Identity(epoch {})", self.epoch)
    }
}

/// What a link's connections have beneath their records. Both ends must have the same.
#[derive(Clone, Default)]
pub struct Carrier {
    /// What encrypts them.
    pub guard: Option<Arc<dyn Guard>>,
    /// What carries their bytes in the place of the TCP stream.
    pub transport: Option<Arc<dyn Transport>>,
}

impl From<Option<Arc<dyn Guard>>> for Carrier {
    fn from(guard: Option<Arc<dyn Guard>>) -> Carrier {
        Carrier {
            guard,
            transport: None,
        }
    }
}

/// The limits of a link. Each end has its own; the smaller window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most payload, plus 128 bytes a record, between what the writer sent and what the reader's
    /// owner took. 4 MiB keep 25 Gbit/s busy over a round trip of 1.3 ms (3.1 GB/s × 1.3 ms). Limited to
    /// between [`WINDOW_BYTES_MIN`] and [`WINDOW_BYTES_MAX`].
    pub window_bytes: usize,
    /// How long both ends wait for their first connection: 30 s are enough for the slowest process of a
    /// deployment to start.
    pub connect_timeout: Duration,
    /// How long a connected end waits for a silent or missing peer: 10 s cover three retransmissions of a
    /// lost packet and a restarted switch.
    pub peer_timeout: Duration,
    /// How long something may be unacknowledged before the writer asks. One second: a link that fell idle
    /// costs one exchange, and a busy one at most one a second.
    pub heartbeat_after: Duration,
    /// How long a greeting may take: 5 s are two lost packets and more.
    pub handshake_timeout: Duration,
    /// The most greetings in progress at once at an acceptor: 256 descriptors and 80 bytes each. One more
    /// displaces the oldest after 100 ms, so that silent strangers can't keep a writer out. With a [`Guard`]
    /// at most [`SEALED_HANDSHAKES_MAX`].
    pub handshakes_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            window_bytes: 4 << 20,
            connect_timeout: Duration::from_secs(30),
            peer_timeout: Duration::from_secs(10),
            heartbeat_after: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(5),
            handshakes_max: 256,
        }
    }
}

impl Settings {
    fn window(&self) -> usize {
        self.window_bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }
}

/// The longest payload of one record: a quarter of the window with the record's own cost, so that a
/// reader that returns credit by the quarter never leaves a writer without room for a record.
fn fragment_bytes_max(window: usize) -> usize {
    window / 4 - RECORD_COST
}

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of all deadlines here.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The kernel counts both from the start of the machine: neither is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time `while_` after `from_ns`; the end of time if that overflows.
fn after(from_ns: u64, while_: Duration) -> u64 {
    from_ns.saturating_add(u64::try_from(while_.as_nanos()).unwrap_or(u64::MAX))
}

/// The peer's name in errors.
fn peer_at(name: &str, address: SocketAddr) -> String {
    if name.is_empty() {
        return address.to_string();
    }
    format!("{name} ({address})")
}

/// The seal of the tests, which they share with those of whole links.
#[cfg(test)]
#[path = "../tests/tcp/rough_seal.rs"]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_has_room_for_a_record() {
        for window in [WINDOW_BYTES_MIN, 4 << 20, WINDOW_BYTES_MAX] {
            let fragment = fragment_bytes_max(window);
            assert!(fragment > 0 && fragment + RECORD_COST <= window / 4);
            assert!(u32::try_from(window).is_ok());
        }
    }

    #[test]
    fn an_endless_timeout_does_not_overflow() {
        assert_eq!(after(now_ns(), Duration::MAX), u64::MAX);
        assert!(after(now_ns(), Duration::from_secs(1)) < u64::MAX);
    }

    #[test]
    fn an_identity_does_not_show_its_token() {
        let identity = Identity {
            epoch: 3,
            token: [77; 16],
        };
        assert!(!format!("{identity:?}").contains("77"));
    }
}
