//! Frames through AF_XDP sockets: rings of frames that the kernel's driver and this process share.
//!
//! ```text
//! Port ─ send ─► its ring ─ sendto ─► interface ──► ... ──► interface ─ program ─► ring of slot N ─► Port
//!                     memory of frames, shared by all ports of a device ───────────┘
//! ```
//!
//! A [`Device`] has one interface's first queue: a program there looks at each frame's type and slot, and
//! puts ours into the ring of the slot's socket. Everything else goes to the kernel as before. Each port has
//! a socket with two rings of its own, so a worker waits for its links as for any descriptor, and a worker
//! that polls needs no system call to receive.
//!
//! Invariants:
//! - A frame of the memory belongs to exactly one of: the kernel (ring to be filled, rings on their way), the
//!   pool, a port's spare frames. Its number is checked when the kernel hands it over.
//! - There is room for [`KEPT_FRAMES`] of each port in the ring to be filled, so a port whose owner does not
//!   look never takes the frames of another: a link can't block others.
//! - The program leaves the interface, and the memory is unpinned, when the device and its ports are dropped;
//!   the kernel does so for a process that dies.
//!
//! Needs Linux 5.9, root (CAP_NET_ADMIN, CAP_BPF, CAP_NET_RAW), and an interface of its own process.

use std::ffi::CString;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod interface;
mod memory;
mod port;
mod program;
mod ring;
mod socket;

use super::{KEPT_FRAMES, Port, Transport, WINDOW_FRAMES};
use interface::Interface;
use memory::{Memory, Pool};
use port::XdpPort;
use program::Program;
use socket::Socket;

/// The most connections of a device: their frames are 192 MiB.
pub const CONNECTIONS_MAX: usize = 128;

/// One frame of the memory, with 256 bytes that the kernel keeps before it: for an MTU of 1,500, and for a
/// larger one. The kernel allows at most a page.
const FRAME_BYTES: usize = 2048;
const LONG_FRAME_BYTES: usize = 4096;

/// The longest packet after the Ethernet header, in a frame and in a long one. The latter is the largest MTU
/// of a virtual interface with a program.
const PACKET_BYTES: u16 = 1500;
const LONG_PACKET_BYTES_MAX: u16 = 3498;

/// What an Ethernet header takes: two addresses and the type.
const ETHERNET_BYTES: usize = 14;

/// The type of our frames: the first one for local experiments (IEEE 802).
const ETHERNET_TYPE: u16 = 0x88B5;

/// How long a queue that is taken is waited for, and how often it is tried in this time.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);
const QUEUE_PAUSE: Duration = Duration::from_millis(10);

/// An interface's first queue, for the links of this process.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

struct Shared {
    interface: Interface,
    memory: Memory,
    /// The socket that owns the memory's rings. It receives nothing.
    owner: Socket,
    program: Program,
    pool: Mutex<Pool>,
    connections: usize,
}

impl Device {
    /// The device with this name, for at most so many connections.
    ///
    /// # Errors
    ///
    /// When there is no such interface, the process may not, the kernel can't, or the interface is taken. The
    /// message says which, and what to do.
    pub fn open(name: &str, connections: usize) -> io::Result<Device> {
        Device::with(Interface::named(name)?, connections)
    }

    /// The device of the interface that has this address.
    ///
    /// # Errors
    ///
    /// As [`Device::open`].
    pub fn at(address: IpAddr, connections: usize) -> io::Result<Device> {
        Device::with(Interface::with_address(address)?, connections)
    }

