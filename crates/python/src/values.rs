//! Values of columns as Python objects, and Python objects as columns.
//!
//! For functions of one row, `to_pylist` and rows that are pushed as lists. Everything else crosses as Arrow.

mod from_python;
mod to_python;

pub use from_python::column_of;
pub use to_python::{Types, objects};
