//! The program with operators of its own:
//!
//! ```text
//! cargo run --example custom_operators -- run crates/slackwater/examples/custom_operators/changes.sql
//! cargo run --example custom_operators -- run crates/slackwater/examples/custom_operators/scans.sql
//! ```

mod operators;
mod scans;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    slackwater::main_with(|functions| {
        operators::add(functions);
        scans::add(functions);
    })
}
