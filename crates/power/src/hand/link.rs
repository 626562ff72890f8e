//! A replica's connection to its master, and the beat on it.
//!
//! Between two beats the kernel wakes the replica only if as many bytes have arrived as the mark says
//! ([`mark`]). At a beat the mark is taken down, which wakes it for whatever lies there, and it stays down
//! until that was read: a mark that is put up again before the replica has run takes the wake-up back.
//!
//! ```text
//!          beat ordered             bytes lie there               what lay there was read
//!  Off ───────────────────► Up ◄──────────────────────► Down ◄──────────────────────────┐
//!   ▲                       │ ▲   look again, half a beat at most                       │
//!   │ beat ended, or        │ └───────── bytes came twice within a few beats ──┐        │
//!   └─ connection closed    └─ nothing came for SILENT_BEATS ─► Quiet ─────────┘  mark down
//! ```
//!
//! Whatever arrives is handed over within one beat: in Up at the next one, in Down and Quiet at once. In
//! Quiet nothing runs until bytes come, and a master's ping now and then begins no beat.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::pace::{self, Reading};
use crate::process;
use crate::system::{self, Connection};

/// The low-water mark as long as the rate is not known.
pub const MARK: i32 = 256 * 1024;
/// The lowest mark between two beats: below, a burst of a few writes would wake the replica.
const MARK_MIN: u64 = 64 * 1024;
/// The highest mark that is asked for. The kernel lowers it to half of its largest receive buffer
/// (`net.ipv4.tcp_rmem`), so that a mark is always reached before the master has to stop.
const MARK_MAX: u64 = 64 << 20;
/// A burst of so many beats' bytes wakes the replica early.
const MARK_BEATS: u64 = 4;
/// The rate is counted over so many beats: asking for the count costs more than asking what is unread.
const RATE_BEATS: u32 = 8;
/// The mark while the replica is to be woken for anything.
const ANYTHING: i32 = 1;
/// After so many beats without a byte, bytes are waited for instead.
const SILENT_BEATS: u32 = 4;
/// Bytes that come in Quiet later than so many beats after the ones before are pings, or single writes.
const TRICKLE_BEATS: u64 = 8;
/// The shortest beat: the kernel's timers are that exact, and a shorter one saves nothing.
pub const BEAT_MIN_NS: u64 = 1_000_000;

/// A connection that is batched.
#[derive(Debug)]
pub struct Link {
    pid: u32,
    descriptor: u32,
    /// The other end.
    pub master: SocketAddr,
    /// Whether the hand waits for its bytes.
    pub is_watched: bool,
    /// The socket's inode.
    pub inode: u64,
    socket: OwnedFd,
    /// The mark that was found.
    pub found: i32,
    state: State,
    /// The mark between two beats.
    mark: i32,
    /// The longest beat that is allowed.
    wanted_ns: u64,
    /// The beat that is set.
    beat_ns: u64,
    silent: u32,
    /// Bytes kept coming while the replica read what lay there: to tell them apart takes the count.
    flows: bool,
    /// Beats since bytes were counted, and the count.
    counted: (u32, Option<u64>),
    /// When bytes came in Quiet.
    came: Option<u64>,
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
    /// The bytes that had arrived when the mark was taken down, or somewhat later, if that was asked; since
    /// when it is down, and when to look again.
    Down {
        arrived: Option<u64>,
        since: u64,
        due: u64,
    },
    Quiet,
}

/// What a look at a link has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// It was not looked at whether the replica has read.
    No,
    /// The replica has read what lay there.
    Read,
    /// It has not, yet.
    Unread,
}

/// The mark for a stream of so many bytes a beat.
pub fn mark(bytes_per_beat: u64) -> i32 {
    let bytes = bytes_per_beat.saturating_mul(MARK_BEATS);
    // MARK_MAX is far below i32::MAX.
    bytes.clamp(MARK_MIN, MARK_MAX) as i32
}

impl Link {
    /// The connection of a process to its master, which is a duplicate of its descriptor.
    pub fn new(
        pid: u32,
        (descriptor, inode): (u32, u64),
        master: SocketAddr,
        socket: OwnedFd,
    ) -> std::io::Result<Self> {
        let found = system::low_water_mark(socket.as_fd())?;
        // Asked once, to find out now that this is not TCP, or that the kernel is too old.
        system::connection(socket.as_fd())?;
        Ok(Self {
            pid,
            descriptor,
            master,
            is_watched: false,
            inode,
            socket,
            found,
            state: State::Off,
            mark: MARK,
            wanted_ns: 0,
            beat_ns: 0,
            silent: 0,
            flows: false,
            counted: (0, None),
            came: None,
            counts: Counts::default(),
        })
    }

    /// Begins, changes or ends the beat. `shortest_ns` is the shortest one of all links, as far as there are
    /// others.
    pub fn beat(
        &mut self,
        now: u64,
        beat_ns: Option<u64>,
        shortest_ns: u64,
    ) -> std::io::Result<()> {
        match beat_ns {
            None => self.stop(),
            Some(beat_ns) => {
                self.wanted_ns = beat_ns.max(BEAT_MIN_NS);
                self.keep_step(now, shortest_ns.min(self.wanted_ns));
                match self.state {
                    State::Off => self.put_up(now),
                    State::Up { .. } | State::Down { .. } | State::Quiet => Ok(()),
                }
            }
        }
    }

