//! What has to be known of an interface.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::LONG_PACKET_BYTES_MAX;
use crate::tcp::user::Place;

/// An interface of this network namespace.
pub(super) struct Interface {
    pub(super) name: CString,
    pub(super) index: u32,
    /// Its Ethernet address.
    pub(super) address: [u8; 6],
    /// The longest packet after the Ethernet header.
    pub(super) packet_bytes: u16,
}

impl Interface {
    pub(super) fn named(name: &str) -> io::Result<Interface> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("interface '{name}': a name has 1 to 15 bytes: look at ip link"),
            ));
        }
        let name = CString::new(name)?;
        // SAFETY: a string that ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let failed = |what: &str, error: io::Error| {
            let name = name.to_string_lossy();
            io::Error::new(error.kind(), format!("interface {name}: {what}: {error}"))
        };
        if index == 0 {
            let error = io::Error::last_os_error();
            return Err(failed("there is no such interface: look at ip link", error));
        }
        let socket = socket()?;
        let mut request = request(&name);
        ask(&socket, libc::SIOCGIFHWADDR, &mut request)
            .map_err(|error| failed("can't read its Ethernet address", error))?;
        // SAFETY: the kernel has filled this member.
        let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "interface {}: is not an Ethernet interface: give an address of one that is, or SET \
                     'link' = 'auto'",
                    name.to_string_lossy()
                ),
            ));
        }
        let mut address = [0; 6];
        for (to, from) in address.iter_mut().zip(hardware.sa_data) {
            *to = from as u8;
        }
        ask(&socket, libc::SIOCGIFMTU, &mut request)
            .map_err(|error| failed("can't read its MTU", error))?;
        // SAFETY: the kernel has filled this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        let packet_bytes = u16::try_from(mtu).unwrap_or(0).min(LONG_PACKET_BYTES_MAX);
        if packet_bytes < Place::PACKET_BYTES_MIN {
            let least = Place::PACKET_BYTES_MIN;
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "interface {}: its MTU of {mtu} is less than {least}: ip link set dev {0} mtu 1500",
                    name.to_string_lossy()
                ),
            ));
        }
        Ok(Interface {
            name,
            index,
            address,
            packet_bytes,
        })
    }

    /// The interface that has this address.
    pub(super) fn with_address(address: IpAddr) -> io::Result<Interface> {
        let IpAddr::V4(address) = address else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "{address}: an interface is found by its IPv4 address: give one as --address"
                ),
            ));
        };
        // SAFETY: the list that it makes is walked below, and freed once.
        let first = unsafe { libc::if_nameindex() };
        if first.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut found = None;
        let mut entry = first;
        let socket = socket()?;
        // SAFETY: the list ends with an entry without a name; each name ends with a zero.
        unsafe {
            while found.is_none() && !(*entry).if_name.is_null() {
                let name = std::ffi::CStr::from_ptr((*entry).if_name).to_owned();
                if own_address(&socket, &name) == Some(address) {
                    found = Some(name);
                }
                entry = entry.add(1);
            }
            libc::if_freenameindex(first);
        }
        let name = found.and_then(|name| name.into_string().ok());
        let name = name.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "{address}: no interface has it as its first address: give one as --address"
                ),
            )
        })?;
        Interface::named(&name)
    }
}

fn own_address(socket: &OwnedFd, name: &CString) -> Option<Ipv4Addr> {
    let mut request = request(name);
    ask(socket, libc::SIOCGIFADDR, &mut request).ok()?;
    // SAFETY: the kernel has filled this member, with an address of the socket's family: the four bytes after
    // the port.
    let data = unsafe { request.ifr_ifru.ifru_addr }.sa_data;
    Some(Ipv4Addr::from([2, 3, 4, 5].map(|place| data[place] as u8)))
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a call without pointers; the descriptor is new.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        match socket {
            -1 => Err(io::Error::last_os_error()),
            socket => Ok(OwnedFd::from_raw_fd(socket)),
        }
    }
}

fn request(name: &CString) -> libc::ifreq {
    // SAFETY: zeros are valid for all of its members.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    request
}

fn ask(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: these calls read and write one `ifreq`.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
