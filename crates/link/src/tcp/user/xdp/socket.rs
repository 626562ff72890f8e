//! AF_XDP sockets: one that owns the memory, and one for each port.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::memory::Memory;
use super::ring::{Layout, Ring};
use super::{KEPT_FRAMES, WINDOW_FRAMES};

/// Packets that wait for a port's owner, and those that it sends.
pub(super) struct Rings {
    pub(super) received: Ring<libc::xdp_desc>,
    pub(super) sending: Ring<libc::xdp_desc>,
}

/// Twice a window, so that answers have room.
const SENDING: usize = 2 * WINDOW_FRAMES;

/// What may be on its way to the other end: 512 frames, and what the kernel adds to each (up to 4 KiB).
const SEND_BYTES: libc::c_int = 4 << 20;

/// The ring of the owner, which receives nothing: the kernel wants it to have one.
const UNUSED: usize = 2;

pub(super) struct Socket(OwnedFd);

impl Socket {
    fn new() -> io::Result<Socket> {
        // SAFETY: a call without pointers; the descriptor is new.
        unsafe {
            match libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) {
                -1 => Err(io::Error::last_os_error()),
                socket => Ok(Socket(OwnedFd::from_raw_fd(socket))),
            }
        }
    }

    /// A socket with the memory and its two rings.
    pub(super) fn owner(memory: &Memory, received: usize, sent: usize) -> io::Result<Socket> {
        let socket = Socket::new()?;
        let registration = libc::xdp_umem_reg_v1 {
            addr: memory.start(),
            len: memory.length() as u64,
            chunk_size: memory.frame_bytes() as u32,
            headroom: 0,
        };
        socket.set(libc::XDP_UMEM_REG, &registration)?;
        socket.set(
            libc::XDP_UMEM_FILL_RING,
            &(fill_entries(received) as libc::c_int),
        )?;
        socket.set(libc::XDP_UMEM_COMPLETION_RING, &(sent as libc::c_int))?;
        socket.set(libc::XDP_RX_RING, &(UNUSED as libc::c_int))?;
        Ok(socket)
    }

    /// Binds the owner to the first queue of an interface.
    pub(super) fn bind_first(&self, interface: u32) -> io::Result<()> {
        // Copies: a driver that hands over its own buffers would need them all to be of one socket.
        self.bind(interface, libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP, 0)
    }

    /// A socket of a port, with the memory of the owner.
    pub(super) fn port(owner: &Socket, interface: u32) -> io::Result<Socket> {
        let socket = Socket::new()?;
        socket.set(libc::XDP_RX_RING, &(KEPT_FRAMES as libc::c_int))?;
        socket.set(libc::XDP_TX_RING, &(SENDING as libc::c_int))?;
        // Otherwise some 90 frames may be on their way, fewer than a window.
        socket.set_at(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BYTES)?;
        let memory_of = owner.0.as_raw_fd() as u32;
        socket.bind(interface, libc::XDP_SHARED_UMEM, memory_of)?;
        Ok(socket)
    }

    fn bind(&self, interface: u32, flags: u16, memory_of: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: memory_of,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: an address of this length.
        let bound = unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                length,
            )
        };
        done(bound)
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(libc::SOL_XDP, option, value)
    }

    fn set_at<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value of an option that has this type.
        done(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                length,
            )
        })
    }

    fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        let mut offsets = std::mem::MaybeUninit::<libc::xdp_mmap_offsets>::zeroed();
        let size = size_of::<libc::xdp_mmap_offsets>();
        let mut length = size as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        done(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_XDP,
                libc::XDP_MMAP_OFFSETS,
                offsets.as_mut_ptr().cast(),
                &raw mut length,
            )
        })?;
        if length as usize != size {
            // The shorter form of kernels before 5.4.
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // SAFETY: zeros are valid, and the kernel has written all of it.
        Ok(unsafe { offsets.assume_init() })
    }

    /// The rings of the owner: frames to be filled, and frames that were sent.
    pub(super) fn pool_rings(
        &self,
        received: usize,
        sent: usize,
    ) -> io::Result<(Ring<u64>, Ring<u64>)> {
        let offsets = self.offsets()?;
        let fill = Layout {
            offsets: offsets.fr,
            page: libc::XDP_UMEM_PGOFF_FILL_RING,
            count: fill_entries(received),
        };
        let done = Layout {
            offsets: offsets.cr,
            page: libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            count: sent,
        };
        Ok((
            Ring::map(self.as_fd(), &fill)?,
            Ring::map(self.as_fd(), &done)?,
        ))
    }

    /// The rings of a port.
    pub(super) fn rings(&self) -> io::Result<Rings> {
        let offsets = self.offsets()?;
        let received = Layout {
            offsets: offsets.rx,
            page: libc::XDP_PGOFF_RX_RING as u64,
            count: KEPT_FRAMES,
        };
        let sending = Layout {
            offsets: offsets.tx,
            page: libc::XDP_PGOFF_TX_RING as u64,
            count: SENDING,
        };
        Ok(Rings {
            received: Ring::map(self.as_fd(), &received)?,
            sending: Ring::map(self.as_fd(), &sending)?,
        })
    }

    /// Lets the kernel send what is in the ring, or some of it.
    pub(super) fn kick(&self) {
        let socket = self.0.as_raw_fd();
        // SAFETY: no bytes and no address. Errors (a full queue, no memory, an interface that is down) leave
        // frames in the ring, or lose them: then they are sent again.
        unsafe {
            libc::sendto(
                socket,
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
    }
}

/// The kernel hands a frame over before it gives up the place where it found it, so a ring with a place for
/// each frame may have none for the one that comes back. That frame would be lost.
fn fill_entries(frames: usize) -> usize {
    2 * frames
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
