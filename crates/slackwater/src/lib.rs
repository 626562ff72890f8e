//! The program: everything that is neither data path nor pure decision.
//!
//! ```text
//! cli, shell → run → supervisor → hosts → engine's runtime
//!               │        └ tuner, rebalancer, live, tally (beside a run) ─► report
//!               └ compile (slackwater-sql) → planner, plan (slackwater-control), catalog (slackwater-connect)
//! ```
//!
//! Modules stand in the order of their layers: each imports from those above it in this list. The table is in
//! `tools/tidy/src/layers.rs`.

/// The standard library's panics where standard error takes nothing: a log on a full disk would end the
/// query.
macro_rules! eprintln {
    ($($words:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}\n", format_args!($($words)*)),
        ))
    };
}

// What all others may use: the report, this machine, and what the program says.
pub mod machine;
pub mod measure;
mod probe;
pub mod report;
pub mod script;
pub mod signals;
pub mod slow;
mod terminal;

// What is known of this host and of queries that have run.
pub mod calibrate;
pub mod costs;

// Orchestration: from connectors and checkpoints to a plan, to hosts that run it, and to who follows it.
pub mod catalog;
mod checkpoints;
mod notices;

pub mod broadcast;
mod parallel;
pub mod plan;
pub mod planner;

pub mod hosts;

pub mod explain;
mod live;
mod progress;
mod rebalancer;
mod tally;
mod tuner;

mod supervisor;

// A run, and who asks for it.
pub mod run;

pub mod cli;
pub mod shell;

pub use cli::PROGRAM_VARIABLE;

/// The allocator of the program, to be named in that of a build of your own, too. Operators keep many small
/// pieces of memory and chunks are made and dropped by one thread: glibc's `malloc` costs a fifth (a query
/// that reads JSON) to a third (joins of streams) more CPU time.
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
