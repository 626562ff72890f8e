//! The figures: medians, as a table and as JSON.

use serde::Serialize;

use super::child::Cost;
use slackwater::report::count;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Where.
    pub machine: Machine,
    /// Records in the file.
    pub rows: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Rounds.
    pub runs: u32,
    /// CPU microseconds per record of the hand-written program.
    pub limit: Spread,
    /// Each workload at each parallelism.
    pub workloads: Vec<Measured>,
    /// Fixwindow over streams of different lengths.
    pub memory: Vec<MemoryRun>,
}

/// The machine in short.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name, as it gives it.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
}

/// Median, smallest and largest of some runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// A workload at one parallelism.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// HiBench's name.
    pub workload: &'static str,
    /// Instances of each parallelisable subquery.
    pub parallelism: usize,
    /// Records per second.
    pub rows_per_s: Spread,
    /// CPU microseconds per record.
    pub cpu_us_per_row: Spread,
    /// Rows per CPU second, as a share of those of the hand-written program's run before it.
    pub limit_ratio: Spread,
    /// Largest resident size.
    pub peak_rss_bytes: Spread,
    /// Voluntary context switches.
    pub wakeups: Spread,
}

/// Peak memory of fixwindow over a stream.
#[derive(Debug, Serialize)]
pub struct MemoryRun {
    /// Records.
    pub rows: u64,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
}

impl Machine {
    /// The one that this runs on.
    pub fn this() -> Machine {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = text.lines().find(|line| line.starts_with("model name"));
        let name = named.and_then(|line| line.split_once(':'));
        Machine {
            processor: name.map_or("unknown", |(_, name)| name.trim()).to_string(),
            cores: slackwater_engine::link::allowed_cores().len(),
        }
    }
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values = values.collect::<Vec<f64>>();
        assert!(!values.is_empty(), "a spread of at least one run");
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread {
            median: low.midpoint(high),
            min: values[0],
            max: values[values.len() - 1],
        }
    }
}

impl Measured {
    /// Of the runs of one workload, each with its ratio to the run of the hand-written program
    /// before it.
    pub fn of(workload: &'static str, parallelism: usize, runs: &[(Cost, f64)]) -> Measured {
        let spread = |pick: fn(&Cost) -> f64| Spread::of(runs.iter().map(|(cost, _)| pick(cost)));
        Measured {
            workload,
            parallelism,
            rows_per_s: spread(|cost| cost.rows_per_s),
            cpu_us_per_row: spread(|cost| cost.cpu_s * 1e6 / cost.rows_in as f64),
            limit_ratio: Spread::of(runs.iter().map(|(_, ratio)| *ratio)),
            peak_rss_bytes: spread(|cost| cost.peak_rss_bytes as f64),
            wakeups: spread(|cost| cost.wakeups as f64),
        }
    }
}

impl Figures {
    /// The medians as people read them.
    pub fn table(&self) -> String {
        let mut text = format!(
            "HiBench streaming: {} records of {:.0} bytes, {} round(s), medians; {}, {} core(s)\n\n",
            count(self.rows),
            self.file_bytes as f64 / self.rows as f64,
            self.runs,
            self.machine.processor,
            self.machine.cores,
        );
        text.push_str(&format!(
            "{:<12} {:>11} {:>12} {:>10} {:>9} {:>9} {:>9}\n",
            "workload", "parallelism", "rows/s", "cpu us/row", "memory MB", "wake-ups", "of limit"
        ));
        for measured in &self.workloads {
            text.push_str(&format!(
                "{:<12} {:>11} {:>12} {:>10.4} {:>9.1} {:>9.0} {:>9.2}\n",
                measured.workload,
                measured.parallelism,
                count(measured.rows_per_s.median as u64),
                measured.cpu_us_per_row.median,
                measured.peak_rss_bytes.median / 1e6,
                measured.wakeups.median,
                measured.limit_ratio.median,
            ));
        }
        text.push_str(&format!(
            "\nlimit: fixwindow by hand, one thread, {:.4} CPU us per row ({:.4} to {:.4}). \"of \
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

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        let odd = Spread {
            median: 2.0,
            min: 1.0,
            max: 9.0,
        };
        assert_eq!(of(&[9.0, 1.0, 2.0]), odd);
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]).median, 3.0);
        assert_eq!(of(&[5.0]).median, 5.0);
    }

    #[test]
    fn the_table_names_every_workload_with_its_parallelism() {
        let cost = Cost {
            rows_in: 1_000_000,
            rows_bad: 0,
            rows_per_s: 2e6,
            cpu_s: 0.5,
            peak_rss_bytes: 64_000_000,
            wakeups: 12,
        };
        let figures = Figures {
            machine: Machine {
                processor: "a processor".to_string(),
                cores: 2,
            },
            rows: 1_000_000,
            file_bytes: 200_000_000,
            runs: 1,
            limit: Spread::of([0.07].into_iter()),
            workloads: vec![Measured::of("fixwindow", 2, &[(cost, 0.14)])],
            memory: vec![MemoryRun {
                rows: 1_000_000,
                peak_rss_bytes: 50_000_000,
            }],
        };
        let table = figures.table();
        let row = table
            .lines()
            .find(|line| line.starts_with("fixwindow"))
            .unwrap();
        let cells = row.split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            cells,
            [
                "fixwindow",
                "2",
                "2,000,000",
                "0.5000",
                "64.0",
                "12",
                "0.14"
            ]
        );
        assert!(table.contains("50.0 MB over 1,000,000 records"));
    }
}
