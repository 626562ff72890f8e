//! The program with operators, a source and formats of its own:
//!
//! ```text
//! cargo run --example custom_operators -- run crates/slackwater/examples/custom_operators/changes.sql
//! cargo run --example custom_operators -- run crates/slackwater/examples/custom_operators/ticks.sql
//! cargo run --example custom_operators -- run crates/slackwater/examples/custom_operators/updates.sql
//! ```

mod nmea;
mod operators;
mod scans;
mod sources;
mod updates;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    // Tables with 'connector' = 'custom', 'name' = 'ticks' read it, as long as it is offered.
    let _ticks = sources::offer();
    slackwater::main_with(|functions| {
        operators::add(functions);
        scans::add(functions);
        nmea::add(functions);
        updates::add(functions);
    })
}
