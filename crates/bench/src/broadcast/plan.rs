//! What is measured, in which order, and for how long.

use serde::Serialize;
use slackwater_control::broadcast::model::{Aim, Choice, Costs, choose, with_segments};
use slackwater_control::broadcast::{Algorithm, Place, Tree};

use crate::fleet::{Links, Pace, Phase, Shape};
use slackwater::broadcast::costs;
use slackwater::measure::Kind;

/// Numbers of receivers and processes.
const SETTINGS: [(usize, usize); 8] = [
    (2, 2),
    (4, 4),
    (8, 1),
    (8, 4),
    (8, 8),
    (16, 8),
    (32, 4),
    (32, 8),
];
const SETTINGS_QUICK: [(usize, usize); 2] = [(8, 4), (32, 8)];

/// Message sizes in bytes.
const SIZES: [usize; 5] = [64, 1 << 10, 16 << 10, 256 << 10, 1 << 20];
const SIZES_QUICK: [usize; 3] = [64, 16 << 10, 1 << 20];

const ROUNDS: u32 = 3;

/// Each process receives a socket to each other process, at most 64 with one message.
const RECEIVERS_MAX: usize = 64;

/// Hosts that the workers of the published experiment ran on.
const NODES: usize = 8;

/// Messages of a spaced phase, and the time between them: so long that even the serial broadcast over TCP
/// has delivered one before the next is sent.
const MESSAGES: u64 = 100;
const MESSAGES_LARGE: u64 = 24;
const GAP_NS: u64 = 3_000_000;
const GAP_LARGE_NS: u64 = 30_000_000;
const LARGE_BYTES: usize = 128 << 10;

/// How long a flat phase sends.
const FLAT_NS: u64 = 250_000_000;

/// Time for starting the processes of a run and ending them.
const START_S: f64 = 0.3;

/// Time of a flat phase until the last message has arrived.
const DRAIN_S: f64 = 0.15;

/// What connects processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// Shared memory, where one copy serves all readers of a sender.
    Shm,
    /// TCP over the loopback interface.
    Tcp,
    /// TCP between network namespaces on a bridge.
    Net,
}

impl Link {
    /// All links.
    pub const ALL: [Link; 3] = [Link::Shm, Link::Tcp, Link::Net];

    /// The link's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Link::Shm => "shm",
            Link::Tcp => "tcp",
            Link::Net => "net",
        }
    }

    /// The corresponding links of a fleet.
    pub fn links(self) -> Links {
        match self {
            Link::Shm => Links::SharedMemory,
            Link::Tcp => Links::Tcp,
            Link::Net => Links::Namespaces,
        }
    }

    /// The kind of link whose calibration is used: for networks, the loopback interface.
    fn kind(self) -> Kind {
        match self {
            Link::Shm => Kind::ShmLent,
            Link::Tcp | Link::Net => Kind::TcpLink,
        }
    }
}

/// How a message gets to all receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Way {
    /// The links that it goes over.
    pub link: Link,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// Bytes of a segment, if messages are cut into segments.
    pub segment_bytes: Option<usize>,
}

/// A setting with a message size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Point {
    /// Receivers.
    pub receivers: usize,
    /// Number of processes that contain them.
    pub processes: usize,
    /// Bytes of a message.
    pub size_bytes: usize,
}

impl Point {
    /// Whether two ways use the very same links here, in whatever order: with one receiver in each
    /// process, for example, a flat tree is the same as the serial broadcast.
    pub fn uses_the_same_links(&self, one: Way, other: Way) -> bool {
        let (origin, receivers) = places(self.receivers, self.processes);
        let links = |way: Way| {
            let algorithm = Algorithm::named(way.algorithm)?;
            let mut tree = Tree::new(algorithm, origin, &receivers);
            tree.roots.sort();
            tree.children.iter_mut().for_each(|below| below.sort());
            Some((way.link, way.segment_bytes, tree))
        };
        one == other || links(one) == links(other)
    }
}

/// Processes that measure several message sizes one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Receivers.
    pub receivers: usize,
    /// Processes.
    pub processes: usize,
    /// What connects them.
    pub link: Link,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of a segment, if messages are cut into segments.
    pub segment_bytes: Option<usize>,
    /// Message sizes in bytes.
    pub sizes: Vec<usize>,
}

impl Run {
    /// What the processes run.
    pub fn shape(&self) -> Shape {
        Shape::Broadcast {
            receivers: self.receivers,
            processes: self.processes,
            algorithm: self.algorithm.name().to_string(),
            segment_bytes: self.segment_bytes,
        }
    }

