//! `slackwater bench chunking`: a pipeline over TCP and over shared memory, by the size of blocks.
//!
//! The experiments of Balaji et al., "Impact of High Performance Sockets on Data Intensive Applications"
//! (DataCutter over SocketVIA): a viewer of microscope slides requests complete updates of an image of 16
//! MB, which need bandwidth, and partial ones, which should arrive at once. A faster link reaches the
//! same bandwidth with smaller blocks, so dividing the image differently for it saves more latency than
//! the link alone does.
//!
//! ```text
//!             requests (one lane)
//!    ┌─────────────────────────────────────────────────────────┐
//!    ▼        9 lanes             9 lanes            9 lanes    │
//! source ══════════════► filter ══════════════► filter ═════► viewer      three copies of each
//!    ◄── acknowledgements ──┘ ◄─────────────────────┘ ◄─────────┘
//! ```
//!
//! ```text
//! plan ─► sweep (TCP's best block, points to plan with) ─► latency, rate, mixed ─► verdict, table,
//!            └── bench: a point = four processes (part) running stages (stage)       chart, JSON
//! ```
//!
//! What the figures contain:
//! - **A process for each stage**, with one pinned thread for its three copies, which take turns block by
//!   block, as the instances of a worker do. Twelve processes would measure the kernel's scheduler on a
//!   machine with fewer cores. Every block crosses three links between processes, and neighboring stages
//!   are on different cores.
//! - **Waiting by interrupt**: announce, look, sleep. Nothing spins.
//! - **Distribution is driven by demand**: a copy sends a block to the copy of the next stage with the
//!   fewest unacknowledged ones, and waits while all have two. A copy acknowledges a block when it starts
//!   to process it.
//! - **The source** holds a third of the blocks in each copy and serves its queries in turn, a block
//!   each: a partial update overtakes the rest of a complete one, but not the blocks already sent.
//! - **Latency** is that of the user: from the time that a query was due to the arrival of its last
//!   block, including the request's way to the source. Complete updates are due at regular times, partial
//!   ones at random; both are requested whether or not earlier ones have been answered, except for mixed
//!   queries, which follow each other.
//! - **A partial update** needs 2 KiB, and receives all blocks that contain a part of them.
//! - **Computing** is a busy loop in both filters, calibrated by CPU time.
//! - **The planned block** is the smallest one with enough bandwidth, as measured in the same run, and a
//!   tenth to spare, but not so small that it lengthens the expected wait
//!   (`control/src/latency/chunk.rs`).
//! - **Rounds are interleaved**: each goes through all cases and ways, every other one backwards. A point
//!   during which other processes used the host is measured again, at most one in eight points.
//!
//! Results: `docs/benchmarks/chunking.md`.

mod effort;
mod plan;
mod way;

mod bench;
mod latency;
mod mixed;
mod rate;
mod search;
mod sweep;

mod order;
mod others;
mod part;

mod demand;
mod ends;
mod frame;
mod hop;
mod image;
mod queries;
mod stage;
mod tally;
mod work;

mod chart;
mod figures;
mod over_sql;
mod table;
mod verdict;

use std::time::Instant;

pub use plan::Arguments;

use bench::Bench;
use effort::Effort;
use figures::{Figures, Level};
use plan::{Experiment, Plan, REGION_BYTES, RESERVE};
use sweep::Sweep;

use crate::lab::{self, Chart, Experiment as Kind, Verdict};
use crate::part_process::PartArguments;

/// Runs one stage of a pipeline.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

/// Runs the experiments.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.query {
        return over_sql::run(arguments);
    }
    let plan = Plan::of(arguments)?;
    lab::conduct(&plan, &arguments.files, Some(&arguments.drawing))
}

impl Kind for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        lab::about(self.expected_s(), self.expected_max_s())
    }

    fn measure(&self) -> Result<Figures, String> {
        let begin = Instant::now();
        let mut bench = Bench {
            plan: self,
            rounds_per_ns: work::rounds_per_ns(),
            points: Vec::new(),
            repeated: 0,
        };
        let levels = self.efforts.iter();
        let levels = levels.map(|effort| level(&mut bench, effort));
        let levels = levels.collect::<Result<Vec<_>, String>>()?;
        Ok(Figures {
            cores: self.cores,
            copies: order::COPIES,
            window: demand::WINDOW,
            image_bytes: self.image_bytes,
            region_bytes: REGION_BYTES,
            reserve: RESERVE,
            seed: self.seed,
            rounds_per_ns: bench.rounds_per_ns,
            seconds: begin.elapsed().as_secs_f64(),
            levels,
            repeated: bench.repeated,
            disturbed: figures::disturbed(&bench.points),
            points: bench.points,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(&figures.levels)
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }

    fn charts(&self, figures: &Figures) -> Vec<Chart> {
        chart::charts(figures)
    }
}

fn level(bench: &mut Bench<'_>, effort: &Effort) -> Result<Level, String> {
    let plan = bench.plan;
    let note = |what: &str| eprintln!("{} ns per byte: {what}", effort.ns_per_byte);
    note("sizes of blocks");
    let sweep = Sweep::measure(bench, effort)?;
    let mut level = Level {
        ns_per_byte: effort.ns_per_byte,
        seconds: effort.times.time.as_secs_f64(),
        rounds: effort.rounds,
        short_rounds: effort.short_rounds,
        latency: Vec::new(),
        rate: Vec::new(),
        mixed: Vec::new(),
        sweep,
    };
    if plan.wants(Experiment::Latency) {
        note("latency under guaranteed rates");
        level.latency = latency::measure(bench, effort, &level.sweep)?;
    }
    if plan.wants(Experiment::Rate) {
        note("rate under guaranteed latencies");
        level.rate = rate::measure(bench, effort, &level.sweep)?;
    }
    if plan.wants(Experiment::Mixed) {
        note("mixed queries");
        level.mixed = mixed::measure(bench, effort, &level.sweep)?;
    }
    Ok(level)
}
