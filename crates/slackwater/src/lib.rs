//! The program: everything that is neither data path nor pure decision.
//!
//! ```text
//! main.rs (command line) → run.rs → compile (slackwater-sql) → planner.rs, plan.rs (slackwater-control)
//!                                 → catalog.rs (slackwater-connect) → engine's runtime → report.rs
//! ```

mod attempt;
pub mod bench;
pub mod broadcast;
pub mod calibrate;
pub mod catalog;
mod checkpoints;
pub mod cli;
pub mod costs;
mod crew;
pub mod explain;
mod incarnations;
mod live;
pub mod machine;
pub mod measure;
mod parallel;
pub mod plan;
pub mod planner;
mod processes;
mod progress;
mod rebalancer;
pub mod report;
pub mod run;
mod signals;
pub mod slow;
mod tally;
mod tuner;
mod watch;
