//! `slackwater bench line`: messages through a row of 8, 16 and 32 workers, over TCP and over shared
//! memory.
//!
//! The experiment of Kamburugamuve et al., "Towards High Performance Processing of Streaming Data"
//! (2016), on shared memory: the latency of a line topology, which it reduced by a quarter at 32 workers.
//! The paper's workers ran on eight nodes, so that an eighth of the hops remained TCP; here all are
//! processes of one host, and all hops are of one kind.
//!
//! `fleet.rs` defines a message, and what latency contains. Rounds are interleaved: each goes through all
//! lengths and both kinds of links, every other one backwards; ratios are calculated within a round.
//! Results: `docs/benchmarks/line.md`.

use clap::Args;
use serde::Serialize;
use slackwater::measure::Spread;
use slackwater::report::count;

use crate::fleet::{self, Links, Pace, Phase, Setup, Shape};
use crate::lab::{self, Experiment, Files, Table, Verdict, spread, time};

/// Numbers of workers in a line.
const LENGTHS: [u64; 3] = [8, 16, 32];

/// Message sizes in bytes: small ones, and one for which copying is a part of the cost.
const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];

/// Messages of a point in a round, in a full and in a quick run.
const MESSAGES: u64 = 200;
const MESSAGES_QUICK: u64 = 60;

/// Time between two messages: a line of 32 over TCP takes a few milliseconds.
const GAP_NS: u64 = 10_000_000;

const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 2;

/// The highest latency of shared memory at 32 workers, as a share of TCP's.
const RATIO_MAX: f64 = 0.5;

/// The published ratio: a quarter less.
const RATIO_PUBLISHED: f64 = 0.75;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Two rounds of 60 messages a point, about half a minute, instead of five rounds of 200 messages,
    /// about five minutes
    #[arg(long)]
    quick: bool,
    /// Numbers of workers in the lines, 2 to 64 each, the largest last
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = LENGTHS,
          value_parser = clap::value_parser!(u64).range(2..=64))]
    workers: Vec<u64>,
    #[command(flatten)]
    files: Files,
}

/// What is measured, and how often.
struct Plan {
    workers: Vec<usize>,
    rounds: u32,
    messages: u64,
}

/// All that was measured.
#[derive(Debug, Serialize)]
struct Figures {
    rounds: u32,
    messages: u64,
    points: Vec<Point>,
}

/// A line with a message size.
#[derive(Debug, Serialize)]
struct Point {
    workers: usize,
    size_bytes: usize,
    /// Each round's median over TCP, in microseconds.
    tcp_us: Spread,
    shm_us: Spread,
    /// Latency over shared memory, as a share of TCP's.
    ratio: Spread,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let (rounds, messages) = match arguments.quick {
        true => (ROUNDS_QUICK, MESSAGES_QUICK),
        false => (ROUNDS, MESSAGES),
    };
    let workers = arguments.workers.iter().map(|&workers| workers as usize);
    let plan = Plan {
        workers: workers.collect(),
        rounds,
        messages,
    };
    lab::conduct(&plan, &arguments.files, None)
}

/// What a round measured of a line over links of one kind.
struct Measured {
    workers: usize,
    tcp: bool,
    /// The median latencies, in microseconds, by size.
    latencies_us: Vec<f64>,
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let Plan {
            workers, rounds, ..
        } = self;
        format!("lines of {workers:?} workers, {rounds} rounds")
    }

    fn measure(&self) -> Result<Figures, String> {
        let cases = self.workers.iter();
        let cases = cases.flat_map(|&workers| [(workers, false), (workers, true)]);
        let cases = cases.collect::<Vec<_>>();
        let mut measured = Vec::new();
        for round in lab::rounds(self.rounds) {
            for &(workers, tcp) in round.order(&cases) {
                measured.push(Measured {
                    workers,
                    tcp,
                    latencies_us: measure(workers, tcp, self.messages)?,
                });
            }
        }
        let points = self.workers.iter().flat_map(|&workers| {
            let places = 0..SIZES.len();
            let measured = &measured;
            places.map(move |place| Point::of(measured, workers, place))
        });
        Ok(Figures {
            rounds: self.rounds,
            messages: self.messages,
            points: points.collect(),
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        let goal = format!(
            "{} workers: latency over shared memory, compared with TCP, at the worst size",
            longest(&figures.points)
        );
        let details = format!("published: {RATIO_PUBLISHED}");
        let worst = worst(&figures.points);
        vec![Verdict::at_most(goal, Some(worst), RATIO_MAX).details(details)]
    }

    fn text(&self, figures: &Figures) -> String {
        text(figures)
    }
}

impl Point {
    /// The point of the size at an index of [`SIZES`].
    fn of(measured: &[Measured], workers: usize, place: usize) -> Point {
        let latencies_us = |tcp: bool| {
            let own = measured.iter();
            let own = own.filter(|one| (one.workers, one.tcp) == (workers, tcp));
            let latencies_us = own.map(|one| one.latencies_us[place]);
            latencies_us.collect::<Vec<f64>>()
        };
        let (shm_us, tcp_us) = (latencies_us(false), latencies_us(true));
        Point {
            workers,
            size_bytes: SIZES[place],
            // The ratio of neighbors: each round measures both kinds.
            ratio: spread(shm_us.iter().zip(&tcp_us), |(shm, tcp)| shm / tcp),
            tcp_us: Spread::of(tcp_us),
            shm_us: Spread::of(shm_us),
        }
    }
}

/// The median latencies of a line, in microseconds, by size.
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

fn text(figures: &Figures) -> String {
    let mut table = Table::new(["workers", "bytes", "tcp", "shm", "shm / tcp"]);
    for point in &figures.points {
        let Spread { median, min, max } = point.ratio;
        table.line([
            point.workers.to_string(),
            count(point.size_bytes as u64),
            time(point.tcp_us.median),
            time(point.shm_us.median),
            format!("{median:.2} ({min:.2} to {max:.2})"),
        ]);
    }
    format!(
        "lines: {} round(s) of {} messages a point, medians (lowest to highest round)\n\n{}",
        figures.rounds,
        figures.messages,
        table.columns()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_refers_to_the_worst_size_of_the_longest_line() {
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
