//! A connection of this process, and the table of descriptors.
//!
//! A descriptor in the table is a TCP socket within this host that may move to shared memory. Objects are
//! never freed, only used again, so that a thread may still look at one that another thread has closed. A
//! descriptor holds a use, and so does each call that is inside: the last one unmaps the memory.

use std::ffi::{CString, c_int};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::lock::Guarded;
use crate::segment::{Header, Segment};

/// Descriptors from this on stay TCP.
pub(crate) const DESCRIPTORS_MAX: usize = 65_536;

static TABLE: [AtomicPtr<Connection>; DESCRIPTORS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS_MAX];
/// How often each descriptor was closed: what remembers a descriptor remembers this, too.
static CLOSED: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
/// The highest descriptor that was ever in the table, plus one.
static END: AtomicU32 = AtomicU32::new(0);
/// Objects that are used again.
static FREE: Guarded<Vec<&'static Connection>> = Guarded::new(Vec::new());
/// This process. A child of vfork has the parent's memory, but descriptors of its own.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// In `early`: an attempt to attach is being made; below it are the calls that are inside.
const ATTEMPTED: u32 = 1 << 31;

pub(crate) struct Connection {
    /// Descriptors, and calls that are inside.
    uses: AtomicU32,
    descriptors: AtomicU32,
    live: AtomicBool,
    /// 0 for the connector, 1 for the acceptor: the index of its side and of the lane that it writes.
    role: AtomicU32,
    header: AtomicPtr<Header>,
    lane_bytes: AtomicU64,
    path: Guarded<Option<CString>>,

    /// Calls of an acceptor that has not found its offer yet, and what they have moved over the socket.
    early: AtomicU32,
    pub(crate) early_sent: AtomicU64,
    pub(crate) early_received: AtomicU64,
    pub(crate) early_calls: AtomicU32,

    /// The counts of bytes don't agree with the kernel's: somebody goes around this library.
    pub(crate) stays_tcp: AtomicBool,
    /// The peer's departures that this side has looked after.
    pub(crate) departures_seen: AtomicU32,
    /// Sends since the reader has moved, and where it was.
    pub(crate) unread_sends: AtomicU32,
    pub(crate) head_seen: AtomicU64,
    /// How often the ring was full for a send that doesn't wait: it re-arms edge-triggered waits.
    pub(crate) refusals: AtomicU32,
}

/// A use of a connection by a call or by a descriptor.
pub(crate) struct User(&'static Connection);

impl Deref for User {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let connection = self.0;
        if connection.uses.fetch_sub(1, Ordering::AcqRel) == 1
            && connection.live.swap(false, Ordering::AcqRel)
        {
            connection.clear();
            // In a signal handler that came while this thread was inside, the object is lost.
            FREE.with(|free| free.push(connection));
        }
    }
}

impl User {
    fn of(connection: &'static Connection) -> Self {
        connection.uses.fetch_add(1, Ordering::AcqRel);
        Self(connection)
    }

    pub(crate) fn same(&self, other: &User) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// A connection that no descriptor leads to yet.
    pub(crate) fn new(role: u32, path: CString, segment: Option<Segment>) -> Self {
        let free = FREE.with(Vec::pop).flatten();
        let connection = free.unwrap_or_else(|| Box::leak(Box::new(Connection::new())));
        connection.role.store(role, Ordering::Relaxed);
        connection.path.with(|place| *place = Some(path));
        if let Some(segment) = segment {
            connection.set_segment(segment);
        }
        connection.live.store(true, Ordering::Release);
        Self::of(connection)
    }
}

impl Connection {
    const fn new() -> Self {
        Self {
            uses: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            live: AtomicBool::new(false),
            role: AtomicU32::new(0),
            header: AtomicPtr::new(std::ptr::null_mut()),
            lane_bytes: AtomicU64::new(0),
            path: Guarded::new(None),
            early: AtomicU32::new(0),
            early_sent: AtomicU64::new(0),
            early_received: AtomicU64::new(0),
            early_calls: AtomicU32::new(0),
            stays_tcp: AtomicBool::new(false),
            departures_seen: AtomicU32::new(0),
            unread_sends: AtomicU32::new(0),
            head_seen: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
        }
    }

    fn clear(&self) {
        if let Some(segment) = self.segment() {
            self.header.store(std::ptr::null_mut(), Ordering::Release);
            segment.unmap();
        }
        self.path.with(|path| *path = None);
        self.early.store(0, Ordering::Relaxed);
        self.early_sent.store(0, Ordering::Relaxed);
        self.early_received.store(0, Ordering::Relaxed);
        self.early_calls.store(0, Ordering::Relaxed);
        self.stays_tcp.store(false, Ordering::Relaxed);
        self.departures_seen.store(0, Ordering::Relaxed);
        self.unread_sends.store(0, Ordering::Relaxed);
        self.head_seen.store(0, Ordering::Relaxed);
        self.refusals.store(0, Ordering::Relaxed);
    }

    pub(crate) fn role(&self) -> usize {
        self.role.load(Ordering::Relaxed) as usize & 1
    }

