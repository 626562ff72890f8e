//! What will be measured, from the command line.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::effort::Effort;
use super::image::LINE;
use super::order::STAGES;
use super::way::Way;
use crate::common::parse_seconds;
use crate::lab::{Drawing, Files};
use slackwater::machine;

/// Bytes of the image, as in P4's experiment.
const IMAGE_BYTES: usize = 16 << 20;

/// Bytes that a partial update needs: the smallest block of P4's experiment.
pub const REGION_BYTES: usize = 2 << 10;

/// The share of the bandwidth that the plan leaves free.
pub const RESERVE: f64 = 0.1;

/// Complete updates under way when as many as possible are requested: the next one is waiting when one
/// ends.
pub const UNDER_WAY: usize = 2;

/// The share of all points that may be measured again because they were disturbed.
pub const REPEATED_SHARE_MAX: f64 = 0.12;

/// What a point takes in addition to its time: starting four processes and their links.
const POINT_OVERHEAD_S: f64 = 0.08;

/// Points with complete updates at a rate cover whole periods of it, at most twice their time.
const PERIODS_FACTOR: f64 = 1.15;

/// The largest allowed block: for it the 27 lanes of a pipeline take 8 MiB each.
const BLOCK_MAX: usize = 1 << 20;

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Latency of partial updates while complete updates keep a rate.
    Latency,
    /// The highest rate of complete updates at which partial updates keep a latency.
    Rate,
    /// Response times of mixed queries, by the share of complete updates.
    Mixed,
}

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Fewer sizes, rates and rounds: less than a minute
    #[arg(long)]
    pub quick: bool,
    /// The experiments as a query in two processes instead of a pipeline of links (--rounds, --seconds and
    /// --json apply)
    #[arg(long)]
    pub query: bool,
    /// Which experiments follow the search for the best block
    #[arg(
        long,
        value_enum,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "latency,rate,mixed"
    )]
    experiments: Vec<Experiment>,
    /// Computing in each filter, in nanoseconds per byte
    #[arg(
        long,
        value_name = "NS,..",
        value_delimiter = ',',
        default_value = "0,18",
        value_parser = computing
    )]
    computing: Vec<f64>,
    /// Block sizes that are tried, in bytes: multiples of 64 [default: 2 KiB to 512 KiB]
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', value_parser = block)]
    blocks: Option<Vec<usize>>,
    /// Rounds; the medians are printed [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// How long each point is measured, in seconds [default: 0.5, and 1.5 with computing]
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Bytes of the image: a power of two from 64 KiB to 1 GiB
    #[arg(long, value_name = "BYTES", default_value_t = IMAGE_BYTES)]
    image: usize,
    /// Seed of the random partial updates
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The cores of source, filter, filter and viewer [default: neighbors on different cores]
    #[arg(long, value_name = "CORE,..", value_delimiter = ',', num_args = 1)]
    cores: Option<Vec<usize>>,
    #[command(flatten)]
    pub files: Files,
    #[command(flatten)]
    pub drawing: Drawing,
}

fn computing(text: &str) -> Result<f64, String> {
    let ns = text.parse::<f64>().ok();
    ns.filter(|ns| (0.0..=1000.0).contains(ns))
        .ok_or_else(|| "expected nanoseconds per byte from 0 to 1000, such as 18".to_string())
}

fn block(text: &str) -> Result<usize, String> {
    let bytes = text.parse::<usize>().ok();
    bytes
        .filter(|bytes| bytes.is_multiple_of(LINE) && (LINE..=BLOCK_MAX).contains(bytes))
        .ok_or_else(|| "expected a multiple of 64 bytes, at most 1 MiB".to_string())
}

/// The plan of the experiment.
pub struct Plan {
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The ways that are compared.
    pub ways: Vec<Way>,
    /// The efforts, by amount of computing.
    pub efforts: Vec<Effort>,
    /// Bytes of the image.
    pub image_bytes: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// The cores of the stages.
    pub cores: [usize; STAGES],
}

