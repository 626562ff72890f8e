//! `slackwater bench wait`: what it costs to wait for messages, by the way of waiting and the rate.
//!
//! The experiment of Akram and Bilas, "A Sleep-based Communication Mechanism to Save Processor
//! Utilization in Distributed Streaming Systems": a sender and a receiver, each a process pinned to
//! a core of its own, messages of 200 bytes at rates from 100 to 1,000,000 a second, and the CPU
//! time of both, for every mode of waiting, beside TCP with interrupts.
//!
//! ```text
//! schedule ──► part (two processes a point) ──► sender ══ ends ══► receiver
//!                                                  │                  │
//! table, JSON, chart ◄── verdict ◄── figures ◄── points ◄─────────────┘
//! ```
//!
//! What the figures contain:
//! - **Open loop.** Messages are due at absolute times, at random or regularly, the same ones in all
//!   modes. Latency counts from the time a message was due, so a sender that is held up shows.
//! - **CPU time** is the kernel's count of each process, from the first message of the interval to
//!   the first one behind it.
//! - **The sender's own waiting** (a timed sleep per message, per tick at high rates) is the same in
//!   all modes. A sender that does all but send is measured beside, and subtracted where figures say
//!   so.
//! - **Rounds are interleaved**: each goes through all rates, and at each rate through all modes,
//!   every other one backwards. Figures are medians over the rounds.
//!
//! `docs/benchmarks/wait.md` has the results.

mod arrivals;
mod chart;
mod ends;
mod figures;
mod host;
mod order;
mod part;
mod receiver;
mod sender;
mod usage;
mod verdict;
mod way;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use slackwater_engine::runtime::WaitMode;

use arrivals::Arrivals;
use figures::{Baseline, Figures, Summary};
use host::{Host, Oversleep};
use order::{Latency, Order, Part, Point};
use way::{Mode, Transport, Way};

use crate::measure::{Cores, median};

/// All modes, of which `auto` for three permitted delays.
const MODES: &str = "poll,interrupt,sleep:50us,sleep:200us,sleep:1ms,sleep:10ms,spin:50us,backoff,\
                     auto:200us,auto:1ms,auto:10ms";
const MODES_QUICK: &str = "interrupt,sleep:200us,sleep:1ms,auto:200us,auto:1ms";

const RATES: &str = "100,1k,10k,100k,1M";
const RATES_QUICK: &str = "1k,10k,100k";

/// A point takes 3.15 s with its warm-up and the start of its processes; 120 of them in three rounds
/// take 19 minutes.
const SECONDS: f64 = 2.7;
const SECONDS_QUICK: f64 = 1.0;
const WARM_UP: Duration = Duration::from_millis(400);
const WARM_UP_QUICK: Duration = Duration::from_millis(200);

const ROUNDS: u32 = 3;

/// What a point takes beside: the start of two processes, and the way to its last message.
const POINT_OVERHEAD_S: f64 = 0.05;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// Fewer modes and rates, one round of a second each: about 50 s
    #[arg(long)]
    quick: bool,
    /// What carries messages: shm, tcp (the link), plain (a socket with blocking calls)
    #[arg(long, value_name = "KIND,..", value_delimiter = ',', default_value = "shm,tcp,plain")]
    kinds: Vec<Transport>,
    /// How the reader of a link waits [default: poll, interrupt, sleep:50us, sleep:200us,
    /// sleep:1ms, sleep:10ms, spin:50us, backoff, auto:200us, auto:1ms, auto:10ms]
    #[arg(long, value_name = "MODE,..", value_delimiter = ',')]
    modes: Option<Vec<Mode>>,
    /// Messages per second, up to 10M [default: 100,1k,10k,100k,1M]
    #[arg(long, value_name = "RATE,..", value_delimiter = ',', value_parser = rate)]
    rates: Option<Vec<f64>>,
    /// Rounds; the medians are printed [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// How long each point is measured in each round, in seconds [default: 2.7]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// How messages come: poisson (at random) or regular
    #[arg(long, default_value = "poisson")]
    arrivals: Arrivals,
    /// Of the random arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The sender's core and the receiver's [default: two that are not threads of one]
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',', num_args = 1)]
    cores: Option<Vec<usize>>,
    /// Write all figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw CPU time against rate into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// One side of a point, in a process of its own.
