//! `slackwater-bench`: the experiments, which `slackwater bench` starts.
//!
//! ```text
//! slackwater bench NAME ──► slackwater-bench NAME ──┬── slackwater run …    the engine as users run it
//!                                                   ├── slackwater-bench NAME-part    parts of an experiment
//!                                                   └── slackwater-limit, slackwater-peers    what it is compared with
//! ```
//!
//! Nothing of the product depends on this crate.

mod balance;
mod broadcast;
mod checkpoint;
mod chunking;
mod common;
mod experiments;
mod fleet;
mod hibench;
mod line;
mod link;
mod nexmark;
mod placement;
mod plot;
mod programs;
mod target;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use experiments::CommandLine;

/// The engine's, since experiments run parts of it in this process.
#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    match CommandLine::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
