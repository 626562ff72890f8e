//! `slackwater bench` and `slackwater power`: separate programs, started as git starts its commands.
//!
//! The experiments are not part of the product: `slackwater-bench` is another program over the same library.
//! The power manager may run as root, and so it has no SQL and no rows in it. Both are looked for in the
//! folder of this program and then in `PATH`. They replace this process, so their exit code, their signals
//! and their output are those of the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

/// The names of the programs.
const BENCH: &str = "slackwater-bench";
const POWER: &str = "slackwater-power";

/// What is handed on.
#[derive(Args)]
pub(super) struct Arguments {
    /// Its own arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    words: Vec<OsString>,
}

/// What the help of the commands ends with.
pub(super) const BENCH_HELP: &str = "\
The experiments are in a separate program, slackwater-bench, which this command starts from the folder of
slackwater or from PATH. Without arguments it lists the experiments. To build it:
cargo build --release -p slackwater-bench";
pub(super) const POWER_HELP: &str = "\
The power manager is a separate program, slackwater-power, which this command starts from the folder of
slackwater or from PATH. To build it: cargo build --release -p slackwater-power";

/// The environment variable that tells the program with the experiments which engine to measure.
pub const PROGRAM_VARIABLE: &str = "SLACKWATER_PROGRAM";

/// Becomes `slackwater-bench`; returns only if that fails, with what to tell the user.
pub(super) fn become_bench(arguments: &Arguments) -> String {
    become_program(BENCH, "the program with the experiments", &arguments.words)
}

/// Becomes `slackwater-power`; returns only if that fails, with what to tell the user.
pub(super) fn become_power(arguments: &Arguments) -> String {
    become_program(POWER, "the power manager", &arguments.words)
}

fn become_program(name: &str, what: &str, arguments: &[OsString]) -> String {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return format!("the path of this program: {error}"),
    };
    let beside = this.with_file_name(name);
    // A name without a folder is looked for in PATH.
    let program = match beside.is_file() {
        true => beside,
        false => PathBuf::from(name),
    };
    let mut command = Command::new(&program);
    let error = command.args(arguments).env(PROGRAM_VARIABLE, &this).exec();
    if error.kind() != ErrorKind::NotFound {
        return format!("{}: {error}", program.display());
    }
    let folder = this.parent().unwrap_or(&this).display();
    format!(
        "{name}, {what}, is neither in {folder} nor in PATH\n  \
         = build it with: cargo build --release -p {name}"
    )
}
