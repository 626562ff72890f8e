//! The figures, as medians, goals and text. Pure.

use serde::Serialize;

use super::cost::Point;
use super::plan::{Case, Heir, Way};
use super::takeover::TakeOver;
use crate::lab::{Table, Verdict, distinct, median, rate, spread};

/// The most time from notice to rows.
const BACK_MS_MAX: f64 = 100.0;

/// The most CPU time of threads beside workers, with a standby, in percent of a core.
const BESIDE_PERCENT_MAX: f64 = 2.0;

/// The most CPU time that a standby may add to that of a run without checkpoints, in percent of it.
const MORE_PERCENT_MAX: f64 = 5.0;

/// The most CPU time of the standby, as a share of the active's.
const SHARE_MAX: f64 = 0.35;

/// All measurements.
#[derive(Default, Serialize)]
pub struct Figures {
    /// Rows per second.
    pub rate_per_s: u64,
    /// How often checkpoints are taken.
    pub interval_ms: u64,
    /// How long each point was measured.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// Costs.
    pub points: Vec<Point>,
    /// Take-overs.
    pub takeovers: Vec<TakeOver>,
}

impl Figures {
    fn of(&self, case: Case, way: Way) -> Vec<&Point> {
        let points = self.points.iter();
        points
            .filter(|point| (point.case, point.way) == (case, way))
            .collect()
    }

    /// A figure of each round with a standby, and of its run without checkpoints.
    fn pairs(&self, case: Case, figure: impl Fn(&Point, &Point) -> f64) -> Vec<f64> {
        let pairs = self.of(case, Way::Standby).into_iter();
        let pairs = pairs.zip(self.of(case, Way::None));
        pairs.map(|(with, without)| figure(with, without)).collect()
    }

    /// The goals.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for keys in distinct(self.takeovers.iter().map(|takeover| takeover.keys)) {
            for heir in [Heir::Standby, Heir::SlowStorage] {
                let of_heir = self.takeovers.iter();
                let of_heir = of_heir.filter(|found| (found.keys, found.heir) == (keys, heir));
                let back = of_heir
                    .map(|takeover| takeover.back_ms)
                    .collect::<Vec<f64>>();
                let found = (!back.is_empty()).then(|| median(&back, |&ms| ms));
                let goal = format!("rows again after notice, {keys} keys, {}, ms", heir.name());
                verdicts.push(Verdict::at_most(goal, found, BACK_MS_MAX));
            }
        }
        for case in distinct(self.points.iter().map(|point| point.case)) {
            let name = case.name();
            let with = self.of(case, Way::Standby);
            let beside = median(&with, |point| point.beside_percent);
            let goal = format!("threads beside workers, {name}, % of a core");
            verdicts.push(Verdict::at_most(goal, Some(beside), BESIDE_PERCENT_MAX));
            let more =
                |with: &Point, without: &Point| (with.percent / without.percent - 1.0) * 100.0;
            let more = median(&self.pairs(case, more), |&percent| percent);
            let goal = format!("more CPU time of the active than without checkpoints, {name}, %");
            verdicts.push(Verdict::at_most(goal, Some(more), MORE_PERCENT_MAX));
            let share = median(&with, |point| {
                point.standby_percent.unwrap_or(0.0) / point.percent
            });
            let goal = format!("the standby's CPU time as a share of the active's, {name}");
            verdicts.push(Verdict::at_most(goal, Some(share), SHARE_MAX));
        }
        verdicts
    }

    /// The tables.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} rows, a checkpoint every {} ms, {} round(s) of {} s: medians (least to most)\n",
            rate(self.rate_per_s as f64),
            self.interval_ms,
            self.rounds,
            self.seconds
        );
        if !self.points.is_empty() {
            text.push_str("\nCPU time in % of a core\n\n");
            text.push_str(&self.costs().markdown());
        }
        if !self.takeovers.is_empty() {
            text.push_str("\nFrom kill -9 of the active, in ms\n\n");
            text.push_str(&self.times().markdown());
        }
        text
    }

    fn costs(&self) -> Table {
        let mut table = Table::new([
            "sums of",
            "with",
            "the run",
            "of that beside workers",
            "more than without",
            "the standby",
        ]);
        for case in distinct(self.points.iter().map(|point| point.case)) {
            let without = self.of(case, Way::None);
            for way in [Way::None, Way::Own, Way::Standby] {
                let points = self.of(case, way);
                if points.is_empty() {
                    continue;
                }
                let more = points.iter().zip(&without);
                let more = more
                    .map(|(point, without)| (point.percent / without.percent - 1.0) * 100.0)
                    .collect::<Vec<f64>>();
                let standby = points.iter().filter_map(|point| point.standby_percent);
                let standby = standby.collect::<Vec<f64>>();
                table.line([
                    case.name(),
                    way.name().to_string(),
                    of_all(
                        &points
                            .iter()
                            .map(|point| point.percent)
                            .collect::<Vec<f64>>(),
                    ),
                    of_all(
                        &points
                            .iter()
                            .map(|point| point.beside_percent)
                            .collect::<Vec<f64>>(),
                    ),
                    if way == Way::None {
                        "–".to_string()
                    } else {
                        of_all(&more) + " %"
                    },
                    if standby.is_empty() {
                        "–".to_string()
                    } else {
                        of_all(&standby)
                    },
                ]);
            }
        }
        table
    }

    fn times(&self) -> Table {
        let mut table = Table::new(["keys", "the query is", "noticed", "rows after that"]);
        for (keys, heir) in distinct(self.takeovers.iter().map(|found| (found.keys, found.heir))) {
            let found = self.takeovers.iter();
            let found = found.filter(|found| (found.keys, found.heir) == (keys, heir));
            let found = found.collect::<Vec<&TakeOver>>();
            let times = |figure: fn(&TakeOver) -> f64| {
                of_all(
                    &found
                        .iter()
                        .map(|found| figure(found))
                        .collect::<Vec<f64>>(),
                )
            };
            table.line([
                keys.to_string(),
                heir.name().to_string(),
                times(|found| found.noticed_ms),
                times(|found| found.back_ms),
            ]);
        }
        table
    }
}

fn of_all(values: &[f64]) -> String {
    let all = spread(values, |&value| value);
    format!("{:.1} ({:.1} to {:.1})", all.median, all.min, all.max)
}
