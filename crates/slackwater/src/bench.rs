//! Experiments, one command each.

use clap::Subcommand;

mod balance;
mod chunking;
mod common;
mod hibench;
mod link;
mod placement;
pub(crate) mod plot;
mod target;
mod wait;

pub use link::{Side as LinkSide, link_leader};

/// The experiments.
#[derive(Subcommand)]
pub enum Bench {
    /// What balancers make of an instance that is slow.
    Balance(balance::Arguments),
    /// Partial and complete updates of an image through a pipeline, by link and size of blocks.
    Chunking(chunking::Arguments),
    /// One stage of `bench chunking`, which starts it.
    #[command(hide = true)]
    ChunkingPart(chunking::PartArguments),
    /// The four streaming workloads of HiBench over generated visits, beside a hand-written limit.
    Hibench(hibench::Arguments),
    /// Latency, throughput and CPU of the links, beside sockets, pipes and other libraries.
    Link(link::Arguments),
    /// What placement is predicted to gain on a machine of 16 NUMA nodes, and scaling measured here.
    Placement(placement::Arguments),
    /// What a latency target costs and whether it is met, beside fixed settings and a program by hand.
    Target(target::Arguments),
    /// Sender and receiver of `bench target`, which starts them.
    #[command(hide = true)]
    TargetPart(target::PartArguments),
    /// CPU of sender and receiver by the way of waiting and the rate, beside TCP with interrupts.
    Wait(wait::Arguments),
    /// One side of `bench wait`, which starts it.
    #[command(hide = true)]
    WaitPart(wait::PartArguments),
}

impl Bench {
    /// Runs the experiment.
    pub fn run(self) -> Result<(), String> {
        match self {
            Bench::Balance(arguments) => balance::run(&arguments),
            Bench::Chunking(arguments) => chunking::run(&arguments),
            Bench::ChunkingPart(arguments) => chunking::run_part(&arguments),
            Bench::Hibench(arguments) => hibench::run(&arguments),
            Bench::Link(arguments) => link::run(&arguments),
            Bench::Placement(arguments) => placement::run(&arguments),
            Bench::Target(arguments) => target::run(&arguments),
            Bench::TargetPart(arguments) => target::run_part(&arguments),
            Bench::Wait(arguments) => wait::run(&arguments),
            Bench::WaitPart(arguments) => wait::run_part(&arguments),
        }
    }
}
