//! Other processes of this host, as /proc shows them: start, threads, descriptors, connections.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use slackwater_control::power::Cpu;

use crate::message::Code;
use crate::system;

pub mod group;

/// The most threads of a process that are pinned: servers have a few, or one for each core.
pub const THREADS_MAX: usize = 1_024;
/// The most descriptors of a process that are looked at: a server with a connection for each of its clients.
const DESCRIPTORS_MAX: usize = 1 << 20;
/// The most connections of a host that are looked at.
const CONNECTIONS_MAX: usize = 1 << 21;
/// By how much a server may be wrong about how long it has run: it starts to count after it has started, in
/// whole seconds, by a clock that may be set.
const START_ERROR_NS: u64 = 5_000_000_000;

/// When a process or thread started, in ticks since boot; none if it is gone.
pub fn started(pid: u32) -> Option<u64> {
    field(pid, STARTED_AT)
}

/// The core on which a process's first thread ran last; none if it is gone.
pub fn ran_on(pid: u32) -> Option<Cpu> {
    field(pid, RAN_ON_AT)
}

fn field<T: std::str::FromStr>(pid: u32, at: usize) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A program's name may hold spaces and brackets: the fields come after the last bracket.
    let fields = text.get(text.rfind(')')? + 1..)?;
    fields.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// `starttime` and `processor` are the 22nd and 39th field of /proc/PID/stat; those after the name begin with
/// the third.
const STARTED_AT: usize = 22 - 3;
const RAN_ON_AT: usize = 39 - 3;

/// The threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
        .take(THREADS_MAX)
        .collect()
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A handle of a process, which never means another one.
pub fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// A duplicate of a process's descriptor.
pub fn duplicate(handle: &OwnedFd, descriptor: u32) -> std::io::Result<OwnedFd> {
    let descriptor = i32::try_from(descriptor).map_err(std::io::Error::other)?;
    Ok(pidfd_getfd(handle, descriptor, PidfdGetfdFlags::empty())?)
}

/// The inode of the socket that a descriptor of a process is, if it is one.
pub fn socket_inode(pid: u32, descriptor: u32) -> Option<u64> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    let inode = target
        .to_str()?
        .strip_prefix("socket:[")?
        .strip_suffix(']')?;
    inode.parse().ok()
}

/// The descriptor of a process that is a socket with one of these inodes, and the inode.
pub fn descriptor_of(pid: u32, inodes: &[u64]) -> Option<(u32, u64)> {
    if inodes.is_empty() {
        return None;
    }
    let mut descriptors = numbers(&format!("/proc/{pid}/fd")).take(DESCRIPTORS_MAX);
    descriptors.find_map(|descriptor| {
        let inode = socket_inode(pid, descriptor)?;
        inodes.contains(&inode).then_some((descriptor, inode))
    })
}

/// A TCP socket of a process's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    inode: u64,
}

/// States of include/net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const LISTENS: u8 = 10;

fn rows(pid: u32) -> impl Iterator<Item = Row> {
    let files = ["tcp", "tcp6"].map(|name| format!("/proc/{pid}/net/{name}"));
    let files = files.into_iter().filter_map(|path| File::open(path).ok());
    let lines = files.flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
    lines.take(CONNECTIONS_MAX).filter_map(|line| row(&line))
}

fn row(line: &str) -> Option<Row> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    // Queues, timer, retransmissions, user, and probes come before it.
    let inode = fields.nth(5)?.parse().ok()?;
    Some(Row {
        local,
        remote,
        state,
        inode,
    })
}

/// An address as the kernel prints it: words of four bytes in the host's order, in hexadecimal digits.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Whether a process listens at an address.
pub fn listens(pid: u32, address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let is_there = |row: &Row| {
        let local = row.local.ip();
        row.state == LISTENS
            && row.local.port() == address.port()
            && (local == ip || local.is_unspecified())
    };
    let inodes = rows(pid).filter(is_there).map(|row| row.inode);
    descriptor_of(pid, &inodes.collect::<Vec<u64>>()).is_some()
}

