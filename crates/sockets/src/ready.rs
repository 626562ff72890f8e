//! What is ready: the lanes say it of connections in shared memory, the kernel of everything else; and how
//! `poll`, `select` and `epoll_wait` wait for both.
//!
//! The bits of `poll` and of `epoll` are the same on Linux.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::lane::{SOCKET, Way, announce};
use crate::options::{Wait, options};
use crate::real;
use crate::statistics::SLEEPS;
use crate::stream::{Look, Stream};

pub(crate) const IN: u32 = libc::EPOLLIN as u32 | libc::EPOLLRDNORM as u32;
pub(crate) const OUT: u32 =
    libc::EPOLLOUT as u32 | libc::EPOLLWRNORM as u32 | libc::EPOLLWRBAND as u32;
pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
/// Reported whether they were asked for or not.
pub(crate) const ALWAYS: u32 = libc::EPOLLERR as u32 | libc::EPOLLHUP as u32;

/// The length of a sleep in which nobody can wake: the other side still sends data over the socket.
const UNHEARD_NS: u64 = 1_000_000;
/// With `--wait sleep`: timed sleeps before the wait announces itself.
const SLEEPS_NS: u64 = 10_000_000;
/// A wait that spins asks the kernel for other descriptors so often.
const KERNEL_NS: u64 = 20_000;

impl Stream<'_> {
    /// What the lanes alone say.
    pub(crate) fn lanes_ready(&self) -> u32 {
        let mut ready = 0;
        if self.hears_bells_only() {
            let lane = self.receives();
            let ended = lane.has_ended();
            let readable = lane.head() != lane.tail()
                || ended
                || self.side().ends_reading.load(Ordering::Relaxed) != 0
                || self.side().error.load(Ordering::Relaxed) != 0;
            ready |= if readable { IN } else { 0 } | if ended { RDHUP } else { 0 };
        }
        let lane = self.sends();
        if lane.way() == Way::Ring && (lane.has_ended() || lane.has_room(self.lane_bytes())) {
            ready |= OUT;
        }
        ready
    }

    /// What the kernel is to be asked for, if the program asks for this.
    pub(crate) fn kernel_events(&self, wanted: u32) -> u32 {
        let mut events = wanted;
        if self.sends().way() == Way::Ring {
            events &= !OUT;
        }
        if self.hears_bells_only() && wanted & (IN | OUT | RDHUP) != 0 {
            events |= libc::EPOLLIN as u32 | RDHUP;
        }
        events
    }

    /// What is ready, when the kernel has said this.
    pub(crate) fn combined(&self, kernel: u32, wanted: u32) -> u32 {
        let mut ready = kernel;
        if self.hears_bells_only() {
            let mut gone = kernel & (RDHUP | ALWAYS) != 0;
            if kernel & IN != 0 {
                match self.look() {
                    Look::End | Look::Error(libc::ECONNRESET | libc::EPIPE) => gone = true,
                    Look::Error(error) => {
                        self.keep_error(error);
                        gone = true;
                    }
                    Look::Bells | Look::Nothing => {}
                }
            }
            ready &= !(IN | RDHUP);
            if gone {
                ready |= IN | RDHUP;
                // The kernel takes bells that nobody has heard for bytes, and says that it was a reset.
                if !self.was_reset() {
                    ready &= !ALWAYS;
                }
                if self.sends().has_ended() {
                    ready |= libc::EPOLLHUP as u32;
                }
                // Nobody makes room any more: a write says so.
                if self.sends().way() == Way::Ring {
                    ready |= OUT;
                }
            }
        } else if self.sends().way() == Way::Ring {
            ready &= !OUT;
        }
        (ready | self.lanes_ready()) & (wanted | ALWAYS)
    }

    /// Announces a sleep in the kernel; true if nobody can wake it.
    pub(crate) fn announce(&self, wanted: u32) -> bool {
        if wanted & (IN | RDHUP) != 0 && self.receives().is_ready() {
            announce(&self.receives().reader_sleeps.0, SOCKET);
        }
        let lane = self.sends();
        if wanted & OUT == 0 || lane.way() != Way::Ring || lane.has_room(self.lane_bytes()) {
            return false;
        }
        announce(&lane.writer_sleeps.0, SOCKET);
        self.receives().way() != Way::Ring
    }
}

/// A call that waits for several descriptors.
pub(crate) trait Waiting {
    /// Whether a lane has something to report.
    fn lanes(&mut self) -> bool;
    /// Announces the sleep to the other sides of all lanes; true if one of them can't wake it.
    fn announce(&mut self) -> bool;
    /// Waits in the kernel, for ever without a time; whether there is something to report, lanes included.
    fn kernel(&mut self, ns: Option<u64>) -> Result<bool, c_int>;
}

/// Waits until there is something to report, or the time is over.
pub(crate) fn wait(waiting: &mut impl Waiting, timeout_ns: Option<u64>) -> Result<bool, c_int> {
    if timeout_ns == Some(0) || waiting.lanes() {
        return waiting.kernel(Some(0));
    }
    let start = real::now_ns();
    let elapsed = || real::now_ns() - start;
    let left = |most: u64| timeout_ns.map_or(most, |ns| ns.saturating_sub(elapsed()).min(most));
    let mut asked = start;
    while elapsed() < left(u64::MAX).min(options().spin_ns) {
        for _ in 0..8 {
            if waiting.lanes() {
                return waiting.kernel(Some(0));
            }
            std::hint::spin_loop();
        }
        if real::now_ns() - asked > KERNEL_NS {
            if waiting.kernel(Some(0))? {
                return Ok(true);
            }
            std::thread::yield_now();
            asked = real::now_ns();
        }
    }
    if options().wait == Wait::Sleep {
        let from = real::now_ns();
        while real::now_ns() - from < SLEEPS_NS.max(options().sleep_ns) && left(1) > 0 {
            SLEEPS.add(1);
            if waiting.kernel(Some(left(options().sleep_ns)))? {
                return Ok(true);
            }
        }
    }
    loop {
        let unheard = waiting.announce();
        if waiting.lanes() {
            return waiting.kernel(Some(0));
        }
        let most = if unheard { UNHEARD_NS } else { u64::MAX };
        SLEEPS.add(1);
        let ns = if timeout_ns.is_none() && !unheard {
            None
        } else {
            Some(left(most))
        };
        if waiting.kernel(ns)? {
            return Ok(true);
        }
        if left(1) == 0 {
            return Ok(false);
        }
    }
}
