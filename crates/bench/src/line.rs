//! `slackwater bench line`: messages through a row of 8, 16 and 32 workers, over TCP and over shared
//! memory.
//!
//! The experiment of Kamburugamuve et al., "Towards High Performance Processing of Streaming Data"
//! (2016), on shared memory: the latency of a line topology, where it saved a quarter at 32 workers. Its
//! workers were on eight nodes, so that an eighth of its hops stayed TCP; here all are processes of one
//! host, and all hops are of one kind.
//!
//! What a message is and what latency contains stands in `fleet.rs`. Rounds are interleaved: each goes
//! through all lengths and both kinds of links, every other one backwards; ratios are formed within a
//! round. `docs/benchmarks/line.md` has the results.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::common::{check_folders, time, write_json};
use super::fleet::{self, Links, Pace, Phase, Setup, Shape};
use slackwater::calibrate::Host;
use slackwater::measure::Spread;
use slackwater::report::count;

/// Workers of a line.
const LENGTHS: [u64; 3] = [8, 16, 32];

/// Bytes of a message: a small one, and one of which copying is a part of the cost.
const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];

/// Messages of a point in a round, and in a hurry.
const MESSAGES: u64 = 200;
const MESSAGES_QUICK: u64 = 60;

/// Between two messages: a line of 32 over TCP takes a few milliseconds.
const GAP_NS: u64 = 10_000_000;

const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 2;

/// At 32 workers shared memory is to take at most so much of the latency of TCP.
const RATIO_MAX: f64 = 0.5;

/// What was published: a quarter less.
const RATIO_PUBLISHED: f64 = 0.75;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// Two rounds of 60 messages a point, about half a minute, instead of five of 200, about five
    #[arg(long)]
    quick: bool,
    /// Lines of so many workers, 2 to 64, the longest last
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = LENGTHS,
          value_parser = clap::value_parser!(u64).range(2..=64))]
    workers: Vec<u64>,
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// All that was measured.
#[derive(Debug, Serialize)]
struct Figures {
    host: Host,
    rounds: u32,
    messages: u64,
    points: Vec<Point>,
    /// The ratio at the longest line, over all sizes, is to be at most this.
    limit: f64,
    met: bool,
}

/// A line and a size of messages.
#[derive(Debug, Serialize)]
struct Point {
    workers: usize,
    size_bytes: usize,
    /// Each round's median, in microseconds.
    tcp_us: Spread,
    shm_us: Spread,
    /// Shared memory's of TCP's.
    ratio: Spread,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    check_folders(&[&arguments.json])?;
    let (rounds, messages) = match arguments.quick {
        true => (ROUNDS_QUICK, MESSAGES_QUICK),
        false => (ROUNDS, MESSAGES),
    };
    // By length, size and kind: the medians of the rounds.
    let lengths = &arguments.workers;
    let mut medians: Vec<[[Vec<f64>; 2]; SIZES.len()]> = vec![Default::default(); lengths.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        let order = (0..lengths.len()).flat_map(|length| [(length, false), (length, true)]);
        let mut order = order.collect::<Vec<_>>();
        if round % 2 == 1 {
            order.reverse();
        }
        for (length, tcp) in order {
            let latencies = measure(lengths[length] as usize, tcp, messages)?;
            for (size, latency_us) in latencies.into_iter().enumerate() {
                medians[length][size][usize::from(tcp)].push(latency_us);
            }
        }
    }
    let mut points = Vec::new();
    for (of_length, workers) in medians.into_iter().zip(lengths) {
        for ([shm, tcp], size_bytes) in of_length.into_iter().zip(SIZES) {
            let ratios = shm.iter().zip(&tcp).map(|(shm, tcp)| shm / tcp);
            points.push(Point {
                workers: *workers as usize,
                size_bytes,
                ratio: Spread::of(ratios.collect()),
                tcp_us: Spread::of(tcp),
                shm_us: Spread::of(shm),
            });
        }
    }
    let figures = Figures {
        host: Host::this(),
        rounds,
        messages,
        met: worst(&points) <= RATIO_MAX,
        points,
        limit: RATIO_MAX,
    };
    print!("{}", table(&figures));
    write_json(arguments.json.as_deref(), &figures)
}

/// The medians of a line, in microseconds, by size.
fn measure(workers: usize, tcp: bool, messages: u64) -> Result<Vec<f64>, String> {
    let phases = SIZES.map(|size_bytes| Phase {
        size_bytes,
        pace: Pace::Spaced {
            messages,
            gap_ns: GAP_NS,
        },
    });
    let seen = fleet::run(&Setup {
        shape: Shape::Line { workers },
        links: if tcp { Links::Tcp } else { Links::SharedMemory },
        phases: phases.to_vec(),
    })?;
    let medians = seen
        .into_iter()
        .map(|seen| Spread::of(seen.latencies_us).median);
    Ok(medians.collect())
}

/// The largest ratio of the longest line.
fn worst(points: &[Point]) -> f64 {
    let longest = points
        .iter()
        .filter(|point| point.workers == longest(points));
    let ratios = longest.map(|point| point.ratio.median);
    ratios.fold(0.0, f64::max)
}

fn longest(points: &[Point]) -> usize {
    let workers = points.iter().map(|point| point.workers);
    workers.max().unwrap_or(0)
}

fn table(figures: &Figures) -> String {
    let mut text = format!(
        "lines: {}\n{} round(s) of {} messages a point, medians (lowest to highest round)\n\n\
         {:>7} {:>9} {:>10} {:>10}  {}\n",
        figures.host.describe(),
        figures.rounds,
        figures.messages,
        "workers",
        "bytes",
        "tcp",
        "shm",
        "shm, of tcp's",
    );
    for point in &figures.points {
        text.push_str(&format!(
            "{:>7} {:>9} {:>10} {:>10}  {:.2} ({:.2} to {:.2})\n",
            point.workers,
            count(point.size_bytes as u64),
            time(point.tcp_us.median),
            time(point.shm_us.median),
            point.ratio.median,
            point.ratio.min,
            point.ratio.max,
        ));
    }
    let worst = worst(&figures.points);
    text.push_str(&format!(
        "\ngoal {} workers: latency over shared memory, of TCP's, at the worst size: {worst:.2}, limit \
         {RATIO_MAX}: {}; published: {RATIO_PUBLISHED}\n",
        longest(&figures.points),
        if figures.met { "met" } else { "missed" },
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_is_held_against_the_worst_size_of_the_longest_line() {
        let point = |workers, ratio| Point {
            workers,
            size_bytes: 64,
            tcp_us: Spread::default(),
            shm_us: Spread::default(),
            ratio: Spread::of(vec![ratio]),
        };
        assert_eq!(worst(&[point(8, 0.9), point(32, 0.4), point(32, 0.6)]), 0.6);
    }
}
