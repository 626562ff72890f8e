//! The bell: it wakes a sleeping thread.
//!
//! A bell is an eventfd, because a thread can wait for it together with sockets. Strikes add up until the
//! bell is silenced, so a strike before the sleep is as good as one during it. `doorbell.rs` decides
//! whether to strike at all.
//!
//! Under loom the bell is a mutex and a condition variable with the same meaning, since loom can't see
//! into the kernel.

#[cfg(not(loom))]
pub(crate) use kernel::Bell;
#[cfg(loom)]
pub(crate) use model::Bell;

#[cfg(not(loom))]
mod kernel {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
    use rustix::io::Errno;

    #[derive(Debug)]
    pub(crate) struct Bell {
        eventfd: OwnedFd,
    }

    impl Bell {
        pub(crate) fn new() -> std::io::Result<Bell> {
            let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Bell { eventfd })
        }

        /// The bell of another process.
        pub(crate) fn of(eventfd: OwnedFd) -> Bell {
            Bell { eventfd }
        }

        /// Makes the descriptor readable, whether anyone waits for it or not.
        pub(crate) fn strike(&self) {
            loop {
                match rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()) {
                    Err(Errno::INTR) => {}
                    // The counter is full: the bell has been struck 2^64 - 2 times and not
                    // silenced, so it is readable, which is all that is wanted.
                    Ok(_) | Err(Errno::AGAIN) => return,
                    // An eventfd takes any eight bytes, so this descriptor from another process is not
                    // one: its owner is not woken, and notices that something is wrong.
                    Err(_) => return,
                }
            }
        }

        /// Clears all strikes so far.
        pub(crate) fn silence(&self) {
            let mut strikes = [0u8; 8];
            loop {
                match rustix::io::read(&self.eventfd, &mut strikes) {
                    Err(Errno::INTR) => {}
                    Ok(_) | Err(Errno::AGAIN) => return,
                    Err(error) => panic!("an eventfd that we own refused a read: {error}"),
                }
            }
        }
    }

    impl AsFd for Bell {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.eventfd.as_fd()
        }
    }
}

#[cfg(loom)]
mod model {
    use crate::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(crate) struct Bell {
        struck: Mutex<bool>,
        heard: Condvar,
    }

    impl Bell {
        pub(crate) fn new() -> std::io::Result<Bell> {
            Ok(Bell {
                struck: Mutex::new(false),
                heard: Condvar::new(),
            })
        }

        pub(crate) fn strike(&self) {
            *self.struck.lock().expect("no model panics under the lock") = true;
            self.heard.notify_one();
        }

        /// Sleeps until the bell is struck. Loom reports a sleep that nobody ends as a deadlock: this is
        /// how a model finds a lost wake-up.
        pub(crate) fn sleep(&self) {
            let mut struck = self.struck.lock().expect("no model panics under the lock");
            while !*struck {
                struck = self
                    .heard
                    .wait(struck)
                    .expect("no model panics under the lock");
            }
            *struck = false;
        }
    }
}
