//! `slackwater bench balance`: how balancers deal with a slow instance (DataCutter over SocketVIA,
//! `papers.md` P4: its experiments with heterogeneous nodes).
//!
//! Three copies of an operator work for a fixed time per byte; one of them takes 2, 4 or 8 times as long
//! for a share of its chunks. Their work is a sleep, so that copies don't share cores. The experiment
//! measures the time for a fixed number of rows, compared with the *ideal* (all work divided by the sum
//! of speeds), and the *reaction*: the time from the moment at which a copy becomes slow for good until
//! it has processed the last row that was created before. That is how long decisions made for a fast copy
//! have an effect.
//!
//! Everything runs as `slackwater run` would run it, in this process; only the copies' work is simulated.

mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use slackwater_control::latency::chunk::{Demand, LinkPoint, plan_chunk};

use crate::common::parse_seconds;
use crate::lab::{self, Experiment, Files, Verdict};
use slackwater::calibrate;
use slackwater::measure::Kind;
use slackwater::run::{Failure, Outcome, RunOptions, run as run_query};
use slackwater::slow::{Slowness, Timed};

/// Copies of the operator, as in P4.
const COPIES: usize = 3;

/// Bytes of a row: a generated visit.
const ROW_BYTES: usize = 200;

/// P4's fixed chunk sizes: TCP's and VIA's.
const LARGE_BYTES: usize = 16 << 10;
const SMALL_BYTES: usize = 2 << 10;

/// What a chunk costs in addition to its bytes and a wake-up, for the planned size: some microseconds of
/// work.
const CHUNK_COST_NS: f64 = 5_000.0;

/// The largest share of a copy's time that chunks may cost in addition to their bytes.
const CHUNK_SHARE_MAX: f64 = 0.1;

/// When a copy becomes slow if the reaction is measured, as a share of the ideal time.
const SLOW_AFTER: f64 = 0.3;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// One slow-down and one probability, one round: half a minute
    #[arg(long)]
    quick: bool,
    /// How many times longer the slow copy takes
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "2,4,8"
    )]
    factors: Vec<u32>,
    /// The share of its chunks for which the slow copy does, in percent
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "10,50,90"
    )]
    probabilities: Vec<u32>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// What a byte costs a copy, in nanoseconds: five times P4's 18, because a sleep is only exact to
    /// some 50 us
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    ns_per_byte: u64,
    /// How long the copies work at each point if all is ideal, in seconds; four times as long where rows
    /// go by key, because buckets only move after some 0.4 s
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    #[command(flatten)]
    files: Files,
}

/// How rows are distributed to the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    RoundRobin,
    Demand,
    Keyed,
    KeyedMoving,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::RoundRobin => "round robin",
            Way::Demand => "demand",
            Way::Keyed => "keyed",
            Way::KeyedMoving => "keyed, moving",
        }
    }

    fn is_keyed(self) -> bool {
        matches!(self, Way::Keyed | Way::KeyedMoving)
    }

    /// The operator that is copied.
    fn operator(self) -> &'static str {
        if self.is_keyed() {
            "aggregate"
        } else {
            "filter"
        }
    }

    /// How many times longer than the others this way is measured.
    fn longer(self) -> f64 {
        if self.is_keyed() { 4.0 } else { 1.0 }
    }

    fn query(self, rows: u64, chunk_rows: usize) -> String {
        let set = match self {
            Way::RoundRobin => "SET 'order' = 'none'; SET 'balancer' = 'round_robin';",
            Way::Demand => "SET 'order' = 'none'; SET 'balancer' = 'demand';",
            Way::Keyed => "SET 'rebalance' = 'off';",
            Way::KeyedMoving => "SET 'rebalance' = 'auto';",
        };
        let (columns, select) = if self.is_keyed() {
            (
                "ip STRING, n BIGINT",
                "SELECT ip, COUNT(*) AS n FROM visits GROUP BY ip",
            )
        } else {
            (
                "ip STRING, duration INT",
                "SELECT ip, duration FROM visits WHERE duration >= 0",
            )
        };
        format!(
            "{set}
             SET 'parallelism' = '{COPIES}'; SET 'workers' = '{workers}';
             SET 'chunk_rows' = '{chunk_rows}'; SET 'wait' = 'interrupt';
             CREATE TABLE visits (ip STRING, duration INT)
             WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}');
             CREATE TABLE nothing ({columns}) WITH ('connector' = 'blackhole');
             INSERT INTO nothing {select};",
            workers = COPIES + 1,
        )
    }
}

