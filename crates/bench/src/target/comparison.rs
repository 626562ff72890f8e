//! `auto` compared with the cheapest fixed setting that meets its target, from medians to ratios. Pure.

use serde::Serialize;

use super::query::Query;
use super::setting::{Setting, duration};
use super::summary::Summary;
use crate::lab::{distinct, rate};

/// The most that `auto` may cost at a single point, as a multiple, unless the difference is within
/// [`MORE_PERCENT_MAX`].
pub const RATIO_MAX: f64 = 1.3;

/// Percent of a core that `auto` may always cost more.
pub const MORE_PERCENT_MAX: f64 = 0.2;

/// Percent of a core below which costs can't be distinguished: lower values count as this.
const PERCENT_MIN: f64 = 0.01;

/// `auto` at a target, compared with the cheapest fixed setting that meets it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The query.
    pub query: Query,
    /// Records per second.
    pub rate_per_s: u64,
    /// The target.
    pub target_us: u64,
    /// CPU time of `auto`, in percent of a core.
    pub percent: f64,
    /// Whether `auto` met the target.
    pub met: bool,
    /// The cheapest fixed setting that met the target; `None` if none did.
    pub best: Option<Setting>,
    /// CPU time of the cheapest fixed setting.
    pub best_percent: Option<f64>,
    /// CPU time of `auto` / CPU time of the cheapest fixed setting.
    pub ratio: Option<f64>,
}

impl Comparison {
    /// Whether `auto` missed a target that a fixed setting met.
    pub fn is_miss(&self) -> bool {
        self.best.is_some() && !self.met
    }

    /// Whether `auto` costs more than it may at a single point.
    pub fn is_too_much(&self) -> bool {
        let more = self.best_percent.map(|best| self.percent - best);
        self.ratio.is_some_and(|ratio| ratio > RATIO_MAX)
            && more.is_some_and(|more| more > MORE_PERCENT_MAX)
    }

    /// The point and the target as text.
    pub fn place(&self) -> String {
        format!(
            "{} {} {}",
            self.query,
            rate(self.rate_per_s as f64),
            duration(self.target_us)
        )
    }
}

/// Every `auto` with the fixed settings at its query and rate.
pub fn comparisons(summaries: &[Summary]) -> Vec<Comparison> {
    let autos = summaries.iter().filter_map(|auto| {
        let Setting::Auto { target_us } = auto.spec.setting else {
            return None;
        };
        let (query, rate_per_s) = (auto.spec.query, auto.spec.rate_per_s);
        let mut fixed = summaries.iter().filter(|summary| {
            let spec = summary.spec;
            spec.setting.is_fixed() && spec.query == query && spec.rate_per_s == rate_per_s
        });
        // Without any fixed setting there is nothing to compare with; that none meets the target is a
        // result.
        fixed.clone().next()?;
        let by_cost =
            |one: &&Summary, other: &&Summary| one.percent.median.total_cmp(&other.percent.median);
        let meeting = fixed
            .by_ref()
            .filter(|summary| summary.spec.setting.can_meet(target_us) && summary.meets(target_us));
        let best = meeting.min_by(by_cost);
        Some(Comparison {
            query,
            rate_per_s,
            target_us,
            percent: auto.percent.median,
            met: auto.meets(target_us),
            best: best.map(|best| best.spec.setting),
            best_percent: best.map(|best| best.percent.median),
            ratio: best.map(|best| ratio(auto, best)),
        })
    });
    autos.collect()
}

/// The cost of one as a multiple of the other's.
pub fn ratio(one: &Summary, other: &Summary) -> f64 {
    one.percent.median.max(PERCENT_MIN) / other.percent.median.max(PERCENT_MIN)
}

/// The targets of all summaries, in the order in which they occur.
pub fn targets_us(summaries: &[Summary]) -> Vec<u64> {
    distinct(
        summaries
            .iter()
            .filter_map(|summary| match summary.spec.setting {
                Setting::Auto { target_us } => Some(target_us),
                _ => None,
            }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::summary::tests::summary;

    fn filter(setting: &str, rate: u64, percent: f64, p99_us: f64) -> Summary {
        summary(setting, Query::Filter, rate, percent, p99_us)
    }

    #[test]
    fn auto_is_compared_with_the_cheapest_fixed_setting_that_meets_the_target() {
        let summaries = [
            filter("auto:20ms", 10_000, 1.05, 19_000.0),
            filter("poll", 10_000, 100.0, 100.0),
            filter("sleep:10ms", 10_000, 1.0, 10_500.0),
            // Cheaper, but too late; cheaper, but not the engine; cheaper, but another query.
            filter("linger", 10_000, 0.5, 100_200.0),
            filter("hand", 10_000, 0.4, 100.0),
            summary("sleep:10ms", Query::Window, 10_000, 0.1, 100.0),
        ];
        let comparisons = comparisons(&summaries);
        assert_eq!(comparisons.len(), 1);
        let only = comparisons[0];
        let sleep = Setting::Sleep { delay_us: 10_000 };
        assert_eq!((only.best, only.met), (Some(sleep), true));
        assert!((only.ratio.unwrap() - 1.05).abs() < 1e-9);
        assert!(!only.is_miss() && !only.is_too_much());
    }

    #[test]
    fn a_sleep_longer_than_the_target_does_not_meet_it() {
        let summaries = [
            summary("auto:1ms", Query::Window, 100, 1.0, 900.0),
            summary("sleep:10ms", Query::Window, 100, 0.2, 900.0),
            summary("interrupt", Query::Window, 100, 0.8, 200.0),
        ];
        assert_eq!(comparisons(&summaries)[0].best, Some(Setting::Interrupt));
    }

    #[test]
    fn too_much_is_both_a_high_ratio_and_a_high_difference() {
        let too_much = |percent, best| {
            let summaries = [
                filter("auto:20ms", 100, percent, 100.0),
                filter("interrupt", 100, best, 100.0),
            ];
            comparisons(&summaries)[0].is_too_much()
        };
        assert!(!too_much(0.30, 0.12) && too_much(0.33, 0.12));
        assert!(!too_much(12.9, 10.0) && too_much(13.1, 10.0));
        // Nearly zero is not used as a divisor.
        assert!(!too_much(0.1, 0.0));
    }
}