impl Plan {
    /// The plan for these arguments.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        let quick = arguments.quick;
        let image_bytes = arguments.image;
        if !image_bytes.is_power_of_two() || !(64 << 10..=1 << 30).contains(&image_bytes) {
            return Err("--image: expected a power of two from 65536 to 1073741824".to_string());
        }
        let cores = match arguments.cores.as_deref() {
            None => cores(),
            Some(cores) => <[usize; STAGES]>::try_from(cores)
                .map_err(|_| "--cores: expected four cores, such as 0,1,0,1".to_string())?,
        };
        let effort = |&ns_per_byte| {
            let mut effort = Effort::of(quick, ns_per_byte, image_bytes);
            if let Some(rounds) = arguments.rounds {
                (effort.rounds, effort.short_rounds) = (rounds, rounds);
            }
            if let Some(seconds) = arguments.seconds {
                let time = Duration::from_secs_f64(seconds);
                effort.times.time = time;
                effort.times.warm_up = effort.times.warm_up.min(time);
            }
            if let Some(blocks) = &arguments.blocks {
                effort.sizes = blocks.clone();
                effort.sizes.sort_unstable();
                effort.sizes.dedup();
            }
            effort
        };
        Ok(Plan {
            experiments: arguments.experiments.clone(),
            ways: if quick {
                Way::COMPARED.to_vec()
            } else {
                Way::ALL.to_vec()
            },
            efforts: arguments.computing.iter().map(effort).collect(),
            image_bytes,
            seed: arguments.seed,
            cores,
        })
    }

    /// Whether the plan contains an experiment.
    pub fn wants(&self, experiment: Experiment) -> bool {
        self.experiments.contains(&experiment)
    }

    /// Duration with all repetitions.
    pub fn expected_max_s(&self) -> f64 {
        self.expected_s() * (1.0 + REPEATED_SHARE_MAX)
    }

    /// Expected duration.
    pub fn expected_s(&self) -> f64 {
        let efforts = self.efforts.iter();
        efforts.map(|effort| self.expected_effort_s(effort)).sum()
    }

    fn expected_effort_s(&self, effort: &Effort) -> f64 {
        let ways = self.ways.len() as f64;
        let sweep = (effort.sizes.len() * 2 + 1) as f64 * f64::from(effort.short_rounds);
        let latency = effort.fractions.len() as f64 * ways * f64::from(effort.rounds);
        // Half of the rates of a bisection are kept.
        let tries = f64::from(effort.probes) * f64::from(effort.tries + 1) / 2.0;
        let rate = effort.guarantees.len() as f64 * ways * tries;
        let mixed = (effort.shares.len() * effort.partitions.len() * Way::COMPARED.len()) as f64
            * f64::from(effort.short_rounds);
        let points_of = |experiment, points: f64| if self.wants(experiment) { points } else { 0.0 };
        let points = sweep
            + points_of(Experiment::Latency, latency * PERIODS_FACTOR)
            + points_of(Experiment::Rate, rate * PERIODS_FACTOR)
            + points_of(Experiment::Mixed, mixed);
        let times = effort.times;
        points * ((times.warm_up + times.time).as_secs_f64() + POINT_OVERHEAD_S)
    }
}

/// A core for each stage. With few cores neighbors have different ones, so that every block is passed
/// between cores; with enough cores each stage has its own.
fn cores() -> [usize; STAGES] {
    let topology = machine::topology();
    let mut apart: Vec<usize> = Vec::new();
    for core in topology.cores.iter().filter(|core| core.allowed) {
        if !apart.iter().any(|id| core.siblings.contains(id)) {
            apart.push(core.id);
        }
    }
    if apart.len() < 2 {
        // Threads of one physical core are better than one thread.
        apart = slackwater_link::allowed_cores();
    }
    let used = if apart.len() >= STAGES {
        STAGES
    } else {
        apart.len().clamp(1, 2)
    };
    std::array::from_fn(|stage| apart.get(stage % used).copied().unwrap_or(0))
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// The plan of a command line.
    pub fn plan(arguments: &[&str]) -> Plan {
        let mut line = vec!["chunking", "--cores", "0,1,0,1"];
        line.extend(arguments);
        Plan::of(&Line::try_parse_from(line).unwrap().arguments).unwrap()
    }

    #[test]
    fn a_full_run_takes_less_than_ten_minutes_and_a_quick_one_less_than_one() {
        let seconds = plan(&[]).expected_max_s();
        assert!((60.0..600.0).contains(&seconds), "{seconds}");
        let seconds = plan(&["--quick"]).expected_max_s();
        assert!(seconds < 60.0, "{seconds}");
    }

    #[test]
    fn the_requested_points_are_measured() {
        let some = plan(&[
            "--quick",
            "--experiments",
            "mixed",
            "--computing",
            "2.5",
            "--rounds",
            "4",
            "--seconds",
            "0.1",
            "--image",
            "1048576",
            "--blocks",
            "65536,4096,4096",
        ]);
        assert!(some.wants(Experiment::Mixed) && !some.wants(Experiment::Rate));
        let [effort] = &some.efforts[..] else {
            panic!("{:?}", some.efforts);
        };
        assert_eq!(
            (effort.ns_per_byte, effort.rounds, effort.short_rounds),
            (2.5, 4, 4)
        );
        assert_eq!(effort.times.time, Duration::from_millis(100));
        assert_eq!(effort.sizes, [4 << 10, 64 << 10]);
        assert!(some.expected_s() < plan(&["--quick"]).expected_s());
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [
            ["--computing", "-1"],
            ["--computing", "much"],
            ["--experiments", "all"],
            ["--blocks", "100"],
            ["--blocks", "0"],
            ["--rounds", "0"],
            ["--seconds", "0"],
        ] {
            let line = ["chunking"].into_iter().chain(arguments);
            assert!(Line::try_parse_from(line).is_err(), "{arguments:?}");
        }
        for arguments in [
            ["--cores", "0,1"],
            ["--image", "100000"],
            ["--image", "1024"],
        ] {
            let line = ["chunking"].into_iter().chain(arguments);
            let line = Line::try_parse_from(line).unwrap();
            assert!(Plan::of(&line.arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn neighbors_have_different_cores_if_there_are_enough() {
        let cores = cores();
        let allowed = slackwater_link::allowed_cores();
        assert!(cores.iter().all(|core| allowed.contains(core)));
        if allowed.len() > 1 {
            assert!(cores.windows(2).all(|pair| pair[0] != pair[1]), "{cores:?}");
        }
    }
}
