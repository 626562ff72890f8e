//! `slackwater bench link`: latency, throughput and CPU time of the links, beside a pipe, sockets
//! and other libraries, for messages of 64 bytes to 4 MiB.
//!
//! Every kind is a leader and a follower on two cores (`measure.rs` says what they do and what the
//! figures contain). All of them are started once and sleep while the others are measured; a round
//! goes through the points, and at each point through the kinds, so that neighbours in a table are
//! neighbours in time. Figures are medians over `--rounds`; ratios are formed within a round.
//!
//! Other libraries are in a program of their own, `peers`, which is not built with this one;
//! where it is missing, the command says how to make it and measures the rest.

mod figures;
mod goals;
mod peers;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use figures::{Figures, Floor, Point, Round, Samples};
use peers::Peers;

use crate::common::write_json;
use slackwater::calibrate::{Host, cores, link_leader, load_average};
use slackwater::measure::leader::Leader;
use slackwater::measure::order::{Order, Pattern, Waiting};
use slackwater::measure::{Cores, Kind, SIZES, floor};

/// Sizes in a hurry.
const SIZES_QUICK: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

/// How long a point is measured; a tenth of it more warms up. With ten kinds, nine sizes and four
/// points each, a full round takes about two minutes.
const POINT_TIME: Duration = Duration::from_millis(300);

/// In a hurry.
const POINT_TIME_QUICK: Duration = Duration::from_millis(60);

/// How long the floor is measured, each of its two parts.
const FLOOR_TIME: Duration = Duration::from_millis(200);

/// Rounds unless told otherwise.
const ROUNDS: u32 = 3;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// A round of four sizes, 60 ms a point, instead of three of nine sizes, 300 ms a point
    #[arg(long)]
    quick: bool,
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Rounds; the medians are printed [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Only these kinds, such as shm-lent,in-process
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// The program with other libraries [default: where `make peers` puts it]
    #[arg(long, value_name = "PATH")]
    peers: Option<PathBuf>,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let cores = cores();
    if cores.leader == cores.follower {
        eprintln!("warning: this process may use one core only: polling sides take turns on it");
    }
    let peers = Peers::find(arguments.peers.as_deref())?;
    let mut contenders = start(&arguments.kinds, &peers, cores)?;
    let (sizes, time, rounds): (&[usize], _, _) = match arguments.quick {
        true => (&SIZES_QUICK, POINT_TIME_QUICK, 1),
        false => (&SIZES, POINT_TIME, ROUNDS),
    };
    let rounds = arguments.rounds.unwrap_or(rounds);
    let mut samples = Samples::default();
    let mut floors = Vec::new();
    let load_before = load_average();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        floors.push(Floor {
            clock_ns: floor::clock_ns(),
            line_one_way_ns: floor::line_one_way_ns(cores, FLOOR_TIME)?,
            copy_gb_per_s: floor::copy_bandwidth_gb_per_s(cores.leader, FLOOR_TIME)?,
        });
        let mut measured = Round::new();
        for order in orders(sizes, time) {
            for contender in &mut contenders {
                let answer = contender.leader.measure(&order)?;
                measured.push((Point::of(&contender.name, &order), answer));
            }
        }
        samples.rounds.push(measured);
    }
    samples.floors = floors;
    let figures = Figures {
        host: Host::this(),
        load_before,
        load_after: load_average(),
        cores,
        rounds,
        point_ms: time.as_millis() as u64,
        floor: samples.floor(),
        goals: goals::verdicts(&samples),
        points: samples.medians(),
    };
    print!("{}", table::table(&figures));
    write_json(arguments.json.as_deref(), &figures)
}

/// The points in the order in which a round measures them.
fn orders(sizes: &[usize], time: Duration) -> impl Iterator<Item = Order> {
    let ways = [Waiting::Poll, Waiting::Interrupt]
        .map(|waiting| [Pattern::PingPong, Pattern::Stream].map(|pattern| (waiting, pattern)));
    let ways = ways.into_iter().flatten();
    ways.flat_map(move |(waiting, pattern)| {
        sizes.iter().map(move |&size_bytes| Order {
            pattern,
            waiting,
            size_bytes,
            time_ms: time.as_millis() as u64,
        })
    })
}

/// A kind that is measured.
struct Contender {
    name: String,
    leader: Leader,
}

fn start(wanted: &[String], peers: &Peers, cores: Cores) -> Result<Vec<Contender>, String> {
    let own = Kind::ALL.iter().map(|kind| kind.name().to_string());
    let mut names = own.collect::<Vec<String>>();
    names.extend(peers.kinds.iter().cloned());
    if let Some(stranger) = wanted.iter().find(|name| !names.contains(name)) {
        let names = names.join(", ");
        return Err(format!(
            "--kinds: no kind is called {stranger}; there are {names}"
        ));
    }
    names.retain(|name| wanted.is_empty() || wanted.contains(name));
    let contenders = names.into_iter().map(|name| {
        let command = match Kind::named(&name) {
            Some(kind) => link_leader(kind, cores)?,
            None => peers.command(&name, cores),
        };
        let leader = Leader::start(&name, command)?;
        Ok(Contender { name, leader })
    });
    contenders.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_goes_through_every_way_at_every_size() {
        let orders = orders(&SIZES, POINT_TIME).collect::<Vec<Order>>();
        assert_eq!(orders.len(), 4 * SIZES.len());
        let ping_pongs = orders.iter().filter(|order| {
            (order.pattern, order.waiting) == (Pattern::PingPong, Waiting::Interrupt)
        });
        let sizes = ping_pongs.map(|order| order.size_bytes);
        assert_eq!(sizes.collect::<Vec<usize>>(), SIZES);
    }

    #[test]
    fn a_kind_that_is_unknown_is_an_error_that_lists_them() {
        let peers = Peers::default();
        let cores = Cores {
            leader: 0,
            follower: 0,
        };
        let error = start(&["shm".to_string()], &peers, cores).err().unwrap();
        assert!(error.contains("shm-lent, shm-copied"), "{error}");
    }
}
