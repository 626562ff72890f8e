//! The program: everything that is neither data path nor pure decision.
//!
//! ```text
//! main.rs (command line) → run.rs → compile (slackwater-sql) → plan.rs (slackwater-control)
//!                                 → catalog.rs (slackwater-connect) → engine's runtime → report.rs
//! ```

pub mod bench;
pub mod broadcast;
pub mod calibrate;
pub mod catalog;
pub mod cli;
pub mod explain;
mod live;
pub mod machine;
pub mod measure;
pub mod plan;
mod processes;
pub mod report;
pub mod run;
mod signals;
mod tally;
mod tuner;
