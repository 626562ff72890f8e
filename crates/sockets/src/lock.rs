//! A lock in shared memory, which the processes of one side of a connection share after a fork.
//!
//! The word is the thread that holds it. A holder that was killed is found out by whoever waits, and the lock
//! is taken over: what it protects is published by one store at the end, so half of an operation is none.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

/// Looks at a held lock before it yields the core.
const SPINS: u32 = 200;
/// Yields before the holder is looked for, and between two looks.
const YIELDS: u32 = 100;

#[derive(Default)]
#[repr(transparent)]
pub(crate) struct Lock(AtomicU32);

/// The right to what the lock protects.
pub(crate) struct Held<'a>(&'a Lock);

thread_local! {
    /// This thread's number: asking the kernel costs more than a lock. A fork's child asks again.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

fn this_thread() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            // SAFETY: gettid has no arguments.
            thread.set(unsafe { libc::gettid() } as u32);
        }
        thread.get()
    })
}

/// In the child of a fork: its only thread has another number.
pub(crate) fn forget_thread() {
    THREAD.with(|thread| thread.set(0));
}

fn is_alive(thread: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let result = unsafe { libc::kill(thread as c_int, 0) };
    result == 0 || crate::real::errno() != libc::ESRCH
}

impl Lock {
    /// Waits for the lock; fails if this very thread holds it: a signal handler came in between.
    pub(crate) fn lock(&self) -> Result<Held<'_>, c_int> {
        let me = this_thread();
        let mut tries = 0_u32;
        loop {
            let holder =
                match self
                    .0
                    .compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed)
                {
                    Ok(_) => return Ok(Held(self)),
                    Err(0) => continue,
                    Err(holder) => holder,
                };
            if holder == me {
                return Err(libc::EAGAIN);
            }
            tries = tries.wrapping_add(1);
            if tries < SPINS {
                std::hint::spin_loop();
                continue;
            }
            if tries.is_multiple_of(YIELDS) && !is_alive(holder) {
                let taken =
                    self.0
                        .compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return Ok(Held(self));
                }
            }
            std::thread::yield_now();
        }
    }
}

/// A value of this process behind a lock.
pub(crate) struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives the value to one thread at a time.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: Lock(AtomicU32::new(0)),
            value: UnsafeCell::new(value),
        }
    }

    /// Nothing if this very thread is inside already: a signal handler came in between.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _held = self.lock.lock().ok()?;
        // SAFETY: the lock is held, and not by this thread before.
        Some(action(unsafe { &mut *self.value.get() }))
    }

    /// Before a fork: nobody is inside, in the child either.
    pub(crate) fn hold(&self) {
        if let Ok(held) = self.lock.lock() {
            std::mem::forget(held);
        }
    }

    /// After a fork, in parent and child.
    pub(crate) fn release(&self) {
        self.lock.0.store(0, Ordering::Release);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_holds_it_is_refused() {
        let lock = Lock::default();
        let held = lock.lock();
        assert!(held.is_ok());
        assert_eq!(lock.lock().err(), Some(libc::EAGAIN));
        drop(held);
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn a_lock_of_the_dead_is_taken_over() {
        let gone = std::process::Command::new("true")
            .spawn()
            .and_then(|mut child| {
                let id = child.id();
                child.wait().map(|_| id)
            });
        let lock = Lock(AtomicU32::new(gone.unwrap()));
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn one_thread_at_a_time() {
        static LOCK: Lock = Lock(AtomicU32::new(0));
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let held = LOCK.lock();
                        assert_eq!(INSIDE.fetch_add(1, Ordering::Relaxed), 0);
                        INSIDE.fetch_sub(1, Ordering::Relaxed);
                        drop(held);
                    }
                });
            }
        });
    }
}
