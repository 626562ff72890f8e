//! The program: everything that is neither data path nor pure decision.
//!
//! ```text
//! main.rs (command line) → run.rs → compile (slackwater-sql) → planner.rs, plan.rs (slackwater-control)
//!                                 → catalog.rs (slackwater-connect) → engine's runtime → report.rs
//! ```

/// The standard library's panics where standard error takes nothing: a log on a full disk would end the query.
macro_rules! eprintln {
    ($($words:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}\n", format_args!($($words)*)),
        ))
    };
}

pub mod broadcast;
pub mod calibrate;
pub mod catalog;
mod checkpoints;
pub mod cli;
pub mod costs;
pub mod explain;
pub mod hosts;
mod live;
pub mod machine;
pub mod measure;
mod notices;
mod parallel;
pub mod plan;
pub mod planner;
mod progress;
mod rebalancer;
pub mod report;
pub mod run;
pub mod script;
pub mod shell;
pub mod signals;
pub mod slow;
mod supervisor;
mod tally;
mod tuner;

pub use cli::PROGRAM_VARIABLE;

/// The allocator of the program, to be named in that of a build of your own, too. Operators keep many small
/// pieces of memory and chunks are made and dropped by one thread: glibc's `malloc` costs a fifth (a query that
/// reads JSON) to a third (joins of streams) more CPU time.
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
            cli::say(&format!("error: {error}\n"));
            std::process::ExitCode::from(cli::USAGE)
        }
    }
}
