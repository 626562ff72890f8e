//! wip
mod demand;
mod ends;
mod frame;
mod hop;
mod image;
mod order;
mod others;
mod part;
mod queries;
mod stage;
mod tally;
mod work;

use clap::Args;
use std::time::Duration;
use order::*;

/// One stage of a pipeline, in a process of its own.
#[derive(Args)]
pub struct PartArguments {
    /// The descriptor of the socket to whoever measures
    #[arg(long)]
    control: i32,
}

/// Runs one stage of a pipeline.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

/// wip
#[derive(Args)]
pub struct Arguments {
    #[arg(long, default_value = "shm")]
    transport: String,
    #[arg(long, default_value_t = 4096)]
    block: usize,
    #[arg(long, default_value_t = 0.0)]
    ns: f64,
    #[arg(long, default_value_t = 0)]
    full: usize,
    #[arg(long, default_value_t = 0.0)]
    complete: f64,
    #[arg(long, default_value_t = 100.0)]
    partial: f64,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// wip
pub fn run(a: &Arguments) -> Result<(), String> {
    let per_ns = work::rounds_per_ns();
    let order = Order {
        transport: if a.transport == "shm" { Transport::Shm } else { Transport::Tcp },
        image_bytes: 16 << 20,
        partitions: 1,
        block_bytes: a.block,
        region_bytes: 2048,
        rounds_per_byte: per_ns * a.ns,
        load: if a.full > 0 { Load::Full { under_way: a.full, partial_per_s: a.partial } } else { Load::Rates { complete_per_s: a.complete, partial_per_s: a.partial } },
        seed: 1,
    };
    let times = part::Times { warm_up: Duration::from_millis(150), time: Duration::from_secs_f64(a.seconds), grace: Duration::from_millis(500) };
    let p = part::measure(&order, [0, 1, 0, 1], times)?;
    println!("{} {:>7} rate {:7.2}/s partial n={} miss={} mean {:.0} p50 {:.0} p95 {:.0} max {:.0} us; cores {:.2} others {:.2}; cpu/complete {:.2} ms",
        a.transport, a.block, p.seen.complete_per_s, p.seen.partial.count, p.seen.partial.missing, p.seen.partial.mean_us, p.seen.partial.p50_us, p.seen.partial.p95_us, p.seen.partial.max_us, p.cores_used, p.cores_of_others, p.cpu_s_per_complete().unwrap_or(0.0)*1e3);
    Ok(())
}
