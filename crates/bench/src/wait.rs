//! `slackwater bench wait`: what it costs to wait for messages, by the way of waiting and the rate.
//!
//! The experiment of Akram and Bilas, "A Sleep-based Communication Mechanism to Save Processor
//! Utilization in Distributed Streaming Systems": a sender and a receiver, each a process pinned to
//! a core of its own, messages of 200 bytes at rates from 100 to 1,000,000 a second, and the CPU
//! time of both, for every mode of waiting, beside TCP with interrupts.
//!
//! ```text
//! plan ──────► part (two processes a point) ──► sender ══ ends ══► receiver
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
//! - **Disturbance** is measured: the time in which a side could have run and its core was taken.
//!   Behind each round the points with the most of it are measured again, at most a fifth of them,
//!   and the less disturbed measurement counts.
//! - **Rounds are interleaved**: each goes through all rates, and at each rate through all modes,
//!   every other one backwards. Figures are medians over the rounds.
//!
//! `docs/benchmarks/wait.md` has the results.

mod arrivals;
mod chart;
mod ends;
mod figures;
mod order;
mod oversleep;
mod part;
mod plan;
mod receiver;
mod sender;
mod table;
mod usage;
mod verdict;
mod way;

use clap::Args;

pub use plan::Arguments;

use figures::{Baseline, Figures, Summary};
use order::{Latency, Point};
use oversleep::Oversleep;
use plan::Plan;
use way::Way;

use super::common::{
    DISTURBED_MAX, REPEATED_SHARE_MAX, check_folders, minutes, rate, write, write_json,
};
use slackwater::calibrate::{Host, load_average};
use slackwater::measure::median;

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

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    check_folders(&[&arguments.json, &arguments.svg])?;
    eprintln!(
        "{} points, about {}; up to {} where other processes disturb",
        plan.points(),
        minutes(plan.expected_s()),
        minutes(plan.expected_max_s())
    );
    let figures = measure(&plan)?;
    print!("{}", figures.text());
    write_json(arguments.json.as_deref(), &figures)?;
    if let Some(path) = &arguments.svg {
        write(path, &chart::draw(&figures))?;
    }
    Ok(())
}

fn measure(plan: &Plan) -> Result<Figures, String> {
    let load_before = load_average();
    let mut points = Vec::new();
    let mut oversleeps: Vec<Vec<Oversleep>> = Vec::new();
    let delays = plan.delays();
    let mut repeated = 0;
    for round in 1..=plan.rounds {
        let mut measured = Vec::new();
        oversleeps.push(oversleep::oversleeps(plan.cores.follower, &delays)?);
        for &rate_per_s in &plan.rates {
            eprintln!("round {round} of {}: {}", plan.rounds, rate(rate_per_s));
            let mut ways = vec![Way::BASELINE];
            ways.extend(&plan.ways);
            if round % 2 == 0 {
                ways.reverse();
            }
            for way in ways {
                measured.push(plan.measure(way, rate_per_s, round)?);
            }
        }
        repeated += repeat(plan, &mut measured)?;
        points.extend(measured);
    }
    let mut figures = summarise(plan, load_before, &oversleeps, points);
    figures.repeated = repeated;
    Ok(figures)
}

/// Measures the most disturbed points of a round again, and keeps the better measurement of each.
fn repeat(plan: &Plan, points: &mut [Point]) -> Result<usize, String> {
    let mut disturbed = points
        .iter_mut()
        .filter(|point| point.disturbed() > DISTURBED_MAX)
        .collect::<Vec<_>>();
    disturbed.sort_by(|one, other| other.disturbed().total_cmp(&one.disturbed()));
    disturbed.truncate((plan.points_per_round() as f64 * REPEATED_SHARE_MAX) as usize);
    if !disturbed.is_empty() {
        eprintln!(
            "again, since other processes disturbed: {} points",
            disturbed.len()
        );
    }
    let count = disturbed.len();
    for point in disturbed {
        let again = plan.measure(point.way, point.rate_per_s, point.round)?;
        if again.disturbed() < point.disturbed() {
            *point = again;
        }
    }
    Ok(count)
}

fn summarise(
    plan: &Plan,
    load_before: [f64; 3],
    oversleeps: &[Vec<Oversleep>],
    points: Vec<Point>,
) -> Figures {
    let baselines = plan.rates.iter();
    let baselines = baselines.filter_map(|&rate_per_s| Baseline::of(rate_per_s, &points));
    let baselines = baselines.collect::<Vec<_>>();
    let mut summaries = Vec::new();
    for baseline in &baselines {
        let ways = plan.ways.iter();
        summaries.extend(ways.filter_map(|&way| Summary::of(way, baseline, &points)));
    }
    let oversleeps = medians(oversleeps);
    Figures {
        host: Host::this(),
        load_before,
        load_after: load_average(),
        costs: plan.costs,
        costs_measured: plan.costs_measured,
        cores: plan.cores,
        arrivals: plan.arrivals,
        seed: plan.seed,
        message_bytes: order::MESSAGE_BYTES,
        rounds: plan.rounds,
        seconds: plan.seconds,
        verdicts: verdict::verdicts(&summaries, &oversleeps),
        oversleeps,
        baselines,
        summaries,
        repeated: 0,
        disturbed: points
            .iter()
            .filter(|point| point.disturbed() > DISTURBED_MAX)
            .count(),
        points,
    }
}

/// The median of each quantile over the rounds.
fn medians(rounds: &[Vec<Oversleep>]) -> Vec<Oversleep> {
    let first = rounds.first().map(Vec::as_slice).unwrap_or_default();
    let of = |place: usize, pick: fn(&Latency) -> f64| {
        median(
            rounds
                .iter()
                .map(|round| pick(&round[place].late))
                .collect(),
        )
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