    /// The way that this run measures.
    pub fn way(&self) -> Way {
        Way {
            link: self.link,
            algorithm: self.algorithm.name(),
            segment_bytes: self.segment_bytes,
        }
    }
}

/// Everything that is measured.
pub struct Plan {
    settings: Vec<(usize, usize)>,
    sizes: Vec<usize>,
    /// Number of rounds.
    pub rounds: u32,
    /// The model's costs, by link.
    costs: [Costs; 3],
    /// Whether network namespaces are available.
    namespaces: bool,
}

impl Plan {
    /// The plan of a quick or of a full run.
    pub fn new(quick: bool, rounds: Option<u32>, namespaces: bool) -> Plan {
        let cores = slackwater_link::allowed_cores().len();
        let (settings, sizes): (&[_], &[_]) = if quick {
            (&SETTINGS_QUICK, &SIZES_QUICK)
        } else {
            (&SETTINGS, &SIZES)
        };
        Plan {
            settings: settings.to_vec(),
            sizes: sizes.to_vec(),
            rounds: rounds.unwrap_or(if quick { 1 } else { ROUNDS }),
            costs: Link::ALL.map(|link| costs(link.kind(), cores)),
            namespaces,
        }
    }

    /// Restricts the plan to these settings and sizes, where some are given.
    pub fn restrict(&mut self, settings: &[(usize, usize)], sizes: &[u64]) {
        if !settings.is_empty() {
            self.settings = settings.to_vec();
        }
        if !sizes.is_empty() {
            self.sizes = sizes.iter().map(|&size| size as usize).collect();
        }
    }

    /// The points in the order of tables.
    pub fn points(&self) -> Vec<Point> {
        let points = self.settings.iter().flat_map(|&(receivers, processes)| {
            self.sizes.iter().map(move |&size_bytes| Point {
                receivers,
                processes,
                size_bytes,
            })
        });
        points.collect()
    }

    /// What the model would choose; it does not know the measurements.
    pub fn choice(&self, link: Link, point: &Point, aim: Aim) -> Way {
        let (origin, receivers) = places(point.receivers, point.processes);
        let costs = self.costs_of(link);
        let choice = choose(costs, origin, &receivers, point.size_bytes, aim);
        Way {
            link,
            algorithm: choice.algorithm.name(),
            segment_bytes: choice.segment_bytes,
        }
    }

    fn costs_of(&self, link: Link) -> &Costs {
        let place = Link::ALL.iter().position(|other| *other == link);
        &self.costs[place.expect("it is one of all")]
    }

    /// Whether a setting is measured over these links.
    fn is_measured(&self, link: Link, processes: usize) -> bool {
        match link {
            // With one process no message leaves it.
            Link::Shm => true,
            Link::Tcp => processes > 1,
            // As many nodes as in the published experiment.
            Link::Net => self.namespaces && processes == NODES,
        }
    }

    /// The runs of a round.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for &(receivers, processes) in &self.settings {
            for link in Link::ALL {
                if !self.is_measured(link, processes) {
                    continue;
                }
                for algorithm in Algorithm::ALL {
                    let run = |segment_bytes, sizes| Run {
                        receivers,
                        processes,
                        link,
                        algorithm,
                        segment_bytes,
                        sizes,
                    };
                    runs.push(run(None, self.sizes.clone()));
                    for &size_bytes in &self.sizes {
                        for segment_bytes in
                            self.segments(receivers, processes, link, algorithm, size_bytes)
                        {
                            let same = |existing: &&mut Run| {
                                let own = run(Some(segment_bytes), existing.sizes.clone());
                                **existing == own
                            };
                            match runs.iter_mut().find(same) {
                                Some(existing) => existing.sizes.push(size_bytes),
                                None => runs.push(run(Some(segment_bytes), vec![size_bytes])),
                            }
                        }
                    }
                }
            }
        }
        runs
    }

    /// The segments that the model chooses for either aim.
    fn segments(
        &self,
        receivers: usize,
        processes: usize,
        link: Link,
        algorithm: Algorithm,
        size_bytes: usize,
    ) -> Vec<usize> {
        let (origin, places) = places(receivers, processes);
        let costs = self.costs_of(link);
        let best =
            |aim| -> Choice { with_segments(costs, algorithm, origin, &places, size_bytes, aim) };
        let wanted = [Aim::Latency, Aim::Throughput].map(best);
        let segments = wanted.iter().filter_map(|choice| choice.segment_bytes);
        let mut segments = segments.collect::<Vec<usize>>();
        segments.sort_unstable();
        segments.dedup();
        segments
    }

    /// A spaced and a flat phase for each size of a run.
    pub fn phases(&self, run: &Run) -> Vec<Phase> {
        let phases = run.sizes.iter().flat_map(|&size_bytes| {
            let (messages, gap_ns) = spacing(size_bytes);
            let spaced = Pace::Spaced { messages, gap_ns };
            let flat = Pace::Flat { time_ns: FLAT_NS };
            [spaced, flat].map(|pace| Phase { size_bytes, pace })
        });
        phases.collect()
    }

    /// The approximate duration of everything, in seconds.
    pub fn expected_s(&self) -> f64 {
        let runs = self.runs();
        let sizes = runs.iter().flat_map(|run| &run.sizes);
        let measured = sizes.map(|&size_bytes| {
            let (messages, gap_ns) = spacing(size_bytes);
            (messages * gap_ns + FLAT_NS) as f64 / 1e9 + DRAIN_S
        });
        let round_s = measured.sum::<f64>() + runs.len() as f64 * START_S;
        round_s * f64::from(self.rounds)
    }
}

