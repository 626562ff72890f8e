//! `slackwater bench broadcast`: one source, 2 to 32 receivers in 1 to 8 processes, messages of 64 B to
//! 1 MiB, every algorithm, over shared memory and TCP.
//!
//! The experiment of Kamburugamuve et al., "Towards High Performance Processing of Streaming Data"
//! (2016), on broadcasts: latency and throughput of flat tree, binary tree and bidirectional ring,
//! compared with the serial broadcast over TCP, which is what Storm does. Its nodes are network
//! namespaces on a bridge (`net`), each with one process, if root permissions allow that; other processes
//! share the loopback interface (`tcp`) or memory (`shm`).
//!
//! - `fleet.rs` defines a message, and what latency and throughput contain.
//! - **A way** is an algorithm with whole messages, or with messages cut into the segments that the model
//!   considers best for latency, if there are any.
//! - **The automatic choice** is that of the model (`control/src/broadcast/model.rs`) with this host's
//!   calibration: one for latency, one for throughput. The model does not know what this run measured.
//! - **Rounds are interleaved**: each goes through all settings and ways, every other one backwards.
//!   Figures are medians over rounds; ratios are calculated within a round.
//!
//! Results: `docs/benchmarks/broadcast.md`.

mod figures;
mod measured;
mod plan;
mod table;
mod verdict;

use std::time::Instant;

use clap::Args;

use figures::Figures;
use measured::Measured;
use plan::{Plan, Point};

use crate::fleet::{self, Setup};
use crate::lab::{self, Experiment, Files, Verdict, minutes};

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// One round of 8 and 32 receivers and three sizes, one to two minutes, instead of three rounds of
    /// everything, about twenty minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    files: Files,
    /// Only these receivers and processes, such as 32x8,8x4
    #[arg(long, value_name = "RxP,RxP", value_delimiter = ',', value_parser = plan::parse_setting)]
    settings: Vec<(usize, usize)>,
    /// Only messages of these sizes in bytes, 8 to 4194304
    #[arg(long, value_name = "BYTES,BYTES", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(8..=4 << 20))]
    sizes: Vec<u64>,
    /// Rounds; the medians are printed [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let namespaces = fleet::namespaces_are_allowed();
    if !namespaces {
        eprintln!(
            "note: network namespaces are not available (they need root and ip); processes represent nodes"
        );
    }
    let mut plan = Plan::new(arguments.quick, arguments.rounds, namespaces);
    plan.restrict(&arguments.settings, &arguments.sizes);
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        format!("about {}", minutes(self.expected_s()))
    }

    fn measure(&self) -> Result<Figures, String> {
        let begin = Instant::now();
        let mut measured = Vec::new();
        let runs = self.runs();
        for round in lab::rounds(self.rounds) {
            for run in round.order(&runs) {
                let setup = Setup {
                    shape: run.shape(),
                    links: run.link.links(),
                    phases: self.phases(run),
                };
                let seen = fleet::run(&setup)?;
                for (size_bytes, pair) in run.sizes.iter().zip(seen.chunks_exact(2)) {
                    let point = Point {
                        receivers: run.receivers,
                        processes: run.processes,
                        size_bytes: *size_bytes,
                    };
                    let [spaced, flat] = [&pair[0], &pair[1]];
                    measured.push(Measured::new(round.number, point, run.way(), spaced, flat));
                }
            }
        }
        Ok(Figures {
            seconds: begin.elapsed().as_secs_f64(),
            ..Figures::new(self, measured)
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(&figures.points, &figures.measured)
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}
