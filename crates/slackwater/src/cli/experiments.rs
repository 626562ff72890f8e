//! `slackwater bench`: a program of its own, started as git starts its commands.
//!
//! The experiments are no part of the product: `slackwater-bench` is another program over the same library.
//! It is looked for beside this one and then in `PATH`, takes this process's place, and so its exit code,
//! its signals and its output are those of the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The program with the experiments.
const NAME: &str = "slackwater-bench";

/// The variable by which the program with the experiments knows which engine to measure.
pub const PROGRAM_VARIABLE: &str = "SLACKWATER_PROGRAM";

/// Becomes `slackwater-bench`; returns only if that fails, with what to tell the user.
pub(super) fn become_bench(arguments: &[OsString]) -> String {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return format!("the path of this program: {error}"),
    };
    let beside = this.with_file_name(NAME);
    // A name without a folder is looked for in PATH.
    let program = match beside.is_file() {
        true => beside,
        false => PathBuf::from(NAME),
    };
    let mut command = Command::new(&program);
    let error = command.args(arguments).env(PROGRAM_VARIABLE, &this).exec();
    if error.kind() != ErrorKind::NotFound {
        return format!("{}: {error}", program.display());
    }
    let folder = this.parent().unwrap_or(&this).display();
    format!(
        "the experiments are a program of their own, {NAME}, which is neither in {folder} nor in PATH\n  \
         = cargo build --release -p {NAME} builds it"
    )
}
