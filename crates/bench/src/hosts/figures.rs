//! The figures: medians, as a table and as JSON.

use serde::Serialize;
use slackwater::measure::Spread;
use slackwater::report::count;

use super::Way;
use super::process::Used;
use super::queries::Input;
use crate::hibench::workload::Workload;
use crate::lab::{Table, Verdict, distinct, median, spread};

/// CPU time in clear and with TLS, compared with one host: the goals.
const CLEAR_GOAL: f64 = 1.05;
const TLS_GOAL: f64 = 1.35;

/// Rows per CPU second, compared with Flink excluding start-up: the goal.
const FLINK_GOAL: f64 = 8.0;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// HiBench's name.
    pub workload: &'static str,
    /// How it was run.
    pub way: Way,
    /// Records read.
    pub rows: u64,
    /// CPU time of all processes.
    pub cpu_s: f64,
    /// Their voluntary context switches.
    pub wake_ups: u64,
    /// What the worker processes don't count as theirs; missing for Flink, as are the following.
    pub beside_workers_s: Option<f64>,
    /// The part of it that is the agents'; missing on one host.
    pub agents_s: Option<f64>,
    /// Records per second.
    pub rows_per_s: Option<f64>,
    /// Rows handed to the sink.
    pub rows_out: Option<u64>,
    /// Rows that went to another process.
    pub wire_rows: Option<u64>,
    /// The bytes of their frames.
    pub wire_bytes: Option<u64>,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Number of records.
    pub rows: u64,
    /// Mean bytes of a record.
    pub row_bytes: f64,
    /// Number of rounds.
    pub runs: u32,
    /// Each query in each way.
    pub measured: Vec<Measured>,
    /// Hosts without anything to do.
    pub idle: Vec<Idle>,
    /// Every run, in the order of the rounds.
    pub all: Vec<Run>,
    /// The run over few records before each of them.
    pub starts: Vec<Run>,
}

/// A query in one way: medians over the rounds.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// HiBench's name.
    pub workload: &'static str,
    /// How it was run.
    pub way: Way,
    /// CPU time of all processes per record, in microseconds.
    pub cpu_us_per_row: Spread,
    /// The same, excluding start-up.
    pub cpu_us_per_row_excluding_start: Spread,
    /// CPU time of the run over few records.
    pub start_cpu_s: Spread,
    /// CPU time compared with one host in the same round; missing for one host.
    pub ratio: Option<Spread>,
    /// The same, excluding start-up of both.
    pub ratio_excluding_start: Option<Spread>,
    /// For Flink: its CPU time excluding start-up, compared with all of that of hosts in clear.
    pub flink_ratio: Option<Spread>,
    /// For Flink: all of its CPU time, compared with that.
    pub flink_ratio_with_start: Option<Spread>,
    /// CPU time of agents and orchestrator, in seconds.
    pub beside_workers_s: Option<f64>,
    /// CPU time of agents, in seconds.
    pub agents_s: Option<f64>,
    /// Records per second.
    pub rows_per_s: Option<Spread>,
    /// Bytes on the wire per record read.
    pub wire_bytes_per_row: Option<f64>,
    /// Rows on the wire per record read.
    pub wire_rows_per_row: Option<f64>,
    /// Voluntary context switches.
    pub wake_ups: Spread,
}

/// Hosts that have nothing to do.
#[derive(Debug, Serialize)]
pub struct Idle {
    /// How they are connected.
    pub way: Way,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of processes.
    pub processes: usize,
    /// How long they were watched.
    pub seconds: u64,
    /// Voluntary context switches of all threads.
    pub wake_ups: u64,
    /// CPU time of all threads, in milliseconds.
    pub cpu_ms: f64,
}

impl Run {
    /// A run of Flink.
    pub fn of_flink(workload: Workload, rows: u64, used: Used) -> Run {
        Run {
            workload: workload.name(),
            way: Way::Flink,
            rows,
            cpu_s: used.cpu_s,
            wake_ups: used.wake_ups,
            beside_workers_s: None,
            agents_s: None,
            rows_per_s: None,
            rows_out: None,
            wire_rows: None,
            wire_bytes: None,
        }
    }

    /// A line about its progress.
    pub fn line(&self) -> String {
        let us = self.us_per_row();
        format!("{}, {}: {us:.3} us per row", self.workload, self.way.name())
    }

