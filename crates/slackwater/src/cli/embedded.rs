//! The program inside of a shared library: a wheel has it once, in the Python module, and its `slackwater` is
//! a small program that loads the library and calls this.

use std::process::ExitCode;

/// Runs the command line of this process, which is not that of the caller's arguments, and returns the exit
/// code.
// SAFETY: no other function of this process has the name.
#[unsafe(no_mangle)]
pub extern "C" fn slackwater_main() -> i32 {
    let ended = super::main();
    // The number in it can't be read otherwise.
    let code = (0..=u8::MAX).find(|code| ExitCode::from(*code) == ended);
    code.unwrap_or(u8::MAX).into()
}