#[derive(Args)]
pub struct PartArguments {
    /// The descriptor of the socket to whoever measures
    #[arg(long)]
    control: i32,
}

/// Runs one side of a point.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    part::run(arguments.control)
}

fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.trim() {
        text if text.ends_with(['k', 'K']) => (&text[..text.len() - 1], 1e3),
        text if text.ends_with('M') => (&text[..text.len() - 1], 1e6),
        text => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number * factor);
    // One in ten seconds is no rate to measure; ten million is ten times what any mode here takes.
    rate.filter(|rate| (1.0..=1e7).contains(rate))
        .ok_or_else(|| "a rate is a number from 1 to 10M, such as 100, 10k or 1M".to_string())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.05..=3600.0).contains(seconds))
        .ok_or_else(|| "write seconds from 0.05 to 3600, such as 2.5".to_string())
}

/// What is to be done, read from the arguments.
struct Schedule {
    ways: Vec<Way>,
    rates: Vec<f64>,
    rounds: u32,
    seconds: f64,
    warm_up: Duration,
    arrivals: Arrivals,
    seed: u64,
    cores: Cores,
}

impl Schedule {
    fn of(arguments: &Arguments) -> Result<Schedule, String> {
        let quick = arguments.quick;
        let modes = match &arguments.modes {
            Some(modes) => modes.clone(),
            None => list(if quick { MODES_QUICK } else { MODES }, str::parse)?,
        };
        let rates = match &arguments.rates {
            Some(rates) => rates.clone(),
            None => list(if quick { RATES_QUICK } else { RATES }, rate)?,
        };
        let mut ways = Vec::new();
        for &transport in &arguments.kinds {
            let modes: &[Mode] = match transport {
                // Blocking calls are the one way in which it waits.
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
            None => host::cores()?,
            Some(&[leader, follower]) if leader != follower => Cores { leader, follower },
            Some(_) => return Err("--cores: write two different cores, such as 0,1".to_string()),
        };
        Ok(Schedule {
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
        })
    }

    fn points(&self) -> usize {
        (self.ways.len() + 1) * self.rates.len() * self.rounds as usize
    }

    fn expected_s(&self) -> f64 {
        let point_s = self.seconds + self.warm_up.as_secs_f64() + POINT_OVERHEAD_S;
        self.points() as f64 * point_s
    }

    fn order(&self, way: Way, rate_per_s: f64, round: u32) -> Order {
        Order {
            part: Part::Sender,
            core: self.cores.leader,
            way,
            rate_per_s,
            arrivals: self.arrivals,
            // Other messages in each round, and the same ones in all modes.
            seed: self.seed.wrapping_add(u64::from(round)),
            warm_up_ns: self.warm_up.as_nanos() as u64,
            time_ns: (self.seconds * 1e9) as u64,
        }
    }

    /// The permitted delays of `auto`, of which the host's oversleep is needed.
    fn delays(&self) -> Vec<Duration> {
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

fn list<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    text.split(',').map(read).collect()
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let schedule = Schedule::of(arguments)?;
    for path in [&arguments.json, &arguments.svg].into_iter().flatten() {
        // Before the experiment and not behind it: figures that can't be kept are lost.
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("there is no folder {}", folder.display()));
        }
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures mean nothing");
    }
    let expected_s = schedule.expected_s();
    eprintln!(
        "{} points, about {:.0} min {:.0} s",
        schedule.points(),
        (expected_s / 60.0).floor(),
        expected_s % 60.0
    );
    let figures = measure(&schedule)?;
    print!("{}", figures.text());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&figures).map_err(|error| error.to_string())?;
        write(path, &(text + "\n"))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &chart::draw(&figures))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn measure(schedule: &Schedule) -> Result<Figures, String> {
    let mut host = Host::this();
    let mut points = Vec::new();
    let mut oversleeps: Vec<Vec<Oversleep>> = Vec::new();
    let delays = schedule.delays();
    for round in 1..=schedule.rounds {
        oversleeps.push(host::oversleeps(schedule.cores.follower, &delays)?);
        for &rate_per_s in &schedule.rates {
            eprintln!(
                "round {round} of {}: {}",
                schedule.rounds,
                figures::rate(rate_per_s)
            );
            let mut ways = vec![Way::BASELINE];
            ways.extend(&schedule.ways);
            if round % 2 == 0 {
                ways.reverse();
            }
            for way in ways {
                let order = schedule.order(way, rate_per_s, round);
                points.push(part::measure(order, schedule.cores.follower, round)?);
            }
        }
    }
    host.load_after = host::load();
    Ok(summarise(schedule, host, &oversleeps, points))
}

