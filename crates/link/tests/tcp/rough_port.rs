//! A transport of frames over UDP on the loopback device, which loses, repeats, reorders and damages some of
//! them. It needs no privilege.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use slackwater_link::tcp::{Place, Port, Transport};

/// How many packets in a thousand have each kind of trouble. A stream waits for 100 ms when it loses the last
/// packet of many; more trouble is in the tests of `session.rs`, whose clock costs nothing.
const TROUBLED: u64 = 1;

/// The longest packet: as on Ethernet.
const PACKET_BYTES: u16 = 1500;

/// Makes ports, each with another seed.
struct Rough {
    opened: AtomicU64,
    seed: u64,
}

pub fn rough_transport(seed: u64) -> Arc<dyn Transport> {
    Arc::new(Rough {
        opened: AtomicU64::new(0),
        seed,
    })
}

impl Transport for Rough {
    fn open(&self) -> io::Result<Box<dyn Port>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(RoughPort {
            random: Rng::with_seed(self.seed << 32 | number),
            socket,
            waiting: Vec::new(),
            late: None,
        }))
    }
}

struct RoughPort {
    socket: UdpSocket,
    random: Rng,
    waiting: Vec<(SocketAddr, Vec<u8>)>,
    /// A packet that the next one overtakes.
    late: Option<(SocketAddr, Vec<u8>)>,
}

impl RoughPort {
    fn happens(&mut self) -> bool {
        self.random.u64(..1_000) < TROUBLED
    }
}

impl Port for RoughPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn place(&self) -> Place {
        let port = self.socket.local_addr().expect("bound").port();
        let mut address = [0; 8];
        address[..2].copy_from_slice(&port.to_le_bytes());
        Place {
            address,
            slot: 0,
            packet_bytes: PACKET_BYTES,
        }
    }

    fn send(&mut self, address: [u8; 8], packet: [&[u8]; 2]) -> bool {
        if self.happens() {
            // No room.
            return false;
        }
        let mut bytes = packet.concat();
        let port = u16::from_le_bytes([address[0], address[1]]);
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        if self.happens() {
            let place = self.random.usize(..bytes.len());
            bytes[place] ^= 1 << self.random.u32(..8);
        }
        if self.happens() {
            self.waiting.push((to, bytes.clone()));
        }
        if self.happens() && self.late.is_none() {
            self.late = Some((to, bytes));
        } else if !self.happens() {
            self.waiting.push((to, bytes));
            self.waiting.extend(self.late.take());
        }
        true
    }

    fn flush(&mut self) -> bool {
        for (to, packet) in self.waiting.drain(..) {
            // What the socket does not take is lost.
            let _ = self.socket.send_to(&packet, to);
        }
        true
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> bool) {
        let mut room = [0; PACKET_BYTES as usize];
        while let Ok(count) = self.socket.recv(&mut room) {
            if !take(&room[..count]) {
                return;
            }
        }
    }
}
