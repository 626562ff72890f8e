//! What will be measured, from the command line.

use std::path::PathBuf;

use clap::Args;

use super::query::{Place, Spec};
use crate::common::{parse_rate, parse_seconds};
use crate::lab::Files;

const KEYS: [u64; 3] = [1_000, 100_000, 1_000_000];
const INTERVALS_MS: [u64; 2] = [1_000, 10_000];

/// Two checkpoints of the longer interval, and some more time.
const SECONDS: f64 = 22.0;
const SECONDS_QUICK: f64 = 11.0;

const ROUNDS: u32 = 3;
const ROUNDS_GOALS: u32 = 5;

/// The number of keys that most goals refer to.
const KEYS_QUICK: u64 = 100_000;

/// Time that a query needs to start, before rows flow evenly.
const START_S: f64 = 1.5;

/// Time of a kill in addition to the warm-up.
const KILL_S: f64 = 5.0;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// 100,000 keys, one round of 11 s a point and one kill: just over a minute
    #[arg(long)]
    quick: bool,
    /// Only the points of the goals for CPU time and latency, five rounds, no kills: 13 minutes
    #[arg(long, conflicts_with_all = ["quick", "keys", "places", "intervals"])]
    goals: bool,
    /// Numbers of keys [default: 1000,100000,1000000]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = keys)]
    keys: Option<Vec<u64>>,
    /// Where rows go: folder (of parts, exactly once), blackhole [default: both]
    #[arg(long, value_name = "PLACE,..", value_delimiter = ',')]
    places: Option<Vec<Place>>,
    /// How often a checkpoint is taken, in milliseconds [default: 1000,10000]
    #[arg(long, value_name = "MS,..", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(10..=600_000))]
    intervals: Option<Vec<u64>>,
    /// Rows per second; the default takes about a quarter of a core of the machine on which it was chosen
    #[arg(long, default_value = "1.5M", value_parser = parse_rate)]
    rate: f64,
    /// Rounds; the medians are printed [default: 3, of --goals 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// How long each point is measured in each round, in seconds [default: 22]
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Kills for each number of keys [default: 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    kills: Option<u32>,
    /// Where state and output are kept during the experiment [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    pub files: Files,
}

/// The points of the goals for CPU time and latency.
fn goal_specs() -> Vec<Spec> {
    let points = [
        (KEYS_QUICK, Place::Folder, 10_000),
        (KEYS_QUICK, Place::Blackhole, 10_000),
        (1_000_000, Place::Blackhole, 1_000),
    ];
    let pairs = points.into_iter().flat_map(|(keys, place, interval_ms)| {
        [None, Some(interval_ms)].map(|interval_ms| Spec {
            keys,
            place,
            interval_ms,
        })
    });
    pairs.collect()
}

fn keys(text: &str) -> Result<u64, String> {
    // The factor that shuffles keys and a power of ten have no common divisor.
    let keys = text.trim().parse::<u64>().ok();
    keys.filter(|keys| (10..=10_000_000).contains(keys) && keys.ilog10() == (keys - 1).ilog10() + 1)
        .ok_or_else(|| "expected a power of ten from 10 to 10000000".to_string())
}

/// The plan of the experiment.
pub struct Plan {
    /// The points of a round.
    pub specs: Vec<Spec>,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point is measured.
    pub seconds: f64,
    /// Rows per second.
    pub rate_per_s: u64,
    /// Numbers of keys whose queries are killed.
    pub killed: Vec<u64>,
    /// Kills for each number of keys.
    pub kills: u32,
    /// The folder in which the points' folders are created.
    pub folder: PathBuf,
}

impl Plan {
    /// The plan for these arguments.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        let quick = arguments.quick;
        let keys = arguments.keys.clone();
        let keys = keys.unwrap_or_else(|| match quick {
            true => vec![KEYS_QUICK],
            false => KEYS.to_vec(),
        });
        let places = arguments.places.clone();
        let places = places.unwrap_or_else(|| vec![Place::Folder, Place::Blackhole]);
        let intervals = arguments.intervals.clone();
        let intervals = intervals.unwrap_or_else(|| INTERVALS_MS.to_vec());
        let folder = arguments.folder.clone();
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        if !folder.is_dir() {
            return Err(format!("the folder {} does not exist", folder.display()));
        }
        let mut specs = match arguments.goals {
            true => goal_specs(),
            false => Vec::new(),
        };
        for &keys in keys.iter().filter(|_| !arguments.goals) {
            for &place in &places {
                let intervals = intervals.iter().map(|&ms| Some(ms));
                let intervals = [None].into_iter().chain(intervals);
                specs.extend(intervals.map(|interval_ms| Spec {
                    keys,
                    place,
                    interval_ms,
                }));
            }
        }
        let seconds = if quick { SECONDS_QUICK } else { SECONDS };
        Ok(Plan {
            specs,
            rounds: match (quick, arguments.goals) {
                (true, _) => 1,
                (_, true) => arguments.rounds.unwrap_or(ROUNDS_GOALS),
                (_, false) => arguments.rounds.unwrap_or(ROUNDS),
            },
            seconds: arguments.seconds.unwrap_or(seconds),
            rate_per_s: arguments.rate as u64,
            killed: if arguments.goals { Vec::new() } else { keys },
            kills: arguments.kills.unwrap_or(if quick { 1 } else { 5 }),
            folder,
        })
    }

    /// Time until every key has occurred.
    pub fn warm_up_s(&self, keys: u64) -> f64 {
        START_S + keys as f64 / self.rate_per_s as f64
    }

    /// Duration of the whole experiment.
    pub fn expected_s(&self) -> f64 {
        let points = self.specs.iter();
        let points = points.map(|spec| self.warm_up_s(spec.keys) + self.seconds + 1.0);
        let kills = self.killed.iter();
        let kills = kills.map(|&keys| self.warm_up_s(keys) + KILL_S);
        points.sum::<f64>() * f64::from(self.rounds) + kills.sum::<f64>() * f64::from(self.kills)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_keys_are_powers_of_ten() {
        assert_eq!(keys("1000"), Ok(1_000));
        assert_eq!(keys("10"), Ok(10));
        for text in ["1", "0", "2000", "1001", "many", "100000000"] {
            assert!(keys(text).is_err(), "{text}");
        }
    }
}
