//! A point: medians over rounds, as JSON and for tables.

use serde::Serialize;

use super::order::{Point, Spec};
use super::query::Query;
use super::setting::Setting;
use crate::common::Latency;
use crate::lab::{median, spread};
use slackwater::measure::Spread;

/// A point: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The point.
    #[serde(flatten)]
    pub spec: Spec,
    /// CPU time of the process that runs the query, in percent of a core.
    pub percent: Spread,
    /// CPU time per record, in microseconds.
    pub us_per_record: f64,
    /// How often per second a thread of the process went to sleep.
    pub wakeups_per_s: f64,
    /// CPU time per wake-up, in microseconds: what an activation costs.
    pub us_per_wakeup: f64,
    /// The share of the time in which other processes had a core that this process needed.
    pub disturbed: f64,
    /// CPU time of all other processes except the generator, in percent of a core.
    pub others_percent: f64,
    /// Time from when the last record of a row was due to the row's receipt; `None` if there were no
    /// rows.
    pub latency: Option<Latency>,
    /// Number of rows in the interval.
    pub rows: f64,
    /// The engine's own p99, over the whole run.
    pub own_p99_us: Option<f64>,
    /// The 99th percentile of the time from when a record was due until it was sent.
    pub lag_p99_us: f64,
    /// Whether all records that were due were accepted.
    pub keeps_up: bool,
    /// Whether the receiver saw the target met; `None` for settings without a target.
    pub target_met: Option<bool>,
}

impl Summary {
    /// The medians of a point's measurements, of which there must be at least one.
    pub fn of(spec: Spec, points: &[Point]) -> Option<Summary> {
        let of_it = points.iter().filter(|point| point.spec == spec);
        let of_it = of_it.collect::<Vec<_>>();
        if of_it.is_empty() {
            return None;
        }
        let all = |pick: &dyn Fn(&Point) -> f64| median(&of_it, |point| pick(point));
        let latencies = of_it.iter().filter_map(|point| point.generated.latency);
        let latencies = latencies.collect::<Vec<Latency>>();
        let own = of_it.iter().filter_map(|point| point.own.as_ref()?.p99_us);
        let own = own.collect::<Vec<f64>>();
        let percent = spread(&of_it, |point| point.usage.percent());
        let mut summary = Summary {
            spec,
            percent,
            // One percent of a core is 10 ms in a second.
            us_per_record: percent.median * 1e4 / spec.rate_per_s as f64,
            wakeups_per_s: all(&|point| point.usage.voluntary_switches as f64 / point.usage.wall_s),
            us_per_wakeup: all(&|point| {
                point.usage.cpu_s * 1e6 / (point.usage.voluntary_switches as f64).max(1.0)
            }),
            disturbed: all(&|point| point.usage.disturbed()),
            others_percent: all(&|point| point.others_percent),
            latency: (!latencies.is_empty()).then(|| Latency::medians(&latencies)),
            rows: all(&|point| point.generated.rows as f64),
            own_p99_us: (!own.is_empty()).then(|| median(&own, |&p99_us| p99_us)),
            lag_p99_us: all(&|point| point.generated.lag.p99_us),
            keeps_up: of_it.iter().all(|point| point.generated.sent.unsent == 0),
            target_met: None,
        };
        if let Setting::Auto { target_us } = spec.setting {
            summary.target_met = Some(summary.meets(target_us));
        }
        Some(summary)
    }

    /// Whether the p99 is within a target.
    pub fn meets(&self, target_us: u64) -> bool {
        let met = |latency: Latency| latency.p99_us <= target_us as f64;
        self.keeps_up && self.latency.is_some_and(met)
    }
}

/// The summary of a point.
pub fn at(
    summaries: &[Summary],
    setting: Setting,
    query: Query,
    rate_per_s: u64,
) -> Option<&Summary> {
    let spec = Spec {
        setting,
        query,
        rate_per_s,
    };
    summaries.iter().find(|summary| summary.spec == spec)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::common::Usage;
    use crate::target::order::{Generated, Own, Received, Sent};

    /// A point of 10,000 records a second over two seconds.
    pub fn point(setting: &str, round: u32, cpu_s: f64, p99_us: Option<f64>) -> Point {
        let latency = p99_us.map(|p99_us| Latency {
            p99_us,
            ..Latency::default()
        });
        let setting = setting.parse().unwrap();
        Point {
            spec: Spec {
                setting,
                query: Query::Filter,
                rate_per_s: 10_000,
            },
            round,
            usage: Usage {
                cpu_s,
                wall_s: 2.0,
                voluntary_switches: 200,
                waited_s: 0.0,
            },
            others_percent: 1.0,
            generated: Generated {
                sent: Sent {
                    records: 20_000,
                    unsent: 0,
                    kept: 10_000,
                    kept_stamps: 0,
                },
                received: Received::default(),
                rows: 10_000,
                latency,
                lag: Latency::default(),
                reads: 0,
            },
            own: (setting != Setting::Hand).then(|| Own {
                p99_us: p99_us.map(|p99_us| p99_us - 100.0),
                p50_us: None,
                target_met: Some(true),
                plan: serde_json::Value::Null,
                said: String::new(),
            }),
        }
    }

    /// A summary of one round.
    pub fn summary(setting: &str, query: Query, rate: u64, percent: f64, p99_us: f64) -> Summary {
        let mut point = point(setting, 0, percent / 50.0, Some(p99_us));
        point.spec.query = query;
        point.spec.rate_per_s = rate;
        Summary::of(point.spec, &[point.clone()]).unwrap()
    }

    #[test]
    fn other_processes_disturb() {
        let mut point = point("poll", 0, 1.0, None);
        assert!(!point.is_disturbed());
        point.usage.waited_s = 0.021;
        assert!(point.is_disturbed());
        point.usage.waited_s = 0.0;
        point.others_percent = 30.0;
        assert!((point.disturbance() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_summary_is_the_median_and_judged_by_what_was_received() {
        let mut points = Vec::new();
        for (round, (cpu_s, p99_us)) in [(0.02, 21_000.0), (0.03, 19_000.0), (0.9, 18_000.0)]
            .into_iter()
            .enumerate()
        {
            points.push(point("auto:20ms", round as u32, cpu_s, Some(p99_us)));
            points.push(point("hand", round as u32, cpu_s, None));
        }
        let summary = Summary::of(points[0].spec, &points).unwrap();
        assert!((summary.percent.median - 1.5).abs() < 1e-9);
        assert!((summary.us_per_record - 1.5).abs() < 1e-9);
        assert_eq!(summary.wakeups_per_s, 100.0);
        assert!((summary.us_per_wakeup - 150.0).abs() < 1e-9);
        assert_eq!(summary.own_p99_us, Some(18_900.0));
        assert_eq!(summary.target_met, Some(true));
        assert!(!summary.meets(18_999));
        // Without rows no target was met, and without a target there is nothing to meet.
        let hand = Summary::of(points[1].spec, &points).unwrap();
        assert_eq!(
            (hand.target_met, hand.latency, hand.own_p99_us),
            (None, None, None)
        );
        assert!(!hand.meets(1_000_000));
        // Nor is it met if records were left.
        points[4].generated.sent.unsent = 1;
        let behind = Summary::of(points[0].spec, &points).unwrap();
        assert_eq!((behind.keeps_up, behind.target_met), (false, Some(false)));
    }
}
