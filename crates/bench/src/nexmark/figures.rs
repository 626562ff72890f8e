//! The figures: medians, as a table and as JSON.

use serde::Serialize;

use slackwater::measure::Spread;
use slackwater::report::count;

use super::flink::FlinkCost;
use super::queries::{Input, Query};
use crate::lab::{Table, Verdict, geometric_mean, spread};
use crate::programs::{Cost, Parallelism};

/// Feldera's published events per second and core: 16 workers, the same kind of file, another machine.
const FELDERA: [(&str, f64); 5] = [
    ("q0", 436e3),
    ("q4", 265e3),
    ("q5", 412e3),
    ("q7", 196e3),
    ("q8", 415e3),
];

/// The required ratio of events per CPU second to Flink's: the geometric mean, and the minimum.
const GOAL: (f64, f64) = (10.0, 7.0);

/// The runs of one query over one input at one parallelism.
pub struct Series {
    /// The query.
    pub query: &'static Query,
    /// Where its events come from.
    pub input: Input,
    /// Instances of each parallelizable subquery.
    pub parallelism: Parallelism,
    /// Whether Flink runs the query, too.
    pub with_flink: bool,
    /// The engine's runs, one per round.
    pub runs: Vec<Cost>,
    /// Flink's runs, one per round; empty if it does not run the query.
    pub flink_runs: Vec<FlinkCost>,
}

impl Series {
    /// A series without runs.
    pub fn new(
        query: &'static Query,
        input: Input,
        parallelism: Parallelism,
        with_flink: bool,
    ) -> Series {
        Series {
            query,
            input,
            parallelism,
            with_flink,
            runs: Vec::new(),
            flink_runs: Vec::new(),
        }
    }
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Number of events of each run.
    pub events: u64,
    /// Mean size of an event as JSON, in bytes.
    pub event_bytes: f64,
    /// Number of rounds.
    pub runs: u32,
    /// Flink's start-up.
    pub flink_starts: Vec<FlinkStart>,
    /// Each query over each input at each parallelism.
    pub queries: Vec<Measured>,
    /// What all cores bring.
    pub scaling: Vec<Scaling>,
}

/// A query over a file at parallelism `auto`, compared with one core.
#[derive(Debug, Serialize)]
pub struct Scaling {
    /// The query's name.
    pub query: &'static str,
    /// Where its events come from.
    pub input: Input,
    /// How many times as fast it is, in neighboring runs.
    pub speed: Spread,
    /// How much CPU time it takes.
    pub cpu: Spread,
}

/// The goals: the geometric mean of the speed, its minimum, and CPU time.
const SCALING_GOAL: (f64, f64, f64) = (1.8, 1.4, 1.15);

/// Each query that was run at both.
fn scaling(all: &[Series]) -> Vec<Scaling> {
    let of = |parallelism| {
        all.iter()
            .filter(move |one: &&Series| one.parallelism == parallelism)
    };
    let pairs = of(Parallelism::Auto).filter_map(|auto| {
        let is_its = |one: &&Series| one.query.name == auto.query.name && one.input == auto.input;
        let one = of(Parallelism::ONE).find(is_its)?;
        let pairs = || one.runs.iter().zip(&auto.runs);
        Some(Scaling {
            query: auto.query.name,
            input: auto.input,
            speed: spread(pairs(), |(one, auto)| one.wall_s / auto.wall_s),
            cpu: spread(pairs(), |(one, auto)| auto.cpu_s / one.cpu_s),
        })
    });
    pairs.collect()
}

/// The cost of starting Flink at a parallelism: that of a run over few events.
#[derive(Debug, Clone, Serialize)]
pub struct FlinkStart {
    /// Instances of each operator.
    pub parallelism: usize,
    /// CPU time of the process.
    pub cpu_s: Spread,
    /// From the start of the JVM to its end.
    pub wall_s: Spread,
}

impl FlinkStart {
    /// The medians of at least one run.
    pub fn of(parallelism: usize, costs: &[FlinkCost]) -> FlinkStart {
        FlinkStart {
            parallelism,
            cpu_s: spread(costs, |cost| cost.cpu_s),
            wall_s: spread(costs, |cost| cost.wall_s),
        }
    }
}

/// A query over an input at a parallelism.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The query's name, such as `q0`.
    pub query: &'static str,
    /// Where its events come from.
    pub input: Input,
    /// Instances of each parallelizable subquery.
    pub parallelism: Parallelism,
    /// Events per second.
    pub events_per_s: Spread,
    /// Events per second of CPU time.
    pub events_per_cpu_s: Spread,
    /// CPU time in seconds.
    pub cpu_s: Spread,
    /// Largest resident size.
    pub peak_rss_bytes: Spread,
    /// Flink's figures for the same.
    pub flink: Option<MeasuredFlink>,
}

