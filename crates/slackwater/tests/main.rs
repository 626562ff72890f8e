//! All tests of the program, in one binary: they share its build.

mod answers;
mod late_rows;
mod random;
mod support;
mod updates;
