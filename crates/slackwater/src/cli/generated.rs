//! What is generated from the command line's description: completions of shells and manual pages.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use super::{CommandLine, complain};
use crate::terminal::{FAILED, print};

/// Prints the script with which a shell completes this command line.
pub(super) fn completions(shell: clap_complete::Shell) -> ExitCode {
    // Into memory first, because writing into a closed pipe would panic.
    let mut script = Vec::new();
    let mut command = CommandLine::command();
    clap_complete::generate(shell, &mut command, "slackwater", &mut script);
    print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Writes a manual page for the program and for each of its commands.
pub(super) fn manual(folder: &Path) -> ExitCode {
    match clap_mangen::generate_to(CommandLine::command(), folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{}: {error}", folder.display()), FAILED),
    }
}