/// Parses `32x8`: receivers, and the processes that contain them.
pub fn parse_setting(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('x');
    let numbers = numbers.and_then(|(receivers, processes)| {
        Some((receivers.parse().ok()?, processes.parse().ok()?))
    });
    let possible = |&(receivers, processes): &(usize, usize)| {
        (1..=RECEIVERS_MAX).contains(&receivers) && (1..=receivers).contains(&processes)
    };
    numbers.filter(possible).ok_or_else(|| {
        format!("expected receivers and processes, such as 32x8, up to {RECEIVERS_MAX} of each")
    })
}

fn spacing(size_bytes: usize) -> (u64, u64) {
    if size_bytes > LARGE_BYTES {
        (MESSAGES_LARGE, GAP_LARGE_NS)
    } else {
        (MESSAGES, GAP_NS)
    }
}

/// The source in process 0; neighboring receivers share a process.
fn places(receivers: usize, processes: usize) -> (Place, Vec<Place>) {
    let place = |process| Place { host: 0, process };
    let receivers = (0..receivers).map(|receiver| place(receiver * processes / receivers));
    (place(0), receivers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_and_checked() {
        assert_eq!(parse_setting("32x8"), Ok((32, 8)));
        for text in ["32", "8x9", "0x0", "65x2", "2xtwo"] {
            assert!(parse_setting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ways_with_the_same_links_are_recognized() {
        let way = |algorithm| Way {
            link: Link::Shm,
            algorithm,
            segment_bytes: None,
        };
        let same = |receivers, processes, one, other| {
            let point = Point {
                receivers,
                processes,
                size_bytes: 64,
            };
            point.uses_the_same_links(way(one), way(other))
        };
        assert!(same(8, 1, "serial", "ring"));
        assert!(same(8, 8, "serial", "flat_tree"));
        assert!(!same(8, 8, "serial", "ring"));
        assert!(!same(8, 4, "serial", "flat_tree"));
        let over = |link| Way {
            link,
            ..way("serial")
        };
        let point = Point {
            receivers: 8,
            processes: 1,
            size_bytes: 64,
        };
        assert!(!point.uses_the_same_links(over(Link::Shm), over(Link::Tcp)));
    }

    #[test]
    fn every_way_is_measured_at_every_point_and_so_is_every_choice() {
        for quick in [false, true] {
            let plan = Plan::new(quick, None, true);
            let runs = plan.runs();
            for point in plan.points() {
                for link in Link::ALL {
                    if !plan.is_measured(link, point.processes) {
                        continue;
                    }
                    let of_point = runs.iter().filter(|run| {
                        (run.receivers, run.processes, run.link)
                            == (point.receivers, point.processes, link)
                            && run.sizes.contains(&point.size_bytes)
                    });
                    let ways = of_point.map(Run::way).collect::<Vec<Way>>();
                    let whole = ways.iter().filter(|way| way.segment_bytes.is_none());
                    assert_eq!(whole.count(), Algorithm::ALL.len());
                    for aim in [Aim::Latency, Aim::Throughput] {
                        assert!(ways.contains(&plan.choice(link, &point, aim)));
                    }
                }
            }
        }
    }
}
