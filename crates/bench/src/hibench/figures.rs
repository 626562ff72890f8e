//! The figures: medians, as a table and as JSON.

use serde::Serialize;

use slackwater::measure::Spread;
use slackwater::report::count;

use super::by_hand::Limit;
use super::workload::Workload;
use crate::lab::{Table, spread};
use crate::programs::{Cost, Parallelism};

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Number of records in the file.
    pub rows: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Number of rounds.
    pub runs: u32,
    /// CPU time per record of the hand-written program, in microseconds.
    pub limit: Spread,
    /// Each workload at each parallelism.
    pub workloads: Vec<Measured>,
    /// Fixwindow over streams of different lengths.
    pub memory: Vec<MemoryRun>,
}

/// A run of the engine, and the run of the hand-written program just before it.
#[derive(Debug)]
pub struct Run {
    /// The workload.
    pub workload: Workload,
    /// Instances of each parallelizable subquery.
    pub parallelism: Parallelism,
    /// The cost of the engine's run.
    pub cost: Cost,
    /// The cost of the hand-written program's run.
    pub limit: Limit,
}

/// A workload at one parallelism.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// HiBench's name.
    pub workload: &'static str,
    /// Instances of each parallelizable subquery.
    pub parallelism: Parallelism,
    /// Records per second.
    pub rows_per_s: Spread,
    /// CPU time per record, in microseconds.
    pub cpu_us_per_row: Spread,
    /// Rows per CPU second, as a share of those of the hand-written program in the run before.
    pub limit_ratio: Spread,
    /// Largest resident size.
    pub peak_rss_bytes: Spread,
    /// Voluntary context switches.
    pub wakeups: Spread,
}

/// Peak memory of fixwindow over a stream.
#[derive(Debug, Serialize)]
pub struct MemoryRun {
    /// Number of records.
    pub rows: u64,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
}

impl Measured {
    /// The medians of the runs of one workload at one parallelism.
    pub fn of(workload: Workload, parallelism: Parallelism, runs: &[Run]) -> Measured {
        let own = runs.iter();
        let own = own.filter(|run| (run.workload, run.parallelism) == (workload, parallelism));
        let own = own.collect::<Vec<&Run>>();
        let spread_of = |pick: fn(&Run) -> f64| spread(&own, |run| pick(run));
        Measured {
            workload: workload.name(),
            parallelism,
            rows_per_s: spread_of(|run| run.cost.rows_per_s),
            cpu_us_per_row: spread_of(|run| run.cost.cpu_s * 1e6 / run.cost.rows_in as f64),
            limit_ratio: spread_of(|run| run.limit.cpu_s / run.cost.cpu_s),
            peak_rss_bytes: spread_of(|run| run.cost.peak_rss_bytes as f64),
            wakeups: spread_of(|run| run.cost.wakeups as f64),
        }
    }
}

impl Figures {
    /// The medians as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "HiBench streaming: {} records of {:.0} bytes, {} round(s), medians\n\n",
            count(self.rows),
            self.file_bytes as f64 / self.rows as f64,
            self.runs,
        );
        let head = ["workload", "parallelism", "rows/s", "cpu us/row"];
        let mut table = Table::new(
            head.into_iter()
                .chain(["memory MB", "wake-ups", "of limit"]),
        );
        for measured in &self.workloads {
            table.line([
                measured.workload.to_string(),
                measured.parallelism.to_string(),
                count(measured.rows_per_s.median as u64),
                format!("{:.4}", measured.cpu_us_per_row.median),
                format!("{:.1}", measured.peak_rss_bytes.median / 1e6),
                format!("{:.0}", measured.wakeups.median),
                format!("{:.2}", measured.limit_ratio.median),
            ]);
        }
        text.push_str(&table.columns());
        text.push_str(&format!(
            "\nlimit: fixwindow written by hand, one thread, {:.4} CPU us per row ({:.4} to {:.4}). \"of \
             limit\" is rows per\nCPU second as a share of its; only fixwindow does the same work.\n",
            self.limit.median, self.limit.min, self.limit.max
        ));
        if !self.memory.is_empty() {
            let runs = self.memory.iter().map(|run| {
                let peak_mb = run.peak_rss_bytes as f64 / 1e6;
                format!("{peak_mb:.1} MB over {} records", count(run.rows))
            });
            let runs = runs.collect::<Vec<_>>().join(", ");
            text.push_str(&format!(
                "memory of fixwindow over a generated stream: {runs}\n"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hibench::by_hand::Checksum;

    #[test]
    fn the_table_names_every_workload_with_its_parallelism() {
        let cost = Cost {
            rows_in: 1_000_000,
            rows_bad: 0,
            rows_late: 0,
            rows_per_s: 2e6,
            wall_s: 0.5,
            cpu_s: 0.5,
            peak_rss_bytes: 64_000_000,
            wakeups: 12,
        };
        let run = Run {
            workload: Workload::FixWindow,
            parallelism: "2".parse().unwrap(),
            cost,
            limit: Limit {
                rows: 1_000_000,
                answer: Checksum {
                    result_rows: 1,
                    checksum: String::new(),
                },
                cpu_s: 0.07,
            },
        };
        let figures = Figures {
            rows: 1_000_000,
            file_bytes: 200_000_000,
            runs: 1,
            limit: spread([&run], |run| run.limit.us_per_row()),
            workloads: vec![Measured::of(Workload::FixWindow, 2.into(), &[run])],
            memory: vec![MemoryRun {
                rows: 1_000_000,
                peak_rss_bytes: 50_000_000,
            }],
        };
        let text = figures.text();
        let mut lines = text.lines();
        let row = lines.find(|line| line.starts_with("fixwindow")).unwrap();
        let cells = row.split_whitespace().collect::<Vec<_>>();
        let expected = [
            "fixwindow",
            "2",
            "2,000,000",
            "0.5000",
            "64.0",
            "12",
            "0.14",
        ];
        assert_eq!(cells, expected);
        assert!(text.contains("50.0 MB over 1,000,000 records"));
    }
}
