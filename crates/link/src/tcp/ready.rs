//! What is known of a connection's socket without asking it.
//!
//! Invariants:
//! - After a read that did not fill its buffer, or a write that the socket did not take, the socket is asked
//!   again only when the waiter has named it.
//! - An owner that neither waits nor looks at its waiter names nothing. Its calls ask every
//!   [`BLIND_CALLS`]th time, so a connection never stands still because of how its owner idles.

use crate::tcp::socket::Moved;
use crate::waiter::Watch;

/// The calls in a row without a look of the waiter, of which the last asks the socket. A worker that found
/// something makes two or three before it waits.
const BLIND_CALLS: u32 = 8;

/// Whether a socket may have bytes, or take some.
pub(super) struct Ready {
    /// `None` for a socket that nobody watches: it is always asked.
    watch: Option<Watch>,
    readable: bool,
    writable: bool,
    /// The looks of the waiter at the last call, and the calls since.
    looks: u32,
    calls: u32,
}

impl Ready {
    /// A connection that was just registered.
    pub(super) fn new(watch: Watch) -> Ready {
        Ready {
            looks: watch.looks(),
            watch: Some(watch),
            readable: true,
            writable: true,
            calls: 0,
        }
    }

    /// A socket that nobody watches.
    pub(super) fn unwatched() -> Ready {
        Ready {
            watch: None,
            readable: true,
            writable: true,
            looks: 0,
            calls: 0,
        }
    }

    /// The watch, for a socket that is no longer read from here.
    pub(super) fn into_watch(self) -> Option<Watch> {
        self.watch
    }

    /// Takes in what the waiter has reported. Called once for each call of the owner.
    #[inline]
    pub(super) fn look(&mut self) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let looks = watch.looks();
        self.calls = match std::mem::replace(&mut self.looks, looks) == looks {
            true => self.calls + 1,
            false => 0,
        };
        if watch.is_named() || self.calls >= BLIND_CALLS {
            self.ask();
        }
    }

    /// Makes the next read and the next write ask the socket, whatever is known.
    #[inline]
    pub(super) fn ask(&mut self) {
        (self.readable, self.writable, self.calls) = (true, true, 0);
    }

    /// Whether there may be something to read.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether the socket may take bytes after it took none.
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Notes a read into `room` bytes. `has_more` is the wire's: bytes that left the socket have no event.
    #[inline]
    pub(super) fn has_read(&mut self, moved: &std::io::Result<Moved>, room: usize, has_more: bool) {
        self.readable = match (&self.watch, moved) {
            // An end that came with the bytes has no event of its own.
            (Some(watch), Ok(Moved::Bytes(count))) => {
                *count == room || has_more || watch.has_ended()
            }
            (Some(_), Ok(Moved::WouldBlock)) => false,
            _ => true,
        };
    }

    /// Notes that the socket took nothing.
    #[inline]
    pub(super) fn is_full(&mut self) {
        self.writable = self.watch.is_none();
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::Waiter;
    use crate::tcp::socket;
    use crate::waiter::Interest;

    fn pair() -> (Waiter, Ready, UnixStream, UnixStream) {
        let waiter = Waiter::new().expect("a waiter");
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("a socket");
        let registrar = waiter.registrar();
        let watch = registrar.register(ours.as_fd(), Interest::Both);
        let ready = Ready::new(watch.expect("a watch"));
        (waiter, ready, ours, theirs)
    }

    fn read(ready: &mut Ready, ours: &UnixStream) -> usize {
        let mut room = [0; 16];
        let moved = socket::receive(ours.as_fd(), &mut room);
        ready.has_read(&moved, room.len(), false);
        match moved {
            Ok(Moved::Bytes(count)) => count,
            _ => 0,
        }
    }

    #[test]
    fn an_empty_socket_is_asked_again_when_it_was_named() {
        let (waiter, mut ready, ours, mut theirs) = pair();
        // What came before the registration.
        ready.look();
        assert!(ready.is_readable());
        assert_eq!(read(&mut ready, &ours), 0);
        for _ in 0..100 {
            waiter.look();
            ready.look();
            read_if_ready(&mut ready, &ours);
        }
        assert!(!ready.is_readable());
        theirs.write_all(&[1; 20]).expect("a write");
        waiter.look();
        ready.look();
        // A full buffer: there may be more.
        assert!(ready.is_readable());
        assert_eq!(read(&mut ready, &ours), 16);
        assert!(ready.is_readable());
        assert_eq!(read(&mut ready, &ours), 4);
        assert!(!ready.is_readable());
        // The end that comes with bytes is found by the read after them.
        theirs.write_all(&[1; 3]).expect("a write");
        drop(theirs);
        waiter.look();
        ready.look();
        assert_eq!(read(&mut ready, &ours), 3);
        assert!(ready.is_readable());
    }

    fn read_if_ready(ready: &mut Ready, ours: &UnixStream) {
        if ready.is_readable() {
            read(ready, ours);
        }
    }

    #[test]
    fn an_owner_that_never_looks_at_its_waiter_is_served() {
        let (_waiter, mut ready, ours, mut theirs) = pair();
        ready.look();
        read(&mut ready, &ours);
        theirs.write_all(&[1; 5]).expect("a write");
        let mut calls = 0;
        while !ready.is_readable() {
            ready.look();
            calls += 1;
        }
        assert!(calls <= BLIND_CALLS);
        assert_eq!(read(&mut ready, &ours), 5);
    }
}
