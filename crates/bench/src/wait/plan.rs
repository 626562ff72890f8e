//! What will be measured, from the command line.

use std::time::Duration;

use clap::Args;
use slackwater_engine::runtime::WaitMode;

use super::arrivals::Arrivals;
use super::order::{Order, Part, Point};
use super::part;
use super::way::{Mode, Transport, Way};
use crate::common::{Assumed, parse_rate, parse_seconds};
use crate::lab::{Drawing, Files, REPEATED_SHARE_MAX};
use slackwater::calibrate;
use slackwater::measure::Cores;

/// All modes, including `auto` for three allowed delays.
const MODES: &str = "poll,interrupt,sleep:50us,sleep:200us,sleep:1ms,sleep:10ms,spin:50us,backoff,\
                     auto:200us,auto:1ms,auto:10ms";
const MODES_QUICK: &str = "interrupt,sleep:200us,sleep:1ms,auto:200us,auto:1ms";

const RATES: &str = "100,1k,10k,100k,1M";
const RATES_QUICK: &str = "1k,10k,100k";

/// A point takes 2.75 s with its warm-up and the start of its processes; 120 of them in three rounds
/// take 16.5 minutes, and a fifth of them may be repeated.
const SECONDS: f64 = 2.3;
const SECONDS_QUICK: f64 = 1.0;
const WARM_UP: Duration = Duration::from_millis(400);
const WARM_UP_QUICK: Duration = Duration::from_millis(200);

const ROUNDS: u32 = 3;

/// What a point takes in addition: starting two processes, and sending the last messages.
const POINT_OVERHEAD_S: f64 = 0.05;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Fewer modes and rates, one round of a second each: about 50 s
    #[arg(long)]
    pub quick: bool,
    /// Whole queries in two and three processes instead of single links (--modes, --rates, --rounds,
    /// --seconds and --json apply)
    #[arg(long)]
    pub query: bool,
    /// How messages are sent: shm, tcp (the link), plain (a socket with blocking calls)
    #[arg(
        long,
        value_name = "KIND,..",
        value_delimiter = ',',
        default_value = "shm,tcp,plain"
    )]
    kinds: Vec<Transport>,
    /// How the reader of a link waits [default: poll, interrupt, sleep:50us, sleep:200us,
    /// sleep:1ms, sleep:10ms, spin:50us, backoff, auto:200us, auto:1ms, auto:10ms]
    #[arg(long, value_name = "MODE,..", value_delimiter = ',')]
    pub modes: Option<Vec<Mode>>,
    /// Messages per second, up to 10M [default: 100,1k,10k,100k,1M]
    #[arg(long, value_name = "RATE,..", value_delimiter = ',', value_parser = parse_rate)]
    pub rates: Option<Vec<f64>>,
    /// Rounds; the medians are printed [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long each point is measured in each round, in seconds [default: 2.3]
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// How messages arrive: poisson (at random) or regular
    #[arg(long, default_value = "poisson")]
    arrivals: Arrivals,
    /// Seed of the random arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The sender's core and the receiver's [default: two that are not threads of one physical core]
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',', num_args = 1)]
    cores: Option<Vec<usize>>,
    #[command(flatten)]
    pub files: Files,
    #[command(flatten)]
    pub drawing: Drawing,
}

/// The plan of the experiment.
pub struct Plan {
    /// The ways that are compared.
    pub ways: Vec<Way>,
    /// The rates, in messages per second.
    pub rates: Vec<f64>,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point is measured in a round.
    pub seconds: f64,
    /// How long messages flow before that.
    pub warm_up: Duration,
    /// How messages arrive.
    pub arrivals: Arrivals,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The sender's and the receiver's core.
    pub cores: Cores,
    /// The assumed cost of waiting for `auto`.
    pub assumed: Assumed,
}

