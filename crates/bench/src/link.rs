//! `slackwater bench link`: latency, throughput and CPU time of the links, compared with a pipe, sockets
//! and other libraries, for messages of 64 bytes to 4 MiB.
//!
//! Every kind is a leader and a follower on two cores (`slackwater::measure` describes their work and
//! what the figures contain). All of them are started once and sleep while the others are measured; a
//! round goes through the points, and at each point through the kinds, so that neighbors in a table were
//! measured one after the other. Figures are medians over `--rounds`; ratios are calculated within a
//! round.
//!
//! Other libraries are in a separate program, `peers`, which is not built with this one; if it is
//! missing, the command says how to build it and measures the rest.

mod figures;
mod floor;
mod goals;
mod peers;
mod plain;
mod side;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use slackwater::calibrate::cores;
use slackwater::measure::floor::clock_ns;
use slackwater::measure::leader::Leader;
use slackwater::measure::order::{Order, Pattern, Waiting};
use slackwater::measure::{Cores, SIZES};

pub use side::PartArguments;

use figures::{Figures, Floor, Point, Samples};
use peers::Peers;

use crate::lab::{self, Experiment, Files, Verdict};

/// Message sizes of a quick run.
const SIZES_QUICK: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

/// How long a point is measured; warming up takes another tenth of it. With ten kinds, nine sizes and
/// four points each, a full round takes about two minutes.
const POINT_TIME: Duration = Duration::from_millis(300);

/// The same in a quick run.
const POINT_TIME_QUICK: Duration = Duration::from_millis(60);

/// How long each of the two parts of the floor is measured.
const FLOOR_TIME: Duration = Duration::from_millis(200);

/// Default number of rounds.
const ROUNDS: u32 = 3;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// One round of four sizes, 60 ms a point, instead of three rounds of nine sizes, 300 ms a point
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    files: Files,
    /// Rounds; the medians are printed [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Only these kinds, such as shm-lent,in-process
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// The program with other libraries [default: where `make peers` creates it]
    #[arg(long, value_name = "PATH")]
    peers: Option<PathBuf>,
}

/// The plan of the experiment.
struct Plan {
    cores: Cores,
    peers: Peers,
    kinds: Vec<String>,
    sizes: &'static [usize],
    time: Duration,
    rounds: u32,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let cores = cores();
    if cores.leader == cores.follower {
        eprintln!("warning: this process may only use one core, which polling sides take turns on");
    }
    let peers = Peers::find(arguments.peers.as_deref())?;
    let (sizes, time, rounds): (&[usize], _, _) = match arguments.quick {
        true => (&SIZES_QUICK, POINT_TIME_QUICK, 1),
        false => (&SIZES, POINT_TIME, ROUNDS),
    };
    let plan = Plan {
        cores,
        kinds: kinds(&arguments.kinds, &peers)?,
        peers,
        sizes,
        time,
        rounds: arguments.rounds.unwrap_or(rounds),
    };
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let points = self.kinds.len() * orders(self.sizes, self.time).count();
        let (rounds, time) = (self.rounds, self.time);
        format!("{rounds} round(s) of {points} points, {time:?} each")
    }

    fn measure(&self) -> Result<Figures, String> {
        let start = |name: &String| Contender::start(name, &self.peers, self.cores);
        let contenders = self.kinds.iter().map(start);
        let mut contenders = contenders.collect::<Result<Vec<Contender>, String>>()?;
        let mut samples = Samples::default();
        for round in lab::rounds(self.rounds) {
            samples.floors.push(self.floor()?);
            let mut measured = Vec::new();
            for order in orders(self.sizes, self.time) {
                for place in round.places(contenders.len()) {
                    let contender = &mut contenders[place];
                    let answer = contender.leader.measure(&order)?;
                    measured.push((Point::of(&contender.name, &order), answer));
                }
            }
            samples.rounds.push(measured);
        }
        // Tables show the kinds in their order, also for a round that went backwards.
        let points = orders(self.sizes, self.time).flat_map(|order| {
            let kinds = self.kinds.iter();
            kinds.map(move |kind| Point::of(kind, &order))
        });
        let points = points.map(|point| samples.measured(point)).collect();
        Ok(Figures {
            cores: self.cores,
            rounds: self.rounds,
            point_ms: self.time.as_millis() as u64,
            floor: samples.floor(),
            points,
            samples,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        goals::verdicts(&figures.samples)
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}

impl Plan {
    fn floor(&self) -> Result<Floor, String> {
        Ok(Floor {
            clock_ns: clock_ns(),
            line_one_way_ns: floor::line_one_way_ns(self.cores, FLOOR_TIME)?,
            copy_gb_per_s: floor::copy_bandwidth_gb_per_s(self.cores.leader, FLOOR_TIME)?,
        })
    }
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

impl Contender {
    fn start(name: &str, peers: &Peers, cores: Cores) -> Result<Contender, String> {
        let command = match peers.kinds.iter().any(|kind| kind == name) {
            true => peers.command(name, cores),
            false => side::leader(name, cores)?,
        };
        Ok(Contender {
            name: name.to_string(),
            leader: Leader::start(name, command)?,
        })
    }
}

/// The requested kinds, or all of them.
fn kinds(wanted: &[String], peers: &Peers) -> Result<Vec<String>, String> {
    let mut names = side::kinds();
    names.extend(peers.kinds.iter().cloned());
    if let Some(stranger) = wanted.iter().find(|name| !names.contains(name)) {
        let names = names.join(", ");
        return Err(format!(
            "--kinds: there is no kind '{stranger}'; the kinds are {names}"
        ));
    }
    names.retain(|name| wanted.is_empty() || wanted.contains(name));
    Ok(names)
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
    fn an_unknown_kind_is_an_error_that_lists_all_kinds() {
        let peers = Peers::default();
        let error = kinds(&["shm".to_string()], &peers).unwrap_err();
        assert!(error.contains("shm-lent, shm-copied"), "{error}");
    }
}
