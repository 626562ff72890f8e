//! `slackwater bench wait --query`: the same comparison for whole queries, as users run them: source, filter
//! and window in two processes; source and filter, a running count, and a window in three.
//!
//! ```text
//! feed ── TCP ──► source | filter ══ link ══► window            two processes
//! (this process)  source | filter ══ link ══► count ══ link ══► window      three
//! ```
//!
//! What the figures contain:
//! - **Open loop.** The feed sends records of 200 bytes at regular times, every 100 µs what is due. Its own
//!   CPU time is not counted.
//! - **CPU time** is the kernel's count of each worker process after a warm-up: the first process is the
//!   sending side of the first link, the last one the receiving side of the last. Start-up is not included.
//! - **Latency** is the engine's own, from a row's arrival to its sink, over the whole run.
//! - **No linger**, so that rows are sent as they come, as in the paper's engine.
//! - **Rounds are interleaved**: each goes through all ways at each rate, every other one backwards; ratios
//!   are calculated within a round. **The greatest throughput** is that of generated rows without a rate.

mod feed;
mod sql;
mod table;

use std::time::Duration;

use serde::Serialize;

use super::plan::Arguments;
use super::way::Mode;
use crate::common::{DISTURBED_MAX, parse_rate};
use crate::lab::{self, Experiment, Verdict, median, rate};
use crate::worker_processes::{Query, Ran};
use feed::Feed;

/// The latency that the ways are compared at.
const TARGET_MS: f64 = 5.0;

/// What CPU time of shared memory may be, as a share of that of TCP with interrupts.
const CPU_MAX: f64 = 0.6;

/// What `auto` may use, compared with the cheapest way.
const AUTO_MAX: f64 = 1.1;

/// The rate from which on the goal applies.
const GOAL_RATE_MIN: f64 = 10_000.0;

const RATES: [&str; 3] = ["1k", "10k", "100k"];
const ROUNDS: u32 = 3;
const SECONDS: f64 = 2.0;
const SECONDS_QUICK: f64 = 1.0;
const WARM_UP: Duration = Duration::from_millis(1_000);

/// Rows of a run without a rate.
const ROWS: u64 = 3_000_000;
const ROWS_QUICK: u64 = 500_000;

/// A way to run the queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueryWay {
    /// `shm` or `tcp`.
    pub link: &'static str,
    /// How workers wait.
    pub mode: Mode,
}

/// A point, as one round measured it.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub processes: usize,
    pub way: QueryWay,
    pub rate_per_s: f64,
    pub round: u32,
    pub ran: Ran,
}

impl Point {
    fn p99_ms(&self) -> Option<f64> {
        self.ran.report.sinks.first()?.latency_ms.p99
    }
}

/// The throughput without a rate, as one round measured it.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    pub processes: usize,
    pub way: QueryWay,
    pub round: u32,
    pub rows_per_s: f64,
    pub cpu_us_per_row: f64,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub target_ms: f64,
    pub rounds: u32,
    pub seconds: f64,
    pub points: Vec<Point>,
    pub throughput: Vec<Throughput>,
    /// Points during which other processes held a core that a worker needed.
    pub disturbed: usize,
}

/// The plan of the experiment.
pub struct Plan {
    ways: Vec<QueryWay>,
    rates: Vec<f64>,
    processes: Vec<usize>,
    rounds: u32,
    seconds: f64,
    rows: u64,
}

