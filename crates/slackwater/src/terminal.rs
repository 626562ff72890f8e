//! Standard output, standard error, and exit codes.

use std::io::Write;

/// The query could not be run because the command line or the SQL is wrong.
pub(crate) const USAGE: u8 = 2;
/// The query failed.
pub(crate) const FAILED: u8 = 1;

/// Writes to standard error; errors are ignored.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
