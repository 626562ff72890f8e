//! Experiments, one command each.

use clap::Subcommand;

mod hibench;

/// The experiments.
#[derive(Subcommand)]
pub enum Bench {
    /// The four streaming workloads of HiBench over generated visits, beside a hand-written limit.
    Hibench(hibench::Arguments),
}

impl Bench {
    /// Runs the experiment.
    pub fn run(self) -> Result<(), String> {
        match self {
            Bench::Hibench(arguments) => hibench::run(&arguments),
        }
    }
}