fn summarise(
    schedule: &Schedule,
    host: Host,
    oversleeps: &[Vec<Oversleep>],
    points: Vec<Point>,
) -> Figures {
    let baselines = schedule.rates.iter();
    let baselines = baselines.filter_map(|&rate_per_s| Baseline::of(rate_per_s, &points));
    let baselines = baselines.collect::<Vec<_>>();
    let mut summaries = Vec::new();
    for baseline in &baselines {
        let ways = schedule.ways.iter();
        summaries.extend(ways.filter_map(|&way| Summary::of(way, baseline, &points)));
    }
    let oversleeps = medians(oversleeps);
    Figures {
        host,
        cores: schedule.cores,
        arrivals: schedule.arrivals,
        seed: schedule.seed,
        message_bytes: order::MESSAGE_BYTES,
        rounds: schedule.rounds,
        seconds: schedule.seconds,
        verdicts: verdict::verdicts(&summaries, &oversleeps),
        oversleeps,
        baselines,
        summaries,
        points,
    }
}

/// The median of each quantile over the rounds.
fn medians(rounds: &[Vec<Oversleep>]) -> Vec<Oversleep> {
    let first = rounds.first().map(Vec::as_slice).unwrap_or_default();
    let of = |place: usize, pick: fn(&Latency) -> f64| {
        median(rounds.iter().map(|round| pick(&round[place].late)).collect())
    };
    let sleeps = first.iter().enumerate().map(|(place, sleep)| Oversleep {
        sleep_us: sleep.sleep_us,
        late: Latency {
            p50_us: of(place, |late| late.p50_us),
            p99_us: of(place, |late| late.p99_us),
            p999_us: of(place, |late| late.p999_us),
            max_us: of(place, |late| late.max_us),
        },
    });
    sleeps.collect()
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

    fn schedule(arguments: &[&str]) -> Schedule {
        let mut line = vec!["wait", "--cores", "0,1"];
        line.extend(arguments);
        Schedule::of(&Line::try_parse_from(line).unwrap().arguments).unwrap()
    }

    #[test]
    fn all_of_it_takes_less_than_twenty_minutes_and_a_quick_look_less_than_one() {
        let all = schedule(&[]);
        // Eleven modes of two links, plain TCP, and the sender alone.
        assert_eq!(all.points(), 24 * 5 * 3);
        assert!(all.expected_s() < 20.0 * 60.0, "{}", all.expected_s());
        let quick = schedule(&["--quick"]);
        assert!(quick.expected_s() < 55.0, "{}", quick.expected_s());
        assert_eq!(quick.delays().len(), 2);
    }

    #[test]
    fn what_is_asked_for_is_measured() {
        let some = schedule(&[
            "--kinds", "tcp,plain", "--modes", "sleep:1ms,auto:5ms", "--rates", "50,2.5k,1M",
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
        assert!(Schedule::of(&line.arguments).is_err());
    }
}
