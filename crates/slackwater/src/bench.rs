//! Experiments, one command each.

use clap::Subcommand;

mod hibench;
mod link;

pub use link::{Side as LinkSide, link_leader};

/// The experiments.
#[derive(Subcommand)]
pub enum Bench {
    /// The four streaming workloads of HiBench over generated visits, beside a hand-written limit.
    Hibench(hibench::Arguments),
    /// Latency, throughput and CPU of the links, beside sockets, pipes and other libraries.
    Link(link::Arguments),
}

impl Bench {
    /// Runs the experiment.
    pub fn run(self) -> Result<(), String> {
        match self {
            Bench::Hibench(arguments) => hibench::run(&arguments),
            Bench::Link(arguments) => link::run(&arguments),
        }
    }
}
