//! How the two ends of a connection find each other.
//!
//! The connector puts its offer into a folder that only its user can read, under the name of the
//! connection: network namespace, its address and port, the acceptor's. It does so before `connect`
//! returns. So an acceptor that has received a byte and finds no offer knows that there is none. Before
//! that, it looks now and then.

use std::ffi::{CString, c_int};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use libc::{sockaddr_storage, socklen_t};

use crate::connection::{self, User};
use crate::options::options;
use crate::real;
use crate::report;
use crate::segment::{ATTACHED, File, Segment};
use crate::statistics::{MOVED, OFFERED};

/// The folder is in memory, and all programs of a host (or of a pod that shares it) see it.
const MEMORY: &str = "/dev/shm";
/// Offers of programs that are gone, removed when a program makes its first offer.
const SWEPT_MAX: usize = 256;
/// An acceptor that has received nothing looks for its offer at its first calls, and at each power of two.
const EARLY_LOOKS_MAX: u32 = 1 << 16;

/// An address and a port; an IPv4 address inside of an IPv6 one is the IPv4 address.
type Endpoint = (IpAddr, u16);

pub(crate) fn endpoint_of(storage: &sockaddr_storage) -> Option<Endpoint> {
    let from: *const sockaddr_storage = storage;
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this layout, and the storage is larger.
            let address = unsafe { &*from.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Some((IpAddr::V4(ip), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { &*from.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some((
                IpAddr::V6(ip).to_canonical(),
                u16::from_be(address.sin6_port),
            ))
        }
        _ => None,
    }
}

fn empty() -> sockaddr_storage {
    // SAFETY: all zero bytes are a valid address of no family.
    unsafe { std::mem::zeroed() }
}

fn local(fd: c_int) -> Option<Endpoint> {
    let (mut storage, mut bytes) = (empty(), size_of::<sockaddr_storage>() as socklen_t);
    let to: *mut sockaddr_storage = &mut storage;
    // SAFETY: the kernel writes at most `bytes` bytes.
    let result = unsafe { libc::getsockname(fd, to.cast(), &mut bytes) };
    if result == 0 {
        endpoint_of(&storage)
    } else {
        None
    }
}

fn peer(fd: c_int) -> Option<Endpoint> {
    let (mut storage, mut bytes) = (empty(), size_of::<sockaddr_storage>() as socklen_t);
    let to: *mut sockaddr_storage = &mut storage;
    // SAFETY: the kernel writes at most `bytes` bytes.
    let result = unsafe { libc::getpeername(fd, to.cast(), &mut bytes) };
    if result == 0 {
        endpoint_of(&storage)
    } else {
        None
    }
}

/// An address of this host connects to itself from the same address, and loopback stays inside.
fn same_host(one: Endpoint, other: Endpoint) -> bool {
    one.0 == other.0 || (one.0.is_loopback() && other.0.is_loopback())
}

fn is_tcp(fd: c_int) -> bool {
    real::option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && real::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// The folder of this user's offers; nothing if it can't be trusted.
fn folder() -> Option<&'static str> {
    static FOLDER: OnceLock<Option<String>> = OnceLock::new();
    let create = || {
        // SAFETY: geteuid has no arguments.
        let user = unsafe { libc::geteuid() };
        let folder = format!("{MEMORY}/slackwater-sockets-{user}");
        let _ = fs::DirBuilder::new().mode(0o700).create(&folder);
        let found = fs::symlink_metadata(&folder).ok()?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            report(&format!(
                "{folder}: not a folder that only this user can read, so connections stay TCP\n  = remove it"
            ));
            return None;
        }
        Some(folder)
    };
    FOLDER.get_or_init(create).as_deref()
}

/// Removes the offers of programs that no longer run.
fn sweep(folder: &str) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().take(SWEPT_MAX).map(|entry| entry.path()) {
        let Ok(name) = CString::new(path.as_os_str().as_encoded_bytes()) else {
            continue;
        };
        let Ok(file) = File::open(&name, 0) else {
            continue;
        };
        let Ok(segment) = Segment::open(&file) else {
            continue;
        };
        let processes = segment
            .header()
            .sides
            .each_ref()
            .map(|side| side.process.load(Ordering::Relaxed));
        let gone = |process: u32| {
            let process = c_int::try_from(process).unwrap_or(0);
            // SAFETY: signal 0 only asks.
            process == 0 || (unsafe { libc::kill(process, 0) } != 0 && real::errno() == libc::ESRCH)
        };
        if processes.into_iter().all(gone) {
            let _ = fs::remove_file(&path);
        }
        segment.unmap();
    }
}

