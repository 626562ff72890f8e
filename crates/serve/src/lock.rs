//! Locks that go on after a panic: what they guard is whole whenever they are free.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of somebody who had it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
