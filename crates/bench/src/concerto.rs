//! `slackwater bench concerto`: replicas that follow as slowly as their lag allows, of unmodified Redis and
//! Valkey.
//!
//! The experiments of Lee and Lee, "Concerto: Dynamic Processor Scaling for Distributed Data Systems with
//! Replication" (Appl. Sci. 2021, 11, 5731), and what batches add to them:
//!
//! ```text
//! batch       replica's CPU time per write: default, Nagle, a beat; its lag; the master's throughput
//! cost        CPU time per SET of masters and replicas, at full speed and slow       figure 3
//! throughput  operations per second, one core each                                   figures 5 and 7
//! energy      the paper's accounting from measured costs                             figures 6 and 8
//! lag         visible lag at fixed rates for allowed lags of 5, 20 and 100 ms
//! reads       GETs at a slow replica, with the read path split and without           figure 9
//!
//! stand-in master ─► real replica      a server alone with a stand-in has a core to itself,
//! clients ─► real master ─► stand-ins  on a machine with two
//! ```
//!
//! What the figures contain:
//! - **Measured** are CPU time (the kernel's count of each process), wake-ups, lag and throughput.
//! - **Computed** is energy, always for σ = 1 and σ = 0, and throughput with one core each.
//! - **Needs cpufreq**: real frequencies and the kernel's default governor. Without it, a server is made slow
//!   by a preloaded library (`dilation`); the slow-down that resulted is printed.
//! - **Open loop**: lag counts from the time at which a write was due.
//! - **Ratios** compare neighboring runs of a round; every other round goes backwards.
//!
//! Shutdown: servers are killed when they are dropped, and with this process; folder and namespace are
//! removed.
//!
//! Results: `docs/benchmarks/concerto.md`.

mod batch;
mod beat;
mod client;
mod cost;
mod cpufreq;
mod dilation;
mod effect;
mod energy;
mod figures;
mod keys;
mod load;
mod manager;
mod master;
mod mixes;
mod network;
mod pair;
mod plan;
mod probe;
mod reads;
mod replicas;
mod resp;
mod server;
mod verdict;
mod workload;

pub use plan::Arguments;

use figures::Figures;
use plan::Plan;

use crate::lab::{self, Experiment, Verdict};

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        self.describe()
    }

    fn measure(&self) -> Result<Figures, String> {
        self.measure_all()
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(figures)
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }
}
