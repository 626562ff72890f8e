//! `slackwater-power`: see `slackwater-power --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    slackwater_power::cli::main()
}
