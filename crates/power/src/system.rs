//! The kernel's calls that neither std nor rustix has: times of other processes, marks of sockets, signals.
//!
//! All unsafe code of the crate is here. Each call passes the kernel memory of its own that lives longer than
//! the call, with its true size.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use slackwater_control::power::Cpu;

/// The most cores of a host, as the kernel's largest configuration has it.
pub const CPUS_MAX: usize = 8192;

/// Nanoseconds of a clock that stands still while the host sleeps.
pub fn now_ns() -> u64 {
    clock(rustix::time::ClockId::Monotonic)
}

/// Nanoseconds since the host booted; processes' start times are given in these.
pub fn since_boot_ns() -> u64 {
    clock(rustix::time::ClockId::Boottime)
}

fn clock(id: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time that a process has used, of all its threads, those that have ended among them. The kernel asks
/// for no permission.
pub fn cpu_time_ns(pid: u32) -> Option<u64> {
    /// PID_MAX_LIMIT of the kernel: larger numbers would name another process's clock.
    const PID_MAX: u32 = 1 << 22;
    if pid == 0 || pid > PID_MAX {
        return None;
    }
    let mut id: libc::clockid_t = 0;
    // SAFETY: `id` is a clock's id that the call fills.
    let result = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut id) };
    if result != 0 {
        return None;
    }
    // SAFETY: a timespec is plain numbers.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: `time` is a timespec that the call fills.
    let result = unsafe { libc::clock_gettime(id, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How many bytes wake a socket's reader.
pub fn low_water_mark(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut mark: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `mark` has the size that is passed along.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw mut mark).cast(),
            &mut size,
        )
    };
    checked(result).map(|_| mark)
}

/// Sets how many bytes wake a socket's reader. If as many are there already, it is woken at once.
pub fn set_low_water_mark(socket: BorrowedFd<'_>, mark: i32) -> io::Result<()> {
    // SAFETY: `mark` is an int, and its size is passed along.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const mark).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    checked(result).map(|_| ())
}

/// A connection, as the kernel sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Whether both ends are open.
    pub established: bool,
    /// Bytes that have arrived since it was made.
    pub received: u64,
    /// Bytes that have arrived and that nobody has read.
    pub unread: u64,
}

/// Looks at a TCP connection.
pub fn connection(socket: BorrowedFd<'_>) -> io::Result<Connection> {
    /// `tcpi_bytes_received` of `struct tcp_info` in include/uapi/linux/tcp.h.
    const RECEIVED_AT: usize = 128;
    let mut info = [0u8; RECEIVED_AT + 8];
    let mut size = info.len() as libc::socklen_t;
    // SAFETY: `info` has the size that is passed along; the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut size,
        )
    };
    checked(result)?;
    if (size as usize) < info.len() {
        return Err(io::Error::other(
            "this kernel does not count a connection's bytes",
        ));
    }
    let mut received = [0u8; 8];
    received.copy_from_slice(&info[RECEIVED_AT..]);
    // After that count, so that a byte which comes in between is not taken for one that was read.
    let unread = unread(socket)?;
    Ok(Connection {
        // TCP_ESTABLISHED.
        established: info[0] == 1,
        received: u64::from_ne_bytes(received),
        unread,
    })
}

/// Bytes that have arrived on a connection and that nobody has read.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(socket)?)
}

/// The cores on which a thread may run.
pub fn affinity(tid: u32) -> io::Result<Vec<Cpu>> {
    let mut mask = [0u64; CPUS_MAX / 64];
    // SAFETY: the kernel writes at most the size that is passed along.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid as libc::pid_t,
            size_of_val(&mask),
            mask.as_mut_ptr(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let has = |cpu: &Cpu| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1;
    Ok((0..CPUS_MAX as Cpu).filter(has).collect())
}

/// Sets the cores on which a thread may run.
pub fn set_affinity(tid: u32, cpus: &[Cpu]) -> io::Result<()> {
    let mut mask = [0u64; CPUS_MAX / 64];
    for &cpu in cpus.iter().filter(|cpu| (**cpu as usize) < CPUS_MAX) {
        mask[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads at most the size that is passed along.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid as libc::pid_t,
            size_of_val(&mask),
            mask.as_ptr(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor from which the given signals are read; they no longer interrupt this thread.
pub fn signals(numbers: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: a signal set is plain numbers, which sigemptyset fills.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: `set` is a signal set of this function, for all three calls.
    unsafe {
        libc::sigemptyset(&mut set);
        for &number in numbers {
            libc::sigaddset(&mut set, number);
        }
        checked(libc::sigprocmask(
            libc::SIG_SETMASK,
            &set,
            std::ptr::null_mut(),
        ))?;
    }
    // SAFETY: as above; the descriptor is new, and nobody else owns it.
    unsafe {
        let descriptor = checked(libc::signalfd(
            -1,
            &set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// What a process does with a signal.
pub fn dispose(number: i32, ignore: bool) {
    let action = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither action is code of this process.
    unsafe {
        libc::signal(number, action);
    }
}

/// Makes this process the last that the kernel ends when memory is short. Needs a permission; it is no error
/// to have none.
pub fn end_last() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Has this process run soon after it is woken: how late a beat begins is part of every lag. Needs a
/// permission; it is no error to have none.
pub fn hurry() {
    /// A process of this niceness is put before those that have the usual one.
    const NICENESS: i32 = -10;
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// Becomes another user, for good: without its groups, and without a way to gain permissions again.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the calls take numbers; the list of groups is empty.
    unsafe {
        checked(libc::setgroups(0, std::ptr::null()))?;
        checked(libc::setresgid(gid, gid, gid))?;
        checked(libc::setresuid(uid, uid, uid))?;
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    Ok(())
}

/// How many clock ticks of /proc a second has.
pub fn ticks_per_s() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn the_mark_of_a_connection_is_set_and_its_bytes_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        assert_eq!(low_water_mark(receiver.as_fd()).unwrap(), 1);
        set_low_water_mark(receiver.as_fd(), 1000).unwrap();
        assert_eq!(low_water_mark(receiver.as_fd()).unwrap(), 1000);
        set_low_water_mark(receiver.as_fd(), 1).unwrap();
        sender.write_all(b"seven b").unwrap();
        receiver.peek(&mut [0]).unwrap();
        let seen = connection(receiver.as_fd()).unwrap();
        assert_eq!((seen.established, seen.received, seen.unread), (true, 7, 7));
        receiver.read_exact(&mut [0; 5]).unwrap();
        let seen = connection(receiver.as_fd()).unwrap();
        assert_eq!((seen.received, seen.unread), (7, 2));
        drop(sender);
        receiver.read_to_end(&mut Vec::new()).unwrap();
        assert!(!connection(receiver.as_fd()).unwrap().established);
    }

    #[test]
    fn a_thread_is_pinned_and_let_go() {
        let found = affinity(0).unwrap();
        set_affinity(0, &found[..1]).unwrap();
        assert_eq!(affinity(0).unwrap(), found[..1]);
        set_affinity(0, &found).unwrap();
        assert_eq!(affinity(0).unwrap(), found);
        assert!(set_affinity(0, &[]).is_err());
    }

    #[test]
    fn times_of_a_process_grow() {
        let before = cpu_time_ns(std::process::id()).unwrap();
        let mut sum = 0u64;
        while cpu_time_ns(std::process::id()) == Some(before) {
            sum = sum.wrapping_add(1);
        }
        assert_eq!(cpu_time_ns(0), None);
        assert_eq!(cpu_time_ns(u32::MAX >> 1), None);
    }
}
