//! The program: everything that is neither the data path nor a pure decision.
//!
//! ```text
//! cli, shell → run → supervisor → hosts → engine's runtime
//!               │        └ tuner, rebalancer, live, metrics, tally, doctor (beside a run) ─► report
//!               └ compile (slackwater-sql) → planner, plan (slackwater-control), catalog
//!
//! (slackwater-connect)
//! ```
//!
//! Modules are listed in the order of their layers: each imports only from those above it. The table is in
//! `tools/tidy/src/layers.rs`.

/// Replaces the standard library's macro, which panics if standard error can't be written: a log on a full
/// disk would end the query.
macro_rules! eprintln {
    ($($words:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}\n", format_args!($($words)*)),
        ))
    };
}

// For all other modules: the report, this machine, and the program's output.
mod address;
pub mod machine;
pub mod measure;
mod probe;
pub mod report;
pub mod script;
mod service;
pub mod signals;
pub mod slow;
mod split;
mod targets;
mod terminal;
pub mod traces;

// What is known about this host and about earlier runs.
pub mod calibrate;
pub mod costs;

// Orchestration: from connectors and checkpoints to a plan, to the hosts that run it, and to what watches it.
pub mod catalog;
mod checkpoints;
mod notices;

mod bound;
pub mod copies;

pub mod broadcast;
mod messages;
mod parallel;
pub mod plan;
pub mod planner;

mod cluster;
pub mod hosts;

mod doctor;
pub mod explain;
mod live;
mod metrics;
mod progress;
mod rebalancer;
mod tally;
mod tuner;

mod standby;

mod supervisor;

pub mod views;

mod redis;

pub mod reads;

// A run, what it would find in checkpoints, a server of runs, and the command line and shell that start them.
pub mod check;
pub mod run;

pub mod embed;

pub mod server;

pub mod cli;
pub mod shell;

pub use cli::PROGRAM_VARIABLE;

/// The program's allocator; a build of your own should use it, too. Operators keep many small pieces of
/// memory, and one thread creates and drops chunks: with glibc's `malloc` a query takes a fifth (reading
/// JSON) to a third (joins of streams) more CPU time.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;
/// ```
pub use mimalloc::MiMalloc as Allocator;
pub use slackwater_sql::functions;

/// Runs the command line of this process in a build with functions of its own: see `docs/functions.md`
/// and `examples/custom_functions`.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     slackwater::main_with(|functions| {
///         functions.scalar("twice", |number: i64| number * 2);
///     })
///
/// }
/// ```
pub fn main_with(add: impl FnOnce(&mut functions::Functions)) -> std::process::ExitCode {
    let mut added = functions::Functions::default();
    add(&mut added);
    match functions::install(added) {
        Ok(()) => cli::main(),
        Err(error) => {
            terminal::say(&format!("error: {error}\n"));
            std::process::ExitCode::from(terminal::USAGE)
        }
    }
}
