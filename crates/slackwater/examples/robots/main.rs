//! The program with the operators of robots: collision avoidance and scan matching. `make demo-robots` runs
//! it with a simulator, and `docs/robots.md` explains the queries.
//!
//! ```text
//! cargo run --example robots -- run crates/slackwater/examples/robots/avoid.sql
//! cargo run --example robots -- run crates/slackwater/examples/robots/slam.sql
//! ```

mod correlate;
mod matchers;
mod orca;
mod planners;
mod slam;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    slackwater::main_with(|functions| {
        planners::add(functions);
        matchers::add(functions);
    })
}
