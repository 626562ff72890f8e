//! Experiments, one command each.

use clap::Subcommand;

mod balance;
mod broadcast;
mod checkpoint;
mod chunking;
mod common;
mod fleet;
mod hibench;
mod line;
mod link;
mod nexmark;
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
    /// One source to 2 to 32 receivers: serial, trees and ring, over shared memory and TCP.
    Broadcast(broadcast::Arguments),
    /// What checkpoints cost, and how long a query takes to come back when a process has died.
    Checkpoint(checkpoint::Arguments),
    /// Partial and complete updates of an image through a pipeline, by link and size of blocks.
    Chunking(chunking::Arguments),
    /// One stage of `bench chunking`, which starts it.
    #[command(hide = true)]
    ChunkingPart(chunking::PartArguments),
    /// One process of `bench broadcast` or `bench line`, which start it.
    #[command(hide = true)]
    FleetPart(fleet::PartArguments),
    /// The four streaming workloads of HiBench over generated visits, beside a hand-written limit.
    Hibench(hibench::Arguments),
    /// Latency through a row of 8 to 32 workers, TCP beside shared memory.
    Line(line::Arguments),
    /// Latency, throughput and CPU of the links, beside sockets, pipes and other libraries.
    Link(link::Arguments),
    /// Nexmark's queries over made-up events, from the generator and as JSON, beside Apache Flink.
    Nexmark(nexmark::Arguments),
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
        if cfg!(debug_assertions) && !self.is_part() {
            eprintln!("warning: this is a debug build; its figures mean nothing");
        }
        match self {
            Bench::Balance(arguments) => balance::run(&arguments),
            Bench::Broadcast(arguments) => broadcast::run(&arguments),
            Bench::Checkpoint(arguments) => checkpoint::run(&arguments),
            Bench::Chunking(arguments) => chunking::run(&arguments),
            Bench::ChunkingPart(arguments) => chunking::run_part(&arguments),
            Bench::FleetPart(arguments) => fleet::run_part(&arguments),
            Bench::Hibench(arguments) => hibench::run(&arguments),
            Bench::Line(arguments) => line::run(&arguments),
            Bench::Link(arguments) => link::run(&arguments),
            Bench::Nexmark(arguments) => nexmark::run(&arguments),
            Bench::Placement(arguments) => placement::run(&arguments),
            Bench::Target(arguments) => target::run(&arguments),
            Bench::TargetPart(arguments) => target::run_part(&arguments),
            Bench::Wait(arguments) => wait::run(&arguments),
            Bench::WaitPart(arguments) => wait::run_part(&arguments),
        }
    }

    /// A process that an experiment has started.
    fn is_part(&self) -> bool {
        matches!(
            self,
            Bench::ChunkingPart(_)
                | Bench::FleetPart(_)
                | Bench::TargetPart(_)
                | Bench::WaitPart(_)
        )
    }
}
