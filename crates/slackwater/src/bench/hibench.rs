//! `slackwater bench hibench`.

use clap::Args;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// Records
    #[arg(long, default_value_t = 5_000_000)]
    pub rows: u64,
}

/// Runs the experiment.
pub fn run(_: &Arguments) -> Result<(), String> {
    Err("in progress".to_string())
}