impl Plan {
    /// The plan for these arguments.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        let quick = arguments.quick;
        let modes = match &arguments.modes {
            Some(modes) => modes.clone(),
            None => list(if quick { MODES_QUICK } else { MODES }, str::parse)?,
        };
        let rates = match &arguments.rates {
            Some(rates) => rates.clone(),
            None => list(if quick { RATES_QUICK } else { RATES }, parse_rate)?,
        };
        let mut ways = Vec::new();
        for &transport in &arguments.kinds {
            let modes: &[Mode] = match transport {
                // Plain sockets always wait in blocking calls.
                Transport::Plain => &[Way::PLAIN.mode],
                _ => &modes,
            };
            for &mode in modes {
                let way = Way { transport, mode };
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
        let cores = match arguments.cores.as_deref() {
            None => calibrate::cores(),
            Some(&[leader, follower]) => Cores { leader, follower },
            Some(_) => return Err("--cores: expected two cores, such as 0,1".to_string()),
        };
        if cores.leader == cores.follower {
            return Err("two cores are needed, one for each side".to_string());
        }
        Ok(Plan {
            ways,
            rates,
            rounds: arguments.rounds.unwrap_or(if quick { 1 } else { ROUNDS }),
            seconds: arguments
                .seconds
                .unwrap_or(if quick { SECONDS_QUICK } else { SECONDS }),
            warm_up: if quick { WARM_UP_QUICK } else { WARM_UP },
            arrivals: arguments.arrivals,
            seed: arguments.seed,
            cores,
            assumed: Assumed::here(),
        })
    }

    /// Number of points of a round, including the sender alone.
    pub fn points_per_round(&self) -> usize {
        (self.ways.len() + 1) * self.rates.len()
    }

    /// Number of points of all rounds.
    pub fn points(&self) -> usize {
        self.points_per_round() * self.rounds as usize
    }

    /// Measures a point.
    pub fn measure_point(&self, way: Way, rate_per_s: f64, round: u32) -> Result<Point, String> {
        let order = self.order(way, rate_per_s, round);
        part::measure(order, self.cores.follower, round)
    }

    /// Expected duration.
    pub fn expected_s(&self) -> f64 {
        let point_s = self.seconds + self.warm_up.as_secs_f64() + POINT_OVERHEAD_S;
        self.points() as f64 * point_s
    }

    /// Duration with all repetitions.
    pub fn expected_max_s(&self) -> f64 {
        self.expected_s() * (1.0 + REPEATED_SHARE_MAX)
    }

    fn order(&self, way: Way, rate_per_s: f64, round: u32) -> Order {
        Order {
            part: Part::Sender,
            core: self.cores.leader,
            way,
            costs: self.assumed.costs,
            rate_per_s,
            arrivals: self.arrivals,
            // Each round has other messages, and all modes have the same ones.
            seed: self.seed.wrapping_add(u64::from(round)),
            warm_up_ns: self.warm_up.as_nanos() as u64,
            time_ns: (self.seconds * 1e9) as u64,
        }
    }

    /// The allowed delays of `auto`, for which the host's oversleep is needed.
    pub fn delays(&self) -> Vec<Duration> {
        let mut delays = Vec::new();
        for way in &self.ways {
            if let WaitMode::Auto { delay } = way.mode.0
                && !delays.contains(&delay)
            {
                delays.push(delay);
            }
        }
        delays
    }
}

fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(read).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(arguments: &[&str]) -> Plan {
        let mut line = vec!["wait", "--cores", "0,1"];
        line.extend(arguments);
        Plan::of(&Line::try_parse_from(line).unwrap().arguments).unwrap()
    }

    #[test]
    fn a_full_run_takes_less_than_twenty_minutes_and_a_quick_one_less_than_one() {
        let all = plan(&[]);
        // Eleven modes of two links, plain TCP, and the sender alone.
        assert_eq!(all.points(), 24 * 5 * 3);
        let seconds = all.expected_max_s();
        assert!(seconds < 20.0 * 60.0, "{seconds}");
        let quick = plan(&["--quick"]);
        let seconds = quick.expected_max_s();
        assert!(seconds < 60.0, "{seconds}");
        assert_eq!(quick.delays().len(), 2);
    }

    #[test]
    fn the_requested_points_are_measured() {
        let some = plan(&[
            "--kinds",
            "tcp,plain",
            "--modes",
            "sleep:1ms,auto:5ms",
            "--rates",
            "50,2.5k,1M",
        ]);
        assert_eq!(some.rates, [50.0, 2_500.0, 1e6]);
        assert_eq!(some.ways.len(), 3);
        assert_eq!(some.ways[2], Way::PLAIN);
        assert_eq!(some.delays(), [Duration::from_millis(5)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [
            ["--rates", "0"],
            ["--rates", "fast"],
            ["--modes", "auto:"],
            ["--kinds", "pigeon"],
            ["--arrivals", "late"],
            ["--seconds", "0"],
            ["--rounds", "0"],
        ] {
            let line = ["wait"].into_iter().chain(arguments);
            assert!(Line::try_parse_from(line).is_err(), "{arguments:?}");
        }
        let line = Line::try_parse_from(["wait", "--cores", "1,1"]).unwrap();
        assert!(Plan::of(&line.arguments).is_err());
    }
}
