//! One connection's socket and its two rings.

use std::os::fd::{AsFd, BorrowedFd};

use super::socket::{Rings, Socket};
use super::{Device, ETHERNET_BYTES, ETHERNET_TYPE, KEPT_FRAMES};
use crate::tcp::user::{Place, Port};

/// Frames that a port has at hand, so that it takes the pool's lock once for many.
const SPARE_FRAMES: usize = 64;

/// The kernel sends 32 frames for each call. A window, and answers, need 16 calls. It sends fewer while too
/// many are on their way; the rest is sent by the next flush, a millisecond later.
const KICKS_MAX: usize = 16;

/// The shortest frame of Ethernet, without its checksum.
const FRAME_BYTES_MIN: usize = 60;

pub(super) struct XdpPort {
    // First: its rings and socket are gone before the memory.
    rings: Rings,
    socket: Socket,
    device: Device,
    slot: u32,
    /// Frames to be sent with.
    spare: Vec<u32>,
    /// Frames that were read.
    read: Vec<u64>,
}

impl XdpPort {
    pub(super) fn new(device: Device, slot: u32, socket: Socket, rings: Rings) -> XdpPort {
        let mut spare = Vec::with_capacity(SPARE_FRAMES);
        device.0.pool().supply(&mut spare, SPARE_FRAMES);
        XdpPort {
            rings,
            socket,
            device,
            slot,
            spare,
            read: Vec::with_capacity(KEPT_FRAMES),
        }
    }

    /// Returns frames that were read to the kernel.
    fn refill(&mut self) {
        if !self.read.is_empty() {
            self.rings.received.release();
            self.device.0.pool().refill(&mut self.read);
        }
    }
}

impl Port for XdpPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn place(&self) -> Place {
        let interface = &self.device.0.interface;
        let mut address = [0; 8];
        address[..6].copy_from_slice(&interface.address);
        Place {
            address,
            slot: self.slot,
            packet_bytes: interface.packet_bytes,
        }
    }

    fn send(&mut self, address: [u8; 8], packet: [&[u8]; 2]) -> bool {
        if self.spare.is_empty() {
            self.flush();
        }
        let Some(number) = self.spare.pop() else {
            return false;
        };
        let [header, payload] = packet;
        // SAFETY: a spare frame is this port's.
        let frame = unsafe { self.device.0.memory.frame(number) };
        frame[..6].copy_from_slice(&address[..6]);
        frame[6..12].copy_from_slice(&self.device.0.interface.address);
        frame[12..ETHERNET_BYTES].copy_from_slice(&ETHERNET_TYPE.to_be_bytes());
        let payload_at = ETHERNET_BYTES + header.len();
        let mut length = payload_at + payload.len();
        frame[ETHERNET_BYTES..payload_at].copy_from_slice(header);
        frame[payload_at..length].copy_from_slice(payload);
        if length < FRAME_BYTES_MIN {
            // What an earlier frame left there is nobody else's business.
            frame[length..FRAME_BYTES_MIN].fill(0);
            length = FRAME_BYTES_MIN;
        }
        let is_taken = self.rings.sending.push(libc::xdp_desc {
            addr: u64::from(number) * self.device.0.memory.frame_bytes() as u64,
            len: length as u32,
            options: 0,
        });
        if !is_taken {
            self.spare.push(number);
        }
        is_taken
    }

    fn flush(&mut self) -> bool {
        self.rings.sending.publish();
        for _ in 0..KICKS_MAX {
            if self.rings.sending.is_taken() {
                break;
            }
            self.socket.kick();
        }
        self.device.0.pool().supply(&mut self.spare, SPARE_FRAMES);
        self.rings.sending.is_taken()
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> bool) {
        // At most a ring: packets that come meanwhile are an event of their own.
        for _ in 0..KEPT_FRAMES {
            let Some(entry) = self.rings.received.pop() else {
                break;
            };
            self.read.push(entry.addr);
            // SAFETY: the kernel has handed the frame over, and gets it back in `refill`.
            let bytes = unsafe { self.device.0.memory.bytes(entry.addr, entry.len) };
            let packet = bytes.and_then(|bytes| bytes.get(ETHERNET_BYTES..));
            if packet.is_some_and(|packet| !take(packet)) {
                break;
            }
        }
        self.refill();
    }
}

impl Drop for XdpPort {
    fn drop(&mut self) {
        self.device.0.program.clear(self.slot);
        // A frame that is being delivered at this moment is lost to the device: one at most for each
        // connection that ends with traffic.
        self.receive(&mut |_| true);
        let mut pool = self.device.0.pool();
        pool.give(&mut self.spare);
        pool.give_slot(self.slot);
    }
}
