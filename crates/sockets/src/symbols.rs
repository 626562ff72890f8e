//! The symbols that stand in front of the C library's.
//!
//! Each looks into the table of descriptors; one that is not there costs a load. Nothing panics through them:
//! a panic is caught, and the call ends with EIO.
#![allow(missing_docs, reason = "they are the C library's")]

mod bytes;
mod descriptors;
mod readiness;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::ssize_t;

use crate::real::set_errno;

/// Runs what may panic: a bug of ours must not end the program.
fn guarded<R>(action: impl FnOnce() -> R) -> Result<R, c_int> {
    catch_unwind(AssertUnwindSafe(action)).map_err(|_| libc::EIO)
}

/// The C result of a number of bytes.
fn bytes_of(result: Result<usize, c_int>) -> ssize_t {
    match result {
        Ok(bytes) => bytes as ssize_t,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

/// The C result of a count.
fn count_of(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}
