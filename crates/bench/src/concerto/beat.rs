//! The beat: a replica is woken for its replication stream every T, and not for each write.
//!
//! ```text
//!           mark 256 KiB            mark 1: the kernel reports what has arrived
//! ──────────────────────────┬───────┬─────────────────────────────┬──────────
//!                           T       read: mark 256 KiB again      2 T
//! ```
//!
//! The replica's end of its replication connection is duplicated into this process (`pidfd_getfd`), which
//! sets its low-water mark (`SO_RCVLOWAT`). Bytes below the mark don't wake the replica. Every T the mark is
//! set to 1 until the replica has read what had arrived, at most for [`HOLD_MAX`]: epoll asks again for the
//! mark when the woken thread runs, so a mark that is back too soon hides the bytes from it.
//!
//! The power manager does the same for users; this is the experiment's own, so that both can be compared.
//! When the beat ends, the mark is 1, as it was found.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::time::{ClockId, clock_gettime};
use slackwater_engine::time::now_ns;

use crate::common::sleep_until;

/// The mark between beats: more than arrives in one, and few enough bytes for a receive buffer.
const MARK_BYTES: i32 = 256 << 10;

/// How long the mark stays low at most if the replica does not read.
const HOLD_MAX: Duration = Duration::from_millis(4);

/// How often the beat looks whether the replica has read.
const LOOK_NS: u64 = 100_000;

/// A beat, which ends when it is dropped.
pub struct Beat {
    is_over: Arc<Mutex<bool>>,
    thread: Option<JoinHandle<u64>>,
}

impl Beat {
    /// Beats on a replica's connection to its master.
    ///
    /// # Errors
    ///
    /// If this process may not duplicate descriptors of the replica, or it has no such connection.
    pub fn start(replica_pid: u32, master: SocketAddr, interval: Duration) -> Result<Beat, String> {
        let socket = connection(replica_pid, master)?;
        let is_over = Arc::new(Mutex::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let begin_ns = now_ns();
            let interval_ns = interval.as_nanos() as u64;
            // The connection may end before the beat: then there is nothing to be woken for.
            let _ = set_mark(&socket, MARK_BYTES);
            while !*told.lock().unwrap_or_else(PoisonError::into_inner) {
                let passed = (now_ns() - begin_ns) / interval_ns + 1;
                sleep_until(begin_ns + passed * interval_ns);
                if beat(&socket).is_err() {
                    break;
                }
            }
            let _ = set_mark(&socket, 1);
            let used = clock_gettime(ClockId::ThreadCPUTime);
            used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
        });
        Ok(Beat {
            is_over,
            thread: Some(thread),
        })
    }

    /// Ends the beat, and returns the CPU time that it has used, in nanoseconds.
    pub fn end(mut self) -> u64 {
        self.finish()
    }

    fn finish(&mut self) -> u64 {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.finish();
    }
}

fn beat(socket: &OwnedFd) -> io::Result<()> {
    if unread(socket)? == 0 {
        return Ok(());
    }
    set_mark(socket, 1)?;
    let begin_ns = now_ns();
    while now_ns() - begin_ns < HOLD_MAX.as_nanos() as u64 {
        sleep_until(now_ns() + LOOK_NS);
        if unread(socket)? == 0 {
            break;
        }
    }
    set_mark(socket, MARK_BYTES)
}

/// Bytes that have arrived and were not read.
fn unread(socket: &OwnedFd) -> io::Result<u64> {
    rustix::io::ioctl_fionread(socket).map_err(io::Error::from)
}

fn set_mark(socket: &OwnedFd, bytes: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer is to a number of the length that is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A duplicate of the process's socket whose other end is at this address.
fn connection(pid: u32, peer: SocketAddr) -> Result<OwnedFd, String> {
    let failed = |error: io::Error| {
        let fix = "run it as root, or without the beat";
        format!("process {pid}: its connection can't be duplicated: {error}\n  = {fix}")
    };
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let process = pidfd_open(number, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed)?;
    for file in files.flatten() {
        let is_socket = std::fs::read_link(file.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let number = file.file_name().to_string_lossy().parse::<i32>();
        let (true, Ok(number)) = (is_socket, number) else {
            continue;
        };
        let socket = pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
        let socket = socket.map_err(|error| failed(error.into()))?;
        // A socket that listens has no other end.
        let other = rustix::net::getpeername(&socket).ok().flatten();
        if other.and_then(|other| SocketAddr::try_from(other).ok()) == Some(peer) {
            return Ok(socket);
        }
    }
    Err(failed(io::Error::other(format!(
        "it is not connected to {peer}"
    ))))
}