/// One point of the experiment.
#[derive(Clone, Debug, Serialize)]
struct Case {
    way: Way,
    chunk_bytes: usize,
    factor: u32,
    probability_percent: u32,
    /// Whether the reaction is measured: the copy becomes slow for good at some moment.
    reaction: bool,
    /// Seconds that all rows took, by round.
    seconds: Vec<f64>,
    /// Seconds that the rows would take if work could be divided at will.
    ideal_s: f64,
    /// Seconds until decisions made for a fast copy had no effect any more, by round.
    reaction_s: Vec<f64>,
    /// Buckets that moved, by round.
    moved: Vec<u64>,
}

/// All that was measured.
#[derive(Serialize)]
struct Figures {
    ns_per_byte: u64,
    copies: usize,
    planned_bytes: usize,
    cases: Vec<Case>,
}

/// The cases to measure, and how often.
struct Plan {
    /// The cases, not measured yet.
    cases: Vec<Case>,
    rounds: u32,
    ns_per_byte: u64,
    planned_bytes: usize,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let planned_bytes = planned_bytes(arguments.ns_per_byte);
    let (factors, probabilities, rounds) = match arguments.quick {
        true => (vec![4], vec![50], 1),
        false => (
            arguments.factors.clone(),
            arguments.probabilities.clone(),
            arguments.rounds,
        ),
    };
    if factors.contains(&0) || probabilities.iter().any(|&percent| percent > 100) {
        return Err("--factors must be 1 or more, --probabilities 0 to 100".to_string());
    }
    let plan = Plan {
        cases: cases(&factors, &probabilities, planned_bytes, arguments.seconds),
        rounds,
        ns_per_byte: arguments.ns_per_byte,
        planned_bytes,
    };
    lab::conduct(&plan, &arguments.files, None)
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let slowest_s = self.cases.iter().map(Case::slowest_s).sum::<f64>();
        let expected_s = slowest_s * f64::from(self.rounds);
        format!("{} cases, at most {expected_s:.0} s", self.cases.len())
    }

    fn measure(&self) -> Result<Figures, String> {
        let mut cases = self.cases.clone();
        for round in lab::rounds(self.rounds) {
            for place in round.places(cases.len()) {
                cases[place].measure(self.ns_per_byte)?;
            }
        }
        Ok(Figures {
            ns_per_byte: self.ns_per_byte,
            copies: COPIES,
            planned_bytes: self.planned_bytes,
            cases,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        table::verdicts(figures)
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}

fn cases(factors: &[u32], probabilities: &[u32], planned_bytes: usize, seconds: f64) -> Vec<Case> {
    let case = |way, chunk_bytes, factor, probability_percent, reaction| Case {
        way,
        chunk_bytes,
        factor,
        probability_percent,
        reaction,
        seconds: Vec::new(),
        ideal_s: way.longer() * seconds,
        reaction_s: Vec::new(),
        moved: Vec::new(),
    };
    let mut cases = Vec::new();
    let sizes = [LARGE_BYTES, SMALL_BYTES, planned_bytes];
    for &factor in factors {
        for way in [Way::RoundRobin, Way::Demand] {
            for bytes in sizes {
                for &percent in probabilities {
                    cases.push(case(way, bytes, factor, percent, false));
                }
                cases.push(case(way, bytes, factor, 100, true));
            }
        }
        for way in [Way::Keyed, Way::KeyedMoving] {
            for &percent in probabilities {
                cases.push(case(way, LARGE_BYTES, factor, percent, false));
            }
        }
    }
    cases
}

impl Case {
    /// The sum of the copies' speeds, as a multiple of a copy that is not slow.
    fn speed(&self) -> f64 {
        let slowdown =
            1.0 + f64::from(self.probability_percent) / 100.0 * (f64::from(self.factor) - 1.0);
        COPIES as f64 - 1.0 + 1.0 / slowdown
    }

    /// Seconds that the case takes at most, with even shares.
    fn slowest_s(&self) -> f64 {
        self.ideal_s * self.speed() / COPIES as f64 * f64::from(self.factor) + 0.2
    }

    fn measure(&mut self, ns_per_byte: u64) -> Result<(), String> {
        let row_ns = ns_per_byte * ROW_BYTES as u64;
        let rows = (self.ideal_s * 1e9 / row_ns as f64 * self.speed()) as u64;
        let chunk_rows = (self.chunk_bytes / ROW_BYTES).max(1);
        let slowness = Arc::new(Slowness::Timed(Timed {
            operator: self.way.operator(),
            row_ns,
            factor: f64::from(self.factor),
            probability: f64::from(self.probability_percent) / 100.0,
            slow_after: if self.reaction {
                Duration::from_secs_f64(SLOW_AFTER * self.ideal_s)
            } else {
                Duration::ZERO
            },
            reaction_ns: AtomicU64::new(0),
            instances: AtomicU64::new(0),
        }));
        let options = RunOptions {
            slowness: Some(Arc::clone(&slowness)),
            ..RunOptions::default()
        };
        let text = self.way.query(rows, chunk_rows);
        let report = match run_query("bench balance", &text, &options) {
            Ok(Outcome::Finished(finished)) => finished.report,
            Ok(Outcome::Explained(_)) => return Err("the query did not run".to_string()),
            Err(Failure::Usage(error) | Failure::Query(error, _)) => return Err(error),
        };
        if report.rows_in != rows {
            return Err(format!("{} of {rows} rows were read", report.rows_in));
        }
        self.seconds.push(report.wall_s);
        self.moved
            .push(report.plan.rebalancing.map_or(0, |moved| moved.buckets));
        if let (Slowness::Timed(timed), true) = (&*slowness, self.reaction) {
            let reaction_ns = timed.reaction_ns.load(Ordering::Relaxed);
            self.reaction_s.push(reaction_ns as f64 / 1e9);
        }
        Ok(())
    }
}

/// The smallest chunk whose link, work and wake-up take a tenth of the time that a copy takes for its
/// bytes, according to the calibration of links, or according to this cost alone where there is none.
fn planned_bytes(ns_per_byte: u64) -> usize {
    let calibration = calibrate::load().ok();
    let links = calibration
        .iter()
        .flat_map(|calibration| &calibration.links);
    let shared = links.filter(|link| link.kind == Kind::ShmLent);
    let mut points = shared
        .map(|link| LinkPoint {
            size_bytes: link.size_bytes,
            latency_ns: link.latency_p50_ns,
            bytes_per_s: link.gb_per_s * 1e9,
        })
        .collect::<Vec<_>>();
    if points.is_empty() {
        let size_bytes = SMALL_BYTES;
        points.push(LinkPoint {
            size_bytes,
            latency_ns: CHUNK_COST_NS,
            bytes_per_s: size_bytes as f64 / 1e-6,
        });
    }
    let demand = Demand {
        bytes_per_s: 1e9 / ns_per_byte as f64 / CHUNK_SHARE_MAX,
        reserve: 0.0,
        chunk_cost_ns: CHUNK_COST_NS + calibrate::costs().wake_ns as f64,
        floor_bytes: ROW_BYTES,
        ceiling_bytes: LARGE_BYTES,
    };
    let plan = plan_chunk(&points, &demand);
    plan.map_or(SMALL_BYTES, |plan| plan.size_bytes)
}
