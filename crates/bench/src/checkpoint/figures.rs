//! The figures: medians over rounds and kills, as JSON and for tables.

use serde::Serialize;

use super::cost::{Checkpoints, Point, Stored};
use super::kill::Kill;
use super::query::{Place, Spec};
use crate::lab::{distinct, median, spread};
use slackwater::measure::Spread;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Rows per second.
    pub rate_per_s: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point was measured in each round.
    pub seconds: f64,
    /// Medians of each point.
    pub costs: Vec<Cost>,
    /// Medians of the kills, for each number of keys.
    pub recoveries: Vec<Recovery>,
    /// Every point of every round.
    pub points: Vec<Point>,
    /// Every kill.
    pub kills: Vec<Kill>,
}

/// A point: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The point.
    #[serde(flatten)]
    pub spec: Spec,
    /// CPU time of the query's processes, in percent of a core.
    pub percent: Spread,
    /// The part of it that was used by threads that do not process rows.
    pub beside_percent: f64,
    /// CPU time of all other processes, in percent of a core.
    pub others_percent: f64,
    /// How much more than without checkpoints in the same round, in percent of that; `None` for runs
    /// without checkpoints.
    pub more_percent: Option<Spread>,
    /// How long workers were ready to run while others had their cores, in percent of the time.
    pub waited_percent: f64,
    /// Median latency of the sink's rows.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The 99th percentile of the worst round.
    pub p99_worst_ms: f64,
    /// The longest latency.
    pub max_ms: f64,
    /// Seconds in which more than one row in a hundred was later than the target.
    pub violated_s: f64,
    /// What checkpoints cost: medians of the rounds' means and maxima; `None` if none were taken.
    pub taken: Option<Taken>,
}

/// What checkpoints cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Taken {
    /// Number of stored checkpoints.
    pub stored: f64,
    /// Number of aborted checkpoints, in all rounds.
    pub aborted: u64,
    /// The longest stall of an instance.
    pub stall_max_ms: f64,
    /// Mean duration from the barrier to the manifest.
    pub duration_ms: f64,
    /// Longest duration.
    pub duration_max_ms: f64,
    /// Bytes of a base.
    pub base_bytes: f64,
    /// Bytes of an increment; 0 if the last checkpoint had none.
    pub increment_bytes: f64,
    /// Mean delay from a row's arrival to its commit, if the sink commits.
    pub commit_delay_ms: Option<f64>,
    /// Longest delay.
    pub commit_delay_max_ms: Option<f64>,
}

/// How a query with this number of keys recovered: over all kills.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recovery {
    /// Number of different keys.
    pub keys: u64,
    /// Number of kills.
    pub kills: usize,
    /// Time until the parent noticed.
    pub noticed_ms: Spread,
    /// Time until rows arrived in the sink again.
    pub back_ms: Spread,
    /// Time until everything that was due at the death was committed.
    pub caught_up_ms: Spread,
}

/// How much more CPU time a point took than the same one without checkpoints in its round, in percent of
/// that.
pub fn more_percent(points: &[Point], point: &Point) -> Option<f64> {
    let spec = Spec {
        interval_ms: None,
        ..point.spec
    };
    let mut same = points.iter();
    let without = same.find(|other| other.spec == spec && other.round == point.round)?;
    let is_known = point.spec.interval_ms.is_some() && without.percent > 0.0;
    is_known.then(|| (point.percent / without.percent - 1.0) * 100.0)
}

/// Medians of all points, in the order in which they occur first.
pub fn costs(points: &[Point]) -> Vec<Cost> {
    let specs = distinct(points.iter().map(|point| point.spec));
    specs.into_iter().map(|spec| cost(points, spec)).collect()
}

fn cost(points: &[Point], spec: Spec) -> Cost {
    let own = points.iter().filter(|point| point.spec == spec);
    let own = own.collect::<Vec<_>>();
    let figure_of = |value: &dyn Fn(&Point) -> f64| median(&own, |point| value(point));
    let more = own.iter().filter_map(|point| more_percent(points, point));
    let more = more.collect::<Vec<_>>();
    Cost {
        spec,
        percent: spread(&own, |point| point.percent),
        beside_percent: figure_of(&|point| point.beside_percent),
        others_percent: figure_of(&|point| point.others_percent),
        more_percent: (!more.is_empty()).then(|| Spread::of(more)),
        p50_ms: figure_of(&|point| point.latency_ms.p50.unwrap_or(0.0)),
        p99_ms: figure_of(&|point| point.latency_ms.p99.unwrap_or(0.0)),
        p99_worst_ms: spread(&own, |point| point.latency_ms.p99.unwrap_or(0.0)).max,
        max_ms: figure_of(&|point| point.latency_ms.max.unwrap_or(0.0)),
        waited_percent: figure_of(&|point| point.waited_percent),
        violated_s: figure_of(&|point| point.violated_s),
        taken: taken(&own),
    }
}