impl Plan {
    /// The plan for these arguments.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        let quick = arguments.quick;
        let modes = match &arguments.modes {
            Some(modes) => modes.clone(),
            None => ["poll", "interrupt", "sleep:1ms", "auto:1ms"]
                .into_iter()
                .map(str::parse)
                .collect::<Result<Vec<Mode>, String>>()?,
        };
        let shm = modes.into_iter().map(|mode| QueryWay { link: "shm", mode });
        let rates = match &arguments.rates {
            Some(rates) => rates.clone(),
            None => RATES
                .into_iter()
                .map(parse_rate)
                .collect::<Result<Vec<f64>, String>>()?,
        };
        let seconds = if quick { SECONDS_QUICK } else { SECONDS };
        Ok(Plan {
            ways: [baseline()?].into_iter().chain(shm).collect(),
            rates,
            processes: vec![2, 3],
            rounds: arguments.rounds.unwrap_or(if quick { 1 } else { ROUNDS }),
            seconds: arguments.seconds.unwrap_or(seconds),
            rows: if quick { ROWS_QUICK } else { ROWS },
        })
    }

    /// The ways for a number of processes: a worker that polls needs a core of its own.
    fn ways_of(&self, processes: usize) -> Vec<QueryWay> {
        let cores = slackwater_link::allowed_cores().len();
        let ways = self.ways.iter().copied();
        ways.filter(|way| processes <= cores || way.mode.to_string() != "poll")
            .collect()
    }

    fn measure_point(
        &self,
        processes: usize,
        way: QueryWay,
        rate_per_s: f64,
        round: u32,
    ) -> Result<Point, String> {
        let feed = Feed::start(rate_per_s)?;
        let query = Query {
            sql: sql::fed(processes, feed.address()),
            processes,
            settings: way.settings(),
        };
        let ran = query.over(WARM_UP, Duration::from_secs_f64(self.seconds));
        let sent = feed.finish();
        let ran =
            ran.map_err(|error| format!("{} at {}: {error}", way.name(), rate(rate_per_s)))?;
        if let Some(error) = sent {
            return Err(error);
        }
        Ok(Point {
            processes,
            way,
            rate_per_s,
            round,
            ran,
        })
    }

    fn measure_throughput(
        &self,
        processes: usize,
        way: QueryWay,
        round: u32,
    ) -> Result<Throughput, String> {
        let query = Query {
            sql: sql::generated(processes, self.rows),
            processes,
            settings: way.settings(),
        };
        let report = query.to_end()?;
        Ok(Throughput {
            processes,
            way,
            round,
            rows_per_s: report.rows_per_s,
            cpu_us_per_row: report.cpu_s * 1e6 / report.rows_in.max(1) as f64,
        })
    }
}

/// TCP with interrupts, which the others are compared with.
fn baseline() -> Result<QueryWay, String> {
    Ok(QueryWay {
        link: "tcp",
        mode: "interrupt".parse()?,
    })
}

impl QueryWay {
    /// The way's name in tables.
    pub fn name(&self) -> String {
        let link = match self.link {
            "shm" => "shared memory",
            _ => "TCP",
        };
        format!("{link}, {}", self.mode)
    }