/// The file of the connection from `from` to `to`.
fn path(from: Endpoint, to: Endpoint) -> Option<CString> {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    let namespace = NAMESPACE
        .get_or_init(|| fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino()));
    let folder = folder()?;
    let name = format!(
        "{folder}/{namespace:x}-{}.{}-{}.{}",
        from.0, from.1, to.0, to.1
    );
    CString::new(name).ok()
}

fn is_nonblocking(fd: c_int) -> bool {
    real::fcntl(fd, libc::F_GETFL, std::ptr::null_mut()) & libc::O_NONBLOCK != 0
}

/// After `connect` has returned, or has begun to connect: offers shared memory to the acceptor.
pub(crate) fn offer(fd: c_int, to: Option<Endpoint>) {
    if fd as usize >= connection::DESCRIPTORS_MAX || !is_tcp(fd) {
        return;
    }
    let Some((from, to)) = local(fd).zip(peer(fd).or(to)) else {
        return;
    };
    if !same_host(from, to) || from == to {
        return;
    }
    let Some(path) = path(from, to) else {
        return;
    };
    // A second `connect` of a socket that doesn't wait asks whether the first has succeeded.
    if connection::get(fd).is_some_and(|known| known.path().as_ref() == Some(&path)) {
        return;
    }
    match offered(fd, path) {
        Ok(connection) => {
            connection::insert(fd, &connection);
            OFFERED.add(1);
            verbose(fd, "offers shared memory");
        }
        Err(error) => verbose(
            fd,
            &format!(
                "stays TCP: the offer: {}",
                std::io::Error::from_raw_os_error(error)
            ),
        ),
    }
}

fn offered(fd: c_int, path: CString) -> Result<User, c_int> {
    static SWEPT: OnceLock<()> = OnceLock::new();
    if let Some(folder) = folder() {
        SWEPT.get_or_init(|| sweep(folder));
    }
    // What a connection with these addresses has left: it is gone, since the kernel has given them to this
    // one.
    unlink(&path);
    let file = File::open(&path, libc::O_CREAT | libc::O_EXCL)?;
    let segment = Segment::offer(&file, options().lane_bytes).inspect_err(|_| unlink(&path))?;
    segment.header().sides[0]
        .nonblocking
        .store(u32::from(is_nonblocking(fd)), Ordering::Relaxed);
    Ok(User::new(0, path, Some(segment)))
}

pub(crate) fn unlink(path: &CString) {
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::unlink(path.as_ptr()) };
}

/// After `accept`: the connection may find an offer at its first calls.
pub(crate) fn accepted(fd: c_int) {
    // Whatever had this number is gone.
    connection::remove(fd);
    if fd < 0 || fd as usize >= connection::DESCRIPTORS_MAX {
        return;
    }
    let Some((to, from)) = local(fd).zip(peer(fd)) else {
        return;
    };
    if same_host(from, to)
        && is_tcp(fd)
        && let Some(path) = path(from, to)
    {
        connection::insert(fd, &User::new(1, path, None));
    }
}