/// Flink on the same query and file.
#[derive(Debug, Serialize)]
pub struct MeasuredFlink {
    /// Events per second of CPU time of the whole process.
    pub events_per_cpu_s: Spread,
    /// Events per second of CPU time, excluding start-up.
    pub events_per_cpu_s_behind_start: Spread,
    /// CPU time of the whole process.
    pub cpu_s: Spread,
    /// The engine's events per CPU second divided by those of Flink excluding start-up, in neighboring
    /// runs.
    pub ratio: Spread,
    /// The same ratio for whole processes.
    pub ratio_with_start: Spread,
}

impl Measured {
    fn of(series: &Series, events: u64, starts: &[FlinkStart]) -> Measured {
        let events = events as f64;
        let spread = |pick: &dyn Fn(&Cost) -> f64| spread(&series.runs, pick);
        Measured {
            query: series.query.name,
            input: series.input,
            parallelism: series.parallelism,
            events_per_s: spread(&|cost| events / cost.wall_s),
            events_per_cpu_s: spread(&|cost| events / cost.cpu_s),
            cpu_s: spread(&|cost| cost.cpu_s),
            peak_rss_bytes: spread(&|cost| cost.peak_rss_bytes as f64),
            flink: MeasuredFlink::of(series, events, starts),
        }
    }
}

impl MeasuredFlink {
    fn of(series: &Series, events: f64, starts: &[FlinkStart]) -> Option<MeasuredFlink> {
        if series.flink_runs.is_empty() {
            return None;
        }
        let start = starts
            .iter()
            .find(|start| Some(start.parallelism) == series.parallelism.number());
        let start_s = start.map_or(0.0, |start| start.cpu_s.median);
        // A run that is shorter than the start-up gives no information; a thousandth keeps the figure
        // finite.
        let behind_start = |cost: &FlinkCost| (cost.cpu_s - start_s).max(cost.cpu_s / 1e3);
        let spread_of = |pick: &dyn Fn(&FlinkCost) -> f64| spread(&series.flink_runs, pick);
        let ratio = |pick: &dyn Fn(&FlinkCost) -> f64| {
            let pairs = series.runs.iter().zip(&series.flink_runs);
            spread(pairs, |(cost, flink)| pick(flink) / cost.cpu_s)
        };
        Some(MeasuredFlink {
            events_per_cpu_s: spread_of(&|cost| events / cost.cpu_s),
            events_per_cpu_s_behind_start: spread_of(&|cost| events / behind_start(cost)),
            cpu_s: spread_of(&|cost| cost.cpu_s),
            ratio: ratio(&behind_start),
            ratio_with_start: ratio(&|cost| cost.cpu_s),
        })
    }
}

impl Figures {
    /// The figures of all series, each of which has been run.
    pub fn of(
        events: u64,
        bytes: u64,
        runs: u32,
        all: &[Series],
        flink_starts: Vec<FlinkStart>,
    ) -> Figures {
        let queries = all
            .iter()
            .map(|series| Measured::of(series, events, &flink_starts));
        Figures {
            events,
            event_bytes: bytes as f64 / events as f64,
            runs,
            queries: queries.collect(),
            scaling: scaling(all),
            flink_starts,
        }
    }