    /// The shared memory; an acceptor has none until it has found its offer.
    pub(crate) fn segment(&self) -> Option<Segment> {
        let header = self.header.load(Ordering::Acquire);
        let lane_bytes = self.lane_bytes.load(Ordering::Relaxed);
        (!header.is_null()).then(|| Segment::from_parts(header, lane_bytes))
    }

    pub(crate) fn set_segment(&self, segment: Segment) {
        self.lane_bytes
            .store(segment.lane_bytes(), Ordering::Relaxed);
        self.header.store(segment.address(), Ordering::Release);
    }

    pub(crate) fn path(&self) -> Option<CString> {
        self.path.with(|path| path.clone()).flatten()
    }

    /// A call on the plain socket begins, before the offer was found; false if it was found meanwhile.
    pub(crate) fn enter_early(&self) -> bool {
        loop {
            let enter = |now: u32| (now & ATTEMPTED == 0).then_some(now + 1);
            let entered = self
                .early
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
                .is_ok();
            if self.segment().is_some() {
                if entered {
                    self.leave_early();
                }
                return false;
            }
            if entered {
                return true;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn leave_early(&self) {
        self.early.fetch_sub(1, Ordering::AcqRel);
    }

    /// An attempt to attach begins; false while calls are on the plain socket, whose bytes are not counted
    /// yet.
    pub(crate) fn begin_attempt(&self) -> bool {
        self.early
            .compare_exchange(0, ATTEMPTED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(crate) fn end_attempt(&self) {
        self.early.fetch_and(!ATTEMPTED, Ordering::AcqRel);
    }
}

fn place(fd: c_int) -> Option<&'static AtomicPtr<Connection>> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The connection of a descriptor.
pub(crate) fn get(fd: c_int) -> Option<User> {
    let place = place(fd)?;
    loop {
        let found = place.load(Ordering::Acquire);
        if found.is_null() {
            return None;
        }
        // SAFETY: objects are never freed.
        let user = User::of(unsafe { &*found });
        // It may have been closed, and used again, before the use was counted.
        if std::ptr::eq(place.load(Ordering::Acquire), found) {
            return Some(user);
        }
    }
}

/// Whether a descriptor is in the table.
pub(crate) fn is_known(fd: c_int) -> bool {
    place(fd).is_some_and(|place| !place.load(Ordering::Relaxed).is_null())
}

/// Lets a descriptor lead to a connection.
pub(crate) fn insert(fd: c_int, connection: &User) {
    let Some(place) = place(fd) else {
        return;
    };
    let connection = connection.0;
    connection.uses.fetch_add(1, Ordering::AcqRel);
    connection.descriptors.fetch_add(1, Ordering::AcqRel);
    END.fetch_max(fd as u32 + 1, Ordering::AcqRel);
    let before = place.swap(std::ptr::from_ref(connection).cast_mut(), Ordering::AcqRel);
    // Somebody closed that descriptor without this library: its use ends now.
    taken(before);
}

fn taken(connection: *mut Connection) -> Option<(User, bool)> {
    if connection.is_null() {
        return None;
    }
    // SAFETY: objects are never freed.
    let connection = unsafe { &*connection };
    let last = connection.descriptors.fetch_sub(1, Ordering::AcqRel) == 1;
    // The use of the descriptor goes over to the caller.
    Some((User(connection), last))
}

/// Takes a descriptor out of the table: its connection, and whether it was the last one of this process.
pub(crate) fn remove(fd: c_int) -> Option<(User, bool)> {
    taken(place(fd)?.swap(std::ptr::null_mut(), Ordering::AcqRel))
}

/// Counts that a descriptor was closed.
pub(crate) fn note_closed(fd: c_int) {
    if let Some(count) = usize::try_from(fd).ok().and_then(|fd| CLOSED.get(fd)) {
        count.fetch_add(1, Ordering::AcqRel);
    }
}

/// How often a descriptor was closed.
pub(crate) fn times_closed(fd: c_int) -> u32 {
    let count = usize::try_from(fd).ok().and_then(|fd| CLOSED.get(fd));
    count.map_or(0, |count| count.load(Ordering::Acquire))
}

/// Runs an action for each descriptor in the table.
pub(crate) fn for_each(mut action: impl FnMut(c_int, &User)) {
    for fd in 0..end() {
        if let Some(user) = get(fd) {
            action(fd, &user);
        }
    }
}

/// The end of the descriptors that may be in the table.
pub(crate) fn end() -> c_int {
    END.load(Ordering::Acquire) as c_int
}

/// This process is the one whose descriptors are in the table.
pub(crate) fn own_process() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Whether this is a child that shares the memory of its parent (vfork): the table is not its own.
pub(crate) fn is_guest() -> bool {
    PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// Before a fork: no object is on its way, and connections know that another process will have them.
pub(crate) fn hold_for_fork() {
    for fd in 0..end() {
        if let Some(connection) = get(fd)
            && let Some(segment) = connection.segment()
        {
            segment.header().sides[connection.role()]
                .forked
                .store(1, Ordering::Release);
        }
    }
    FREE.hold();
}

/// After a fork, in parent and child.
pub(crate) fn release_after_fork() {
    FREE.release();
}
