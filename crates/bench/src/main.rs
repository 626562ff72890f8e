//! `slackwater-bench`: the experiments, which `slackwater bench` starts.
//!
//! ```text
//! slackwater bench NAME ─► slackwater-bench NAME ─┬─ slackwater run …          the engine
//!                                                 ├─ slackwater-bench … -part  parts of an experiment
//!                                                 └─ slackwater-limit, -peers  what it is compared with
//! ```
//!
//! Nothing of the product depends on this crate.

mod balance;
mod broadcast;
mod checkpoint;
mod chunking;
mod common;
mod concerto;
mod experiments;
mod fleet;
mod hibench;
mod hosts;
mod lab;
mod line;
mod link;
mod nexmark;
mod part_process;
mod placement;
mod programs;
mod serve;
mod standby;
mod target;
mod usage;
mod wait;
mod worker_processes;

use std::process::ExitCode;

use clap::Parser;

use experiments::CommandLine;

/// The engine's allocator, because experiments run parts of the engine in this process.
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
