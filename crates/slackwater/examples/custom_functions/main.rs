//! The program with functions of its own:
//!
//! ```text
//! cargo run --example custom_functions -- run crates/slackwater/examples/custom_functions/query.sql
//! ```

mod functions;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    slackwater::main_with(functions::add)
}
