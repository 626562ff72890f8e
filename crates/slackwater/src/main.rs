//! `slackwater`: see `slackwater --help`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    slackwater::cli::main()
}
