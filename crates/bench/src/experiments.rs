//! The experiments, one command each.

use clap::{CommandFactory, Parser, Subcommand};

use crate::part_process::PartArguments;
use crate::{
    balance, broadcast, checkpoint, chunking, concerto, fleet, hibench, hosts, line, link, nexmark,
    placement, serve, standby, target, wait,
};

/// Measure: published experiments, one command each.
#[derive(Parser)]
#[command(
    name = "slackwater-bench",
    // The name under which users start this program.
    bin_name = "slackwater bench",
    version,
    arg_required_else_help = true
)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// How balancers deal with a slow instance
    Balance(balance::Arguments),
    /// Broadcasts from one source to 2 to 32 receivers: serial, trees and ring, over shared memory and
    /// TCP
    Broadcast(broadcast::Arguments),
    /// What checkpoints cost, and how long a query takes to recover when a process has died
    Checkpoint(checkpoint::Arguments),
    /// Partial and complete updates of an image through a pipeline, by link and block size
    Chunking(chunking::Arguments),
    /// What replicas of Redis and Valkey cost that follow as slowly as their lag allows, and what that
    /// saves
    Concerto(concerto::Arguments),
    /// The four streaming workloads of HiBench over generated visits, compared with a hand-written
    /// program
    Hibench(hibench::Arguments),
    /// What several hosts cost, in clear and with TLS, compared with processes of one host and with three
    /// TaskManagers of Apache Flink
    Hosts(hosts::Arguments),
    /// Latency through a row of 8 to 32 workers, over TCP and over shared memory
    Line(line::Arguments),
    /// Latency, throughput and CPU time of the links, compared with sockets, pipes and other libraries
    Link(link::Arguments),
    /// Nexmark's queries over generated events, from the generator and as JSON, compared with Apache
    /// Flink
    Nexmark(nexmark::Arguments),
    /// Predicted gain from placement on a machine with 16 NUMA nodes, and scaling measured here
    Placement(placement::Arguments),
    /// What a server of jobs costs, and how soon it answers: views, pushes, reads, idle jobs
    Serve(serve::Arguments),
    /// What a standby costs, and how soon it goes on when the active is killed
    Standby(standby::Arguments),
    /// What a latency target costs and whether it is met, compared with fixed settings and a hand-written
    /// program
    Target(target::Arguments),
    /// CPU time of sender and receiver by wait mode and rate, compared with TCP and interrupts
    Wait(wait::Arguments),
    /// Print the completion script of a shell for `slackwater-bench`
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Part(Part),
}

/// A process that an experiment starts.
#[derive(Subcommand)]
enum Part {
    /// One stage of `bench chunking`, which starts it.
    #[command(hide = true, name = "chunking-part")]
    Chunking(PartArguments),
    /// One process of `bench broadcast` or `bench line`, which start it.
    #[command(hide = true, name = "fleet-part")]
    Fleet(PartArguments),
    /// One side of a link that is measured; `bench link` starts it.
    #[command(hide = true, name = "link-part")]
    Link(link::PartArguments),
    /// Sender and receiver of `bench target`, which starts them.
    #[command(hide = true, name = "target-part")]
    Target(PartArguments),
    /// One side of `bench wait`, which starts it.
    #[command(hide = true, name = "wait-part")]
    Wait(PartArguments),
}

impl CommandLine {
    /// Runs the experiment.
    pub fn run(self) -> Result<(), String> {
        if cfg!(debug_assertions) && !matches!(self.command, Command::Part(_)) {
            eprintln!("warning: this is a debug build; its figures are not meaningful");
        }
        match self.command {
            Command::Balance(arguments) => balance::run(&arguments),
            Command::Broadcast(arguments) => broadcast::run(&arguments),
            Command::Checkpoint(arguments) => checkpoint::run(&arguments),
            Command::Chunking(arguments) => chunking::run(&arguments),
            Command::Concerto(arguments) => concerto::run(&arguments),
            Command::Hibench(arguments) => hibench::run(&arguments),
            Command::Hosts(arguments) => hosts::run(&arguments),
            Command::Line(arguments) => line::run(&arguments),
            Command::Link(arguments) => link::run(&arguments),
            Command::Nexmark(arguments) => nexmark::run(&arguments),
            Command::Placement(arguments) => placement::run(&arguments),
            Command::Serve(arguments) => serve::run(&arguments),
            Command::Standby(arguments) => standby::run(&arguments),
            Command::Target(arguments) => target::run(&arguments),
            Command::Wait(arguments) => wait::run(&arguments),
            Command::Completions { shell } => {
                let (mut command, mut script) = (CommandLine::command(), Vec::new());
                command.set_bin_name("slackwater-bench");
                clap_complete::generate(shell, &mut command, "slackwater-bench", &mut script);
                print!("{}", String::from_utf8_lossy(&script));
                Ok(())
            }
            Command::Part(part) => part.run(),
        }
    }
}

impl Part {
    fn run(self) -> Result<(), String> {
        match self {
            Part::Chunking(arguments) => chunking::run_part(&arguments),
            Part::Fleet(arguments) => fleet::run_part(&arguments),
            Part::Link(arguments) => arguments.run(),
            Part::Target(arguments) => target::run_part(&arguments),
            Part::Wait(arguments) => wait::run_part(&arguments),
        }
    }
}
