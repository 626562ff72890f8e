//! A replica's connection to its master, and the beat on it.
//!
//! Between two beats the kernel wakes the replica only if [`MARK`] bytes have arrived. At a beat the mark is
//! taken down, which wakes it for whatever lies there, and it stays down until that was read: a mark that is
//! put up again before the replica has run takes the wake-up back.
//!
//! ```text
//!          beat ordered             bytes lie there               what lay there was read
//!  Off ───────────────────► Up ◄──────────────────────► Down ◄──────────────────────────┐
//!   ▲                       │ ▲   look again, half a beat at most                       │
//!   │ beat ended, or        │ └──────────────── bytes came ────────────┐                │
//!   └─ connection closed    └─ nothing came for SILENT_BEATS ─► Quiet ─┘  mark down, waits for bytes
//! ```
//!
//! Whatever arrives is handed over within one beat: in Up at the next one, in Down and Quiet at once. In
//! Quiet nothing runs until a byte comes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::process;
use crate::system::{self, Connection};

/// The low-water mark between two beats: a burst that fills it wakes the replica early. The kernel lowers it
/// to half of its largest receive buffer.
pub const MARK: i32 = 256 * 1024;
/// The mark while the replica is to be woken for anything.
const ANYTHING: i32 = 1;
/// After so many beats without a byte, bytes are waited for instead.
const SILENT_BEATS: u32 = 4;
/// The first time that a replica is given to read what lay there. The time that it takes is learned.
const READ_NS: u64 = 200_000;
/// The least time after which is looked whether a replica has read: below, looking costs more than it saves.
const READ_MIN_NS: u64 = 50_000;
/// The shortest beat: the kernel's timers are that exact, and a shorter one saves nothing.
pub const BEAT_MIN_NS: u64 = 1_000_000;

/// A connection that is batched.
#[derive(Debug)]
pub struct Link {
    pid: u32,
    descriptor: u32,
    /// The socket's inode.
    pub inode: u64,
    socket: OwnedFd,
    /// The mark that was found.
    pub found: i32,
    state: State,
    beat_ns: u64,
    read_ns: u64,
    silent: u32,
    /// What the beat has done.
    pub counts: Counts,
}

/// What a beat has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Beats at which something was handed over.
    pub beats: u64,
    /// Beats after which the replica had not read everything within half a beat.
    pub slow: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Off,
    Up {
        due: u64,
    },
    /// The bytes that had arrived when the mark was taken down, when that was, and when to look again.
    Down {
        arrived: u64,
        since: u64,
        due: u64,
    },
    Quiet,
}

impl Link {
    /// The connection of a process to its master, which is a duplicate of its descriptor.
    pub fn new(pid: u32, descriptor: u32, inode: u64, socket: OwnedFd) -> std::io::Result<Self> {
        let found = system::low_water_mark(socket.as_fd())?;
        // Asked once, to find out now that this is not TCP, or that the kernel is too old.
        system::connection(socket.as_fd())?;
        Ok(Self {
            pid,
            descriptor,
            inode,
            socket,
            found,
            state: State::Off,
            beat_ns: 0,
            read_ns: READ_NS,
            silent: 0,
            counts: Counts::default(),
        })
    }

    /// Begins, changes or ends the beat.
    pub fn beat(&mut self, now: u64, beat_ns: Option<u64>) -> std::io::Result<()> {
        match beat_ns {
            None => self.stop(),
            Some(beat_ns) => {
                self.beat_ns = beat_ns.max(BEAT_MIN_NS);
                match self.state {
                    State::Off => self.put_up(now),
                    State::Up { due } => {
                        self.state = State::Up {
                            due: due.min(self.next(now)),
                        };
                        Ok(())
                    }
                    State::Down { .. } | State::Quiet => Ok(()),
                }
            }
        }
    }

    /// Restores the mark that was found; whatever lies there is handed over.
    pub fn stop(&mut self) -> std::io::Result<()> {
        self.state = State::Off;
        self.silent = 0;
        system::set_low_water_mark(self.socket.as_fd(), self.found)
    }

    /// When something has to be done, if at any time.
    pub fn due(&self) -> Option<u64> {
        match self.state {
            State::Up { due } | State::Down { due, .. } => Some(due),
            State::Off | State::Quiet => None,
        }
    }

    /// Whether to call [`Self::bytes_came`] as soon as there are any.
    pub fn waits_for_bytes(&self) -> bool {
        self.state == State::Quiet
    }

    /// Bytes have come after a silence: the replica is woken by them, and the beat begins.
    pub fn bytes_came(&mut self, now: u64) -> std::io::Result<()> {
        match self.state {
            State::Quiet => {
                self.silent = 0;
                let seen = self.seen()?;
                // The replica reads; the mark goes up when it has.
                self.state = State::Down {
                    arrived: seen.received,
                    since: now,
                    due: now + self.read_ns,
                };
                Ok(())
            }
            State::Off | State::Up { .. } | State::Down { .. } => Ok(()),
        }
    }

