//! Arrow's C data interface and its capsules: columns cross to other libraries of the process, and come from
//! them, without being copied. <https://arrow.apache.org/docs/format/CDataInterface.html>
//!
//! It is written by hand for the types of the engine: Arrow's own implementation is behind a feature that
//! would compile Arrow and DataFusion a second time, for the program without it and for the module with it.
//!
//! - A structure that is exported owns what it points to, until its consumer calls `release`.
//! - A structure that is imported is moved out of its capsule, and released when the last column that uses it
//!   is dropped, on whatever thread that is.

mod export;
mod format;
mod import;
mod object;
mod stream;

use std::ffi::{c_char, c_int, c_void};

pub use object::{
    array_capsules, batch_capsules, chunks, column, is_arrow, rows, rows_schema,
    rows_schema_capsule, schema_capsule, stream_capsule,
};

/// `struct ArrowSchema`.
#[repr(C)]
#[derive(Debug)]
pub struct CSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut CSchema,
    dictionary: *mut CSchema,
    release: Option<unsafe extern "C" fn(*mut CSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
#[derive(Debug)]
pub struct CArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut CArray,
    dictionary: *mut CArray,
    release: Option<unsafe extern "C" fn(*mut CArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
#[derive(Debug)]
pub struct CStream {
    get_schema: Option<unsafe extern "C" fn(*mut CStream, *mut CSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut CStream, *mut CArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut CStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut CStream)>,
    private_data: *mut c_void,
}

/// The flag of a column that may have NULLs.
const NULLABLE: i64 = 2;

/// What is common to the three structures.
macro_rules! structure {
    ($name:ident) => {
        impl $name {
            /// A structure that holds nothing, as one that was moved or released.
            pub fn empty() -> $name {
                // SAFETY: all bits zero are null pointers, zero, and no callback.
                unsafe { std::mem::zeroed() }
            }

            /// Moves the structure out of where it is; what remains there is released.
            ///
            /// # Safety
            ///
            /// `from` points to a valid structure that nobody else uses.
            pub unsafe fn taken(from: *mut $name) -> $name {
                // SAFETY: as the caller promises.
                unsafe { std::ptr::replace(from, $name::empty()) }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: it is valid, and was not released: its producer clears the callback then.
                    unsafe { release(self) }
                }
            }
        }

        // SAFETY: the interface demands that a structure may be moved, and released, on any thread.
        unsafe impl Send for $name {}
    };
}

structure!(CSchema);
structure!(CArray);
structure!(CStream);

// SAFETY: an imported array is only read, by any number of threads, until it is dropped.
unsafe impl Sync for CArray {}
