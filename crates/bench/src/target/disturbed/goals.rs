//! The goals under a disturbance. Pure.

use slackwater_control::latency::controller::WORSE_MAX;

use super::Measured;
use crate::lab::{Verdict, geometric_mean};
use crate::target::disturber::Disturbance;
use crate::target::setting::Setting;
use crate::target::summary::Summary;

/// The most CPU time under a disturbance, compared with the same point undisturbed.
const MORE_MAX: f64 = 1.15;

/// The most CPU time, compared with interrupts under the same disturbance.
const INTERRUPTS_MAX: f64 = 1.0;

/// The most changes between sleeping and waiting to be woken for each correction.
const CHANGES_MAX: f64 = 0.125;

/// The 99th percentile of the latency, as the receiver saw it.
pub fn p99_us(summary: &Summary) -> Option<f64> {
    summary.latency.map(|latency| latency.p99_us)
}

/// The goals under a disturbance, over all points with a latency target. Pure.
pub fn verdicts(measured: &[Measured], disturbance: Disturbance) -> Vec<Verdict> {
    let (mut quiet, mut interrupts, mut p99) = (Vec::new(), Vec::new(), Vec::new());
    let mut changes = Vec::new();
    for one in measured.iter().filter(|one| one.disturbance == disturbance) {
        let Setting::Auto { target_us } = one.summary.spec.setting else {
            continue;
        };
        let spec = one.summary.spec;
        if one.corrections > 0.0 {
            changes.push(one.mode_changes / one.corrections);
        }
        let beside = |other: &&Measured| {
            let other = other.summary.spec;
            (other.query, other.rate_per_s) == (spec.query, spec.rate_per_s)
        };
        let beside = measured.iter().filter(beside).collect::<Vec<_>>();
        let percent = one.summary.percent.median;
        let undisturbed = beside.iter().find(|other| {
            other.disturbance == Disturbance::None && other.summary.spec.setting == spec.setting
        });
        quiet.extend(undisturbed.map(|other| percent / other.summary.percent.median));
        let under = beside
            .iter()
            .filter(|other| other.disturbance == disturbance);
        let fixed = under.filter(|other| other.summary.spec.setting.is_fixed());
        let fixed = fixed.map(|other| &other.summary).collect::<Vec<&Summary>>();
        let woken = fixed
            .iter()
            .find(|other| other.spec.setting == Setting::Interrupt);
        interrupts.extend(woken.map(|other| percent / other.percent.median));
        let least = fixed
            .iter()
            .filter_map(|other| p99_us(other))
            .reduce(f64::min);
        // Within the target, a lower latency is no gain.
        let least = least.map(|least| least.max(target_us as f64 / (1.0 + WORSE_MAX)));
        p99.extend(
            p99_us(&one.summary)
                .zip(least)
                .map(|(own, least)| own / least),
        );
    }
    let worst = |ratios: &[f64]| ratios.iter().copied().reduce(f64::max);
    let details = |ratios: &[f64]| match ratios {
        [] => String::new(),
        ratios if ratios.iter().all(|&ratio| ratio > 0.0) => format!(
            "{} points, {:.2} in the geometric mean",
            ratios.len(),
            geometric_mean(ratios)
        ),
        ratios => format!("{} points", ratios.len()),
    };
    let of = |goal: &str, ratios: &[f64], most: f64| {
        let goal = format!("{goal}, disturbed: {disturbance}");
        Verdict::at_most(goal, worst(ratios), most).details(details(ratios))
    };
    vec![
        of("CPU time of auto against undisturbed", &quiet, MORE_MAX),
        of(
            "CPU time of auto against interrupts",
            &interrupts,
            INTERRUPTS_MAX,
        ),
        of(
            "p99 of auto against the lowest of a fixed setting, or the target",
            &p99,
            1.0 + WORSE_MAX,
        ),
        of(
            "changes between sleeping and waiting to be woken, for each correction",
            &changes,
            CHANGES_MAX,
        ),
    ]
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::target::query::Query;
    use crate::target::summary::tests::summary;

    pub fn measured(
        disturbance: Disturbance,
        setting: &str,
        percent: f64,
        p99_ms: f64,
    ) -> Measured {
        Measured {
            disturbance,
            summary: summary(setting, Query::Filter, 10_000, percent, p99_ms * 1e3),
            corrections: 20.0,
            mode_changes: 1.0,
            late: 0.0,
            late_by_host: 0.0,
        }
    }

    #[test]
    fn auto_is_compared_under_the_same_disturbance() {
        let five = Disturbance::Bursts(5.0);
        let all = [
            measured(Disturbance::None, "auto:20ms", 1.0, 18.0),
            measured(Disturbance::None, "interrupt", 4.0, 0.2),
            measured(five, "auto:20ms", 2.0, 33.0),
            measured(five, "interrupt", 4.0, 30.0),
            measured(five, "sleep:10ms", 1.5, 40.0),
        ];
        let ratios = verdicts(&all, five).into_iter().map(|one| one.measured);
        assert_eq!(
            ratios.collect::<Vec<_>>(),
            [Some(2.0), Some(0.5), Some(1.1), Some(0.05)]
        );
        assert!(
            verdicts(&all, Disturbance::Stops)
                .iter()
                .all(|one| one.met.is_none())
        );
        // Nothing is better than the target.
        let early = [
            measured(five, "auto:20ms", 2.0, 20.0),
            measured(five, "interrupt", 4.0, 3.0),
        ];
        assert!(verdicts(&early, five)[2].met.unwrap());
    }
}