fn taken(points: &[&Point]) -> Option<Taken> {
    let all = points.iter().filter_map(|point| point.checkpoints);
    let all = all.collect::<Vec<Checkpoints>>();
    if all.is_empty() {
        return None;
    }
    let figure_of = |value: &dyn Fn(&Checkpoints) -> f64| median(&all, value);
    // Not every last checkpoint has an increment.
    let bytes = |value: &dyn Fn(&Stored) -> u64| {
        let bytes = points.iter().map(|point| value(&point.stored) as f64);
        median(bytes.filter(|&bytes| bytes > 0.0), |bytes| bytes)
    };
    let delays = all.iter().filter_map(|one| one.commit_delay_ms);
    let delays = delays.collect::<Vec<_>>();
    let commits = !delays.is_empty();
    Some(Taken {
        stored: figure_of(&|one| one.stored as f64),
        aborted: all.iter().map(|one| one.aborted).sum(),
        stall_max_ms: figure_of(&|one| one.stall_max_ms),
        duration_ms: figure_of(&|one| one.duration_ms.unwrap_or(0.0)),
        duration_max_ms: figure_of(&|one| one.duration_max_ms),
        base_bytes: bytes(&|stored| stored.base_bytes),
        increment_bytes: bytes(&|stored| stored.increment_bytes),
        commit_delay_ms: commits.then(|| median(&delays, |delay| delay.mean)),
        commit_delay_max_ms: commits.then(|| median(&delays, |delay| delay.max)),
    })
}

/// Medians of all kills, by number of keys.
pub fn recoveries(kills: &[Kill]) -> Vec<Recovery> {
    let mut keys = kills.iter().map(|kill| kill.keys).collect::<Vec<u64>>();
    keys.sort_unstable();
    keys.dedup();
    let recovery = |keys: u64| {
        let own = kills.iter().filter(|kill| kill.keys == keys);
        let own = own.collect::<Vec<_>>();
        let figure_of = |value: &dyn Fn(&Kill) -> f64| spread(&own, |kill| value(kill));
        Recovery {
            keys,
            kills: own.len(),
            noticed_ms: figure_of(&|kill| kill.noticed_ms),
            back_ms: figure_of(&|kill| kill.back_ms),
            caught_up_ms: figure_of(&|kill| kill.caught_up_ms),
        }
    };
    keys.into_iter().map(recovery).collect()
}

/// The point, if it was measured.
pub fn at(costs: &[Cost], keys: u64, place: Place, interval_ms: Option<u64>) -> Option<&Cost> {
    let spec = Spec {
        keys,
        place,
        interval_ms,
    };
    costs.iter().find(|cost| cost.spec == spec)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::checkpoint::cost::{Delay, Latency};

    /// A point with 100,000 keys and a folder.
    pub fn point(round: u32, interval_ms: Option<u64>, percent: f64, p99_ms: f64) -> Point {
        Point {
            spec: Spec {
                keys: 100_000,
                place: Place::Folder,
                interval_ms,
            },
            round,
            percent,
            beside_percent: 0.0,
            others_percent: 0.0,
            waited_percent: 0.0,
            latency_ms: Latency {
                p50: Some(1.0),
                p99: Some(p99_ms),
                max: Some(p99_ms * 2.0),
            },
            violated_s: 0.0,
            checkpoints: interval_ms.map(|_| Checkpoints {
                stored: 2,
                aborted: 0,
                duration_ms: Some(30.0),
                duration_max_ms: 40.0,
                stall_max_ms: 5.0,
                commit_delay_ms: Some(Delay {
                    mean: 500.0,
                    max: 1_000.0,
                }),
            }),
            stored: Stored::default(),
        }
    }

    #[test]
    fn the_cost_of_checkpoints_is_compared_within_a_round() {
        // The machine is twice as slow in the second round.
        let points = [
            point(1, None, 10.0, 9.0),
            point(1, Some(10_000), 10.5, 9.0),
            point(2, Some(10_000), 21.0, 9.0),
            point(2, None, 20.0, 9.0),
        ];
        let costs = costs(&points);
        assert_eq!(costs.len(), 2);
        assert_eq!(costs[0].more_percent, None);
        let more = costs[1].more_percent.unwrap();
        assert!((more.min - 5.0).abs() < 1e-9 && (more.max - 5.0).abs() < 1e-9);
        assert_eq!(costs[1].taken.unwrap().commit_delay_max_ms, Some(1_000.0));
    }

    #[test]
    fn kills_are_grouped_by_keys() {
        let kill = |keys, back_ms| Kill {
            keys,
            noticed_ms: 1.0,
            back_ms,
            caught_up_ms: 2_000.0,
        };
        let recoveries = recoveries(&[kill(10, 400.0), kill(100, 9.0), kill(10, 200.0)]);
        assert_eq!(recoveries.len(), 2);
        assert_eq!(recoveries[0].kills, 2);
        assert_eq!(recoveries[0].back_ms.median, 300.0);
    }
}
