//! `slackwater`: see `slackwater --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    slackwater::cli::main()
}