    /// Does what is due. An error is the end of the connection.
    pub fn step(&mut self, now: u64) -> std::io::Result<()> {
        match self.state {
            State::Up { due } if due <= now => {
                let seen = self.seen()?;
                if seen.unread > 0 {
                    self.silent = 0;
                    self.counts.beats += 1;
                    self.take_down()?;
                    self.state = State::Down {
                        arrived: seen.received,
                        since: now,
                        due: now + self.read_ns,
                    };
                    return Ok(());
                }
                self.silent += 1;
                if self.silent < SILENT_BEATS {
                    self.state = State::Up {
                        due: self.next(now),
                    };
                    return Ok(());
                }
                self.state = State::Quiet;
                self.take_down()
            }
            State::Down {
                arrived,
                since,
                due,
            } if due <= now => {
                let seen = self.seen()?;
                if seen.received - seen.unread.min(seen.received) >= arrived {
                    if due - since <= self.read_ns {
                        self.read_ns = (self.read_ns * 3 / 4).max(READ_MIN_NS);
                    }
                    return self.put_up(now);
                }
                let most = self.beat_ns / 2;
                if now.saturating_sub(since) >= most {
                    self.counts.slow += 1;
                    return self.put_up(now);
                }
                self.read_ns = (self.read_ns * 2).min((self.beat_ns / 4).max(READ_MIN_NS));
                self.state = State::Down {
                    arrived,
                    since,
                    due: now + self.read_ns,
                };
                Ok(())
            }
            State::Off | State::Up { .. } | State::Down { .. } | State::Quiet => Ok(()),
        }
    }

    /// Whether the process still holds this very socket. A duplicate keeps a connection open that the replica
    /// has closed, so that its master would not hear of it.
    pub fn is_held(&self) -> bool {
        process::socket_inode(self.pid, self.descriptor) == Some(self.inode)
    }

    fn seen(&self) -> std::io::Result<Connection> {
        let seen = system::connection(self.socket.as_fd())?;
        match seen.established {
            true => Ok(seen),
            false => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    fn put_up(&mut self, now: u64) -> std::io::Result<()> {
        self.state = State::Up {
            due: self.next(now),
        };
        system::set_low_water_mark(self.socket.as_fd(), MARK)
    }

    fn take_down(&self) -> std::io::Result<()> {
        system::set_low_water_mark(self.socket.as_fd(), ANYTHING)
    }

    /// The next beat: a multiple of the beat's length, so that the links of one length are served together.
    fn next(&self, now: u64) -> u64 {
        (now / self.beat_ns + 1) * self.beat_ns
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const BEAT: u64 = 20_000_000;

    struct Ends {
        master: TcpStream,
        replica: TcpStream,
        link: Link,
    }

    fn ends() -> Ends {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let replica = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (master, _) = listener.accept().unwrap();
        let pid = std::process::id();
        let (descriptor, inode) =
            process::connection_to(pid, listener.local_addr().unwrap()).unwrap();
        let copy = replica.try_clone().unwrap();
        let link = Link::new(pid, descriptor, inode, copy.into()).unwrap();
        Ends {
            master,
            replica,
            link,
        }
    }

    impl Ends {
        fn mark(&self) -> i32 {
            system::low_water_mark(self.replica.as_fd()).unwrap()
        }

        /// Sends bytes, and returns when they have arrived.
        fn send(&mut self, bytes: &[u8]) {
            let before = system::connection(self.replica.as_fd()).unwrap().received;
            self.master.write_all(bytes).unwrap();
            while system::connection(self.replica.as_fd()).unwrap().received
                < before + bytes.len() as u64
            {}
        }

        fn step(&mut self) -> u64 {
            let now = self.link.due().unwrap();
            self.link.step(now).unwrap();
            now
        }
    }

    #[test]
    fn the_mark_is_down_until_all_was_read() {
        let mut ends = ends();
        ends.link.beat(1, Some(BEAT)).unwrap();
        assert_eq!((ends.mark(), ends.link.due()), (MARK, Some(BEAT)));
        ends.send(&[7; 3_000]);
        ends.step();
        assert_eq!((ends.mark(), ends.link.due()), (1, Some(BEAT + READ_NS)));
        ends.replica.read_exact(&mut [0; 1_000]).unwrap();
        ends.step();
        assert_eq!(ends.mark(), 1);
        // What comes meanwhile needs not be read.
        ends.send(&[7; 100]);
        ends.replica.read_exact(&mut [0; 2_000]).unwrap();
        ends.step();
        assert_eq!((ends.mark(), ends.link.due()), (MARK, Some(2 * BEAT)));
        ends.link.beat(1, None).unwrap();
        assert_eq!((ends.mark(), ends.link.due()), (1, None));
    }

    #[test]
    fn a_replica_that_does_not_read_gets_half_of_a_beat() {
        let mut ends = ends();
        ends.link.beat(1, Some(BEAT)).unwrap();
        ends.send(b"bytes");
        let began = ends.step();
        let mut now = began;
        while ends.mark() == 1 {
            now = ends.step();
            assert!(now <= began + BEAT);
        }
        assert!(now >= began + BEAT / 2);
        assert_eq!(ends.link.counts, Counts { beats: 1, slow: 1 });
    }

    #[test]
    fn silence_waits_for_bytes_with_the_mark_down() {
        let mut ends = ends();
        ends.link.beat(1, Some(BEAT)).unwrap();
        for _ in 0..SILENT_BEATS {
            assert!(!ends.link.waits_for_bytes());
            ends.step();
        }
        assert!(ends.link.waits_for_bytes());
        assert_eq!((ends.mark(), ends.link.due()), (1, None));
        ends.send(b"bytes");
        ends.link.bytes_came(1_000 * BEAT).unwrap();
        assert_eq!(
            (ends.mark(), ends.link.due()),
            (1, Some(1_000 * BEAT + READ_NS))
        );
        ends.replica.read_exact(&mut [0; 5]).unwrap();
        ends.step();
        assert_eq!((ends.mark(), ends.link.due()), (MARK, Some(1_001 * BEAT)));
    }

    #[test]
    fn a_connection_that_ends_is_seen() {
        let mut ends = ends();
        ends.link.beat(1, Some(BEAT)).unwrap();
        assert!(ends.link.is_held());
        drop(ends.master);
        let mut byte = [0; 1];
        assert_eq!(ends.replica.read(&mut byte).unwrap(), 0);
        assert!(ends.link.step(BEAT).is_err());
        drop(ends.replica);
        assert!(!ends.link.is_held());
    }
}
