//! All tests of the program, in one binary: they share its build.

mod answers;
mod calibrate;
mod changelog_operators;
mod checkpoints;
mod command_line;
mod copies;
mod crash;
mod doctor;
mod early_firing;
mod formats;
mod functions;
mod hibench;
mod host_files;
mod hosts;
mod idle;
mod input;
#[cfg(feature = "kafka")]
mod kafka;
mod killed;
mod late_rows;
mod latency;
mod links;
mod messages;
mod metrics;
mod mqtt;
mod nexmark;
mod notices;
mod operators;
mod orchestrators;
mod overload;
mod page;
mod parsers;
mod placement;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod postgres;
mod process;
mod processes;
mod pushes;
mod python_functions;
mod python_operators;
mod random;
mod reads;
mod redis;
mod robots;
mod server;
mod shell;
mod slides;
mod sql_files;
#[cfg(feature = "sqlite")]
mod sqlite;
mod standby;
mod support;
mod table_joins;
mod topologies;
mod traces;
mod updates;
mod views;
#[cfg(feature = "wasm")]
mod wasm_functions;