    fn settings(&self) -> Vec<String> {
        let mode = self.mode.to_string();
        let mut settings = vec![format!("link={}", self.link), "linger=0 ms".to_string()];
        match mode.strip_prefix("auto:") {
            Some(delay) => {
                settings.push("wait=auto".to_string());
                settings.push(format!("wait_delay={delay}"));
            }
            None => settings.push(format!("wait={mode}")),
        }
        settings
    }
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let points = self.processes.iter();
        let points =
            points.map(|&processes| self.ways_of(processes).len() * (self.rates.len() + 1));
        let points = points.sum::<usize>() * self.rounds as usize;
        let seconds = points as f64 * (self.seconds + WARM_UP.as_secs_f64() + 0.5);
        format!("{points} points, about {}", lab::minutes(seconds))
    }

    fn measure(&self) -> Result<Figures, String> {
        let (mut points, mut throughput) = (Vec::new(), Vec::new());
        for round in lab::rounds(self.rounds) {
            for &processes in &self.processes {
                let ways = self.ways_of(processes);
                for &rate_per_s in &self.rates {
                    round.note(format!("{processes} processes, {}", rate(rate_per_s)));
                    for &way in round.order(&ways) {
                        let number = round.number;
                        points.push(self.measure_point(processes, way, rate_per_s, number)?);
                    }
                }
                round.note(format!("{processes} processes, as fast as possible"));
                for &way in round.order(&ways) {
                    throughput.push(self.measure_throughput(processes, way, round.number)?);
                }
            }
        }
        let disturbed = points.iter();
        let disturbed = disturbed.filter(|point| point.ran.waited > DISTURBED_MAX);
        Ok(Figures {
            target_ms: TARGET_MS,
            rounds: self.rounds,
            seconds: self.seconds,
            disturbed: disturbed.count(),
            points,
            throughput,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdicts(figures)
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    lab::conduct(&plan, &arguments.files, None)
}

/// The measured ways of a number of processes, the baseline first.
fn ways(figures: &Figures, processes: usize) -> Vec<QueryWay> {
    let own = figures.points.iter();
    let own = own.filter(|point| point.processes == processes);
    let mut ways = lab::distinct(own.map(|point| point.way));
    ways.sort_by_key(|way| way.link != "tcp");
    ways
}

/// The median CPU time of a way, in percent of a core, and the median p99 in milliseconds.
fn cost(figures: &Figures, processes: usize, way: QueryWay, rate_per_s: f64) -> Option<(f64, f64)> {
    let points = figures.points.iter();
    let points = points.filter(|point| {
        (point.processes, point.way, point.rate_per_s) == (processes, way, rate_per_s)
    });
    let points = points.collect::<Vec<_>>();
    let p99s = points.iter().filter_map(|point| point.p99_ms());
    let p99s = p99s.collect::<Vec<f64>>();
    let is_measured = !points.is_empty() && !p99s.is_empty();
    is_measured.then(|| {
        (
            median(&points, |point| point.ran.cpu()),
            median(p99s, |ms| ms),
        )
    })
}

/// The median throughput of a way.
fn rows_per_s(figures: &Figures, processes: usize, way: QueryWay) -> Option<f64> {
    let runs = figures.throughput.iter();
    let runs = runs.filter(|run| (run.processes, run.way) == (processes, way));
    let rows = runs.map(|run| run.rows_per_s).collect::<Vec<f64>>();
    (!rows.is_empty()).then(|| median(rows, |rows| rows))
}

fn verdicts(figures: &Figures) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let processes = figures.points.iter().map(|point| point.processes);
    for processes in lab::distinct(processes) {
        let rates = figures.points.iter().map(|point| point.rate_per_s);
        let mut rates = lab::distinct(rates);
        rates.sort_by(f64::total_cmp);
        let ways = ways(figures, processes);
        let Some(&plain) = ways.iter().find(|way| way.link == "tcp") else {
            continue;
        };
        let (mut ratios, mut details) = (Vec::new(), Vec::new());
        let (mut auto_ratios, mut auto_details) = (Vec::new(), Vec::new());
        for &rate_per_s in &rates {
            let cost_of = |way: QueryWay| cost(figures, processes, way, rate_per_s);
            let shared = ways.iter().filter(|way| way.link == "shm");
            let in_time = shared.filter_map(|&way| {
                let (cpu, p99_ms) = cost_of(way)?;
                (p99_ms <= figures.target_ms).then_some((way, cpu))
            });
            let in_time = in_time.collect::<Vec<_>>();
            let least =
                |one: &&(QueryWay, f64), other: &&(QueryWay, f64)| one.1.total_cmp(&other.1);
            let fixed = in_time.iter().filter(|(way, _)| !way.mode.is_auto());
            let cheapest_fixed = fixed.min_by(least);
            let cheapest = in_time.iter().min_by(least);
            let shown = rate(rate_per_s);
            if let (Some(&(way, cpu)), Some((tcp, _))) = (cheapest, cost_of(plain))
                && rate_per_s >= GOAL_RATE_MIN
            {
                ratios.push(cpu / tcp);
                details.push(format!("{shown} {cpu:.1} % ({}) / {tcp:.1} %", way.mode));
            }
            let auto = in_time.iter().find(|(way, _)| way.mode.is_auto());
            if let (Some(&(best, cpu)), Some(&(_, own))) = (cheapest_fixed, auto) {
                auto_ratios.push(own / cpu);
                auto_details.push(format!("{shown} {own:.1} % / {cpu:.1} % ({})", best.mode));
            }
        }
        let largest = |ratios: &[f64]| ratios.iter().copied().reduce(f64::max);
        verdicts.push(
            Verdict::at_most(
                format!(
                    "{processes} processes: CPU time of the cheapest mode over shared memory within \
                     {TARGET_MS} ms (p99), of TCP with interrupts, largest ratio from 10 k/s on"
                ),
                largest(&ratios),
                CPU_MAX,
            )
            .details(details.join(", ")),
        );
        verdicts.push(
            Verdict::at_most(
                format!(
                    "{processes} processes: CPU time of auto, of the cheapest fixed mode within \
                     {TARGET_MS} ms (p99), largest ratio"
                ),
                largest(&auto_ratios),
                AUTO_MAX,
            )
            .details(auto_details.join(", ")),
        );
        let others = ways.iter().filter(|way| way.link == "shm");
        let others = others.filter_map(|&way| rows_per_s(figures, processes, way));
        let ratio = rows_per_s(figures, processes, plain)
            .and_then(|tcp| Some(others.reduce(f64::max)? / tcp));
        verdicts.push(Verdict::at_least(
            format!("{processes} processes: greatest throughput over shared memory, of TCP's"),
            ratio,
            1.0,
        ));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_processes::{PlanReport, Report, SinkLatency, SinkReport};

    fn point(way: QueryWay, cpu: f64, p99_ms: f64) -> Point {
        Point {
            processes: 2,
            way,
            rate_per_s: 10_000.0,
            round: 1,
            ran: Ran {
                cpu_percent: vec![cpu / 2.0; 2],
                sleeps_per_s: 0.0,
                waited: 0.0,
                report: Report {
                    rows_in: 1,
                    rows_per_s: 1.0,
                    cpu_s: 1.0,
                    plan: PlanReport {
                        remote_links: Vec::new(),
                    },
                    sinks: vec![SinkReport {
                        table: None,
                        rows_out: 1,
                        latency_ms: SinkLatency {
                            p50: Some(p99_ms),
                            p99: Some(p99_ms),
                        },
                    }],
                },
            },
        }
    }

    #[test]
    fn only_modes_that_keep_the_target_are_compared() {
        let way = |link: &'static str, mode: &str| QueryWay {
            link,
            mode: mode.parse().unwrap(),
        };
        let figures = Figures {
            target_ms: TARGET_MS,
            rounds: 1,
            seconds: 1.0,
            points: vec![
                point(way("tcp", "interrupt"), 20.0, 1.0),
                point(way("shm", "interrupt"), 15.0, 1.0),
                point(way("shm", "sleep:1ms"), 12.0, 3.0),
                point(way("shm", "sleep:10ms"), 2.0, 20.0),
                point(way("shm", "auto:1ms"), 10.0, 3.0),
            ],
            throughput: Vec::new(),
            disturbed: 0,
        };
        let verdicts = verdicts(&figures);
        let lines = verdicts.iter().map(Verdict::line).collect::<Vec<_>>();
        assert!(
            lines[0].starts_with("met: ") && lines[0].contains("0.50"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("met: ") && lines[1].contains("0.83"),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("not measured: "), "{lines:?}");
    }

    #[test]
    fn both_queries_compile() {
        let address = "127.0.0.1:4000".parse().unwrap();
        for processes in [2, 3] {
            for text in [sql::fed(processes, address), sql::generated(processes, 10)] {
                let compiled =
                    slackwater_sql::program::compile(&text, &[], &slackwater::catalog::BuiltIn);
                let compiled = compiled.map_err(|error| error.render("query", &text));
                compiled.unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}
