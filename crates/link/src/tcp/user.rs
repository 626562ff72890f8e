//! Frames in the place of a TCP stream: a connection whose bytes are carried by a device that a process
//! drives itself, with a protocol of its own.
//!
//! ```text
//! Wire ─ send ─► Session ─ Packet ─► Port (AF_XDP, or a test's) ─► network ─► Port ─► Session ─► Wire
//!   └──────────────── the TCP connection: greeting, death, last word ───────────────────────────┘
//! ```
//!
//! Everything above [`Wire`](super::wire) is as it is over TCP: records, credits, seals, reconnecting. Below
//! it, a [`Session`](session) repeats what the network loses, and drops what it repeats, reorders or damages.
//!
//! Invariants:
//! - **The greeting is TCP's.** Both ends tell their [`Place`] in it, after the token, and under the seal.
//! - **The TCP connection stays open.** Its end is the peer's death. The last word of an end that leaves goes
//!   over it, because nobody is there afterwards to repeat a frame.
//! - **A frame counts once, in its order, and whole**, or it does not count (number and checksum).
//! - **Bounded.** At most [`WINDOW_FRAMES`] are not acknowledged, in each direction.
//! - **Idle costs nothing.** There is a timer only while something is not acknowledged.
//!
//! `docs/internals/user-level.md` has the layout of a packet, the times, and what it costs.

use std::io;
use std::os::fd::BorrowedFd;

mod offer;
mod packet;
mod session;
mod stream;

#[cfg(feature = "xdp")]
pub mod xdp;

pub(super) use offer::{OFFER_BYTES, Offer};
pub(super) use stream::Stream;

/// The most frames that are not acknowledged, in one direction: 256 frames of 1,464 bytes are 366 KiB, what a
/// network of 10 Gbit/s carries in 0.3 ms. A reader that sleeps for longer limits the rate.
pub const WINDOW_FRAMES: usize = 256;

/// The most frames that a port keeps for a reader that does not look: a window, and as many without payload,
/// or repeated.
pub const KEPT_FRAMES: usize = 2 * WINDOW_FRAMES;

/// A network device that carries frames beside the kernel's protocols.
pub trait Transport: Send + Sync {
    /// A place of its own for one connection.
    ///
    /// # Errors
    ///
    /// When the device has no place left.
    fn open(&self) -> io::Result<Box<dyn Port>>;
}

/// Where a connection's frames are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the device; an Ethernet address is the first six bytes.
    pub address: [u8; 8],
    /// The connection's number there: the first four bytes of each packet, little-endian.
    pub slot: u32,
    /// The longest packet.
    pub packet_bytes: u16,
}

/// One connection's part of a device. It may lose, repeat, reorder and damage packets.
pub trait Port: Send {
    /// Becomes readable when a packet arrives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Where the other end has to send packets to.
    fn place(&self) -> Place;

    /// Takes a packet, in two parts, to be sent to this address by the next flush. Returns false, and takes
    /// nothing, if there is no room now.
    fn send(&mut self, address: [u8; 8], packet: [&[u8]; 2]) -> bool;

    /// Sends the packets that were taken. Returns false if some are left, for another flush.
    fn flush(&mut self) -> bool;

    /// Hands out packets that have arrived, until `take` returns false or there are none. A port keeps at
    /// most [`KEPT_FRAMES`] until then, and drops further ones.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> bool);
}
