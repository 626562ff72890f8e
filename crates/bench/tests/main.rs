//! All tests of the experiments, in one binary. Those that run the engine start `slackwater` in the same
//! folder as `slackwater-bench`: `cargo test --workspace` builds it, and so does `cargo build -p
//! slackwater`.

mod balance;
mod broadcast;
mod checkpoint;
mod chunking;
mod command_line;
mod concerto;
mod hibench;
mod hosts;
mod link;
mod nexmark;
mod placement;
mod standby;
mod support;
mod target;
mod wait;