    fn us_per_row(&self) -> f64 {
        self.cpu_s * 1e6 / self.rows as f64
    }
}

/// A run, and that over few records before it.
#[derive(Clone, Copy)]
struct Pair<'a> {
    run: &'a Run,
    start: &'a Run,
}

impl Pair<'_> {
    /// CPU time excluding start-up. A run that is as short as its start gives no information; a thousandth
    /// keeps ratios finite.
    fn excluding_start_s(self) -> f64 {
        (self.run.cpu_s - self.start.cpu_s).max(self.run.cpu_s / 1e3)
    }
}

/// Checks that all runs of a query gave the same number of rows.
///
/// # Errors
///
/// If one did not.
pub fn check(runs: &[Run]) -> Result<(), String> {
    for run in runs {
        let others = runs.iter().filter(|other| other.workload == run.workload);
        for other in others {
            if let (Some(one), Some(rows)) = (run.rows_out, other.rows_out)
                && one != rows
            {
                return Err(format!(
                    "{}: {one} rows in one run ({}), {rows} in another ({})",
                    run.workload,
                    run.way.name(),
                    other.way.name()
                ));
            }
        }
    }
    Ok(())
}

impl Measured {
    fn of(workload: &'static str, way: Way, pairs: &[Pair<'_>]) -> Measured {
        let of_way = |way: Way| {
            let own = pairs.iter().copied();
            let own = own.filter(move |pair| (pair.run.workload, pair.run.way) == (workload, way));
            own.collect::<Vec<Pair<'_>>>()
        };
        let own = of_way(way);
        let ratio = |other: Way, is_meant: bool, figure: fn(Pair<'_>, Pair<'_>) -> f64| {
            let other = of_way(other);
            let both = own.iter().zip(&other);
            (is_meant && !other.is_empty()).then(|| spread(both, |(&one, &two)| figure(one, two)))
        };
        let is_hosts = matches!(way, Way::Hosts | Way::HostsTls);
        let of_flink = way == Way::Flink;
        let given = |figure: fn(&Run) -> Option<f64>| {
            let figures = own.iter().filter_map(|pair| figure(pair.run));
            let figures = figures.collect::<Vec<f64>>();
            (!figures.is_empty()).then(|| spread(figures, |figure| figure))
        };
        let per_row = |figure: fn(&Run) -> Option<u64>| {
            let figures = own.iter();
            let figures =
                figures.filter_map(|pair| Some(figure(pair.run)? as f64 / pair.run.rows as f64));
            let figures = figures.collect::<Vec<f64>>();
            (!figures.is_empty()).then(|| median(figures, |figure| figure))
        };
        Measured {
            workload,
            way,
            cpu_us_per_row: spread(&own, |pair| pair.run.us_per_row()),
            cpu_us_per_row_excluding_start: spread(&own, |pair| {
                pair.excluding_start_s() * 1e6 / pair.run.rows as f64
            }),
            start_cpu_s: spread(&own, |pair| pair.start.cpu_s),
            ratio: ratio(Way::OneHost, is_hosts, |own, one| {
                own.run.cpu_s / one.run.cpu_s
            }),
            ratio_excluding_start: ratio(Way::OneHost, is_hosts, |own, one| {
                own.excluding_start_s() / one.excluding_start_s()
            }),
            flink_ratio: ratio(Way::Hosts, of_flink, |flink, hosts| {
                flink.excluding_start_s() / hosts.run.cpu_s
            }),
            flink_ratio_with_start: ratio(Way::Hosts, of_flink, |flink, hosts| {
                flink.run.cpu_s / hosts.run.cpu_s
            }),
            beside_workers_s: given(|run| run.beside_workers_s).map(|spread| spread.median),
            agents_s: given(|run| run.agents_s).map(|spread| spread.median),
            rows_per_s: given(|run| run.rows_per_s),
            wire_bytes_per_row: per_row(|run| run.wire_bytes),
            wire_rows_per_row: per_row(|run| run.wire_rows),
            wake_ups: spread(&own, |pair| pair.run.wake_ups as f64),
        }
    }

    fn cells(&self) -> Vec<String> {
        let given = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_string(), |value| format!("{value:.digits$}"))
        };
        let ratio = self.ratio.as_ref().or(self.flink_ratio.as_ref());
        let whole = self.rows_per_s.as_ref().map(|spread| spread.median as u64);
        vec![
            self.workload.to_string(),
            self.way.name().to_string(),
            format!("{:.3}", self.cpu_us_per_row.median),
            format!(
                "{:.3} to {:.3}",
                self.cpu_us_per_row.min, self.cpu_us_per_row.max
            ),
            format!("{:.3}", self.cpu_us_per_row_excluding_start.median),
            given(ratio.map(|ratio| ratio.median), 2),
            whole.map_or_else(|| "-".to_string(), count),
            given(self.wire_bytes_per_row, 1),
            given(self.wire_rows_per_row, 2),
            format!("{:.0}", self.wake_ups.median),
            given(self.beside_workers_s.map(|seconds| seconds * 1e3), 0),
            given(self.agents_s.map(|seconds| seconds * 1e3), 0),
        ]
    }
}