/// Before a call of an acceptor: looks for the offer, if it is time for that. The connection leaves the
/// table if there is none.
pub(crate) fn look(fd: c_int, connection: &User) {
    let received = connection.early_received.load(Ordering::Acquire) > 0;
    let calls = connection.early_calls.fetch_add(1, Ordering::Relaxed);
    let in_time = calls.is_power_of_two() || calls == 0;
    if !received && (!in_time || calls > EARLY_LOOKS_MAX) || !connection.begin_attempt() {
        return;
    }
    let attached = attach(fd, connection);
    connection.end_attempt();
    match attached {
        Ok(()) => {
            MOVED.add(1);
            verbose(fd, "takes the offer of shared memory");
        }
        Err(libc::ENOENT) if !received => {}
        Err(error) => {
            verbose(
                fd,
                &format!("stays TCP: {}", std::io::Error::from_raw_os_error(error)),
            );
            leave(fd, connection);
        }
    }
}

/// Takes a connection out of the table: it stays TCP for good.
pub(crate) fn leave(fd: c_int, connection: &User) {
    for other in 0..connection::end() {
        if other == fd || connection::is_known(other) {
            let same = connection::get(other).is_some_and(|known| known.same(connection));
            if same {
                connection::remove(other);
            }
        }
    }
}

fn attach(fd: c_int, connection: &User) -> Result<(), c_int> {
    let path = connection.path().ok_or(libc::ENOENT)?;
    let file = File::open(&path, 0)?;
    let segment = Segment::open(&file)?;
    if let Err(error) = segment.attach(&file) {
        segment.unmap();
        return Err(error);
    }
    let header = segment.header();
    header.sides[1]
        .nonblocking
        .store(u32::from(is_nonblocking(fd)), Ordering::Relaxed);
    let inline = real::option(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE).unwrap_or(0);
    header.sides[1]
        .urgent_inline
        .store(inline as u32, Ordering::Relaxed);
    let [from_connector, from_acceptor] = &header.lanes;
    if from_acceptor.enter_tcp() {
        from_acceptor.leave_tcp(connection.early_sent.load(Ordering::Acquire) as usize);
    }
    from_connector.add_tcp_received(connection.early_received.load(Ordering::Acquire) as usize);
    connection.set_segment(segment);
    // Release: the connector that sees it sees the lanes and the counts.
    header.state.store(ATTACHED, Ordering::Release);
    Ok(())
}

/// A descriptor that came from another program, by exec or over a Unix socket: its connection may have moved.
pub(crate) fn adopt(fd: c_int) {
    if fd < 0 || fd as usize >= connection::DESCRIPTORS_MAX || connection::is_known(fd) {
        return;
    }
    let Some((here, there)) = local(fd).zip(peer(fd)) else {
        return;
    };
    if !same_host(here, there) || !is_tcp(fd) {
        return;
    }
    for (role, from, to) in [(0, here, there), (1, there, here)] {
        let Some(path) = path(from, to) else {
            continue;
        };
        let Ok(file) = File::open(&path, 0) else {
            continue;
        };
        let Ok(segment) = Segment::open(&file) else {
            continue;
        };
        let side = &segment.header().sides[role as usize];
        if segment.header().state.load(Ordering::Acquire) != ATTACHED || !segment.is_whole(&file) {
            segment.unmap();
            continue;
        }
        side.forked.store(1, Ordering::Release);
        side.process.store(std::process::id(), Ordering::Relaxed);
        connection::insert(fd, &User::new(role, path, Some(segment)));
        verbose(fd, "came from another program, and is in shared memory");
        return;
    }
}

/// Adopts all descriptors that this program was started with.
pub(crate) fn adopt_inherited() {
    let Some(folder) = folder() else {
        return;
    };
    // No connection, no look at the descriptors.
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) {
        return;
    }
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<c_int> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.into_iter().for_each(adopt);
}

pub(crate) fn verbose(fd: c_int, what: &str) {
    if options().verbose {
        let address = |endpoint: Option<Endpoint>| {
            endpoint.map_or("?".to_owned(), |(ip, port)| {
                std::net::SocketAddr::new(ip, port).to_string()
            })
        };
        report(&format!(
            "{} to {}: {what}",
            address(local(fd)),
            address(peer(fd))
        ));
    }
}