    fn with(interface: Interface, connections: usize) -> io::Result<Device> {
        let connections = connections.clamp(1, CONNECTIONS_MAX);
        let name = interface.name.clone();
        let failed = |what: &str, error: io::Error| explain(&name, what, error);
        // Rings have powers of two.
        let received = (connections * KEPT_FRAMES).next_power_of_two();
        let sent = (connections * WINDOW_FRAMES).next_power_of_two();
        let frame_bytes = match interface.packet_bytes > PACKET_BYTES {
            true => LONG_FRAME_BYTES,
            false => FRAME_BYTES,
        };
        let memory = Memory::new(received + sent, frame_bytes)
            .map_err(|error| failed("can't get memory for frames", error))?;
        let owner = Socket::owner(&memory, received, sent)
            .map_err(|error| failed("can't open an AF_XDP socket", error))?;
        bind(&owner, interface.index)
            .map_err(|error| failed("can't bind an AF_XDP socket to its first queue", error))?;
        let rings = owner.pool_rings(received, sent);
        let rings = rings.map_err(|error| failed("can't map the rings of its frames", error))?;
        let pool = Pool::new(rings, frame_bytes as u64, received, sent);
        let program = Program::attach(interface.index, connections)
            .map_err(|error| failed("can't attach a program", error))?;
        Ok(Device(Arc::new(Shared {
            interface,
            memory,
            owner,
            program,
            pool: Mutex::new(pool),
            connections,
        })))
    }

    /// The interface's name.
    pub fn name(&self) -> String {
        self.0.interface.name.to_string_lossy().into_owned()
    }
}

impl Transport for Device {
    fn open(&self) -> io::Result<Box<dyn Port>> {
        let shared = &self.0;
        let failed = |what: &str, error| explain(&shared.interface.name, what, error);
        let Some(slot) = shared.pool().take_slot(shared.connections) else {
            let connections = shared.connections;
            return Err(io::Error::other(format!(
                "interface {}: all of its {connections} connections are in use",
                self.name()
            )));
        };
        let opened = Socket::port(&shared.owner, shared.interface.index)
            .map_err(|error| failed("can't open another AF_XDP socket", error))
            .and_then(|socket| {
                let rings = socket.rings();
                let rings =
                    rings.map_err(|error| failed("can't map the rings of a socket", error))?;
                let connected = shared.program.set(slot, socket.as_fd());
                connected.map_err(|error| failed("can't receive frames", error))?;
                Ok((socket, rings))
            });
        match opened {
            Ok((socket, rings)) => Ok(Box::new(XdpPort::new(self.clone(), slot, socket, rings))),
            Err(error) => {
                shared.pool().give_slot(slot);
                Err(error)
            }
        }
    }
}

/// Binds the owner. The kernel frees a queue a little after the process that had it has ended: the one before
/// this one may just have done so.
fn bind(owner: &Socket, interface: u32) -> io::Result<()> {
    let end = Instant::now() + QUEUE_PATIENCE;
    loop {
        match owner.bind_first(interface) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                std::thread::sleep(QUEUE_PAUSE);
            }
            bound => return bound,
        }
    }
}

impl Shared {
    /// Held for a few copies of numbers: nobody panics meanwhile, nor waits for anything else.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error with the interface, and what to do about it.
fn explain(interface: &CString, what: &str, error: io::Error) -> io::Error {
    let interface = interface.to_string_lossy();
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ": run as root (CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF), or SET 'link' = 'auto'"
        }
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            ": this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): SET 'link' = 'auto'"
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            ": another program uses it. One process of a host can: give --processes 1, and remove programs \
             of others (ip link set dev … xdp off)"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            ": raise the limit of locked memory (ulimit -l), or use fewer links"
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) => {
            ": the interface or the kernel can't; its MTU must be at most 3498, and the kernel Linux 5.9 or \
             later. Otherwise SET 'link' = 'auto'"
        }
        _ => "",
    };
    let kind = error.kind();
    io::Error::new(
        kind,
        format!("interface {interface}: {what}: {error}{hint}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_interface_and_the_fix() {
        let error = match Device::open("no-such-eth", 1) {
            Ok(_) => panic!("there is no such interface"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.contains("no-such-eth") && error.contains("ip link"),
            "{error}"
        );
        let error = match Device::open(&"x".repeat(40), 1) {
            Ok(_) => panic!("there is no such interface"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("15"), "{error}");
        let name = CString::new("eth7").expect("a name");
        for (number, fix) in [
            (libc::EPERM, "root"),
            (libc::EBUSY, "--processes 1"),
            (libc::EAFNOSUPPORT, "CONFIG_XDP_SOCKETS"),
            (libc::EINVAL, "MTU"),
        ] {
            let error = explain(&name, "can't", io::Error::from_raw_os_error(number)).to_string();
            assert!(error.contains("eth7") && error.contains(fix), "{error}");
        }
    }
}
