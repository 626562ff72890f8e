//! Estimates when the bytes in a socket arrived.
//!
//! The kernel doesn't report it, so this keeps the latest time before which they can't have arrived: the last
//! poll that found the socket empty, or the end of a wait that an arrival would have ended. A poll that
//! leaves bytes unread records how many: any further bytes arrived later.

/// The state of one socket.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// The earliest time at which the next byte can have arrived.
    since_ns: u64,
    /// After this many more bytes, the earliest time for later ones.
    mark: Option<(u64, u64)>,
}

impl Arrivals {
    /// An empty socket.
    pub(crate) fn new(now_ns: u64) -> Arrivals {
        Arrivals {
            since_ns: now_ns,
            mark: None,
        }
    }

    /// Bytes were read; returns the earliest time at which the oldest of them can have arrived. Until
    /// `watched_ns` the worker would have been woken for bytes in an empty socket.
    pub(crate) fn read(&mut self, bytes: usize, watched_ns: u64) -> u64 {
        if self.mark.is_none() {
            self.since_ns = self.since_ns.max(watched_ns);
        }
        let since_ns = self.since_ns;
        if let Some((left, time_ns)) = &mut self.mark {
            *left = left.saturating_sub(bytes as u64);
            if *left == 0 {
                self.since_ns = *time_ns;
                self.mark = None;
            }
        }
        since_ns
    }

    /// A poll that began at `begin_ns` has found nothing, or nothing more.
    pub(crate) fn emptied(&mut self, begin_ns: u64) {
        *self = Arrivals::new(begin_ns);
    }

    /// A poll leaves this many bytes unread.
    pub(crate) fn left(&mut self, bytes: u64, now_ns: u64) {
        self.mark.get_or_insert((bytes, now_ns));
    }

    /// Whether a poll that leaves bytes unread should report how many.
    pub(crate) fn wants_mark(&self) -> bool {
        self.mark.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_found_after_a_sleep_may_have_arrived_at_its_start() {
        let mut arrivals = Arrivals::new(10);
        arrivals.emptied(100);
        assert_eq!(arrivals.read(5, 0), 100);
        // A wait for descriptors that ended at 300: nothing arrived before.
        arrivals.emptied(200);
        assert_eq!(arrivals.read(5, 300), 300);
        assert_eq!(arrivals.read(5, 300), 300);
    }

    #[test]
    fn unread_bytes_keep_their_age() {
        let mut arrivals = Arrivals::new(100);
        assert_eq!(arrivals.read(1_000, 0), 100);
        arrivals.left(50, 200);
        assert!(!arrivals.wants_mark());
        // A second poll in between changes nothing, and neither does a wait: there were bytes.
        arrivals.left(80, 250);
        assert_eq!(arrivals.read(30, 260), 100);
        assert_eq!(arrivals.read(30, 260), 100);
        assert_eq!(arrivals.read(30, 0), 200);
    }
}