impl Figures {
    /// The figures of all runs, each of which has a start.
    pub fn of(
        input: &Input,
        runs: u32,
        all: Vec<Run>,
        starts: Vec<Run>,
        idle: Vec<Idle>,
    ) -> Figures {
        let pairs = all.iter().zip(&starts);
        let pairs = pairs.map(|(run, start)| Pair { run, start });
        let pairs = pairs.collect::<Vec<Pair<'_>>>();
        let cases = distinct(all.iter().map(|run| (run.workload, run.way)));
        let measured = cases.iter();
        let measured = measured.map(|&(workload, way)| Measured::of(workload, way, &pairs));
        Figures {
            rows: input.rows,
            row_bytes: input.bytes as f64 / input.rows as f64,
            runs,
            measured: measured.collect(),
            idle,
            all,
            starts,
        }
    }

    /// The medians as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Three hosts: {} records of {:.0} bytes, {} round(s), medians\n\n",
            count(self.rows),
            self.row_bytes,
            self.runs,
        );
        let own = ["query", "way", "cpu us/row", "lowest to highest"];
        let others = [
            "excluding start-up",
            "ratio",
            "rows/s",
            "wire B/row",
            "wire rows/row",
            "wake-ups",
            "beside workers ms",
            "agents ms",
        ];
        let mut table = Table::new(own.into_iter().chain(others));
        for measured in &self.measured {
            table.line(measured.cells());
        }
        text.push_str(&table.columns());
        text.push_str(
            "\nratio: CPU time compared with one-host; for flink, its CPU time excluding start-up compared \
             with all of\nthat of hosts.\n",
        );
        for idle in &self.idle {
            text.push_str(&format!(
                "idle for {} s: {}, {} processes: {} wake-ups, {:.1} ms of CPU time\n",
                idle.seconds,
                idle.way.name(),
                idle.processes,
                count(idle.wake_ups),
                idle.cpu_ms
            ));
        }
        text
    }

    /// The goals.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let ratio = |way: Way, goal: f64, what: &str| {
            let measured = self.measured.iter().filter(move |one| one.way == way);
            let what = what.to_string();
            measured.filter_map(move |one| {
                let ratio = one.ratio.as_ref()?;
                let goal = Verdict::at_most(
                    format!("{}: CPU time {what}, compared with one host", one.workload),
                    Some(ratio.median),
                    goal,
                );
                Some(goal.note(between(ratio)))
            })
        };
        let flink = self.measured.iter().filter_map(|one| {
            let ratio = one.flink_ratio.as_ref()?;
            let goal = Verdict::at_least(
                format!(
                    "{}: rows per CPU second of three hosts, compared with Flink excluding start-up",
                    one.workload
                ),
                Some(ratio.median),
                FLINK_GOAL,
            );
            let with_start = one.flink_ratio_with_start.as_ref()?.median;
            let details = format!("{with_start:.1} with Flink's start-up");
            Some(goal.note(between(ratio)).details(details))
        });
        let idle = self.idle.iter().map(|idle| {
            let what = format!("wake-ups of idle {} in {} s", idle.way.name(), idle.seconds);
            Verdict::at_most(what, Some(idle.wake_ups as f64), 0.0)
        });
        ratio(Way::Hosts, CLEAR_GOAL, "in clear")
            .chain(ratio(Way::HostsTls, TLS_GOAL, "with TLS"))
            .chain(flink)
            .chain(idle)
            .collect()
    }
}

fn between(ratio: &Spread) -> String {
    format!("{:.2} to {:.2}", ratio.min, ratio.max)
}

#[cfg(test)]
mod tests;
