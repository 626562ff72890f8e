//! What is measured, from the command line.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::common::{parse_rate, parse_seconds};
use crate::lab::Files;

/// Time that a query needs to start, and a standby to read what is there.
const START_S: f64 = 2.0;

/// Time of a take-over beside the warm-up.
const TAKEOVER_S: f64 = 6.0;

/// How checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Not at all.
    None,
    /// By the run itself.
    Own,
    /// By a standby.
    Standby,
}

impl Way {
    /// The way in a table.
    pub fn name(self) -> &'static str {
        match self {
            Way::None => "no checkpoints",
            Way::Own => "its own checkpoints",
            Way::Standby => "a standby",
        }
    }
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Sums by so many keys, for ever: all of the state changes between two checkpoints.
    Keys(u64),
    /// fixwindow of HiBench, by address.
    Windows,
}

impl Case {
    /// The case in a table.
    pub fn name(self) -> String {
        match self {
            Case::Keys(keys) => format!("{keys} keys"),
            Case::Windows => format!("fixwindow, {WINDOW_S} s"),
        }
    }

    /// How many keys there are at most.
    pub fn keys(self) -> u64 {
        match self {
            Case::Keys(keys) => keys,
            Case::Windows => WINDOW_KEYS,
        }
    }
}

/// Seconds of a window of fixwindow, and more addresses than it has.
pub const WINDOW_S: u64 = 30;
const WINDOW_KEYS: u64 = 10_000;

/// By what a query goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heir {
    /// The same command again.
    Restart,
    /// A standby.
    Standby,
    /// A standby, with slow storage.
    SlowStorage,
}

impl Heir {
    /// The heir in a table.
    pub fn name(self) -> &'static str {
        match self {
            Heir::Restart => "restarted",
            Heir::Standby => "a standby",
            Heir::SlowStorage => "a standby, storage slowed",
        }
    }
}

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// 10,000 keys, one round of two seconds a point
    #[arg(long)]
    quick: bool,
    /// Numbers of keys [default: 100000,1000000]
    #[arg(long, value_name = "N,..", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(10..=100_000_000))]
    keys: Vec<u64>,
    /// Rows per second
    #[arg(long, default_value = "1.5M", value_parser = parse_rate)]
    rate: f64,
    /// How often checkpoints are taken, in milliseconds
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    interval: u64,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each point is measured, in seconds
    #[arg(long, default_value = "10", value_parser = parse_seconds)]
    seconds: f64,
    /// What slow storage can write, in bytes per second
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100_000..))]
    storage: u64,
    /// Only take-overs, or only costs
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Where state and output are kept during the experiment [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    pub(super) files: Files,
}

/// A half of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// What a standby costs.
    Cost,
    /// How soon it goes on.
    TakeOver,
}

/// The plan.
pub struct Plan {
    keys: Vec<u64>,
    /// Rows per second.
    pub rate_per_s: u64,
    /// How often checkpoints are taken.
    pub interval_ms: u64,
    /// Rounds.
    pub rounds: u32,
    /// How long each point is measured.
    pub seconds: f64,
    /// Bytes per second of slow storage.
    pub storage_per_s: u64,
    only: Option<Only>,
    /// The folder in which the points' folders are created.
    pub folder: PathBuf,
}

impl Plan {
    /// The plan for these arguments.
    ///
    /// # Errors
    ///
    /// If the folder does not exist.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        let quick = arguments.quick;
        let folder = arguments.folder.clone();
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        if !folder.is_dir() {
            return Err(format!("the folder {} does not exist", folder.display()));
        }
        let keys = match (arguments.keys.is_empty(), quick) {
            (true, true) => vec![10_000],
            (true, false) => vec![100_000, 1_000_000],
            (false, _) => arguments.keys.clone(),
        };
        Ok(Plan {
            keys,
            rate_per_s: arguments.rate as u64,
            interval_ms: arguments.interval,
            rounds: if quick { 1 } else { arguments.rounds },
            seconds: if quick { 2.0 } else { arguments.seconds },
            storage_per_s: arguments.storage,
            only: arguments.only,
            folder,
        })
    }

    /// The costs of a round.
    pub fn costs(&self) -> Vec<(Case, Way)> {
        if self.only == Some(Only::TakeOver) {
            return Vec::new();
        }
        let ways = [Way::None, Way::Own, Way::Standby];
        let cases = self.keys.iter().map(|&keys| Case::Keys(keys));
        let cases = [Case::Windows].into_iter().chain(cases);
        cases.flat_map(|case| ways.map(|way| (case, way))).collect()
    }

    /// The take-overs of a round.
    pub fn takeovers(&self) -> Vec<(u64, Heir)> {
        if self.only == Some(Only::Cost) {
            return Vec::new();
        }
        let heirs = [Heir::Restart, Heir::Standby, Heir::SlowStorage];
        let of_keys = |&keys: &u64| heirs.map(|heir| (keys, heir));
        self.keys.iter().flat_map(of_keys).collect()
    }

    /// Time until every key has occurred, and the standby holds them.
    pub fn warm_up_s(&self, keys: u64) -> f64 {
        START_S + keys as f64 / self.rate_per_s as f64 + 2.5 * self.interval_ms as f64 / 1e3
    }

    /// Duration of the whole experiment.
    pub fn expected_s(&self) -> f64 {
        let costs = self.costs().into_iter();
        let costs = costs.map(|(case, _)| self.warm_up_s(case.keys()) + self.seconds + 1.0);
        let takeovers = self.takeovers().into_iter();
        let takeovers = takeovers.map(|(keys, _)| self.warm_up_s(keys) + TAKEOVER_S);
        (costs.sum::<f64>() + takeovers.sum::<f64>()) * f64::from(self.rounds)
    }
}
