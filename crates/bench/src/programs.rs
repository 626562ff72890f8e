//! The programs that experiments start: the engine as users run it, the queries by hand, and parts of
//! the experiment itself.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::Command;

use slackwater::PROGRAM_VARIABLE;

/// The engine: the program that started this one as its `bench`, or `slackwater` beside this one.
///
/// # Errors
///
/// When there is none.
pub fn engine() -> Result<PathBuf, String> {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(program.into());
    }
    beside("slackwater", "cargo build --release -p slackwater makes it")
}

/// The queries written by hand that the engine is compared with.
///
/// # Errors
///
/// When the program is not there; the message says how to make it.
pub fn by_hand() -> Result<PathBuf, String> {
    let hint = "it is the program written by hand that the engine is compared with: cargo build --release -p \
                slackwater-bench makes it";
    beside("slackwater-limit", hint)
}

/// The command that starts a part of an experiment as a process of its own; `descriptor` is its socket
/// to whoever measures.
///
/// # Errors
///
/// When the path of this program is not known.
pub fn part(name: &str, descriptor: RawFd) -> Result<Command, String> {
    let mut command = Command::new(itself()?);
    command.args([name, "--control"]);
    command.arg(descriptor.to_string());
    Ok(command)
}

/// The program `name` in the folder of this one.
fn beside(name: &str, hint: &str) -> Result<PathBuf, String> {
    let program = itself()?.with_file_name(name);
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("{}: not found\n  = {hint}", program.display())),
    }
}

fn itself() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))
}