    /// The medians as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Nexmark: {} events, {:.0} bytes each as JSON, {} round(s), medians\n\n",
            count(self.events),
            self.event_bytes,
            self.runs,
        );
        let own = [
            "query",
            "input",
            "parallelism",
            "events/s",
            "events/CPU s",
            "CPU s",
            "cores",
        ];
        let others = [
            "memory MB",
            "Flink, ev/CPU s",
            "excluding start-up",
            "ratio",
        ];
        let mut table = Table::new(own.into_iter().chain(others));
        for measured in &self.queries {
            table.line(measured.cells());
        }
        text.push_str(&table.columns());
        for start in &self.flink_starts {
            text.push_str(&format!(
                "\nFlink's start-up at parallelism {} takes {:.1} s of CPU time, {:.1} s in all.\n",
                start.parallelism, start.cpu_s.median, start.wall_s.median
            ));
        }
        text.push_str(&self.beside_feldera());
        if !self.scaling.is_empty() {
            let mut table = Table::new([
                "auto and 1",
                "input",
                "speed",
                "lowest",
                "highest",
                "CPU time",
            ]);
            for Scaling {
                query,
                input,
                speed,
                cpu,
            } in &self.scaling
            {
                let speed = [speed.median, speed.min, speed.max].map(|speed| format!("{speed:.2}"));
                let [median, min, max] = speed;
                let cpu = format!("{:.2}", cpu.median);
                table.line([
                    query.to_string(),
                    input.name().to_string(),
                    median,
                    min,
                    max,
                    cpu,
                ]);
            }
            text.push('\n');
            text.push_str(&table.columns());
        }
        text
    }

    /// What all cores have to bring for JSON.
    fn scaling_verdicts(&self) -> Vec<Verdict> {
        let json = self
            .scaling
            .iter()
            .filter(|scaling| scaling.input == Input::Json);
        let speeds = json
            .clone()
            .map(|scaling| scaling.speed.median)
            .collect::<Vec<f64>>();
        let slowest = json
            .clone()
            .min_by(|a, b| a.speed.median.total_cmp(&b.speed.median));
        let Some(slowest) = slowest else {
            return Vec::new();
        };
        let costs = json.map(|scaling| scaling.cpu.median).collect::<Vec<f64>>();
        let (mean, least, cost) = SCALING_GOAL;
        let what = "parallelism auto, compared with 1";
        vec![
            Verdict::at_least(
                format!("{what}: speed, geometric mean"),
                Some(geometric_mean(&speeds)),
                mean,
            ),
            Verdict::at_least(
                format!("{what}: speed, minimum"),
                Some(slowest.speed.median),
                least,
            )
            .details(slowest.query.to_string()),
            Verdict::at_most(
                format!("{what}: CPU time, geometric mean"),
                Some(geometric_mean(&costs)),
                cost,
            ),
        ]
    }

    /// The goals, where Flink was measured.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let with_flink = self
            .queries
            .iter()
            .filter_map(|measured| Some((measured, measured.flink.as_ref()?.ratio.median)));
        let with_flink = with_flink.collect::<Vec<_>>();
        let least = with_flink
            .iter()
            .min_by(|one, other| one.1.total_cmp(&other.1));
        let scaling = self.scaling_verdicts();
        let Some((query, least)) = least else {
            return scaling;
        };
        let ratios = with_flink.iter().map(|(_, ratio)| *ratio);
        let mean = geometric_mean(&ratios.collect::<Vec<f64>>());
        let goal = "events per CPU second, compared with Flink excluding start-up";
        let place = format!("{} at parallelism {}", query.query, query.parallelism);
        let goals = [
            Verdict::at_least(format!("{goal}, geometric mean"), Some(mean), GOAL.0),
            Verdict::at_least(format!("{goal}, minimum"), Some(*least), GOAL.1).details(place),
        ];
        goals.into_iter().chain(scaling).collect()
    }

    fn beside_feldera(&self) -> String {
        let mut parts = Vec::new();
        for (name, published) in FELDERA {
            let json =
                |measured: &&Measured| measured.query == name && measured.input == Input::Json;
            let one = self
                .queries
                .iter()
                .filter(json)
                .min_by_key(|measured| measured.parallelism);
            let Some(one) = one else { continue };
            let ours = one.events_per_cpu_s.median;
            parts.push(format!(
                "{name} {:.1} ({} k)",
                ours / published,
                (published / 1e3) as u64
            ));
        }
        if parts.is_empty() {
            return String::new();
        }
        let parts = parts.join(", ");
        format!("per core, as a multiple of what Feldera publishes (measured elsewhere): {parts}\n")
    }
}

impl Measured {
    fn cells(&self) -> Vec<String> {
        let cores = self.events_per_s.median / self.events_per_cpu_s.median;
        let mut cells = vec![
            self.query.to_string(),
            self.input.name().to_string(),
            self.parallelism.to_string(),
            count(self.events_per_s.median as u64),
            count(self.events_per_cpu_s.median as u64),
            format!("{:.2}", self.cpu_s.median),
            format!("{cores:.2}"),
            format!("{:.1}", self.peak_rss_bytes.median / 1e6),
        ];
        if let Some(flink) = &self.flink {
            cells.extend([
                count(flink.events_per_cpu_s.median as u64),
                count(flink.events_per_cpu_s_behind_start.median as u64),
                format!("{:.1}", flink.ratio.median),
            ]);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::super::queries::QUERIES;
    use super::*;

    #[test]
    fn flink_is_compared_excluding_start_up() {
        let cost = Cost {
            rows_in: 1_000_000,
            rows_bad: 0,
            rows_late: 0,
            rows_per_s: 1e6,
            wakeups: 9,
            wall_s: 1.0,
            cpu_s: 0.5,
            peak_rss_bytes: 64_000_000,
        };
        let mut series = Series::new(&QUERIES[0], Input::Json, "2".parse().unwrap(), true);
        series.runs.push(cost);
        series.flink_runs.push(FlinkCost {
            wall_s: 9.0,
            cpu_s: 13.0,
        });
        let start = FlinkStart::of(
            2,
            &[FlinkCost {
                wall_s: 5.0,
                cpu_s: 8.0,
            }],
        );
        let figures = Figures::of(1_000_000, 332_000_000, 1, &[series], vec![start]);
        let flink = figures.queries[0].flink.as_ref().unwrap();
        assert_eq!(
            (flink.ratio.median, flink.ratio_with_start.median),
            (10.0, 26.0)
        );
        let goals = figures.verdicts();
        let goals = goals.iter().map(Verdict::line).collect::<String>();
        let text = figures.text() + &goals;
        for part in [
            "332 bytes",
            "200,000",
            "geometric mean: 10, at least 10",
            "q0 4.6 (436 k)",
            "8.0 s of CPU",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