    /// The beat that is allowed, while there is one.
    pub fn wanted_ns(&self) -> Option<u64> {
        match self.state {
            State::Off => None,
            State::Up { .. } | State::Down { .. } | State::Quiet => Some(self.wanted_ns),
        }
    }

    /// The beat of all has changed.
    pub fn keep_step(&mut self, now: u64, shortest_ns: u64) {
        self.beat_ns = pace::in_step(self.wanted_ns, shortest_ns);
        if let State::Up { due } = self.state {
            self.state = State::Up {
                due: due.min(self.next(now)),
            };
        }
    }

    /// Restores the mark that was found; whatever lies there is handed over.
    pub fn stop(&mut self) -> std::io::Result<()> {
        self.state = State::Off;
        self.silent = 0;
        self.counted = (0, None);
        system::set_low_water_mark(self.socket.as_fd(), self.found)
    }

    /// When something has to be done, if at any time.
    pub fn due(&self) -> Option<u64> {
        match self.state {
            State::Up { due } | State::Down { due, .. } => Some(due),
            State::Off | State::Quiet => None,
        }
    }

    /// Whether to call [`Self::bytes_came`] as soon as there are any, here or at another replica of the same
    /// master.
    pub fn waits_for_bytes(&self) -> bool {
        self.state == State::Quiet
    }

    /// Bytes have come after a silence, of which the replica is woken. If they are not the first ones lately,
    /// the beat begins: the mark goes up when they were read.
    pub fn bytes_came(&mut self, now: u64, reading: &Reading) {
        if self.state != State::Quiet {
            return;
        }
        let within = TRICKLE_BEATS * self.beat_ns;
        let before = self.came.replace(now);
        if before.is_some_and(|before| now.saturating_sub(before) <= within) {
            self.came = None;
            self.silent = 0;
            self.counted = (0, None);
            self.state = State::Down {
                arrived: None,
                since: now,
                due: now + reading.ns,
            };
        }
    }

    /// Does what is due. An error is the end of the connection.
    pub fn step(&mut self, now: u64, reading: &Reading) -> std::io::Result<Looked> {
        match self.state {
            State::Up { due } if due <= now => self.begin(now, reading).map(|()| Looked::No),
            State::Down {
                arrived,
                since,
                due,
            } if due <= now => self.look(now, arrived, since, reading),
            State::Off | State::Up { .. } | State::Down { .. } | State::Quiet => Ok(Looked::No),
        }
    }

    /// A beat: whatever lies there is handed over.
    fn begin(&mut self, now: u64, reading: &Reading) -> std::io::Result<()> {
        self.counted.0 += 1;
        let mut arrived = None;
        let unread = match self.flows || self.counted.0 >= RATE_BEATS {
            true => {
                let seen = self.seen()?;
                self.count(seen.received);
                arrived = Some(seen.received);
                seen.unread
            }
            false => system::unread(self.socket.as_fd())?,
        };
        if unread > 0 {
            self.silent = 0;
            self.counts.beats += 1;
            self.take_down()?;
            self.state = State::Down {
                arrived,
                since: now,
                due: now + reading.ns,
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
        self.came = Some(now);
        self.take_down()
    }

    /// Whether what lay there was read.
    fn look(
        &mut self,
        now: u64,
        arrived: Option<u64>,
        since: u64,
        reading: &Reading,
    ) -> std::io::Result<Looked> {
        // Mostly nothing has come since, and this is the cheapest question.
        if !self.flows && system::unread(self.socket.as_fd())? == 0 {
            self.put_up(now)?;
            return Ok(Looked::Read);
        }
        let seen = self.seen()?;
        self.flows = seen.unread > 0;
        let read = seen.received.saturating_sub(seen.unread);
        if seen.unread == 0 || arrived.is_some_and(|arrived| read >= arrived) {
            self.put_up(now)?;
            return Ok(Looked::Read);
        }
        if now.saturating_sub(since) >= self.beat_ns / 2 {
            self.counts.slow += 1;
            self.put_up(now)?;
            return Ok(Looked::Unread);
        }
        self.state = State::Down {
            // Later than when the mark was taken down: it is read later than what lay there then.
            arrived: arrived.or(Some(seen.received)),
            since,
            due: now + reading.ns,
        };
        Ok(Looked::Unread)
    }

    /// Learns the rate, and the mark from it.
    fn count(&mut self, received: u64) {
        if self.counted.0 < RATE_BEATS && self.counted.1.is_some() {
            return;
        }
        if let (beats @ 1.., Some(before)) = self.counted {
            let wanted = mark(received.saturating_sub(before) / u64::from(beats));
            // It rises at once. A little less changes nothing, and one burst is not forgotten at once.
            if wanted > self.mark || wanted < self.mark / 2 {
                self.mark = wanted.max(self.mark / 2);
            }
        }
        self.counted = (0, Some(received));
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
        system::set_low_water_mark(self.socket.as_fd(), self.mark)
    }

    fn take_down(&self) -> std::io::Result<()> {
        system::set_low_water_mark(self.socket.as_fd(), ANYTHING)
    }

    /// The next beat: a multiple of the beat's length, so that all links are served together.
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
mod tests;