/// A process's descriptor of its connection to an address, and the socket's inode.
pub fn connection_to(pid: u32, address: SocketAddr) -> Option<(u32, u64)> {
    let ip = address.ip().to_canonical();
    let is_it = |row: &Row| {
        row.state == ESTABLISHED && row.remote.ip() == ip && row.remote.port() == address.port()
    };
    let inodes = rows(pid).filter(is_it).map(|row| row.inode);
    descriptor_of(pid, &inodes.collect::<Vec<u64>>())
}

/// Whether a process is the server that listens at an address and has run for so long; else why not. Of one
/// that the configuration names, the PID namespace may be another one.
pub fn verify(pid: u32, uptime_s: u64, address: SocketAddr, is_named: bool) -> Result<(), Code> {
    let started = started(pid).ok_or(Code::NoProcess)?;
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/pid")).ok();
    match (namespace(&pid.to_string()), namespace("self")) {
        (Some(theirs), Some(ours)) if theirs == ours || is_named => {}
        _ => return Err(Code::AnotherNamespace),
    }
    let started_ns = started.saturating_mul(1_000_000_000 / system::ticks_per_s());
    let ran_ns = system::since_boot_ns().saturating_sub(started_ns);
    if ran_ns.abs_diff(uptime_s.saturating_mul(1_000_000_000)) > START_ERROR_NS {
        return Err(Code::AnotherStart);
    }
    match listens(pid, address) {
        true => Ok(()),
        false => Err(Code::AnotherSocket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn uptime_s(pid: u32) -> u64 {
        let ticks = started(pid).unwrap();
        system::since_boot_ns() / 1_000_000_000 - ticks / system::ticks_per_s()
    }

    #[test]
    fn a_row_of_the_kernel_is_read() {
        let text = "   0: 0100007F:1F90 0200007F:C350 0A 00000000:00000000 00:00000000 00000000  \
                    1000        0 55361 1 0000000000000000 100 0 0 10 0";
        let row = row(text).unwrap();
        assert_eq!(row.local, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(row.remote, "127.0.0.2:50000".parse().unwrap());
        assert_eq!((row.state, row.inode), (LISTENS, 55_361));
        let mapped = address("0000000000000000FFFF00000100007F:0050");
        assert_eq!(mapped, Some("127.0.0.1:80".parse().unwrap()));
        let any = address("00000000000000000000000000000000:0050");
        assert_eq!(any, Some("[::]:80".parse().unwrap()));
        for text in [
            "",
            "0:0",
            "0100007F",
            "0100007G:0050",
            "é100007F:0050",
            "0100007F:FFFFF",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
        assert_eq!(
            super::row("  sl  local_address rem_address   st tx_queue"),
            None
        );
    }

    #[test]
    fn only_the_process_that_listens_is_verified() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pid = std::process::id();
        assert_eq!(verify(pid, uptime_s(pid), address, false), Ok(()));
        let long = uptime_s(pid) + 100;
        assert_eq!(verify(pid, long, address, true), Err(Code::AnotherStart));
        assert_eq!(verify(u32::MAX, 0, address, true), Err(Code::NoProcess));
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
        if started(parent).is_some() {
            assert_eq!(
                verify(parent, uptime_s(parent), address, true),
                Err(Code::AnotherSocket)
            );
        }
        drop(listener);
        assert_eq!(
            verify(pid, uptime_s(pid), address, false),
            Err(Code::AnotherSocket)
        );
    }

    #[test]
    fn a_connection_is_found_and_duplicated() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pid = std::process::id();
        assert_eq!(connection_to(pid, address), None);
        let stream = TcpStream::connect(address).unwrap();
        let (descriptor, inode) = connection_to(pid, address).unwrap();
        assert_eq!(socket_inode(pid, descriptor), Some(inode));
        let copy = duplicate(&handle(pid).unwrap(), descriptor).unwrap();
        let copy = TcpStream::from(copy);
        assert_eq!(copy.local_addr().unwrap(), stream.local_addr().unwrap());
        assert!(threads(pid).contains(&pid));
        let ran_on = ran_on(pid).unwrap();
        assert!((ran_on as usize) < system::CPUS_MAX);
    }
}
