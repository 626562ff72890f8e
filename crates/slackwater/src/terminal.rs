//! What the program says on its two outputs, and with which exit codes it ends.

use std::io::Write;

/// The query could not be run because the command line or the SQL is wrong.
pub(crate) const USAGE: u8 = 2;
/// The query failed.
pub(crate) const FAILED: u8 = 1;

/// Writes to standard error; where nobody reads it, there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints to standard output; a closed pipe is no reason to panic.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
