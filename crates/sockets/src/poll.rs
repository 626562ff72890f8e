//! `poll` and `select`. Calls without a connection in shared memory go to the kernel as they are.

use std::ffi::c_int;

use libc::{fd_set, pollfd, sigset_t};

use crate::connection::{self, User};
use crate::epoll;
use crate::ready::{IN, OUT, Waiting, wait};
use crate::real;
use crate::stream::Stream;

/// A descriptor whose readiness the kernel alone does not know.
enum Watched {
    Connection(User),
    /// Another `epoll` set.
    Set,
}

/// A call of `poll`.
struct Polled<'a> {
    fds: &'a mut [pollfd],
    /// What the kernel is asked.
    asked: Vec<pollfd>,
    watched: Vec<(usize, Watched)>,
    mask: *const sigset_t,
    ready: c_int,
}

/// The connections in shared memory among descriptors.
fn watched(fds: &[pollfd]) -> Vec<(usize, Watched)> {
    let mut watched = Vec::new();
    for (index, fd) in fds.iter().enumerate() {
        if connection::is_known(fd.fd)
            && let Some(user) = connection::get(fd.fd)
        {
            if Stream::known(fd.fd, &user).is_some_and(|stream| stream.is_shared()) {
                watched.push((index, Watched::Connection(user)));
            }
        } else if epoll::is_shared(fd.fd) {
            watched.push((index, Watched::Set));
        }
    }
    watched
}

/// `poll` with a time-out in nanoseconds. Nothing if the kernel is to do it alone.
pub(crate) fn poll(
    fds: &mut [pollfd],
    timeout_ns: Option<u64>,
    mask: *const sigset_t,
) -> Option<Result<c_int, c_int>> {
    let watched = watched(fds);
    if watched.is_empty() {
        return None;
    }
    let asked = fds.to_vec();
    let mut polled = Polled {
        fds,
        asked,
        watched,
        mask,
        ready: 0,
    };
    Some(wait(&mut polled, timeout_ns).map(|_| polled.ready))
}

impl Polled<'_> {
    fn each(&self, mut action: impl FnMut(usize, &pollfd, Option<&Stream>) -> bool) -> bool {
        let mut any = false;
        for (index, watched) in &self.watched {
            let Some(fd) = self.fds.get(*index) else {
                continue;
            };
            any |= match watched {
                Watched::Connection(user) => Stream::known(fd.fd, user)
                    .is_some_and(|stream| action(*index, fd, Some(&stream))),
                Watched::Set => action(*index, fd, None),
            };
        }
        any
    }
}

fn bits(events: i16) -> u32 {
    u32::from(events as u16)
}

impl Waiting for Polled<'_> {
    fn lanes(&mut self) -> bool {
        self.each(|_, fd, stream| {
            let ready = match stream {
                Some(stream) => stream.lanes_ready(),
                None if epoll::lanes(fd.fd) => IN,
                None => 0,
            };
            ready & bits(fd.events) != 0
        })
    }

    fn announce(&mut self) -> bool {
        self.each(|_, fd, stream| match stream {
            Some(stream) => stream.announce(bits(fd.events)),
            None => epoll::announce(fd.fd),
        })
    }

    fn kernel(&mut self, ns: Option<u64>) -> Result<bool, c_int> {
        for (index, watched) in &self.watched {
            if let (Watched::Connection(user), Some(fd), Some(asked)) =
                (watched, self.fds.get(*index), self.asked.get_mut(*index))
                && let Some(stream) = Stream::known(fd.fd, user)
            {
                asked.events = stream.kernel_events(bits(fd.events)) as i16;
            }
        }
        let time = ns.map(real::timespec_of);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.asked.len() as libc::nfds_t;
        if real::ppoll(self.asked.as_mut_ptr(), count, time, self.mask) < 0 {
            return Err(real::errno());
        }
        for (fd, asked) in self.fds.iter_mut().zip(&self.asked) {
            fd.revents = asked.revents;
        }
        for (index, watched) in &self.watched {
            let Some(fd) = self.fds.get_mut(*index) else {
                continue;
            };
            match watched {
                Watched::Connection(user) => {
                    if let Some(stream) = Stream::known(fd.fd, user) {
                        fd.revents = stream.combined(bits(fd.revents), bits(fd.events)) as i16;
                    }
                }
                Watched::Set if epoll::lanes(fd.fd) => fd.revents |= fd.events & libc::POLLIN,
                Watched::Set => {
                    if fd.revents & libc::POLLIN != 0 && !epoll::has_more_than_bells(fd.fd) {
                        fd.revents &= !libc::POLLIN;
                    }
                }
            }
        }
        self.ready = self.fds.iter().filter(|fd| fd.revents != 0).count() as c_int;
        Ok(self.ready > 0)
    }
}

/// The sets of a `select`; a null pointer is an empty set.
#[derive(Clone, Copy)]
pub(crate) struct Sets {
    pub(crate) count: c_int,
    pub(crate) read: *mut fd_set,
    pub(crate) write: *mut fd_set,
    pub(crate) except: *mut fd_set,
}

/// Bits of a word of a set: programs may give sets that are larger than the C library's type.
const WORD: usize = usize::BITS as usize;

fn has(set: *mut fd_set, fd: usize) -> bool {
    // SAFETY: the program's set has at least `count` bits, and `fd` is below it.
    !set.is_null() && unsafe { *set.cast::<usize>().add(fd / WORD) } & (1 << (fd % WORD)) != 0
}

fn put(set: *mut fd_set, fd: usize, ready: bool) -> c_int {
    if !has(set, fd) {
        return 0;
    }
    if !ready {
        // SAFETY: as above.
        unsafe { *set.cast::<usize>().add(fd / WORD) &= !(1 << (fd % WORD)) };
    }
    c_int::from(ready)
}

/// `select` by `poll`. Nothing if the kernel is to do it alone.
pub(crate) fn select(
    sets: Sets,
    timeout_ns: Option<u64>,
    mask: *const sigset_t,
) -> Option<Result<c_int, c_int>> {
    let mut fds = Vec::new();
    for fd in 0..usize::try_from(sets.count).ok()? {
        let read = if has(sets.read, fd) { libc::POLLIN } else { 0 };
        let write = if has(sets.write, fd) {
            libc::POLLOUT
        } else {
            0
        };
        let except = if has(sets.except, fd) {
            libc::POLLPRI
        } else {
            0
        };
        if read | write | except != 0 {
            fds.push(pollfd {
                fd: fd as c_int,
                events: read | write | except,
                revents: 0,
            });
        }
    }
    let result = poll(&mut fds, timeout_ns, mask)?;
    if result.is_err() {
        return Some(result);
    }
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Some(Err(libc::EBADF));
    }
    let errors = libc::POLLERR | libc::POLLHUP;
    let mut ready = 0;
    for fd in &fds {
        let place = fd.fd as usize;
        ready += put(
            sets.read,
            place,
            bits(fd.revents) & IN != 0 || fd.revents & errors != 0,
        );
        ready += put(
            sets.write,
            place,
            bits(fd.revents) & OUT != 0 || fd.revents & libc::POLLERR != 0,
        );
        ready += put(sets.except, place, fd.revents & libc::POLLPRI != 0);
    }
    Some(Ok(ready))
}
