//! How latency targets were met.

use serde::Serialize;
use slackwater_control::latency::lateness::Late;

/// How a query was tuned for its latency target.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TuningReport {
    /// How long the sources' workers could sleep at the start, as planned; 0 means interrupts.
    pub delay_first_ms: f64,
    /// How long they could sleep at the end.
    pub delay_ms: f64,
    /// Whether workers choose how to wait by these delays; they do not if `wait` is set.
    #[serde(skip)]
    pub chooses_wait: bool,
    /// The most rows per chunk at the end.
    pub chunk_rows: usize,
    /// The number of corrections.
    pub corrections: u64,
    /// The number of corrections that changed something.
    pub changes: u64,
    /// The number of moves of instances to another worker.
    pub moves: u64,
    /// The largest number of workers in use at once.
    pub workers_used_max: usize,
    /// The CPU time of the workers in % of a core, predicted by the model with measured costs.
    pub predicted_cpu_percent: Option<f64>,
    /// The same as measured, without idle time.
    pub measured_cpu_percent: Option<f64>,
    /// The predicted 99th percentile of the latency.
    pub predicted_p99_ms: Option<f64>,
    /// What made rows later than their target; `null` if none was.
    pub lateness: Option<LatenessReport>,
    /// The share of the time in which the host kept workers from running that waited to be woken, in percent;
    /// `null` if they never did. Rows that arrived then were late by that, which no latency here contains:
    /// they count from the end of a wait.
    pub unseen_percent: Option<f64>,
}

impl TuningReport {
    /// The share of [`TuningReport::unseen_percent`].
    pub fn unseen_percent(late: &Late) -> Option<f64> {
        (late.woken_ns > 0).then(|| late.unseen_ns as f64 / late.woken_ns as f64 * 100.0)
    }

    /// The line of the summary about it, if it is worth mentioning.
    pub fn unseen(&self) -> Option<String> {
        let percent = self.unseen_percent?;
        (percent >= UNSEEN_MIN).then(|| {
            format!(
                "kept the workers waiting for a core {percent:.0} % of the time; rows that arrived then were \
                 later than the latency says"
            )
        })
    }
}

/// A smaller share leaves p99 as it is, in percent.
const UNSEEN_MIN: f64 = 1.0;

/// What made rows later than their target. Shares are of the time of the intervals in which rows were late
/// (of 0.1 to 0.5 s), in percent.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LatenessReport {
    /// Rows that left later than their target.
    pub rows: u64,
    /// Those of them that would have been in time without what the host took from the workers.
    pub rows_by_host: u64,
    /// Time in which the hypervisor ran other machines.
    pub stolen_percent: f64,
    /// Time in which a worker was ready to run and another thread had its core.
    pub queued_percent: f64,
    /// Time by which sleeps exceeded what was asked for, without the usual oversleep; includes waiting for
    /// the core at their end.
    pub overslept_percent: f64,
}

/// Smaller shares are not mentioned, in percent.
const MENTIONED_MIN: f64 = 0.5;

impl LatenessReport {
    /// The report of late rows; `None` if none was late.
    pub fn of(late: &Late) -> Option<LatenessReport> {
        let percent = |ns: u64| ns as f64 / late.interval_ns.max(1) as f64 * 100.0;
        (late.rows > 0).then(|| LatenessReport {
            rows: late.rows,
            rows_by_host: late.by_host,
            stolen_percent: percent(late.lost.stolen_ns),
            queued_percent: percent(late.lost.queued_ns),
            overslept_percent: percent(late.lost.overslept_ns),
        })
    }

    /// How the host made rows late, such as `steal 4 %, waiting for a core 6 %`.
    pub fn how(&self) -> String {
        let shares = [
            ("steal", self.stolen_percent),
            ("waiting for a core", self.queued_percent),
            ("oversleep", self.overslept_percent),
        ];
        let shares = shares.into_iter();
        let shares = shares.filter(|(_, percent)| *percent >= MENTIONED_MIN);
        let shares = shares.map(|(name, percent)| format!("{name} {percent:.0} %"));
        shares.collect::<Vec<String>>().join(", ")
    }

    /// The line of the summary.
    pub fn line(&self) -> String {
        let rows = super::count(self.rows);
        let how = self.how();
        match (self.rows_by_host * 2 > self.rows, how.as_str()) {
            (true, "") => format!("{rows} rows over the target, most of them by the host"),
            (true, how) => {
                format!("{rows} rows over the target, most of them by the host: {how}")
            }
            (false, "") => {
                format!("{rows} rows over the target, by the query's own work or its peers")
            }
            (false, how) => {
                format!(
                    "{rows} rows over the target, most of them by the query's own work or its \
                     peers; host: {how}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slackwater_control::latency::lateness::Lost;

    use super::*;

    #[test]
    fn what_latencies_leave_out_is_said() {
        let mut late = Late::default();
        assert_eq!(TuningReport::unseen_percent(&late), None);
        let lost = Lost {
            queued_ns: 40_000_000,
            ..Lost::default()
        };
        late.add_unseen(&lost, 1_000_000_000);
        let mut report = TuningReport {
            unseen_percent: TuningReport::unseen_percent(&late),
            ..TuningReport::default()
        };
        assert!(report.unseen().unwrap().contains("a core 4 % of the time"));
        report.unseen_percent = Some(0.4);
        assert_eq!(report.unseen(), None);
    }

    #[test]
    fn the_host_is_blamed_for_what_it_took() {
        let lost = Lost {
            overslept_ns: 4_000_000,
            longest_ns: 4_000_000,
            queued_ns: 60_000_000,
            stolen_ns: 40_000_000,
        };
        let mut late = Late::default();
        assert!(LatenessReport::of(&late).is_none());
        late.add(1_200, 1_100, &lost, 1_000_000_000);
        let report = LatenessReport::of(&late).unwrap();
        let line = "1,200 rows over the target, most of them by the host: steal 4 %, waiting for a core 6 %";
        assert_eq!(report.line(), line);
        late.add(9_000, 0, &lost, 1_000_000_000);
        let report = LatenessReport::of(&late).unwrap();
        assert!(
            report
                .line()
                .contains("own work or its peers; host: steal 4 %")
        );
    }
}
